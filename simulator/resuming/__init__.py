"""The record of a run, with which it can go on after an interruption."""
