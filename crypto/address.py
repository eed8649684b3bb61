"""Addresses: how a public key is written for people.

An address is the libp2p peer id of the key (``12D3KooW…``): base58 of the identity multihash of the
protobuf-encoded public key. One text names a member on the chain and on the network.

Source: https://github.com/libp2p/specs/blob/master/peer-ids/peer-ids.md
"""

from functools import lru_cache

import base58

from fedchain.crypto.exceptions import InvalidAddress
from fedchain.crypto.signatures import PUBLIC_KEY_SIZE, PublicKey, is_valid_public_key

# multihash: identity (0x00), 36 bytes; protobuf: field 1 key type = Ed25519 (1), field 2 data, 32 bytes
_PREFIX = bytes.fromhex("002408011220")


@lru_cache(maxsize=4096)
def address(public_key: PublicKey) -> str:
    """Write ``public_key`` (32 bytes) as its libp2p peer id."""
    return str(base58.b58encode(_PREFIX + public_key).decode("ascii"))


def public_key_from_address(text: str) -> PublicKey:
    """Read a public key back from its address.

    Raises:
        InvalidAddress: not base58, or not the peer id of an Ed25519 key that somebody can have.
    """
    try:
        data = bytes(base58.b58decode(text))
    except ValueError:
        raise InvalidAddress(f"{text!r} is not base58") from None
    if len(data) != len(_PREFIX) + PUBLIC_KEY_SIZE or not data.startswith(_PREFIX):
        raise InvalidAddress(f"{text!r} is not the peer id of an Ed25519 key")
    if text != address(data[len(_PREFIX) :]):  # base58 overlooks spaces at the end
        raise InvalidAddress(f"{text!r} is not how that key's address is written")
    if not is_valid_public_key(data[len(_PREFIX) :]):
        raise InvalidAddress(f"{text!r} is the peer id of a key that nobody can have, or that signs for everybody")
    return data[len(_PREFIX) :]
