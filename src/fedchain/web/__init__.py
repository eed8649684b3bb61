"""The explorer in a browser: pages and an interface over the same answers as ``fedchain explorer``, read-only."""
