"""Families of methods, with the code that each shares: each method in `methods/` builds on one of these."""
