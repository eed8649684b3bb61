"""Private data that move with a key beside its journal: its randomness, and the ledger of its noised releases.

A member that drew its randomness anew would put other noise on the same values, and one without its ledger would spend
its budget again. Both are sealed from the key to itself, so that nobody else can read or forge them on the way.
"""

import json
from dataclasses import dataclass, field
from pathlib import Path

from fedchain.crypto.exceptions import SealBroken
from fedchain.crypto.hashing import Hash
from fedchain.crypto.hpke import seal, unseal
from fedchain.crypto.keys import PrivateKey
from fedchain.learning.exceptions import SecretMissing
from fedchain.learning.privacy.ledger import Entry, read_entry, write_entry
from fedchain.learning.sums.secrets import ROOT_SIZE
from fedchain.node.custody.journal_file import BadExport
from fedchain.node.custody.ledger_file import ledger_path, open_ledger
from fedchain.node.custody.secrets_file import read_root, write_root

_INFO = b"fedchain/2/private-transfer/"


@dataclass(frozen=True, slots=True)
class PrivatePart:
    """A member's private data of one federation."""

    root: bytes | None = field(repr=False)
    """Private randomness; None if none was drawn."""
    releases: tuple[str, ...]
    """Entries of the ledger as JSON, in ledger order."""

    def entries(self) -> tuple[Entry, ...]:
        """The releases themselves."""
        return tuple(map(read_entry, self.releases))

    def seal(self, key: PrivateKey, chain_id: Hash) -> bytes:
        """Seal the data from a key to itself, for one federation."""
        values = {"root": None if self.root is None else self.root.hex(), "releases": self.releases}
        return seal(json.dumps(values).encode(), key.public_key, _INFO + chain_id, key)


def unseal_private(sealed: bytes, key: PrivateKey, chain_id: Hash) -> PrivatePart:
    """Open the result of :meth:`PrivatePart.seal`; raises BadExport."""
    try:
        values = json.loads(unseal(sealed, key, _INFO + chain_id, key.public_key))
    except SealBroken as error:
        raise BadExport(f"the exported private randomness cannot be opened: {error}") from None
    root = None if values["root"] is None else bytes.fromhex(values["root"])
    assert root is None or len(root) == ROOT_SIZE, "nobody but this key's owner can have written it"
    return PrivatePart(root, tuple(values["releases"]))


def read_private(secrets: Path, member: int) -> PrivatePart | None:
    """Read the private data beside a key; None if there are none.

    Args:
        secrets: see :func:`secrets_path`.
        member: place among the members, for messages.

    Raises:
        SecretMissing: the private randomness cannot be read.
        LedgerDamaged: the ledger cannot be read, or is gone.
    """
    root = read_root(secrets, member)
    if root is None and not ledger_path(secrets).exists():
        return None
    return PrivatePart(root, tuple(map(write_entry, open_ledger(secrets, member).entries())))


def validate_private(secrets: Path, member: int, part: PrivatePart) -> None:
    """Check that :func:`write_private` may write: a ledger never shrinks, and randomness is never replaced.

    Args:
        secrets: see :func:`secrets_path`.
        member: place among the members, for messages.
        part: the data to be written.

    Raises:
        SecretMissing: other randomness is there, or it cannot be read.
        LedgerDamaged: the ledger has releases that the part lacks, cannot be read, or is gone.
    """
    here = read_root(secrets, member)
    if here is not None and here != part.root:
        raise SecretMissing(
            f"secrets of member {member}: {secrets} holds other randomness than what is to be imported, and noise may "
            "have been made of it; it stays as it is"
        )
    open_ledger(secrets, member).validate_adoption(part.entries())


def write_private(secrets: Path, member: int, part: PrivatePart) -> None:
    """Write missing private data beside a key: the ledger first, since nobody draws from the randomness without it.

    :func:`validate_private` must have passed. Raises SecretMissing or LedgerDamaged if the data cannot be written.
    """
    open_ledger(secrets, member).adopt(part.entries())
    if part.root is not None and read_root(secrets, member) is None:
        write_root(secrets, member, part.root)
