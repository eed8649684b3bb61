"""Private randomness is drawn once, kept for its owner alone, and a damaged file is no reason to draw anew."""

import os
from pathlib import Path

import pytest

from fedchain.learning.exceptions import SecretMissing
from fedchain.learning.sums.secrets import ROOT_SIZE
from fedchain.node.custody import secrets_file
from fedchain.node.custody.ledger_file import ledger_path
from fedchain.node.custody.secrets_file import open_secrets, secrets_path


def test_it_is_drawn_once_and_the_same_ever_after(tmp_path: Path) -> None:
    path = secrets_path(tmp_path / "key.pem", b"\xab" * 32)
    assert path == tmp_path / "key.pem.abababab.secrets"
    first = open_secrets(path, 3)
    assert (first.member, len(first.root)) == (3, ROOT_SIZE)
    assert open_secrets(path, 3) == first
    assert sorted(item.name for item in tmp_path.iterdir()) == ["key.pem.abababab.privacy", path.name]
    assert open_secrets(tmp_path / "other", 3).root != first.root


def test_a_power_failure_leaves_no_randomness_without_its_ledger(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, was_there = tmp_path / "key.secrets", list[bool]()
    monkeypatch.setattr(secrets_file, "write_file", lambda *_: was_there.append(ledger_path(path).exists()))
    open_secrets(path, 0)
    assert was_there == [True]


def test_it_is_for_its_owner_alone(tmp_path: Path) -> None:
    path = tmp_path / "key.secrets"
    open_secrets(path, 0)
    assert path.stat().st_mode & 0o077 == 0
    path.chmod(0o640)
    with pytest.raises(SecretMissing, match=f"secrets of member 0: .* has mode 0640, .*; run: chmod 600 {path}"):
        open_secrets(path, 0)


@pytest.mark.parametrize("data", [b"", bytes(ROOT_SIZE - 1), bytes(ROOT_SIZE + 1)])
def test_a_damaged_file_is_refused_and_left_as_it_is(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "key.secrets"
    path.write_bytes(data)
    path.chmod(0o600)
    with pytest.raises(SecretMissing, match=f"secrets of member 2: .* holds {len(data)} bytes, it must be 32"):
        open_secrets(path, 2)
    assert path.read_bytes() == data


def test_a_pipe_in_its_place_keeps_nobody_waiting(tmp_path: Path) -> None:
    path = tmp_path / "key.secrets"
    os.mkfifo(path, 0o600)
    with pytest.raises(SecretMissing, match=f"^secrets of member 2: {path} is a pipe or a device, and no file$"):
        open_secrets(path, 2)


def test_a_folder_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(SecretMissing, match=r"secrets of member 1: .*nowhere.* cannot be used: No such file"):
        open_secrets(tmp_path / "nowhere" / "key.secrets", 1)
