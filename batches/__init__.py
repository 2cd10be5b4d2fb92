"""The batch console: jobs, shards, items, calls."""
