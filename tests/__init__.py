"""The tests; each folder mirrors the source it is about."""
