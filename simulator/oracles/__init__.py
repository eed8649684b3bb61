"""Promises that hold in every simulation under any disturbance: one promise a file."""
