"""Trained models after a run: read from what it left behind, written as files, and measured."""
