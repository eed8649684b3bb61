"""The learning methods, one file each."""
