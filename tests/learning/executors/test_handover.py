"""Large contents go between processes as files, which are there as long as somebody needs them."""

from pathlib import Path

import pytest

from fedchain.learning.executors.handover import LARGE_SIZE, Handed, Incoming, Outgoing


def test_a_knowledge_is_one_file_for_all_who_need_it_and_goes_with_the_last_of_them(tmp_path: Path) -> None:
    outgoing, incoming = Outgoing(tmp_path), Incoming()
    first, second = bytes(LARGE_SIZE), bytes([1]) * LARGE_SIZE
    handed = [outgoing.hand(first), outgoing.hand(first)]
    assert handed[0] == handed[1] == Handed(tmp_path / "knowledge-0")
    assert incoming.take(handed[0]) == first
    assert incoming.take(handed[0]) is incoming.take(handed[1])
    later = outgoing.hand(second)
    for one in handed:
        assert (tmp_path / "knowledge-0").exists()
        outgoing.done(one)
    assert [path.name for path in tmp_path.iterdir()] == ["knowledge-1"]
    outgoing.done(later)
    assert incoming.take(outgoing.hand(second)) == second, "it stays for the next client"
    third = outgoing.hand(first)
    assert incoming.take(third) == first
    assert outgoing.hand(b"few bytes") == incoming.take(b"few bytes") == b"few bytes"


def test_a_knowledge_that_nobody_needs_goes_when_the_next_one_comes(tmp_path: Path) -> None:
    outgoing = Outgoing(tmp_path)
    for filling in range(3):
        outgoing.done(outgoing.hand(bytes([filling]) * LARGE_SIZE))
        assert [path.name for path in tmp_path.iterdir()] == [f"knowledge-{filling}"]


def test_a_file_that_finds_no_room_is_named(tmp_path: Path) -> None:
    (tmp_path / "knowledge-0").symlink_to("/dev/full")
    with pytest.raises(OSError, match="No space left") as error:
        Outgoing(tmp_path).hand(bytes(LARGE_SIZE))
    assert error.value.filename == str(tmp_path / "knowledge-0")
