"""Secrets that only one member knows: shares of keys, and randomness that nobody can repeat.

All other randomness follows from the genesis document's seed, so that anybody can repeat a round. Noise, masks and keys
must not be drawn from there.
"""

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from itertools import count

from fedchain.learning.exceptions import SecretMissing

ROOT_SIZE = 32
"""Bytes of a member's root of private randomness."""


@dataclass(frozen=True, slots=True)
class Secrets:
    """A member's secrets. They show nothing of themselves when printed, and no checkpoint holds them."""

    member: int
    """Place among the members, for messages."""

    root: bytes = field(repr=False)
    """`ROOT_SIZE` bytes of the operating system, stored before anything is drawn from them; empty: there are none."""

    values: Mapping[str, bytes] = field(default_factory=dict, repr=False)
    """Secret values by name, such as a share of a key."""

    def value(self, name: str) -> bytes:
        """Return a secret value. Raises `SecretMissing`, which names the member, if it is not there."""
        if name not in self.values:
            raise SecretMissing(f"member {self.member} has no secret '{name}'")
        return self.values[name]

    def draw(self, size: int, *labels: str | int) -> bytes:
        """Return so many bytes of the stream that the labels name, such as a phase and a round.

        The same labels give the same bytes, after a crash too: the same post is sent again, and no noise is drawn
        twice. Raises `SecretMissing` for a member without a root.
        """
        if len(self.root) != ROOT_SIZE:
            raise SecretMissing(f"member {self.member} has no root of private randomness")
        stream = hashlib.shake_256(b"fedchain/secret" + self.root)
        for label in labels:
            kind = b"i" if isinstance(label, int) else b"s"
            encoded = str(label).encode()
            stream.update(kind + len(encoded).to_bytes(4, "big") + encoded)
        return stream.digest(size)

    def stream(self, *labels: str | int) -> Callable[[int], bytes]:
        """Return a source of random bytes that can be asked again and again: number of bytes -> bytes.

        A source of the same labels gives the same bytes, if it is asked for as many at a time.
        """
        numbers = count()
        return lambda size: self.draw(size, *labels, next(numbers))


def no_secrets() -> Secrets:
    """Return those of a client that has none, as in a test of a method that needs none."""
    return Secrets(member=-1, root=b"")
