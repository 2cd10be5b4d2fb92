"""A stand-in gateway on loopback: speaks both `wecomapi` dialects and fails on request.

It knows the wire format by itself and borrows nothing from `batches.gateways`, so that a mistake
made there is not mirrored here.
"""
