"""A record: cut, flipped, another run's, in use, and its large contents."""

import errno
import fcntl
import os
import shutil
from dataclasses import replace
from pathlib import Path
from typing import BinaryIO

import pytest

from fedchain.chain.block import Header
from fedchain.crypto.hashing import sha256
from fedchain.learning.executors.handover import LARGE_SIZE
from fedchain.simulator.resuming.answers import Batch
from fedchain.simulator.resuming.record import LOG, Record, RecordError, RecordInUse, reading_timeline
from tests.support.chain.builders import ChainBuilder, genesis
from tests.support.simulator.recorded import IDENTITY, QUESTION, answer_of
from tests.support.simulator.recorded import record as record


def test_a_record_that_is_cut_holds_its_first_frames(record: Record, tmp_path: Path) -> None:
    log = tmp_path / "record" / LOG
    ends = [log.stat().st_size]
    for number in (1, 2, 3):
        record.add(0, number, Batch(0, number, 1), answer_of(record))
        ends.append(log.stat().st_size)
    record.close()
    whole = log.read_bytes()
    for length in range(0, len(whole) + 1, 3):
        log.write_bytes(whole[:length])
        cut = Record.open(tmp_path / "record", IDENTITY)
        assert cut.count(0) == sum(end <= length for end in ends[1:])
        cut.add(0, cut.count(0) + 1, Batch(0, cut.count(0) + 1, 1), answer_of(cut))  # it goes on behind them
        assert cut.answer(0, cut.count(0)).question == QUESTION
        cut.close()


def test_a_bit_that_was_flipped_ends_the_record_there(record: Record, tmp_path: Path) -> None:
    log = tmp_path / "record" / LOG
    record.add(0, 1, Batch(0, 1, 1), answer_of(record))
    end = log.stat().st_size
    record.add(0, 2, Batch(0, 2, 1), answer_of(record))
    record.close()
    whole = log.read_bytes()
    for place in range(end, len(whole)):
        data = bytearray(whole)
        data[place] ^= 1
        log.write_bytes(data)
        again = Record.open(tmp_path / "record", IDENTITY)
        assert (again.count(0), again.clients()) == (1, [0]), place
        again.close()


def test_of_answers_that_were_computed_together_a_record_has_all_or_none(record: Record, tmp_path: Path) -> None:
    """The others would be computed alone, to other last bits."""
    for client, count in ((0, 0), (1, 1)):
        record.add(client, 1, Batch(0, 1, 2), answer_of(record))
        record.close()
        record = Record.open(tmp_path / "record", IDENTITY)
        assert [record.count(one) for one in (0, 1)] == [count, count]
    record.close()


def test_a_round_that_goes_otherwise_than_in_the_record_is_told(record: Record, tmp_path: Path) -> None:
    record.close_round(1, bytes(32), {})
    record.close()
    again = Record.open(tmp_path / "record", IDENTITY)
    with pytest.raises(RecordError, match="round 1 differs from the record"):
        again.close_round(1, b"1" * 32, {})
    again.close()


def test_large_contents_are_files_which_are_looked_for_and_checked(record: Record, tmp_path: Path) -> None:
    large, other = bytes(LARGE_SIZE), b"1" * LARGE_SIZE
    assert record.put(other) == record.put(other)
    record.add(0, 1, Batch(0, 1, 1), answer_of(record, large, other))
    record.add(0, 2, Batch(0, 2, 1), answer_of(record, other))
    assert (tmp_path / "record" / LOG).stat().st_size < LARGE_SIZE
    payload = record.answer(0, 1).payload
    assert payload is not None
    assert record.read(payload) == large
    path = tmp_path / "record" / "contents" / payload.hash.hex()
    path.write_bytes(large[:-1] + b"1")
    with pytest.raises(RecordError, match="was damaged and is deleted; the next attempt"):
        record.read(payload)
    record.close()
    again = Record.open(tmp_path / "record", IDENTITY)
    assert again.count(0) == 0
    again.close()


def expect_in_use(folder: Path) -> None:
    """Another process is refused the record: neither can it go on with the run, nor draw it."""
    if not (child := os.fork()):
        wrong = 0
        for opened in (lambda: Record.open(folder, IDENTITY), lambda: reading_timeline(folder).__enter__()):
            try:
                opened()
                wrong += 1
            except RecordError as error:
                wrong += str(error) != f"{folder.parent} is in use by another process"
            except BaseException:
                wrong += 1
        os._exit(wrong)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 0


def test_a_record_has_one_user_and_one_version(record: Record, tmp_path: Path) -> None:
    folder = tmp_path / "record"
    expect_in_use(folder)
    record.close()
    for name in ("contents", "states"):  # a process was killed while it deleted the folder
        (folder / name).rmdir()
    Record.open(folder, IDENTITY).close()
    (folder / "states" / "x-1").touch()  # no client's
    Record.open(folder, IDENTITY).close()
    assert not list((folder / "states").iterdir())
    with pytest.raises(RecordError, match="was begun with fedchain 1, and this is fedchain 2: it cannot go on"):
        Record.open(folder, {"fedchain": "2"})
    with pytest.raises(RecordError, match="has no record of what was computed"):
        Record.open(tmp_path / "other", IDENTITY)


def test_a_worker_of_the_killed_run_may_still_name_its_state(
    record: Record, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The file that a listing of the folder has is then gone."""
    record.close()
    listed = Path.iterdir
    monkeypatch.setattr(Path, "iterdir", lambda path: [*listed(path), path / "0-1.part"])
    Record.open(tmp_path / "record", IDENTITY).close()


def test_a_record_is_in_use_until_all_of_it_is_gone(
    record: Record, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, deleted, remove = tmp_path / "record", list[Path](), shutil.rmtree

    def removing(path: Path) -> None:
        expect_in_use(folder)
        remove(path)
        deleted.append(path)

    monkeypatch.setattr(shutil, "rmtree", removing)
    record.delete()
    assert deleted == [folder]


def test_a_record_that_is_deleted_while_another_process_opens_it_is_gone(record: Record, tmp_path: Path) -> None:
    """The second process has the file open already, and gets the lock of a file that has no name any more."""
    lock, (opens, has_opened), (deletes, has_deleted) = fcntl.lockf, os.pipe(), os.pipe()

    def locking(file: BinaryIO, how: int) -> None:
        os.write(has_opened, b"1")
        os.read(deletes, 1)
        lock(file, how)

    if not (child := os.fork()):
        try:
            fcntl.lockf = locking  # type: ignore[assignment]
            Record.open(tmp_path / "record", IDENTITY)
        except RecordError as error:
            os._exit("has no record of what was computed" not in str(error))
        finally:
            os._exit(2)
    os.read(opens, 1)
    record.delete()
    os.write(has_deleted, b"1")
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 0
    for end in (opens, has_opened, deletes, has_deleted):
        os.close(end)


def test_two_runs_of_a_process_do_not_share_a_record(record: Record, tmp_path: Path) -> None:
    """The lock of files is a process's: a second one of the same process would be given, and end the first."""
    for opened in (Record.open, lambda folder, _: reading_timeline(folder).__enter__()):
        with pytest.raises(RecordError, match="is in use by another run of this process"):
            opened(tmp_path / "record", IDENTITY)
    expect_in_use(tmp_path / "record")
    record.close()
    Record.open(tmp_path / "record", IDENTITY).close()


def test_a_record_that_another_process_has_just_begun_is_in_use(record: Record, tmp_path: Path) -> None:
    """Two comparisons that began together in one folder: the second said that the record's folder exists."""
    with pytest.raises(RecordInUse, match="is in use by another process"):
        Record.create(tmp_path / "record", IDENTITY)


def test_a_full_disk_is_that_of_the_record_s_file(
    record: Record, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    size = (log := tmp_path / "record" / LOG).stat().st_size
    with monkeypatch.context() as patched:
        patched.setattr("os.pwrite", full)
        with pytest.raises(OSError, match="No space left") as raised:
            record.close_round(1, b"trace", {})
    assert (raised.value.filename, log.stat().st_size) == (str(log), size)
    name = sha256(large := bytes(LARGE_SIZE)).hex()
    (log.parent / "contents" / f"{name}.unfinished").symlink_to("/dev/full")
    with pytest.raises(OSError, match="No space left") as raised:
        record.put(large)
    assert raised.value.filename == str(log.parent / "contents" / name)
    assert not [*(log.parent / "contents").iterdir()]


def test_the_state_after_the_newest_answer_is_kept_and_one_without_an_answer_goes(
    record: Record, tmp_path: Path
) -> None:
    """Otherwise all that the client did would be computed again."""
    for number in (1, 2):
        record.add(0, number, Batch(0, number, 1), answer_of(record))
    for number in (2, 3):  # the process was killed between the third state and its answer
        record.state_path(0, number).touch()
    record.close()
    again = Record.open(tmp_path / "record", IDENTITY)
    assert again.states(0) == [2]
    assert [path.name for path in (tmp_path / "record" / "states").iterdir()] == ["0-2"]
    again.close()


def test_a_round_that_was_closed_is_on_the_disk(
    record: Record, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced, log = list[int](), tmp_path / "record" / LOG
    monkeypatch.setattr("os.fsync", lambda descriptor: synced.append(os.fstat(descriptor).st_size))
    record.close_round(1, bytes(32), {})
    assert synced == [log.stat().st_size]


def test_half_of_a_frame_that_a_full_disk_took_is_cut_off(
    record: Record, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write, size = os.pwrite, (log := tmp_path / "record" / LOG).stat().st_size

    def half(descriptor: int, data: bytes, offset: int) -> int:
        if offset > size:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return write(descriptor, data[: len(data) // 2], offset)

    monkeypatch.setattr("os.pwrite", half)
    with pytest.raises(OSError, match="No space left"):
        record.close_round(1, bytes(32), {})
    assert log.stat().st_size == size


def test_a_nonce_is_searched_once_whatever_interrupts_the_run(record: Record, tmp_path: Path) -> None:
    header, searched = ChainBuilder(genesis()).extend().header, list[tuple[int, int]]()

    def seal(header: Header, start: int) -> Header:
        searched.append((header.round, start))
        return replace(header, nonce=start + 7)

    asked = [(header, 0), (header, 5), (replace(header, round=2), 5)]
    for sealed in (record.remembering(seal), record.remembering(seal)):
        assert [sealed(*item).nonce for item in asked] == [7, 12, 12]
    record.close()
    again = Record.open(tmp_path / "record", IDENTITY)
    assert [again.remembering(seal)(*item).nonce for item in asked] == [7, 12, 12]
    assert searched == [(1, 0), (1, 5), (2, 5)]
    again.close()
