"""Leakage from posts: attacks that look for a client's images, and how near they come."""
