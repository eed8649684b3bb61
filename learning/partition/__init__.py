"""Partitions of the examples among the clients."""
