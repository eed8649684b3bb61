"""A member's next key takes the file's place, and what the former one signed stays known, whatever crashes."""

import errno
import os
from pathlib import Path

import pytest

from fedchain.crypto.exceptions import KeyFileError
from fedchain.crypto.keys import PrivateKey
from fedchain.node.config import NodeFailed
from fedchain.node.custody.journal_file import JournalFile, journal_path, read_identity
from fedchain.node.membership.next_key import NextKey, protect_keys_beside

pytestmark = pytest.mark.usefixtures("quick_passphrases")

CHAIN = bytes(range(32))


def old_key(folder: Path) -> tuple[Path, PrivateKey]:
    """A key file with a journal."""
    path, key = folder / "key.pem", PrivateKey(bytes(range(1, 33)))
    key.save(path, "secret")
    with JournalFile.open(journal_path(path, CHAIN), CHAIN, key.public_key, 4) as journal:
        journal.write(b"said before")
    return path, key


def test_the_next_key_is_made_once_and_protected_as_the_one_before(tmp_path: Path) -> None:
    path, _ = old_key(tmp_path)
    files = NextKey(path, CHAIN, "secret")
    assert (files.is_there, files.read(), files.has_former) == (False, None, False)
    made = files.make()
    assert files.make() == made == files.read()
    with pytest.raises(KeyFileError):
        PrivateKey.load(tmp_path / "key.pem.next", None)


def test_a_copy_of_the_key_is_no_next_one(tmp_path: Path) -> None:
    """A backup has the next key of then, which may be the key itself by now."""
    path, key = old_key(tmp_path)
    key.save(tmp_path / "key.pem.next", "secret")
    files = NextKey(path, CHAIN, "secret")
    made = files.make()
    assert made.public_key != key.public_key
    assert files.make() == made == files.read()


def test_a_copy_of_a_former_key_is_no_next_one(tmp_path: Path) -> None:
    """Its journal is set aside: as the next one it would forget what it has signed."""
    path, former = old_key(tmp_path)
    files = NextKey(path, CHAIN, "secret")
    key = files.make()
    files.take(former.public_key)
    former.save(tmp_path / "key.pem.next", "secret")
    made = files.make()
    assert made.public_key not in (former.public_key, key.public_key)
    assert files.make() == made


def test_it_gets_another_passphrase_once(tmp_path: Path) -> None:
    path = tmp_path / "key.pem"
    PrivateKey.generate().save(path, None)
    protect_keys_beside(path, None, "new")  # there is none
    made = NextKey(path, CHAIN, None).make()
    protect_keys_beside(path, None, "new")
    before = (tmp_path / "key.pem.next").read_bytes()
    protect_keys_beside(path, None, "new")
    assert (tmp_path / "key.pem.next").read_bytes() == before
    assert NextKey(path, CHAIN, "new").read() == made
    with pytest.raises(KeyFileError):
        protect_keys_beside(path, "wrong", "wrong, too")


@pytest.mark.parametrize("old", [None, "secret"])
def test_a_key_that_was_encrypted_anew_gets_no_next_one_under_the_old_passphrase(
    tmp_path: Path, old: str | None
) -> None:
    path, key = tmp_path / "key.pem", PrivateKey.generate()
    key.save(path, old)
    files = NextKey(path, CHAIN, old)  # of a node that runs
    protect_keys_beside(path, old, "new")
    key.save(path, "new", replace=True)
    with pytest.raises(KeyFileError, match=r"^no next key is made: .*; if it was encrypted anew .* start the node"):
        files.make()
    assert not files.is_there
    assert NextKey(path, CHAIN, "new").make() is not None


def test_former_keys_get_the_passphrase_too(tmp_path: Path) -> None:
    path, former = tmp_path / "key.pem", PrivateKey(bytes(range(1, 33)))
    former.save(path, None)
    files = NextKey(path, CHAIN, None)
    with JournalFile.open(journal_path(path, CHAIN), CHAIN, former.public_key, 4) as journal:
        journal.write(b"said before")
    files.make()
    files.take(former.public_key)
    kept = tmp_path / f"key.pem.former-{former.public_key.hex()[:16]}"
    assert files.read_former(former.public_key) == former
    assert files.read_all_former() == [former], "its journal is no key"
    protect_keys_beside(path, None, "new")
    assert PrivateKey.load(kept, "new") == former
    assert files.read_former(former.public_key) is None, "it has a passphrase that this process was not given"
    assert files.read_all_former() == []
    assert files.read_former(bytes(32)) is None
    before = kept.read_bytes()
    protect_keys_beside(path, "another", "newer")
    assert kept.read_bytes() == before, "one with yet another passphrase is no reason to stop"
    assert read_identity(journal_path(kept, CHAIN))[1] == former.public_key


def test_a_former_key_that_stays_in_the_open_is_told_of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, former = tmp_path / "key.pem", PrivateKey(bytes(range(1, 33)))
    former.save(path, None)
    files = NextKey(path, CHAIN, None)
    files.make()
    files.take(former.public_key)

    def refuse(*_: object, replace: bool) -> None:
        raise KeyFileError("No space left on device")

    monkeypatch.setattr(PrivateKey, "save", refuse)
    with pytest.raises(KeyFileError, match="No space left"):
        protect_keys_beside(path, None, "new")


def test_a_member_is_known_by_its_journal_where_its_former_key_is_not(tmp_path: Path) -> None:
    path, key = old_key(tmp_path)
    stranger = PrivateKey.generate().public_key
    assert NextKey(path, CHAIN, "secret").is_known_here(key.public_key)
    assert not NextKey(path, CHAIN, "secret").is_known_here(stranger)
    assert not NextKey(path, bytes(32), "secret").is_known_here(key.public_key), "it signed on another chain"


def test_it_takes_the_place_and_the_former_key_keeps_its_journal(tmp_path: Path) -> None:
    path, old = old_key(tmp_path)
    files = NextKey(path, CHAIN, "secret")
    made = files.make()
    files.take(old.public_key)
    assert PrivateKey.load(path, "secret") == made
    assert (files.is_there, files.has_former) == (False, True)
    former = tmp_path / f"key.pem.former-{old.public_key.hex()[:16]}"
    assert PrivateKey.load(former, "secret") == old
    with JournalFile.open(journal_path(former, CHAIN), CHAIN, old.public_key, 4) as journal:
        assert journal.content() == b"said before"
    with JournalFile.open(journal_path(path, CHAIN), CHAIN, made.public_key, 4) as journal:
        assert journal.content() is None


def test_a_crash_between_key_and_journal_is_finished_at_the_next_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, old = old_key(tmp_path)
    files = NextKey(path, CHAIN, "secret")
    made = files.make()
    with monkeypatch.context() as crash:
        crash.setattr(NextKey, "set_journal_aside", lambda self, former: None)
        files.take(old.public_key)
    assert read_identity(journal_path(path, CHAIN))[1] == old.public_key
    files.finish(made.public_key)
    assert not journal_path(path, CHAIN).exists()
    files.finish(made.public_key)


def test_a_crash_before_the_next_key_has_its_place_is_made_up_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, old = old_key(tmp_path)
    files = NextKey(path, CHAIN, "secret")
    made = files.make()

    def crash(source: Path, target: Path) -> Path:
        raise SystemExit

    def refuse(source: Path, target: Path) -> Path:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as crashing:
        crashing.setattr(Path, "replace", crash)
        with pytest.raises(SystemExit):
            files.take(old.public_key)
        assert read_identity(journal_path(path, CHAIN))[1] == old.public_key, "its node may sign with it"
        crashing.setattr(Path, "replace", refuse)
        with pytest.raises(NodeFailed, match=r"key\.pem\.next cannot take its place: No space left on device"):
            files.take(old.public_key)
    assert (PrivateKey.load(path, "secret"), files.read()) == (old, made)
    files.finish(old.public_key)  # the former key's node starts, hears of the change, and ends again
    files.take(old.public_key)
    assert PrivateKey.load(path, "secret") == made
    assert PrivateKey.load(tmp_path / f"key.pem.former-{old.public_key.hex()[:16]}", "secret") == old
    assert not journal_path(path, CHAIN).exists()


def test_another_key_s_journal_is_left_where_it_is(tmp_path: Path) -> None:
    path, _ = old_key(tmp_path)
    NextKey(path, CHAIN, "secret").finish(PrivateKey(bytes(32)).public_key)
    assert journal_path(path, CHAIN).exists(), "no former key of this file: the node says what is wrong"
