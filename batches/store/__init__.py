"""The only writer of state."""
