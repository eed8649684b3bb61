"""Commit and reveal: a member posts a hash of what it will post, and later the thing itself, so nobody can copy it."""

import hashlib

import numpy as np
from numpy.typing import NDArray

from fedchain.learning.exceptions import InvalidPayload
from fedchain.learning.payload.codec import encode
from fedchain.learning.payload.spec import TensorSpec, byte_strings
from fedchain.learning.round import Tensors

COMMITMENT_SIZE = 32
"""Bytes of a commitment."""

COMMITMENT = byte_strings("commitment", COMMITMENT_SIZE)
"""Specification of the one commitment in a member's post."""


def commitments_spec(members_max: int) -> tuple[TensorSpec, ...]:
    """State all commitments of a phase: places of their members among the members, ascending, and the hashes."""
    return (
        TensorSpec("committed", (-1,), "int64", free_max=members_max, minimum=0),
        byte_strings("commitments", COMMITMENT_SIZE, -1, count_max=members_max),
    )


def commit(sender: bytes, payload: Tensors) -> NDArray[np.uint8]:
    """Return the commitment of a member to its payload, (32,).

    The sender is hashed too, so that another member's commitment is of no use. It hides nothing that can be guessed: a
    payload of few possible values needs a tensor of random bytes beside it.
    """
    digest = hashlib.sha256(b"fedchain/commitment" + len(sender).to_bytes(4, "big") + sender)
    digest.update(encode(payload))
    return np.frombuffer(digest.digest(), dtype=np.uint8)


def validate_revealed(sender: bytes, place: int, payload: Tensors, left: Tensors | None) -> None:
    """Raise `InvalidPayload` unless the payload is the one that its sender committed to.

    `place` is the sender's among the members; `left` has what the phase of the commitments left, None if nothing.
    """
    found = np.flatnonzero(left["committed"] == place) if left is not None else np.zeros(0, dtype=np.int64)
    if left is None or not len(found):
        raise InvalidPayload(f"reveal: a commitment of member {place} expected, found none")
    committed, revealed = left["commitments"][found[0]].tobytes(), commit(sender, payload).tobytes()
    if committed != revealed:
        raise InvalidPayload(f"reveal: member {place} committed to {committed.hex()}, found {revealed.hex()}")
