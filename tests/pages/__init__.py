"""The documentation shows what the program does: its blocks are read, checked, and run."""
