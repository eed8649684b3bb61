"""The member set: the members that count at one height. A header names it before they decide anything.

A header commits to the set behind its block, as CometBFT's ``NextValidatorsHash`` does. A client that trusts a block
knows by it who decides the next one, without the posts and votes from which members' standings follow.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from fedchain.chain.encoding import encode, expect_record, expect_size
from fedchain.chain.exceptions import InvalidEncoding
from fedchain.crypto.hashing import Hash, sha256
from fedchain.crypto.keys import PUBLIC_KEY_SIZE, PublicKey


@dataclass(frozen=True, slots=True)
class MemberSet:
    """The members that count, and were not convicted."""

    members: tuple[PublicKey, ...]
    """Public keys of 32 bytes, in the order of their places."""
    places: tuple[int, ...]
    """Place of each, by which electors are drawn."""
    committee_size: int | None = None
    """How many of them vote on a block, 0: all; None: as many as the founding document says, which no amendment
    changed."""
    root: Hash = field(init=False, compare=False)
    """32 bytes: SHA-256 of the encoded set; the header below the height that it decides commits to it."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "root", sha256(encode(self.to_record())))

    def to_record(self) -> list[Any]:
        """The canonical fields: a list of [place, key], after [committee size] if that was amended."""
        size = [] if self.committee_size is None else [[self.committee_size]]
        return [*size, *([place, key] for place, key in zip(self.places, self.members, strict=True))]

    @classmethod
    def from_record(cls, value: Iterable[Any]) -> "MemberSet":
        """Read the canonical fields; raises InvalidEncoding."""
        items = list(value)
        sized = bool(items) and type(items[0]) is list and len(items[0]) == 1
        (size,) = expect_record(items[0], "member set", (int,)) if sized else (None,)
        pairs = [expect_record(item, "member set", (int, bytes)) for item in items[sized:]]
        places, keys = tuple(place for place, _ in pairs), tuple(key for _, key in pairs)
        for key in keys:
            expect_size(key, PUBLIC_KEY_SIZE, "member set key")
        if not keys or len(set(keys)) < len(keys) or any(one >= other for one, other in pairwise(places)):
            raise InvalidEncoding("member set", f"{len(keys)} keys of {len(set(keys))} members found at {places}")
        return cls(keys, places, size)
