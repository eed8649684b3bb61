"""The real network: py-libp2p with guards."""
