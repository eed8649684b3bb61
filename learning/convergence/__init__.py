"""DFPL's convergence bounds, and estimates of the constants in them."""
