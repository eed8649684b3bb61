"""One key, two names: a fedchain key is a libp2p key pair, and its address is the libp2p peer id."""

from functools import lru_cache

from libp2p.crypto.ed25519 import create_new_key_pair
from libp2p.crypto.keys import KeyPair
from libp2p.peer.id import ID

from fedchain.crypto.address import address, public_key_from_address
from fedchain.crypto.exceptions import InvalidAddress
from fedchain.crypto.keys import PrivateKey, PublicKey

PEER_ID_SIZE = 38
"""Bytes of an Ed25519 key's peer id."""


def key_pair(key: PrivateKey) -> KeyPair:
    """The libp2p form of ``key``."""
    return create_new_key_pair(key.seed)


@lru_cache(maxsize=4096)
def peer_id(public_key: PublicKey) -> ID:
    """The libp2p peer id of ``public_key`` (32 bytes)."""
    return ID.from_base58(address(public_key))


def public_key_of(peer: ID) -> PublicKey | None:
    """The 32 bytes behind a peer id; None if it is not an Ed25519 key's."""
    # Base58 takes quadratic time, and what is remembered is kept whole: a peer may name anybody.
    return _public_key_of(peer) if len(peer.to_bytes()) == PEER_ID_SIZE else None


@lru_cache(maxsize=4096)
def _public_key_of(peer: ID) -> PublicKey | None:
    try:
        return public_key_from_address(peer.to_base58())
    except (InvalidAddress, ValueError):
        return None
