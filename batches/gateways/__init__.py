"""Sans-IO gateway adapters: they build requests and read answers; they open no connection."""
