"""fedchain: peers that learn together without a server.

Map of the package, from the bottom up; each layer imports only what lies below it:

* ``fedchain.crypto``: hashes, Ed25519 keys, addresses, threshold encryption
* ``fedchain.chain``: transactions, blocks, votes, proof of work, validation, fork choice, store, explorer
* ``fedchain.learning``: methods, models, datasets, partitions, payload codec, metrics
* ``fedchain.network``: messages and how they travel
* ``fedchain.node``: one peer, a pure state machine
* ``fedchain.simulator``: many peers in virtual time
"""

__version__ = "0.1.0"
