"""From an uploaded file to checked rows: read, map, validate, load."""
