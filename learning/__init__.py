"""Learning: methods, models, data, and the bytes that peers exchange."""
