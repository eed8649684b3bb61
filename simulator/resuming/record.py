"""The record of a run: its contributions and nonces in order, so that an interrupted run can be replayed cheaply.

A run follows from its scenario. Given the peers' contributions and the nonces that they found, replaying everything
else reproduces the same run. The folder holds::

    record.log          frames, appended one after the other: size (4), check (8), content as MessagePack
    contents/abcd…      payloads and parts that are too large for a frame, under the hexadecimal of their SHA-256
    states/3-17         state of client 3 after its 17th answer; the newest one of each client

If a process was killed while it wrote a frame, the frame is cut off, and its content is computed again. A process that
is killed leaves everything that it wrote; after a power failure, the rounds that were closed are there.
"""

import fcntl
import hashlib
import os
import shutil
import threading
from array import array
from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import astuple, replace
from pathlib import Path
from typing import Any, BinaryIO, Self
from weakref import WeakKeyDictionary

import msgpack

from fedchain.chain.block import Header
from fedchain.crypto.durable import sync_folder
from fedchain.crypto.hashing import Hash, sha256
from fedchain.files.spool import naming, unfinished, write_whole
from fedchain.learning.executors.handover import LARGE_SIZE
from fedchain.simulator.engine.measurement import Span
from fedchain.simulator.engine.sealing import Seal
from fedchain.simulator.resuming.answers import Batch, Content, RecordedAnswer, read_answer, write_answer
from fedchain.simulator.scenario import ScenarioError

LOG, CONTENTS, STATES = "record.log", "contents", "states"

FORMAT = 2
"""Version of the frames' format."""

SIZE_SIZE, CHECK_SIZE = 4, 8
HEAD_SIZE = SIZE_SIZE + CHECK_SIZE


_OPENED: WeakKeyDictionary[BinaryIO, tuple[int, os.stat_result]] = WeakKeyDictionary()
"""Logs that were opened, each with the id of the process that opened it and the status of the file. A process that is
forked inherits this table, and none of the locks."""

_OPENING = threading.Lock()
"""Held while one is opened."""


class RecordError(ScenarioError):
    """A run cannot continue from its record; the message says why."""


class RecordInUse(RecordError):
    """Another process has the record open, or another run of this one."""


class Record:
    """An open record. One process has it at a time. Use :meth:`create` or :meth:`open`."""

    def __init__(self, folder: Path, identity: Mapping[str, str]) -> None:
        self.rounds: list[bytes] = []
        """Hash of the trace at the end of each closed round."""
        self.resumptions = 0
        """Number of times that the run was resumed."""
        self.rounds_before = 0
        """Number of rounds that were closed when the record was opened."""
        self._folder, self._identity = folder, dict(identity)
        self._offsets: dict[int, array[int]] = {}  # by client: offsets of its answers' frames
        self._states: dict[int, set[int]] = defaultdict(set)  # by client: numbers of the answers with a state
        self._nonces: dict[bytes, int] = {}
        self._size = 0  # of all whole frames
        self._file = _open_locked(folder)

    @classmethod
    def create(cls, folder: Path, identity: Mapping[str, str]) -> Self:
        """Begin a record in a folder that does not exist.

        Args:
            folder: folder of the record.
            identity: dependencies of the run by name: the programs' versions, its scenario, the user's own files.

        Raises:
            RecordInUse: it exists, as another process has just begun it.
        """
        try:
            folder.mkdir(mode=0o700)
        except FileExistsError:
            raise RecordInUse(f"{folder.parent} is in use by another process") from None
        for path in (folder / CONTENTS, folder / STATES):
            path.mkdir(mode=0o700)
        (folder / LOG).touch(mode=0o600)
        sync_folder(folder)
        record = cls(folder, identity)
        record._append(["begun", FORMAT, record._identity])
        return record

    @classmethod
    def open(cls, folder: Path, identity: Mapping[str, str]) -> Self:
        """Open the record of an interrupted run, to go on with it. Raises RecordError."""
        try:
            record = cls(folder, identity)
        except FileNotFoundError:
            raise RecordError(f"{folder.parent} has no record of what was computed, so it cannot go on") from None
        try:
            for path in (folder / CONTENTS, folder / STATES):  # a process may have been killed while it deleted them
                path.mkdir(mode=0o700, exist_ok=True)
            record._read()
            record.rounds_before = len(record.rounds)
            record.resumptions += 1
            record._append(["resumed"])
        except BaseException:
            record.close()
            raise
        return record

    def close(self) -> None:
        """Close it, so that another process can open it."""
        self._file.close()

    def delete(self) -> None:
        """Delete and close it: the run is finished. Another process finds it locked until all of it is gone."""
        shutil.rmtree(self._folder)
        self.close()

    # contributions

    def clients(self) -> list[int]:
        """Clients with answers, ascending."""
        return sorted(self._offsets)

    def count(self, client: int) -> int:
        """Number of a client's answers; they are numbered from 1."""
        return len(self._offsets.get(client, ()))

    def answer(self, client: int, number: int) -> RecordedAnswer:
        """One of a client's answers."""
        found = read_frame(self._file.fileno(), self._offsets[client][number - 1])
        assert found is not None, "the frame was whole when it was written or read"
        return read_answer(client, found[0][-1])

    def add(self, client: int, number: int, batch: Batch, answer: RecordedAnswer) -> None:
        """Write an answer. If the record has it already, it must be the same; raises RecordError if it is not."""
        plain = write_answer(answer)
        self._states[client].add(number)
        if number <= self.count(client):
            if msgpack.packb(write_answer(self.answer(client, number))) != msgpack.packb(plain):
                asked = answer.question
                raise RecordError(
                    f"peer {client}'s contribution to phase {asked.phase} of round {asked.round} differs from the "
                    f"record in {self._folder.parent}, which another program or machine computed"
                )
            return
        assert number == self.count(client) + 1, "a client's answers come in order"
        offset = self._append(["answer", client, number, [batch.client, batch.number, batch.size], plain])
        self._offsets.setdefault(client, array("Q")).append(offset)

    def put(self, content: bytes) -> Content:
        """Keep a payload or part."""
        content_hash = sha256(content)
        if len(content) < LARGE_SIZE:
            return Content(content_hash, content)
        path = self._content_path(content_hash)
        if not path.exists():
            write_whole(content, path)
        return Content(content_hash, None)

    def take(self, content_hash: Hash, path: Path) -> Content:
        """Keep a large payload that lies in a file. The file is moved; its bytes are written again only where it lies
        on another file system, as a folder of temporary files may."""
        target = self._content_path(content_hash)
        if target.exists():
            path.unlink()
        else:
            with unfinished(target) as other:
                shutil.move(path, other)
        return Content(content_hash, None)

    def read(self, content: Content) -> bytes:
        """The bytes of a payload or part. Raises RecordError if their file is damaged."""
        if content.data is not None:
            return content.data
        path = self._content_path(content.hash)
        data = path.read_bytes()
        if sha256(data) != content.hash:
            path.unlink()
            raise RecordError(f"{path} was damaged and is deleted; the next attempt computes it again")
        return data

    # states of clients

    def state_path(self, client: int, number: int) -> Path:
        """File of a client's state after one of its answers; a training process writes it."""
        return self._folder / STATES / f"{client}-{number}"

    def states(self, client: int) -> list[int]:
        """Numbers of a client's answers with a state after them, the newest first."""
        return sorted(self._states[client], reverse=True)

    def forget_states(self, client: int, number: int) -> None:
        """Delete a client's states that are older than the one after answer ``number``."""
        for older in [known for known in self._states[client] if known < number]:
            self.state_path(client, older).unlink(missing_ok=True)
            self._states[client].remove(older)

    # nonces and rounds

    def remembering(self, seal: Seal) -> Seal:
        """The same search for nonces, which returns those in the record, and adds others to it."""

        def sealed(header: Header, start: int) -> Header:
            key = header.seal() + start.to_bytes(8, "big")
            if key in self._nonces:
                return replace(header, nonce=self._nonces[key])
            found = seal(header, start)
            self._nonces[key] = found.nonce
            self._append(["seal", key, found.nonce])
            return found

        return sealed

    def close_round(self, round_number: int, trace: bytes, timeline: Mapping[tuple[int, int], Span]) -> None:
        """Note that a round was closed. Raises RecordError if the record has another trace of it.

        Args:
            round_number: number of the round, from 1.
            trace: SHA-256 over all events of the run so far.
            timeline: times of each peer's work in this round and the one before, by peer number and round.
        """
        if round_number <= len(self.rounds):
            if self.rounds[round_number - 1] != trace:
                raise RecordError(
                    f"round {round_number} differs from the record in {self._folder.parent}, which another program or "
                    "machine computed"
                )
            return
        self.rounds.append(trace)
        newest = [(key, astuple(span)) for key, span in timeline.items()]
        self._append(["round", trace, newest])
        os.fsync(self._file.fileno())

    # frames

    def _append(self, content: Any) -> int:
        """Write one frame; returns its offset."""
        data, begun = msgpack.packb(content), self._size
        size = len(data).to_bytes(SIZE_SIZE, "big")
        frame = memoryview(size + _check(size, data) + data)
        try:
            with naming(self._folder / LOG):
                while frame:
                    written = os.pwrite(self._file.fileno(), frame, self._size)
                    self._size, frame = self._size + written, frame[written:]
        except OSError:
            self._size = begun
            os.ftruncate(self._file.fileno(), begun)
            raise
        return begun

    def _read(self) -> None:
        """Read all frames, and cut off the bytes after the last whole one."""
        found = read_frame(self._file.fileno(), 0)
        if found is None:  # the process was killed before it wrote the first frame
            os.ftruncate(self._file.fileno(), 0)
            self._append(["begun", FORMAT, self._identity])
            return
        self._validate_begin(found[0])
        answers: dict[int, dict[int, int]] = defaultdict(dict)  # by client and number: offset of the frame
        batches: dict[Batch, set[tuple[int, int]]] = defaultdict(set)
        while found is not None:
            content, end = found
            match content:
                case ["answer", client, number, batch, plain]:
                    if all(self._has(item) for item in read_answer(client, plain).contents()):
                        answers[client][number] = self._size
                        batches[Batch(*batch)].add((client, number))
                case ["seal", key, nonce]:
                    self._nonces[key] = nonce
                case ["round", trace, _]:
                    self.rounds.append(trace)
                case ["resumed"]:
                    self.resumptions += 1
            self._size, found = end, read_frame(self._file.fileno(), end)
        os.ftruncate(self._file.fileno(), self._size)
        for batch, calls in batches.items():
            if len(calls) < batch.size:
                for client, number in calls:
                    answers[client].pop(number)
        for client, offsets in answers.items():
            numbers = range(1, len(offsets) + 1)
            missing = next((number for number in numbers if number not in offsets), len(offsets) + 1)
            self._offsets[client] = array("Q", [offsets[number] for number in range(1, missing)])
        self._find_states()

    def _validate_begin(self, content: Any) -> None:
        if content[:2] != ["begun", FORMAT]:
            raise RecordError(f"{self._folder.parent} has a record of another format, so it cannot go on")
        before = content[2]
        for name in {**self._identity, **before}:
            if before.get(name) != self._identity.get(name):
                raise RecordError(
                    f"{self._folder.parent} was begun with {name} {before.get(name)}, and this is {name} "
                    f"{self._identity.get(name)}: it cannot go on with that"
                )

    def _find_states(self) -> None:
        """Find the states of clients, and delete those that were never whole, or belong to no answer."""
        for path in (self._folder / STATES).iterdir():
            client, _, number = path.name.partition("-")
            if not (client.isdecimal() and number.isdecimal()) or int(number) > self.count(int(client)):
                path.unlink(missing_ok=True)  # a worker of a killed run may just give its state its name
            else:
                self._states[int(client)].add(int(number))

    def _has(self, content: Content) -> bool:
        return content.data is not None or self._content_path(content.hash).exists()

    def _content_path(self, content_hash: Hash) -> Path:
        return self._folder / CONTENTS / content_hash.hex()


@contextmanager
def reading_timeline(folder: Path) -> Iterator[dict[tuple[int, int], Span]]:
    """Times of each peer's work in the closed rounds, by peer number and round; empty if there is no record.

    No other process can open the record meanwhile. Raises RecordError if one has it open.
    """
    timeline: dict[tuple[int, int], Span] = {}
    with ExitStack() as opened:
        with suppress(FileNotFoundError):
            file = opened.enter_context(_open_locked(folder))
            found = read_frame(file.fileno(), 0)
            while found is not None:
                content, end = found
                if content[0] == "round":
                    timeline |= {(peer, number): Span(*times) for (peer, number), times in content[2]}
                found = read_frame(file.fileno(), end)
        yield timeline


def _open_locked(folder: Path) -> BinaryIO:
    """Open a record's log, which nobody else can open so until it is closed.

    The lock belongs to this process: its children do not inherit it, and it is gone when any descriptor of the file is
    closed. So a log that is open here is known before it is opened, and nothing else here may open the file.

    Raises:
        RecordInUse: it is open already.
        FileNotFoundError: there is none, or it was deleted while this process waited for it.
    """
    path = folder / LOG
    with _OPENING:
        this, found = os.getpid(), path.stat()
        ours = [known for log, (process, known) in _OPENED.items() if process == this and not log.closed]
        if any(os.path.samestat(known, found) for known in ours):
            raise RecordInUse(f"{folder.parent} is in use by another run of this process")
        file = path.open("r+b", buffering=0)
        try:
            fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            opened = os.fstat(file.fileno())
            if not os.path.samestat(opened, path.stat()):
                raise FileNotFoundError(path)
        except BlockingIOError:
            file.close()
            raise RecordInUse(f"{folder.parent} is in use by another process") from None
        except BaseException:
            file.close()
            raise
        _OPENED[file] = this, opened
    return file


def read_frame(descriptor: int, offset: int) -> tuple[Any, int] | None:
    """Return the content of a frame and its end; None if there is no whole frame at ``offset``."""
    head = os.pread(descriptor, HEAD_SIZE, offset)
    size = int.from_bytes(head[:SIZE_SIZE], "big")
    end = offset + HEAD_SIZE + size
    if len(head) < HEAD_SIZE or end > os.fstat(descriptor).st_size:
        return None
    data = os.pread(descriptor, size, offset + HEAD_SIZE)
    return (msgpack.unpackb(data), end) if head[SIZE_SIZE:] == _check(head[:SIZE_SIZE], data) else None


def _check(size: bytes, data: bytes) -> bytes:
    return hashlib.sha256(size + data).digest()[:CHECK_SIZE]
