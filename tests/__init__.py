"""All tests. Those that import libp2p by itself may do so without what fedchain does not need of it."""

from fedchain.network.libp2p.unused import allow_absence

allow_absence()
