"""Hashes, keys and addresses."""
