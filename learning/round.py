"""The public side of a round: what everybody can read from the chain."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from numpy.typing import NDArray

Tensors = Mapping[str, NDArray[Any]]
"""Named float32 or int64 arrays: a payload, or the knowledge a phase leaves behind."""


@dataclass(frozen=True, slots=True)
class Post:
    """What one contributor posted in a phase."""

    sender: bytes
    """Public key of the contributor."""

    payload: Tensors
    """The decoded and checked tensors."""


@dataclass(frozen=True, slots=True)
class Round:
    """The public side of a round: what everybody can read from the chain."""

    number: int
    """Round number, from 1."""

    knowledge: Tensors | None
    """What the previous phase left behind; None before the first aggregate."""

    posts: tuple[Post, ...] = ()
    """The posts of the phase in ascending order of sender; only `aggregate` sees them."""

    clients: int = 0
    """Number of clients in the federation, N, whether they take part in this round or not."""
