"""Training and measuring a model, the same for every method."""
