"""Where a client's model and examples come from."""
