"""The built-in data sets: what they are, where their files are, and how these are read."""
