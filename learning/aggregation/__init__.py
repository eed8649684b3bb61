"""Aggregation, to the bit the same on every machine, and the test that this machine computes so."""
