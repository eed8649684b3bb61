"""One key, two names: a fedchain key is a libp2p key pair, and its address is the libp2p peer id."""

from functools import lru_cache

from libp2p.abc import ISecureTransport
from libp2p.crypto.ed25519 import create_new_key_pair
from libp2p.crypto.keys import KeyPair, KeyType
from libp2p.crypto.serialization import key_type_to_public_key_deserializer
from libp2p.crypto.x25519 import create_new_key_pair as create_noise_key_pair
from libp2p.custom_types import TProtocol
from libp2p.peer.id import ID
from libp2p.security.noise.transport import PROTOCOL_ID as NOISE
from libp2p.security.noise.transport import Transport as Noise

from fedchain.crypto.address import address, public_key_from_address
from fedchain.crypto.exceptions import InvalidAddress
from fedchain.crypto.keys import PrivateKey, PublicKey

PEER_ID_SIZE = 38
"""Bytes of an Ed25519 key's peer id."""


def key_pair(key: PrivateKey) -> KeyPair:
    """The libp2p form of ``key``."""
    return create_new_key_pair(key.seed)


def security_of(key: PrivateKey) -> dict[TProtocol, ISecureTransport]:
    """The handshake by which ``key`` proves itself: noise, in which nobody has a key of another kind.

    The library reads such a key before it is proved. One of RSA that a stranger makes for that takes seconds, for which
    the node would do nothing else.
    """
    for kind in [*key_type_to_public_key_deserializer]:
        if kind != KeyType.Ed25519.value:
            del key_type_to_public_key_deserializer[kind]
    return {TProtocol(NOISE): Noise(key_pair(key), noise_privkey=create_noise_key_pair().private_key)}


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
