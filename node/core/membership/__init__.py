"""Votes of this member for the open height, and the guards that keep it from ever contradicting itself."""
