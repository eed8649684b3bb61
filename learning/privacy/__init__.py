"""Differential privacy: noise, clipping, and their total guarantee over a whole run."""
