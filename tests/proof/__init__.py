"""Proofs: the real store against a model of what it may do."""
