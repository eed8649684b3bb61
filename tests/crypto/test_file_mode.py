"""A secret that others may use is told, with the command that closes it."""

from pathlib import Path

import pytest

from fedchain.crypto.file_mode import OTHERS, exposure


@pytest.mark.parametrize("mode", [0o100600, 0o100400, 0o040700])
def test_what_is_its_owners_alone_is_in_order(mode: int) -> None:
    assert exposure(Path("key"), mode) is None


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o620, 0o601])
def test_each_bit_of_others_is_noticed_and_the_remedy_named(mode: int) -> None:
    assert exposure(Path("key"), mode) == f"key has mode {mode:04o}, others may read it; run: chmod 600 key"


def test_the_remedy_is_a_command_for_any_name() -> None:
    told = exposure(Path("my keys"), 0o640)
    assert told is not None
    assert told.endswith("run: chmod 600 'my keys'")


def test_a_group_may_be_let_in() -> None:
    assert exposure(Path("key"), 0o640, OTHERS) is None
    assert exposure(Path("key"), 0o644, OTHERS) is not None
