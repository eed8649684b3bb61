"""One peer: a state machine without I/O, and what drives it."""
