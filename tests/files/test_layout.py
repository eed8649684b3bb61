"""Names of files in a node's folder, and the measurements and the folder of a run."""

from pathlib import Path

import pytest

import fedchain.node.operating.preflight as preflight
from fedchain.files.layout import (
    ADDRESS_FILE,
    BAN_FILE,
    CHAIN_FOLDER,
    METRICS_FILE,
    SOCKET,
    TRAINING_FILE,
    free_folder,
    read_metrics,
)
from fedchain.node.operating.preflight import OWN_NAMES


def test_the_names_are_those_that_are_used() -> None:
    assert {CHAIN_FOLDER, TRAINING_FILE, ADDRESS_FILE, BAN_FILE, SOCKET} < set(OWN_NAMES)
    assert preflight.UMASK == 0o077


def test_measurements_are_read_as_far_as_is_allowed_and_what_is_no_table_is_skipped(tmp_path: Path) -> None:
    lines = ['{"round": 1}', "[]", "{", "[" * 100_000, '{"round": 2}']
    (tmp_path / METRICS_FILE).write_text("\n".join(lines) + "\n")
    assert [*read_metrics(tmp_path)] == [{"round": 1}, {"round": 2}]
    assert [*read_metrics(tmp_path, len(lines[0]))] == [{"round": 1}]


def test_a_second_run_of_a_name_is_the_second_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for folder in ("digits", "digits-2", "digits-3"):
        assert free_folder("digits") == Path("runs") / folder
        free_folder("digits").mkdir(parents=True)
