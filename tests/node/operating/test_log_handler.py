"""Log lines and a reader of standard error that stops reading, reads on, or is gone, or a disk that is full."""

import fcntl
import logging
import os
import resource
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace

import pytest

from fedchain.node.operating import log_handler
from fedchain.node.operating.log_handler import StderrHandler

COUNT = 2_000
SIZE = 99
"""Lines, and their characters: more than the pipe holds."""


@pytest.fixture
def reader(monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    """The other end of standard error, which is a pipe of 64 KiB."""
    reads, writes = os.pipe()
    fcntl.fcntl(writes, fcntl.F_SETPIPE_SZ, 2**16)
    os.set_blocking(reads, False)
    with suppress(BrokenPipeError), open(writes, "w") as stream:
        monkeypatch.setattr(log_handler, "sys", SimpleNamespace(stderr=stream))  # pytest sets its own again
        yield reads
        os.close(reads)  # whoever waits for room is told that there will be none


def log(handler: StderrHandler, *texts: str) -> bool:
    """Whether so many lines could be logged; a reader that takes nothing may hold them back for ever."""

    def write() -> None:
        for text in texts:
            handler.handle(logging.LogRecord("fedchain.node", logging.INFO, __file__, 1, text, (), None))

    thread = threading.Thread(target=write, daemon=True)
    thread.start()
    thread.join(10)
    return not thread.is_alive()


def read(reads: int) -> str:
    """All that is in the pipe."""
    return os.read(reads, 2**20).decode()


def numbered(count: int) -> list[str]:
    return [f"{number:0{SIZE}}" for number in range(count)]


def test_a_reader_that_stops_reading_holds_nobody_and_hears_what_it_missed(reader: int) -> None:
    """The node stood still, and its federation waited for its posts."""
    handler = StderrHandler()
    assert log(handler, *numbered(COUNT))
    *shown, cut = read(reader).split("\n")
    assert shown == numbered(len(shown))
    assert cut == ""
    assert log(handler, "back")
    waited, told, last = read(reader).splitlines()
    assert waited == numbered(COUNT)[len(shown)], "the line that found no room is not lost"
    assert told == f"{COUNT - len(shown) - 1} log lines were left out: standard error had no room for them"
    assert last == "back"
    assert log(handler, "next")
    assert read(reader) == "next\n"


def test_a_line_that_is_longer_than_the_pipe_goes_on_where_it_was(reader: int) -> None:
    handler, line = StderrHandler(), "ä" * 40_000
    assert log(handler, line)
    first = read(reader)
    assert line.startswith(first)
    assert 30_000 <= len(first) < len(line)
    assert log(handler, "next")
    rest = read(reader)
    assert first + rest == f"{line}\nnext\n"


def test_a_disk_that_is_full_costs_whole_lines_which_are_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A part of a line stood before the first one that had room again, and nothing told of the others."""
    path, handler, usual = tmp_path / "log", StderrHandler(), resource.getrlimit(resource.RLIMIT_FSIZE)
    with path.open("a") as stream:
        monkeypatch.setattr(log_handler, "sys", SimpleNamespace(stderr=stream))
        assert log(handler, "first")
        resource.setrlimit(resource.RLIMIT_FSIZE, (len("first\n") + SIZE // 2, usual[1]))
        try:
            assert log(handler, *numbered(COUNT))
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, usual)
        assert log(handler, "back", "next")
    told = f"{COUNT - 1} log lines were left out: standard error had no room for them"
    assert path.read_text().splitlines() == ["first", numbered(1)[0], told, "back", "next"]


def test_a_reader_that_is_gone_holds_nobody(reader: int) -> None:
    with open(os.devnull) as nowhere:
        os.dup2(nowhere.fileno(), reader)
    assert log(StderrHandler(), *numbered(COUNT))


def test_standard_error_may_be_no_file(capsys: pytest.CaptureFixture[str]) -> None:
    assert log(StderrHandler(), *numbered(COUNT))
    assert capsys.readouterr().err.splitlines() == numbered(COUNT)
