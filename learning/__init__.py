"""What is learned: methods, models, data, and the bytes peers exchange."""
