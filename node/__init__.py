"""One peer: a state machine without I/O, and the service that drives it."""
