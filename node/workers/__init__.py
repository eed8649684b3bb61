"""The processes beside a node: they train, mine and verify signatures."""
