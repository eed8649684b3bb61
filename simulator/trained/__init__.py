"""Trained models after a run: read from its folder, written as files, and measured."""
