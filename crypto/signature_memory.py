"""Signatures that were found valid are verified once: a memory in front of the costly function."""

from collections import OrderedDict
from collections.abc import Hashable, Iterable, Iterator

from fedchain.crypto.hashing import sha256
from fedchain.crypto.signatures import PublicKey, Signature, Signed, is_valid_signature

SIGNATURES_MAX = 2**16
"""Most valid signatures that are remembered; beyond, the oldest is forgotten. Invalid ones are not remembered."""

MESSAGE_SIZE_MAX = 512
"""Bytes of the longest message that is remembered as it is, in place of its hash: precommits of thousands of members
mark all of them, and a member may sign any number of those."""


class SignatureMemory:
    """Verifies signatures, each once. It is called like :func:`is_valid_signature`."""

    def __init__(self) -> None:
        self._valid: OrderedDict[Hashable, None] = OrderedDict()

    def __call__(self, public_key: PublicKey, signature: Signature, message: bytes) -> bool:
        """Whether ``signature`` is ``public_key``'s over ``message``."""
        signed = public_key, signature, message
        if _identity(signed) in self._valid:
            return True
        if not is_valid_signature(*signed):
            return False
        self.note([signed])
        return True

    def unknown(self, signed: Iterable[Signed]) -> Iterator[Signed]:
        """Those signatures that would have to be verified."""
        return (item for item in signed if _identity(item) not in self._valid)

    def note(self, signed: Iterable[Signed]) -> None:
        """Remember signatures that were found valid."""
        for item in signed:
            self._valid[_identity(item)] = None
            if len(self._valid) > SIGNATURES_MAX:
                self._valid.popitem(last=False)


def _identity(signed: Signed) -> Hashable:
    """All that the validity of a signature depends on, in little room."""
    public_key, signature, message = signed
    return signed if len(message) <= MESSAGE_SIZE_MAX else (public_key, signature, (sha256(message),))
