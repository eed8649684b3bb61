"""What the documentation shows is what the program does: its blocks are read, checked, and run."""
