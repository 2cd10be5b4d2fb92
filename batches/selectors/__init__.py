"""Reads for screens and reports; nothing here writes."""
