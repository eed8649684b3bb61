"""The signing journal: whatever tears, rots or fills up, nothing that was signed is forgotten in silence."""

import errno
import os
from collections.abc import Callable, Collection, Iterator, Sequence
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fedchain.crypto.keys import PrivateKey
from fedchain.node.config import NodeConfigError, NodeFailed
from fedchain.node.custody.journal_file import (
    CONTENT_SIZE_MIN,
    HEADER_SIZE,
    MAGIC,
    JournalError,
    JournalFile,
    content_size_max,
    copy_size,
    file_size,
    journal_path,
    read_identity,
)

MEMBERS = 4
CONTENT_SIZE_MAX, COPY_SIZE, FILE_SIZE = content_size_max(MEMBERS), copy_size(MEMBERS), file_size(MEMBERS)

CHAIN, OTHER_CHAIN = bytes(range(32)), bytes(32)
KEY, OTHER_KEY = (PrivateKey(bytes([number]) * 32).public_key for number in (1, 2))

SECTOR_SIZE = 512

Piece = tuple[int, bytes]
"""Where, and what."""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return journal_path(tmp_path / "key.pem", CHAIN)


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> list[list[Piece]]:
    """The pieces written between one fsync and the next. Nothing waits for the real disk."""
    batches: list[list[Piece]] = [[]]
    write = os.pwrite

    def note(descriptor: int, data: bytes, offset: int) -> int:
        batches[-1].append((offset, bytes(data)))
        return write(descriptor, data, offset)

    monkeypatch.setattr("os.pwrite", note)
    monkeypatch.setattr("os.fdatasync", lambda descriptor: batches.append([]))
    monkeypatch.setattr("os.fsync", lambda descriptor: None)
    return batches


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Copies of some sectors, for tests that write a thousand files, each of which would have 4 MiB."""
    monkeypatch.setattr("fedchain.node.custody.journal_file.OWN_SIZE", 8_192)
    monkeypatch.setattr("fedchain.node.custody.journal_file.CONTENT_SIZE_MIN", 0)


def opened(path: Path) -> JournalFile:
    return JournalFile.open(path, CHAIN, KEY, MEMBERS)


def read(path: Path) -> bytes | None:
    """The journal as a node that starts now reads it."""
    with opened(path) as journal:
        return journal.content()


def said(path: Path, chain_id: bytes = CHAIN, public_key: bytes = KEY) -> str:
    """Why the journal cannot be opened."""
    with pytest.raises(JournalError) as caught:
        JournalFile.open(path, chain_id, public_key, MEMBERS)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def filled(path: Path, *contents: bytes) -> bytes:
    """The file's bytes after some writes."""
    with opened(path) as journal:
        for content in contents:
            journal.write(content)
    return path.read_bytes()


# what it is for


@pytest.mark.parametrize("members", [1, 8_192, 15_300, 65_536])
def test_it_has_room_for_the_proof_of_a_lock_however_many_vote(
    path: Path, disk: list[list[Piece]], members: int
) -> None:
    """A node that could not write it down would end at the height where it locks."""
    with JournalFile.open(path, CHAIN, KEY, members) as journal:
        assert path.stat().st_size == file_size(members)
        journal.write(bytes(content_size_max(members)))
    with JournalFile.open(path, CHAIN, KEY, members) as journal:
        assert journal.content() == bytes(content_size_max(members))
    assert file_size(8_192) == FILE_SIZE, "files of all but the largest federations stay as they are"
    assert content_size_max(8_193) > CONTENT_SIZE_MIN


def test_what_was_written_last_is_read(path: Path) -> None:
    contents = [b"", b"one", b"two", bytes(CONTENT_SIZE_MAX), b"x"]
    with opened(path) as journal:
        assert journal.content() is None
        for number, content in enumerate(contents, start=1):
            journal.write(content)
            assert (journal.content(), journal.sequence) == (content, number)
    for number, content in enumerate(contents):
        path.unlink()
        filled(path, *contents[: number + 1])
        assert read(path) == content


def test_nothing_written_and_nothing_to_say_are_two_things(path: Path) -> None:
    with opened(path) as journal:
        assert journal.content() is None
        journal.write(b"")
    assert read(path) == b""


def test_the_same_again_costs_nothing(path: Path, disk: list[list[Piece]]) -> None:
    with opened(path) as journal:
        journal.write(b"one")
        before = len(disk)
        journal.write(b"one")
        assert (len(disk), journal.sequence) == (before, 1)


def test_a_write_costs_one_fsync_and_leaves_the_size_as_it_is(path: Path, disk: list[list[Piece]]) -> None:
    with opened(path) as journal:
        for number in range(4):
            before = len(disk)
            journal.write(bytes(number * 1_000))
            assert len(disk) == before + 1
            assert path.stat().st_size == FILE_SIZE


def test_it_lies_beside_the_key_one_for_each_chain(tmp_path: Path) -> None:
    (tmp_path / "link.pem").symlink_to(tmp_path / "key.pem")
    assert journal_path(tmp_path / "key.pem", CHAIN) == tmp_path / "key.pem.00010203.journal"
    assert journal_path(tmp_path / "link.pem", CHAIN) == journal_path(tmp_path / "key.pem", CHAIN)
    assert journal_path(tmp_path / "key.pem", OTHER_CHAIN) != journal_path(tmp_path / "key.pem", CHAIN)


def test_only_its_owner_may_use_it(path: Path) -> None:
    before = os.umask(0)
    try:
        opened(path).close()
        assert path.stat().st_mode & 0o777 == 0o600
        path.chmod(0o644)
        opened(path).close()
        assert path.stat().st_mode & 0o777 == 0o600
    finally:
        os.umask(before)
    assert [item.name for item in path.parent.iterdir()] == [path.name]


def test_two_processes_with_one_key_refuse_each_other(path: Path) -> None:
    with opened(path) as journal:
        journal.write(b"one")
        assert said(path).endswith("is in use: another process on this machine signs with this key")
        journal.write(b"two")
    assert read(path) == b"two"


def test_who_comes_second_does_not_begin_anew(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Both have looked, and neither has seen a journal.
    filled(path, b"of the first")
    monkeypatch.setattr(Path, "exists", lambda self: False)
    assert read(path) == b"of the first"
    assert [item.name for item in path.parent.iterdir()] == [path.name]


def test_the_journal_of_another_chain_or_key(path: Path) -> None:
    content = filled(path, b"one")
    assert said(path, OTHER_CHAIN).endswith(f"is of chain {CHAIN.hex()}, not of {OTHER_CHAIN.hex()}")
    assert "is of the key of 12D3KooW" in said(path, CHAIN, OTHER_KEY)
    assert path.read_bytes() == content


def test_too_much_is_refused_and_changes_nothing(path: Path) -> None:
    with opened(path) as journal:
        journal.write(b"one")
        with pytest.raises(JournalError, match=f"takes {CONTENT_SIZE_MAX} bytes, not {CONTENT_SIZE_MAX + 1}"):
            journal.write(bytes(CONTENT_SIZE_MAX + 1))
        journal.write(b"two")
    assert read(path) == b"two"


def test_it_is_an_error_of_the_node_s_settings() -> None:
    assert issubclass(JournalError, NodeConfigError)  # so that it is one line and exit code 2


# torn writes


def torn(image: bytes, pieces: Sequence[Piece], length: int) -> bytes:
    """The disk when only the first ``length`` bytes of what was written have reached it."""
    found = bytearray(image)
    for offset, data in pieces:
        found[offset : offset + min(length, len(data))] = data[:length]
        length = max(0, length - len(data))
    return bytes(found)


def scattered(image: bytes, pieces: Sequence[Piece], kept: Collection[int]) -> bytes:
    """The disk when some sectors of what was written have reached it and others have not."""
    found = bytearray(image)
    for offset, data in pieces:
        for place in range(offset, offset + len(data)):
            if place // SECTOR_SIZE in kept:
                found[place] = data[place - offset]
    return bytes(found)


def batches_of(path: Path, disk: list[list[Piece]], contents: Sequence[bytes]) -> Iterator[tuple[bytes, list[Piece]]]:
    """For each write: the disk before it, and what it writes."""
    for number in range(len(contents)):
        path.unlink(missing_ok=True)
        before = filled(path, *contents[:number])
        with opened(path) as journal:
            disk.append([])
            journal.write(contents[number])
        yield before, disk[-2]


SEQUENCES = [[b"one"], [b"", b"1"], [b"one", b"two", b"three"], [b"long" * 9, b"a", b"long" * 9, b"b"]]


@pytest.mark.long
@pytest.mark.parametrize("contents", SEQUENCES)
def test_a_write_torn_at_any_byte_leaves_the_one_before_or_is_whole(
    path: Path, disk: list[list[Piece]], small: None, contents: list[bytes]
) -> None:
    for number, (image, pieces) in enumerate(batches_of(path, disk, contents)):
        before = contents[number - 1] if number else None
        size = sum(len(data) for _, data in pieces)
        assert len(pieces) == 2
        for length in range(size + 1):
            path.write_bytes(torn(image, pieces, length))
            found = read(path)
            assert found == contents[number] if length >= size / 2 else found in (before, contents[number])
            assert read(path) == found, "what was believed once is believed again"


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(draws=st.data(), contents=st.lists(st.binary(max_size=3_000), min_size=1, max_size=4))
def test_any_sectors_of_a_write_may_be_missing(
    path: Path, disk: list[list[Piece]], small: None, draws: st.DataObject, contents: list[bytes]
) -> None:
    contents = [bytes([number]) + content for number, content in enumerate(contents)]
    for number, (image, pieces) in enumerate(batches_of(path, disk, contents)):
        before = contents[number - 1] if number else None
        touched = sorted({place // SECTOR_SIZE for at, data in pieces for place in range(at, at + len(data))})
        kept = draws.draw(st.sets(st.sampled_from(touched)))
        path.write_bytes(scattered(image, pieces, kept))
        found = read(path)
        assert found in (before, contents[number])
        with opened(path) as journal:
            journal.write(b"and on")
        assert read(path) == b"and on"


def test_what_is_believed_is_on_the_disk_twice_before_it_is_told(path: Path, disk: list[list[Piece]]) -> None:
    image, pieces = list(batches_of(path, disk, [b"one", b"two"]))[1]
    path.write_bytes(torn(image, pieces, len(pieces[0][1])))  # one copy of two
    journal = opened(path)
    healed = path.read_bytes()
    journal.close()
    assert healed == torn(image, pieces, FILE_SIZE)
    assert disk[-2] == [pieces[1]], "the copy that is whole is not written again"


# damage


def test_damage_never_brings_back_what_was_before(path: Path, disk: list[list[Piece]], small: None) -> None:
    image = filled(path, b"one", b"two", b"three", b"four")
    header = len(MAGIC) + 96
    records = [HEADER_SIZE + copy_size(MEMBERS) * copy + place for copy in range(4) for place in range(64)]
    for place in [*range(header), *records]:
        damaged = bytearray(image)
        damaged[place] ^= 0x40
        path.write_bytes(damaged)
        if place < header:
            assert "is damaged, or no signing journal" in said(path)
        else:
            assert read(path) == b"four"


@pytest.mark.parametrize("copies", [(0,), (1,), (2,), (3,), (0, 2), (1, 3), (0, 3), (1, 2), (2, 3), (1, 2, 3)])
def test_a_lost_copy_of_the_newest_is_replaced_by_the_other(path: Path, copies: tuple[int, ...]) -> None:
    image = bytearray(filled(path, b"one", b"two"))  # the newest is in slot 0, of which are copies 0 and 1
    for copy in copies:
        start = HEADER_SIZE + copy * COPY_SIZE
        image[start : start + COPY_SIZE] = bytes(COPY_SIZE)
    path.write_bytes(image)
    assert read(path) == b"two"
    healed = path.read_bytes()[HEADER_SIZE:]
    assert healed[:COPY_SIZE] == healed[COPY_SIZE : 2 * COPY_SIZE]


def test_a_sector_that_cannot_be_read_is_replaced_by_the_other(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    filled(path, b"one", b"two")
    real = os.pread

    def broken(descriptor: int, size: int, offset: int) -> bytes:
        if offset == HEADER_SIZE:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return real(descriptor, size, offset)

    monkeypatch.setattr("os.pread", broken)
    assert read(path) == b"two"


@pytest.mark.parametrize("slot", [0, 1])
def test_a_disk_that_gives_neither_copy_of_a_slot_brings_no_earlier_record_back(
    path: Path, monkeypatch: pytest.MonkeyPatch, slot: int
) -> None:
    """The one before was taken, by which the key could have signed a second time."""
    filled(path, b"one", b"two")
    real, starts = os.pread, [HEADER_SIZE + (2 * slot + copy) * COPY_SIZE for copy in (0, 1)]

    def broken(descriptor: int, size: int, offset: int) -> bytes:
        if offset in starts:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return real(descriptor, size, offset)

    with monkeypatch.context() as patch:
        patch.setattr("os.pread", broken)
        with pytest.raises(NodeFailed, match="Input/output error; nothing is signed until it answers"):
            opened(path)
    assert read(path) == b"two"


def test_a_file_without_a_whole_record_is_not_taken_for_an_empty_one(path: Path) -> None:
    image = filled(path, b"one", b"two")
    path.write_bytes(image[:HEADER_SIZE] + bytes(FILE_SIZE - HEADER_SIZE))
    assert "none of its four records is whole; move it away and import" in said(path)
    path.write_bytes(bytes(FILE_SIZE))
    assert "is damaged, or no signing journal; move it away and import" in said(path)


@pytest.mark.parametrize("size", [0, 1, HEADER_SIZE, FILE_SIZE - 1, FILE_SIZE + 1])
def test_a_file_of_another_size_is_not_taken_for_an_empty_one(path: Path, size: int) -> None:
    path.write_bytes(filled(path, b"one").ljust(size, b"\0")[:size])
    assert f"it has {size} bytes, not {FILE_SIZE}; move it away and import" in said(path)
    assert path.stat().st_size == size


def test_a_link_is_not_followed(path: Path, tmp_path: Path) -> None:
    filled(path, b"one")
    path.rename(tmp_path / "elsewhere")
    path.symlink_to(tmp_path / "elsewhere")
    assert "Too many levels of symbolic links" in said(path)


@pytest.mark.parametrize(
    ("put", "why"),
    [
        (os.mkfifo, "is damaged, or no signing journal"),
        (Path.mkdir, "cannot be read: Is a directory"),
        (lambda path: path.symlink_to(path), "cannot be read: Too many levels of symbolic links"),
    ],
)
def test_what_is_no_file_in_its_place_keeps_nobody_waiting(path: Path, put: Callable[[Path], None], why: str) -> None:
    put(path)
    with pytest.raises(JournalError, match=why):
        read_identity(path)


# a disk that refuses


def test_short_writes_are_continued(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = os.pwrite
    monkeypatch.setattr("os.pwrite", lambda descriptor, data, offset: real(descriptor, data[:7], offset))
    filled(path, b"one", b"a longer content than seven bytes")
    assert read(path) == b"a longer content than seven bytes"


@pytest.mark.parametrize("room", [0, 1, 43, 50, 60])
def test_a_full_disk_is_told_and_nothing_more_is_signed(path: Path, monkeypatch: pytest.MonkeyPatch, room: int) -> None:
    real, left = os.pwrite, [room]

    def full(descriptor: int, data: bytes, offset: int) -> int:
        if left[0] == 0:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        count = real(descriptor, data[: left[0]], offset)
        left[0] -= count
        return count

    with opened(path) as journal:
        journal.write(b"one")
        with monkeypatch.context() as patch:
            patch.setattr("os.pwrite", full)
            with pytest.raises(JournalError, match="No space left on device; nothing is signed until there is room"):
                journal.write(b"two")
        assert journal.content() == b"one"
        with pytest.raises(JournalError, match="could not be written before; start the node again"):
            journal.write(b"three")
        with pytest.raises(JournalError, match="could not be written before"):
            journal.write(b"one")
    assert read(path) == (b"two" if room >= 47 else b"one")


def test_a_disk_that_does_not_keep_what_it_took(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(descriptor: int) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    with opened(path) as journal:
        with monkeypatch.context() as patch:
            patch.setattr("os.fdatasync", fails)
            with pytest.raises(JournalError, match="the signing journal cannot be written: Input/output error"):
                journal.write(b"one")
        with pytest.raises(JournalError, match="could not be written before"):
            journal.write(b"one")
    with monkeypatch.context() as patch:
        patch.setattr("os.fdatasync", fails)
        assert "Input/output error" in said(path)  # what is read may not be on the disk
    assert read(path) == b"one"


def test_a_disk_that_writes_nothing(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with opened(path) as journal:
        monkeypatch.setattr("os.pwrite", lambda descriptor, data, offset: 0)
        with pytest.raises(JournalError, match="Input/output error"):
            journal.write(b"one")


def test_no_room_to_begin(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr("os.fsync", full)
        with pytest.raises(NodeFailed, match="No space left on device"):  # a service manager tries again
            opened(path)
    assert list(path.parent.iterdir()) == []
    assert read(path) is None


def test_a_folder_that_is_not_there(tmp_path: Path) -> None:
    assert "No such file or directory" in said(tmp_path / "none" / "key.pem.00010203.journal")
