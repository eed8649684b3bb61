"""The papers' experiments, run and laid out as their tables."""
