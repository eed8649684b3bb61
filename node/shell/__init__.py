"""The driver of the state machine on a real network: it carries out effects in order, and starts and ends a node."""
