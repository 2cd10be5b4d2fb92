"""Rate gates shared by all lanes and machines, kept in Redis. docs/pacing.md explains them."""
