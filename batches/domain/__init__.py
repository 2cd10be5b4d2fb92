"""Pure rules of the batch console: no Django, no Redis, no SQL."""
