"""``fedchain data``: the list, one data set, and errors in one line."""

from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from fedchain.cli.main import app
from fedchain.learning.datasets import cifar
from fedchain.learning.datasets.catalogue import DATASETS
from fedchain.learning.datasets.files import Files
from tests.support.learning.unchecked import few_rows as few_rows


def run(*arguments: str, folder: Path | None = None) -> Result:
    return CliRunner().invoke(app, ["data", *arguments], env={"FEDCHAIN_DATA": str(folder)} if folder else None)


def test_all_data_sets_are_listed() -> None:
    lines = run().stdout.splitlines()
    assert [line.split()[0] for line in lines] == sorted(DATASETS)


def test_one_data_set_is_shown_with_its_files(tmp_path: Path) -> None:
    (tmp_path / "test_32x32.mat").write_bytes(b"here")
    shown = run("svhn", folder=tmp_path).stdout
    for file in DATASETS["svhn"].files:
        assert file.md5 in shown
        assert file.url in shown
    assert shown.startswith("svhn              10 classes    3x32x32   73,257 +  26,032  "), (
        "to train with, and to test"
    )
    assert "train_32x32.mat: not found" in shown
    assert f"test_32x32.mat: {tmp_path / 'test_32x32.mat'}" in shown


@pytest.mark.usefixtures("few_rows")
@pytest.mark.parametrize("folder", ["cifar10/cifar-10-batches-bin", "cifar-10-batches-bin", "cifar10", "."])
def test_an_unpacked_form_is_found_wherever_experiments_read_it(tmp_path: Path, folder: str) -> None:
    names = [f"data_batch_{number}.bin" for number in range(1, 6)]
    (tmp_path / folder).mkdir(parents=True, exist_ok=True)
    for name in names:
        (tmp_path / folder / name).write_bytes(bytes(range(10)) + bytes(3063))
    assert "cifar-10-binary.tar.gz: not found; MD5" in run("cifar10", folder=tmp_path).stdout, (
        "the test images are missing"
    )
    (tmp_path / folder / "test_batch.bin").write_bytes(bytes(3073))
    shown = run("cifar10", folder=tmp_path).stdout
    assert f"cifar-10-binary.tar.gz: {tmp_path / folder} (unpacked); MD5" in shown
    assert "cifar-10-python.tar.gz: not found, and not needed: the other form is there" in shown
    assert cifar.read(Files(DATASETS["cifar10"], str(tmp_path))).test_labels.tolist() == [0]


@pytest.mark.parametrize("name", ["emnist-letters-{}-ubyte", "gzip/emnist-letters-{}-ubyte.gz"])
def test_emnist_is_found_unpacked(tmp_path: Path, name: str) -> None:
    folder = tmp_path / "emnist"
    for kind in ("train-images-idx3", "train-labels-idx1", "test-images-idx3", "test-labels-idx1"):
        path = folder / name.format(kind)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    assert "(unpacked)" in run("emnist-letters", folder=tmp_path).stdout
    assert "not found" in run("emnist-digits", folder=tmp_path).stdout


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("cifar11",), "unknown data set 'cifar11'; did you mean 'cifar10'?"),
        (("--download",), "--download needs the name of a data set"),
        (("mnist", "--download"), "set data_dir or FEDCHAIN_DATA to the folder for the files of mnist"),
        (("tmd", "--download"), "tmd cannot be downloaded by name; http"),
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


def test_members_own_data_have_no_files_that_are_fetched(tmp_path: Path) -> None:
    """It ended in a traceback; a comparison may have both."""
    words = ("--dataset", "own", "--task", "tests.support.learning.own_task:load", "--peers", "3", "--rounds", "1")
    quick = ("--method", "solo", "--set", "local_steps=1", "--set", "mining_attempts=4", "--workers", "1")
    done = CliRunner().invoke(app, ["simulate", *words, *quick, "--download", "--out", str(tmp_path / "run")])
    assert done.exit_code == 0, done.output
