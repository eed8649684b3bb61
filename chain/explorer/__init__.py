"""Questions about a stored chain, and how their answers are shown."""
