"""CONTRIBUTING's example is complete, short, and runs as it says: from its folder, and as an installed package's."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from fedchain.cli.main import app
from fedchain.learning.exceptions import ConfigurationError
from fedchain.learning.registry import METHODS, build_method, load_method, locate_method
from fedchain.testing import check_method
from tests.support.paths import ROOT

TEXT = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")


def block(language: str) -> str:
    """The first block of code in a language."""
    found = re.search(rf"^```{language}\n(.*?)^```$", TEXT, re.MULTILINE | re.DOTALL)
    assert found is not None
    return found[1]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the example is saved; its module is forgotten afterwards."""
    (tmp_path / "fedmedian.py").write_text(block("python"), encoding="utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.chdir(tmp_path)
    monkeypatch.delitem(sys.modules, "fedmedian", raising=False)
    return tmp_path


def install(folder: Path, points: str, package: str = "fedmedian") -> None:
    """Do what an installer does: say beside the modules which package they are of, and what it registers."""
    info = folder / f"{package}-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n", encoding="utf-8")
    (info / "entry_points.txt").write_text(points, encoding="utf-8")


def simulate(method: str, *reading: str) -> None:
    """Run two rounds on the digits, and verify the chain that they leave."""
    few = ("--peers", "3", "--rounds", "2", "--set", "mining_attempts=8", "--set", "local_steps=2")
    for command in (("simulate", "--method", method, *few, "--out", "run"), ("explorer", "verify", "run", *reading)):
        done = CliRunner().invoke(app, command)
        assert done.exit_code == 0, done.output


def test_the_example_is_short() -> None:
    assert len(block("python").splitlines()) < 30


@pytest.mark.long
def test_the_example_runs_from_its_folder(folder: Path) -> None:
    simulate("fedmedian:FedMedian")


@pytest.mark.slow
def test_who_reads_a_chain_names_the_file_of_its_method(folder: Path) -> None:
    apart = folder / "apart"
    apart.mkdir()
    (folder / "fedmedian.py").rename(apart / "fedmedian.py")

    def run(*words: str) -> "subprocess.CompletedProcess[str]":
        command = [sys.executable, "-P", "-m", "fedchain", *words]
        return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)

    simulate("apart/fedmedian.py:FedMedian", "--method", "apart/fedmedian.py:FedMedian")
    refused = run("explorer", "verify", "run")
    assert refused.returncode == 2
    assert "there is no module 'fedmedian' on Python's path" in refused.stderr
    assert refused.stderr.endswith("; --method FILE.py:FedMedian names its file\n")
    read = run("explorer", "knowledge", "run", "--method", "apart/fedmedian.py:FedMedian")
    assert read.returncode == 0, read.stderr
    exported = run("model", "export", "run", "--aggregate", "--out", "m", "--method", "apart/fedmedian.py:FedMedian")
    assert exported.returncode == 0, exported.stderr
    looks = "import fedchain; chain = fedchain.open_chain('run', methods=['apart/fedmedian.py:FedMedian']); "
    done = subprocess.run(
        [sys.executable, "-c", f"{looks} print(chain.verify().is_valid)"],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.stdout, done.returncode) == ("True\n", 0), done.stderr
    served = run("explorer", "serve", "run", "--port", "0", "--method", "apart/fedmedian.py:FedMedan")
    assert served.returncode == 2, "a wrong name is told at the start"
    assert "FedMedan" in served.stderr


def test_the_example_keeps_the_promises_of_its_interface(folder: Path) -> None:
    check_method("fedmedian:FedMedian", local_steps=2)


@pytest.mark.long
def test_the_example_runs_under_the_name_that_its_package_registers(folder: Path) -> None:
    points = block("toml").replace('[project.entry-points."fedchain.methods"]', "[fedchain.methods]").replace('"', "")
    install(folder, points)
    assert load_method("fedmedian").__name__ == "FedMedian"
    simulate("fedmedian")


def test_a_registered_name_is_offered_to_who_misspells_it(folder: Path) -> None:
    install(folder, "[fedchain.methods]\nfedmedian = fedmedian:FedMedian\n")
    with pytest.raises(ConfigurationError, match="unknown method 'fedmedien'; did you mean 'fedmedian'"):
        locate_method("fedmedien")


def test_no_package_takes_a_built_in_name_or_that_of_another(folder: Path) -> None:
    install(folder, "[fedchain.methods]\nfedavg = fedmedian:FedMedian\nmedian = fedmedian:FedMedian\n")
    install(folder, "[fedchain.methods]\nmedian = other:Median\n", package="other")
    with pytest.raises(ConfigurationError, match=r"'fedavg' is registered by fedchain \(.*FedAvg\) and fedmedian \("):
        build_method("fedavg", {})
    with pytest.raises(ConfigurationError, match=r"'median' is registered by .*; rename or remove one"):
        locate_method("median")
    assert all(locate_method(name) == place for name, place in METHODS.items() if name != "fedavg")


@pytest.mark.parametrize(
    ("point", "words"),
    [
        ("fedmedian", "must be registered as module:Class, not 'fedmedian'"),
        ("fedmedien:FedMedian", "method median: there is no module 'fedmedien'"),
        ("fedmedian:FedMedien", "unknown method class in fedmedian 'FedMedien'; did you mean 'FedMedian'"),
        ("broken:Method", "method median: its import raised SyntaxError: "),
        ("partial:Partial", "method median: TypeError: Can't instantiate abstract class Partial"),
    ],
)
def test_what_a_package_registers_wrongly_is_one_line(folder: Path, point: str, words: str) -> None:
    (folder / "broken.py").write_text("def", encoding="utf-8")
    partial = "from fedchain.learning.method import Method\nclass Partial(Method):\n    pass\n"
    (folder / "partial.py").write_text(partial, encoding="utf-8")
    install(folder, f"[fedchain.methods]\nmedian = {point}\n")
    with pytest.raises(ConfigurationError) as caught:
        build_method("median", {})
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)
