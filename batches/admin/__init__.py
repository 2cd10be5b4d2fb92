"""The operator console: Django's admin with screens of its own."""
