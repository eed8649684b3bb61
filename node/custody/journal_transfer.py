"""Moving a signing journal to another machine, as EIP-3076 does for validators of Ethereum.

A key that moves takes its journal along; otherwise it may sign a second time where it has signed on the old machine.
Its private randomness and privacy ledger move with it (`node/custody/private_transfer.py`), if a method has made them.
"""

import json
import os
import stat
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedchain.chain.exceptions import Refused
from fedchain.crypto.address import address, public_key_from_address
from fedchain.crypto.durable import sync_folder
from fedchain.crypto.exceptions import InvalidAddress
from fedchain.crypto.hashing import HASH_SIZE, Hash
from fedchain.crypto.keys import PrivateKey, PublicKey
from fedchain.node.custody.journal_file import (
    BadExport,
    JournalError,
    JournalFile,
    content_size_max,
    importing_path,
    read_identity,
)
from fedchain.node.custody.ledger_file import ledger_path
from fedchain.node.custody.private_transfer import (
    PrivatePart,
    read_private,
    unseal_private,
    validate_private,
    write_private,
)

EXPORT_VERSION = 2

EXPORT_SIZE_MAX = 2**25
"""Most characters of an exported journal; a release in the ledger takes some 600."""

IsBehind = Callable[[bytes, bytes], bool]
"""``is_behind(old, new)``: whether ``new`` would allow signing something that ``old`` forbids."""


@dataclass(frozen=True, slots=True)
class Owner:
    """The owner of a journal."""

    unlock: Callable[[], PrivateKey]
    """Returns the key; called only if there are private data."""
    members: Mapping[PublicKey, int]
    """Place of each member, for messages."""

    def key(self, public_key: PublicKey) -> PrivateKey:
        """The key, if it is the journal's; raises JournalError."""
        key = self.unlock()
        if key.public_key != public_key:
            found, expected = address(key.public_key), address(public_key)
            raise JournalError(f"the key is that of {found}, the journal is of the key of {expected}")
        return key

    def place(self, public_key: PublicKey) -> int:
        """Place of the key among the members; −1 if it is not a member's."""
        return self.members.get(public_key, -1)


def export_journal(path: Path, owner: Owner) -> str:
    """The content of a journal as JSON, to be imported beside the same key on another machine.

    The node must not run, and must never run on this machine afterwards.

    Raises:
        JournalError: there is no journal, a node has it open, it is damaged or too long, or belongs to another key.
        SecretMissing, LedgerDamaged: the private data beside it cannot be read.
    """
    chain_id, public_key = read_identity(path)
    with JournalFile.open(path, chain_id, public_key, len(owner.members)) as journal:
        content = journal.content()
        private = read_private(_secrets(path), owner.place(public_key))
        document = {
            "version": EXPORT_VERSION,
            "chain_id": chain_id.hex(),
            "address": address(public_key),
            "sequence": journal.sequence,
            "content": None if content is None else content.hex(),
            "private": None if private is None else private.seal(owner.key(public_key), chain_id).hex(),
        }
    text = json.dumps(document, indent=1) + "\n"
    if len(text) > EXPORT_SIZE_MAX:
        raise JournalError(f"an exported journal has at most {EXPORT_SIZE_MAX} characters, not {len(text)}")
    return text


def import_journal(path: Path, text: str, is_behind: IsBehind, owner: Owner) -> None:
    """Write the result of :func:`export_journal` into the journal at ``path``, which is created if there is none.

    A journal never goes back: anybody that could make it forget could make it sign twice. The same is true of private
    data. A note is on the disk from before the first write until after the last one: if this process dies in between,
    no other one opens the journal until the import is repeated.

    Args:
        path: see :func:`journal_path`. Files that root writes there get the owner of the key beside them.
        text: the exported JSON.
        is_behind: whether its second argument would allow signing something that its first forbids.
        owner: the owner of the journal's key.

    Raises:
        BadExport: not an exported journal, or another chain's.
        JournalError: another key's, behind the present one, or the disk refuses.
        SecretMissing, LedgerDamaged: other private randomness or further releases are there, or the disk refuses.
    """
    exported = _parse_export(text, content_size_max(len(owner.members)))
    chain_id, public_key, content = exported.chain_id, exported.public_key, exported.content
    suffix = f".{chain_id.hex()[:8]}.journal"
    if not path.name.endswith(suffix):
        raise BadExport(f"{path} is not the journal of chain {chain_id.hex()}, of which the exported one is")
    private: PrivatePart | None = None
    if exported.private is not None:
        private = unseal_private(exported.private, owner.key(public_key), chain_id)
    secrets, place = _secrets(path), owner.place(public_key)
    with JournalFile.open(path, chain_id, public_key, len(owner.members), is_import=True) as journal:
        old = journal.content()
        if content is not None:
            _validate_content(content, is_behind)
        if old is not None and (content is None or is_behind(old, content)):
            raise JournalError(f"{path} knows of more that was signed than what is to be imported; it stays as it is")
        if private is not None:
            validate_private(secrets, place, private)
        note = importing_path(path)
        _begin(note)
        try:
            if private is not None:
                write_private(secrets, place, private)
            if content is not None:
                journal.write(content)
        finally:
            _hand_over((path, note, secrets, ledger_path(secrets)), path.with_name(path.name.removesuffix(suffix)))
        _end(note)


def _validate_content(content: bytes, is_behind: IsBehind) -> None:
    """Refuse a journal that no node would read: it would have to be moved away, and what was signed forgotten.

    A sound one allows nothing that it forbids itself. Raises BadExport.
    """
    try:
        is_sound = not is_behind(content, content)
    except Refused as error:
        raise BadExport(f"this is no exported journal: {error}") from None
    if not is_sound:
        raise BadExport("the exported journal allows what it forbids itself: it was altered")


def _hand_over(paths: Iterable[Path], key_path: Path) -> None:
    """Give files that root has written to the owner of the key, as whom the node runs. Raises JournalError.

    That user may put links there; they are not followed, since root would give away their targets.
    """
    if os.geteuid() != 0 or not key_path.exists():
        return
    path = key_path
    try:
        owner = key_path.stat(follow_symlinks=False)
        for path in paths:
            with suppress(FileNotFoundError):
                _give(path, owner)
    except OSError as error:
        raise JournalError(f"{path} cannot be given to the owner of {key_path}: {error.strerror}") from None


def _give(path: Path, owner: os.stat_result) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    try:
        found = os.fstat(descriptor)
        if stat.S_ISREG(found.st_mode) and found.st_nlink == 1:
            os.fchown(descriptor, owner.st_uid, owner.st_gid)
    finally:
        os.close(descriptor)


def _begin(note: Path) -> None:
    """Note durably that an import has begun; raises JournalError."""
    try:
        os.close(os.open(note, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600))
        sync_folder(note.parent)
    except OSError as error:
        raise JournalError(f"{note} cannot be written: {error.strerror}; nothing was imported") from None


def _end(note: Path) -> None:
    """Remove the note: the whole import is on the disk; raises JournalError."""
    try:
        note.unlink()
        sync_folder(note.parent)
    except OSError as error:
        raise JournalError(f"{note} cannot be removed: {error.strerror}; all was imported, so remove it") from None


@dataclass(frozen=True, slots=True)
class _Export:
    chain_id: Hash
    public_key: PublicKey
    content: bytes | None
    private: bytes | None


def _secrets(journal: Path) -> Path:
    """Path of the private randomness that belongs to a journal."""
    return journal.with_suffix(".secrets")


def _parse_export(text: str, size_max: int) -> _Export:
    if len(text) > EXPORT_SIZE_MAX:
        raise BadExport(f"an exported journal has at most {EXPORT_SIZE_MAX} characters, not {len(text)}")
    try:
        document: Any = json.loads(text)
        version = document["version"]
        if version != EXPORT_VERSION:
            raise BadExport(f"the exported journal has version {version!r}, this program reads {EXPORT_VERSION}")
        content, private = (
            None if document[name] is None else bytes.fromhex(document[name]) for name in ("content", "private")
        )
        found = _Export(
            bytes.fromhex(document["chain_id"]), public_key_from_address(document["address"]), content, private
        )
    except BadExport:
        raise
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError, InvalidAddress) as error:
        raise BadExport(f"this is no exported journal: {type(error).__name__}: {error}") from None
    if len(found.chain_id) != HASH_SIZE:
        raise BadExport(f"this is no exported journal: a chain id has {HASH_SIZE} bytes, not {len(found.chain_id)}")
    if content is not None and len(content) > size_max:
        raise BadExport(f"a journal takes {size_max} bytes, the exported one has {len(content)}")
    return found
