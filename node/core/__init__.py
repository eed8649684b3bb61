"""The node as a pure state machine: everything that a peer decides."""
