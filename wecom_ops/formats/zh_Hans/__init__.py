"""Chinese formats."""
