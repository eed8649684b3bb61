"""A member's private randomness on disk: 32 bytes beside its key, from which all its noise and masks are derived.

The bytes are drawn once, and stored before anything is derived from them, so a peer that crashed sends the same bytes
again. No checkpoint, log or frame between processes holds them: the training process reads them itself, when a method
first asks. A share from a dealer lies beside them, protected by the key's passphrase (`node/custody/dealing.py`): the
node opens it and passes it to the training process.
"""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType

from fedchain.crypto.durable import write_file
from fedchain.crypto.file_mode import exposure
from fedchain.crypto.hashing import Hash
from fedchain.files.layout import NO_FILE, is_device
from fedchain.learning.exceptions import SecretMissing
from fedchain.learning.sums.secrets import ROOT_SIZE, Secrets
from fedchain.node.custody.ledger_file import create_ledger, ledger_path


def secrets_path(key_path: Path, chain_id: Hash) -> Path:
    """Path of a key's private randomness for one federation: beside the file itself, as the journal."""
    real = key_path.resolve()
    return real.with_name(f"{real.name}.{chain_id.hex()[:8]}.secrets")


def open_secrets(path: Path, member: int, values: Mapping[str, bytes] = MappingProxyType({})) -> Secrets:
    """Read a member's secrets; a new member's are drawn from the operating system and stored first.

    Args:
        path: path of the file.
        member: place among the members, for messages.
        values: further secrets of the member by name, which this file does not hold.

    Raises:
        SecretMissing: the file cannot be read or written, others may read it, or it is damaged.
    """
    root = read_root(path, member)
    if root is None:
        root = os.urandom(ROOT_SIZE)
        write_root(path, member, root)
    return Secrets(member, root, values)


def secrets_in(path: str, dealt: Sequence[tuple[str, bytes]], member: int) -> Secrets:
    """The same of a trainer's plan: the path of the file, and what the member was dealt, by name."""
    return open_secrets(Path(path), member, dict(dealt))


def read_root(path: Path, member: int) -> bytes | None:
    """Read a member's private randomness; None if none was drawn yet. Raises as `open_secrets`."""
    if is_device(path):
        raise SecretMissing(f"secrets of member {member}: {path} is {NO_FILE}")
    try:
        root = path.read_bytes() if path.exists() else None
        exposed = None if root is None else exposure(path, path.stat().st_mode)
    except OSError as error:
        raise SecretMissing(f"secrets of member {member}: {path} cannot be used: {error.strerror}") from None
    if exposed is not None:
        raise SecretMissing(f"secrets of member {member}: {exposed}")
    if root is not None and len(root) != ROOT_SIZE:
        raise SecretMissing(f"secrets of member {member}: {path} holds {len(root)} bytes, it must be {ROOT_SIZE}")
    return root


def write_root(path: Path, member: int, root: bytes) -> None:
    """Store new private randomness atomically, for the owner alone, after creating its ledger.

    Raises `SecretMissing` if it cannot be written.
    """
    try:
        create_ledger(ledger_path(path))
        write_file(path, root)
    except OSError as error:
        raise SecretMissing(f"secrets of member {member}: {path} cannot be used: {error.strerror}") from None
