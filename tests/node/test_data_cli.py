"""``fedchain data``: the list, one data set, and errors in one line."""

from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from fedchain.__main__ import app
from fedchain.learning.datasets.catalogue import DATASETS


def run(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["data", *arguments])


def test_all_data_sets_are_listed() -> None:
    lines = run().stdout.splitlines()
    assert [line.split()[0] for line in lines] == sorted(DATASETS)


def test_one_data_set_is_shown_with_its_files(tmp_path: Path) -> None:
    (tmp_path / "test_32x32.mat").write_bytes(b"here")
    shown = run("svhn", "--data-dir", str(tmp_path)).stdout
    for file in DATASETS["svhn"].files:
        assert file.md5 in shown
        assert file.url in shown
    assert "train_32x32.mat: not found" in shown
    assert f"test_32x32.mat: {tmp_path / 'test_32x32.mat'}" in shown


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("cifar11",), "unknown data set 'cifar11'; did you mean 'cifar10'?"),
        (("--download",), "--download needs the name of a data set"),
        (("mnist", "--download"), "set data_dir or FEDCHAIN_DATA to the folder for the files of mnist"),
        (("tmd", "--download", "--data-dir", "nowhere"), "tmd cannot be downloaded by name; http"),
    ],
)
def test_what_cannot_be_done_is_told_in_one_line(
    arguments: tuple[str, ...], words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("FEDCHAIN_DATA", raising=False)
    result = run(*arguments)
    assert result.exit_code == 2
    assert words in result.stderr
    assert result.stderr.count("\n") == 1
