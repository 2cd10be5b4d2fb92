"""How dates and numbers are written, per language."""
