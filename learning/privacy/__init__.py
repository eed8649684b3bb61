"""Differential privacy: noise, clipping, and what they add up to over a whole run."""
