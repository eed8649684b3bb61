"""What a moving key takes along beside its journal: private randomness, and the ledger of what was let out with noise.

A member that drew its randomness anew would put other noise on the same values, and one without its ledger would spend
its budget again. Both go sealed from the key to itself, so that nobody else can read or forge them on the way.
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
from fedchain.node.custody.journal_file import JournalError
from fedchain.node.custody.ledger_file import ledger_path, open_ledger
from fedchain.node.custody.secrets_file import read_root, write_root

_INFO = b"fedchain/2/private-transfer/"


@dataclass(frozen=True, slots=True)
class PrivatePart:
    """What only one member knows, of one federation."""

    root: bytes | None = field(repr=False)
    """Private randomness; None: none was drawn."""
    releases: tuple[str, ...]
    """Entries of the ledger, as JSON, in their order."""

    def entries(self) -> tuple[Entry, ...]:
        """The releases themselves."""
        return tuple(map(read_entry, self.releases))

    def seal(self, key: PrivateKey, chain_id: Hash) -> bytes:
        """Seal it from a key to itself, for one federation."""
        values = {"root": None if self.root is None else self.root.hex(), "releases": self.releases}
        return seal(json.dumps(values).encode(), key.public_key, _INFO + chain_id, key)


def unseal_private(sealed: bytes, key: PrivateKey, chain_id: Hash) -> PrivatePart:
    """Open what :meth:`PrivatePart.seal` gave; raises JournalError."""
    try:
        values = json.loads(unseal(sealed, key, _INFO + chain_id, key.public_key))
    except SealBroken as error:
        raise JournalError(f"the exported private randomness cannot be opened: {error}") from None
    root = None if values["root"] is None else bytes.fromhex(values["root"])
    assert root is None or len(root) == ROOT_SIZE, "nobody but this key's owner can have written it"
    return PrivatePart(root, tuple(values["releases"]))


def read_private(secrets: Path, member: int) -> PrivatePart | None:
    """Read what lies beside a key; None where there is nothing.

    Args:
        secrets: see :func:`secrets_path`.
        member: place among the members, for messages.

    Raises:
        SecretMissing: the private randomness cannot be read.
        LedgerDamaged: the same of the ledger, or it is gone.
    """
    root = read_root(secrets, member)
    if root is None and not ledger_path(secrets).exists():
        return None
    return PrivatePart(root, tuple(map(write_entry, open_ledger(secrets, member).entries())))


def validate_private(secrets: Path, member: int, part: PrivatePart) -> None:
    """Look whether :func:`write_private` may write. A ledger never shrinks, and randomness is never exchanged.

    Args:
        secrets: see :func:`secrets_path`.
        member: place among the members, for messages.
        part: what is to be there.

    Raises:
        SecretMissing: other randomness is there, or it cannot be read.
        LedgerDamaged: releases are there that the part does not know; the same; or the ledger is gone.
    """
    here = read_root(secrets, member)
    if here is not None and here != part.root:
        raise SecretMissing(
            f"secrets of member {member}: {secrets} holds other randomness than what is to be imported, and noise may "
            "have been made of it; it stays as it is"
        )
    open_ledger(secrets, member).validate_adoption(part.entries())


def write_private(secrets: Path, member: int, part: PrivatePart) -> None:
    """Put it beside a key where it is not yet: the ledger first, without which nobody draws from the randomness.

    Raises SecretMissing or LedgerDamaged: it cannot be written. What :func:`validate_private` refuses must not be
    written.
    """
    open_ledger(secrets, member).adopt(part.entries())
    if part.root is not None and read_root(secrets, member) is None:
        write_root(secrets, member, part.root)
