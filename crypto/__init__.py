"""Hashes, keys, addresses, and threshold encryption."""
