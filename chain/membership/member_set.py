"""The member set: the members that count at one height, whom a header names before they decide anything.

A header commits to the set behind its block, as CometBFT's ``NextValidatorsHash`` does. A client that trusts a block
knows by it who decides the next one, without the posts and votes from which members' standings follow.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from fedchain.chain.encoding import encode, expect_record, expect_size
from fedchain.chain.exceptions import InvalidEncoding
from fedchain.crypto.hashing import Hash, sha256
from fedchain.crypto.keys import PUBLIC_KEY_SIZE, PublicKey


@dataclass(frozen=True, slots=True)
class MemberSet:
    """The members that count, and were not convicted."""

    members: tuple[PublicKey, ...]
    """Public keys of 32 bytes, in the order of their seats."""
    root: Hash = field(init=False, compare=False)
    """32 bytes: SHA-256 of the encoded set; the header below the height that it decides commits to it."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "root", sha256(encode(self.to_record())))

    def to_record(self) -> list[Any]:
        """The canonical fields."""
        return [*self.members]

    @classmethod
    def from_record(cls, value: Iterable[Any]) -> "MemberSet":
        """Read the canonical fields; raises InvalidEncoding."""
        keys = tuple(value)
        expect_record([*keys], "member set", (bytes,) * len(keys))
        for key in keys:
            expect_size(key, PUBLIC_KEY_SIZE, "member set key")
        if not keys or len(set(keys)) < len(keys):
            raise InvalidEncoding("member set", f"{len(keys)} keys of {len(set(keys))} members found")
        return cls(keys)
