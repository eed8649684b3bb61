"""Shares on their way to members: each sealed to a member's Ed25519 key (`fedchain.crypto.hpke`), in base mode.

A member that opens a share does not learn from it who sealed it. It checks the share against the public key, which the
federation's members have agreed on.
"""

import struct
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from gmpy2 import mpz

from fedchain.crypto.exceptions import InvalidDealing, SealBroken
from fedchain.crypto.hpke import ENCAPSULATED_SIZE, TAG_SIZE, seal, unseal
from fedchain.crypto.keys import PrivateKey
from fedchain.crypto.randomness import RandomBytes
from fedchain.crypto.signatures import PublicKey, is_valid_public_key
from fedchain.crypto.threshold.dealer import deal
from fedchain.crypto.threshold.power import power
from fedchain.crypto.threshold.public_key import (
    ENCODED_SIZE_MAX,
    KEY_BITS,
    KeyShare,
    ThresholdPublicKey,
    decode_public_key,
)

DEALING_SIZE_MAX = 2 * ENCODED_SIZE_MAX
"""Bytes of an encoded dealing."""

_LENGTH = struct.Struct(">I")
_INDEX = struct.Struct(">H")


@dataclass(frozen=True, slots=True)
class Dealing:
    """The dealer's output: everybody may see it, and nothing else is left of the dealing."""

    public_key: ThresholdPublicKey
    sealed_shares: tuple[bytes, ...]
    """One for each member, in the order of members."""

    def encode(self) -> bytes:
        """Length of the public key's encoding in 4 bytes, that encoding, and all sealed shares, which are as long."""
        public_key = self.public_key.encode()
        return b"".join((_LENGTH.pack(len(public_key)), public_key, *self.sealed_shares))


def deal_sealed(
    members: Sequence[PublicKey],
    threshold: int,
    random_bytes: RandomBytes,
    *,
    key_bits: int = KEY_BITS[0],
) -> Dealing:
    """Make the keys of a federation, seal each share to its member, and keep nothing; some seconds.

    Args:
        members: their Ed25519 keys, distinct, in the order of the genesis document.
        threshold: t, how many decrypt together.
        random_bytes: the operating system's.
        key_bits: of n, one of `KEY_BITS`.

    Raises:
        ValueError: a parameter out of bounds, a member twice, or a key that nobody can have.
    """
    if len(set(members)) != len(members):
        raise ValueError(f"{len(members)} members, of which {len(set(members))} are different")
    public_key, shares = deal(len(members), threshold, random_bytes, key_bits=key_bits)
    return Dealing(public_key, seal_shares(public_key, shares, members))


def seal_shares(key: ThresholdPublicKey, shares: Sequence[KeyShare], members: Sequence[PublicKey]) -> tuple[bytes, ...]:
    """Seal each share to the member at its place: encapsulated key (32 bytes), then ciphertext and tag.

    Raises:
        ValueError: a member's key is not one that anybody can have.
    """
    for member in members:
        if not is_valid_public_key(member):
            raise ValueError(f"{member.hex()} is no Ed25519 key that a member can have")
    return tuple(
        seal(int(share.secret).to_bytes(key.ciphertext_size, "big"), member, _info(key, share.index))
        for share, member in zip(shares, members, strict=True)
    )


def open_share(key: ThresholdPublicKey, sealed: bytes, index: int, private_key: PrivateKey) -> KeyShare:
    """Open the share that was sealed to a member, and check that it fits the public key.

    Args:
        key: which the share is of.
        sealed: of the member's place.
        index: of the member, from 1.
        private_key: the member's.

    Raises:
        InvalidDealing: wrong size, sealed to another member or for another key, damaged, or in conflict with v_i.
    """
    expected = sealed_size(key)
    if len(sealed) != expected:
        raise InvalidDealing(f"the sealed share of peer {index - 1} has {len(sealed)} bytes, {expected} expected")
    try:
        data = unseal(sealed, private_key, _info(key, index))
    except SealBroken as error:
        raise InvalidDealing(f"the share of peer {index - 1} cannot be opened: {error}") from None
    share = KeyShare(index, mpz(int.from_bytes(data, "big")))
    validate_key_share(key, share)
    return share


def validate_key_share(key: ThresholdPublicKey, share: KeyShare) -> None:
    """Check a share of the private key against its verification key v_i = v^(Δ·s_i).

    Raises:
        InvalidDealing: it does not fit.
    """
    if not 1 <= share.index <= key.members:
        raise InvalidDealing(f"a share of peer {share.index - 1}, the key has peers 0 to {key.members - 1}")
    modulus = key.ciphertext_modulus
    if not 0 < share.secret < modulus or key.verification_keys[share.index - 1] != power(
        key.verification_base, key.delta * share.secret, modulus
    ):
        raise InvalidDealing(f"the share of peer {share.index - 1} does not fit the public key")


def sealed_size(key: ThresholdPublicKey) -> int:
    """Bytes of a sealed share."""
    return ENCAPSULATED_SIZE + key.ciphertext_size + TAG_SIZE


def decode_dealing(data: bytes, allowed_bits: Collection[int] = KEY_BITS) -> Dealing:
    """Read a dealing back.

    Raises:
        InvalidDealing: wrong size.
        InvalidThresholdKey: the public key is none.
    """
    if not _LENGTH.size <= len(data) <= DEALING_SIZE_MAX:
        raise InvalidDealing(f"{len(data)} bytes, {_LENGTH.size} to {DEALING_SIZE_MAX} expected")
    middle = _LENGTH.size + _LENGTH.unpack_from(data)[0]
    if middle > len(data):
        raise InvalidDealing(f"{len(data)} bytes, of which the public key alone would have {middle - _LENGTH.size}")
    key = decode_public_key(data[_LENGTH.size : middle], allowed_bits)
    size = sealed_size(key)
    if len(data) != middle + key.members * size:
        raise InvalidDealing(f"{len(data)} bytes, {middle + key.members * size} expected for {key.members} shares")
    return Dealing(key, tuple(data[at : at + size] for at in range(middle, len(data), size)))


def _info(key: ThresholdPublicKey, index: int) -> bytes:
    """Return the context that a sealed share is bound to: its key, and its place."""
    return b"fedchain/2/key-share/" + key.key_id + _INDEX.pack(index)
