"""Sums that are opened although nobody sees a term of them."""
