"""The built-in data sets: their properties, where their files are, and how these are read."""
