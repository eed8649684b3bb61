"""The next key of a member, beside the one that it has, until a block counts the change.

Then the next key takes the file's place, and the former one stays under a name of its own with its journal: what it
signed stays known, though it may sign nothing any more. A crash in between loses neither, since the journal names its
key and is moved last.
"""

import glob
from pathlib import Path

from fedchain.crypto.durable import sync_folder
from fedchain.crypto.exceptions import KeyFileError
from fedchain.crypto.hashing import Hash
from fedchain.crypto.keys import PrivateKey, PublicKey
from fedchain.crypto.secret_file import is_encrypted
from fedchain.node.config import NodeFailed
from fedchain.node.custody.journal_file import journal_path, read_identity


class NextKey:
    """The files of a key that is going to be replaced.

    Args:
        path: the key file.
        chain_id: the federation's.
        passphrase: of the key file, and of the next one; None if neither is encrypted.
    """

    def __init__(self, path: Path, chain_id: Hash, passphrase: str | None) -> None:
        self._path, self._chain_id, self._passphrase = path.resolve(), chain_id, passphrase

    @property
    def _next(self) -> Path:
        return _next_of(self._path)

    @property
    def is_there(self) -> bool:
        """Whether there is a next key."""
        return self.written is not None

    @property
    def written(self) -> tuple[int, int] | None:
        """Inode number and modification time of the next key's file, which tell it from one that takes its place later;
        None if there is none."""
        try:
            found = self._next.stat()
        except FileNotFoundError:
            return None
        return found.st_ino, found.st_mtime_ns

    @property
    def has_former(self) -> bool:
        """Whether this key took the place of another one."""
        return any(self._path.parent.glob(f"{glob.escape(self._path.name)}.former-*"))

    def is_known_here(self, key: PublicKey) -> bool:
        """Whether the files beside the key of a peer that is no founder are a member's: it took another key's place
        here, or has signed on this chain, as its journal says, which moves with it. Raises JournalError."""
        journal = journal_path(self._path, self._chain_id)
        return self.has_former or (journal.exists() and read_identity(journal) == (self._chain_id, key))

    def read(self) -> PrivateKey | None:
        """The next key; None if there is none. Raises KeyFileError."""
        return PrivateKey.load(self._next, self._passphrase) if self.is_there else None

    def read_former(self, former: PublicKey) -> PrivateKey | None:
        """The key that this one replaced; None if it is not here, or is not protected as this one is."""
        try:
            return PrivateKey.load(self._former(former), self._passphrase)
        except KeyFileError:
            return None

    def read_all_former(self) -> list[PrivateKey]:
        """All keys that this one and those before it replaced, as far as they are here and protected as this one is."""
        found = []
        for path in _former_of(self._path):
            try:
                found.append(PrivateKey.load(path, self._passphrase))
            except KeyFileError:
                continue
        return found

    def make(self) -> PrivateKey:
        """The next key, made and stored unless it is there. A copy of the key itself, or of a former one, as from a
        backup of when that was the next one, is none: it has signed before.

        Raises KeyFileError, also where the key file is protected in another way than this process knows: the next key
        would be protected as that one was, and nobody could open it with the passphrase that there is now.
        """
        known = self.read()
        try:
            own = PrivateKey.load(self._path, self._passphrase)
        except KeyFileError as error:
            reason = f"{error}; if it was encrypted anew since this node started, start the node again first"
            raise KeyFileError(f"no next key is made: {reason}") from None
        if known is not None and known.public_key != own.public_key and not self._former(known.public_key).exists():
            return known
        key = PrivateKey.generate()
        key.save(self._next, self._passphrase, replace=known is not None)
        return key

    def take(self, former: PublicKey) -> None:
        """Let the next key take the place of the former one.

        Raises NodeFailed: the disk refuses. The node of the key that is in the file then goes on from there.
        """
        try:
            if not self._former(former).exists():  # as after a crash right behind this step
                self._former(former).hardlink_to(self._path)
            self._next.replace(self._path)
            sync_folder(self._path.parent)
            self.set_journal_aside(former)
        except OSError as error:
            raise NodeFailed(f"{self._next} cannot take its place: {error.strerror}") from None

    def set_journal_aside(self, former: PublicKey) -> None:
        """Move the journal of a former key out of the way of its successor's, unless that is done. Raises OSError."""
        journal = journal_path(self._path, self._chain_id)
        if journal.exists() and read_identity(journal)[1] == former:
            journal.rename(journal_path(self._former(former), self._chain_id))
            sync_folder(journal.parent)

    def finish(self, key: PublicKey) -> None:
        """Finish what a crash interrupted, before the node of ``key`` starts. Raises OSError or JournalError."""
        journal = journal_path(self._path, self._chain_id)
        if journal.exists() and (owner := read_identity(journal)[1]) != key and self._former(owner).exists():
            self.set_journal_aside(owner)

    def _former(self, key: PublicKey) -> Path:
        return self._path.with_name(f"{self._path.name}.former-{key.hex()[:16]}")


def protect_keys_beside(path: Path, old: str | None, new: str) -> None:
    """Encrypt the next key and the former ones beside a key file anew, as that file is going to be.

    A former key still signs another past, and while its member is liable for it, a crime of the member's.

    Args:
        path: of the key file.
        old: passphrase; None: they are not encrypted.
        new: passphrase. A key that has it already stays as it is, and so does a former one with yet another.

    Raises:
        KeyFileError: one of them cannot be read or written.
    """
    path = path.resolve()
    if (following := _next_of(path)).exists():
        _protect(following, old, new)
    for former in _former_of(path):
        try:
            _protect(former, old, new)
        except KeyFileError:
            if not is_encrypted(former):
                raise


def _former_of(path: Path) -> list[Path]:
    """The files of former keys, without their journals."""
    found = path.parent.glob(f"{glob.escape(path.name)}.former-*")
    return sorted(former for former in found if former.suffix.startswith(".former-"))


def _protect(path: Path, old: str | None, new: str) -> None:
    try:
        key = PrivateKey.load(path, old if is_encrypted(path) else None)
    except KeyFileError:  # it was reached before an earlier attempt was broken off
        PrivateKey.load(path, new)
    else:
        key.save(path, new, replace=True)


def _next_of(path: Path) -> Path:
    return path.with_name(f"{path.name}.next")
