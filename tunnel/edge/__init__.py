"""The public reverse proxy: routes each request to a machine through its host's tunnel, and wakes it on the way."""
