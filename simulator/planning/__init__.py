"""Planning of a run: its number of rounds within a time budget."""
