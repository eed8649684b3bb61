"""Peers that do not follow the protocol, to study what they cost and to test that they cannot break a promise."""
