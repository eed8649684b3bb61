"""``fedchain simulate``: exit code 2 and one line for what cannot be run, 130 for Ctrl-C, a folder that verifies."""

import json
import os
import re
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import fields
from pathlib import Path

import pytest
from typer.testing import CliRunner

from fedchain.cli.main import app
from fedchain.cli.simulate import IN_FILE, PANELS, SETTABLE, with_settings
from fedchain.learning.registry import METHODS, build_method
from fedchain.simulator.choices import RunOptions
from fedchain.simulator.scenario import Scenario
from tests.support.campaigns import some

QUICK = ("--peers", "4", "--rounds", "2", "--set", "mining_attempts=8")
FILES = "train-images-idx3-ubyte"


def refused(*arguments: str) -> str:
    """The one line that a refused command prints."""
    result = CliRunner().invoke(app, ["simulate", *arguments])
    assert result.exit_code == 2, result.output
    assert "Traceback" not in result.output
    (line,) = result.stderr.strip().splitlines()
    return line


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--peers", "0"), "peers is 0"),
        (("--set", "classes_avg=11"), "classes_avg must be between 1 and 10, not 11"),
        (("--peers", "3", "--set", "contribution_quorum=4"), "contribution_quorum is 4"),
        (("--method", "dfpll"), "dfpl"),
        (("--set", "local_stepz=3"), "local_steps"),
        (("--set", "nonsense"), "NAME=VALUE"),
        (("none.toml",), "none.toml cannot be read"),
        (("--set", "name=../../escape"), "name is '../../escape'"),
        (("--set", "name=-x"), "or +, of which the first is a letter, a digit or _"),
        (("--set", "local_steps=" + "[" * 5_000), "no setting can have"),
        (("--set", "momentum=0.1\nlocal_steps=2"), "several lines"),
        (("--dataset", "fashion-mnist", "--set", "data_dir=nowhere"), "8d4fb7e6c68d591d4c3dfef9ec88bf0d"),
        (("--dataset", "tmd", "--set", "data_dir=nowhere", "--download"), "tmd cannot be downloaded by name"),
    ],
)
def test_what_cannot_be_run_leaves_nothing_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...], words: str
) -> None:
    monkeypatch.chdir(tmp_path)
    assert words in refused(*arguments, "--out", "out")
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_cannot_be_made_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    out = tmp_path / "file" / "out"
    assert refused(*QUICK, "--out", str(out)) == f"fedchain: {out} cannot be made: Not a directory"
    result = CliRunner().invoke(app, ["reproduce", "dfpl-table1-fmnist", "--out", str(out)])
    assert (result.exit_code, result.stderr) == (2, f"fedchain: {out}/results: Not a directory\n")


def test_a_setting_that_is_on_can_be_switched_off_and_paths_are_no_markup(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    result = CliRunner().invoke(app, ["simulate", *QUICK, "--set", "test_local=false", "--out", "[bold]"])
    assert result.exit_code == 0, result.output
    assert re.search(r"folder +\[bold\]", result.output)
    assert "test_local = false" in (tmp_path / "[bold]" / "scenario.toml").read_text(encoding="utf-8")


@pytest.mark.parametrize(("text", "words"), [("peeers = 3", "'peers'"), ("peers = '3'", "of type int"), ("=", "TOML")])
def test_a_bad_file_is_refused(tmp_path: Path, text: str, words: str) -> None:
    path = tmp_path / "x.toml"
    path.write_text(text, encoding="utf-8")
    assert words in refused(str(path), "--out", str(tmp_path / "out"))
    assert not (tmp_path / "out").exists()


def test_a_damaged_data_file_is_refused_with_its_checksum(tmp_path: Path) -> None:
    (tmp_path / f"{FILES}.gz").write_bytes(b"not these")
    line = refused("--dataset", "fashion-mnist", "--set", f"data_dir={tmp_path}", "--out", str(tmp_path / "out"))
    assert "8d4fb7e6c68d591d4c3dfef9ec88bf0d" in line
    assert not (tmp_path / "out").exists()


def test_training_that_diverges_is_one_line_with_peer_round_and_loss(tmp_path: Path) -> None:
    line = refused(*QUICK, "--set", "learning_rate=1e3", "--set", "weight_decay=1e3", "--out", str(tmp_path / "out"))
    assert re.fullmatch(r"fedchain: peer \d, round 1: the loss is nan at step \d+; try a smaller learning_rate", line)
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["chain", "scenario.toml"]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--dataset", "digitz"), "unknown data set 'digitz'; did you mean 'digits'?"),
        (("--set", "learning_rate=fast"), "dfpl.learning_rate must be float, not str ('fast')"),
        (("--set", "local_steps=2.5"), "dfpl.local_steps must be int, not float (2.5)"),
        (("--set", "learning_rate=nan"), "dfpl.learning_rate must be finite, not nan"),
        (("--set", "momentum=1.0"), "momentum must lie in [0.0, 1.0), not 1.0"),
    ],
)
def test_a_bad_name_or_hyperparameter_is_told_before_anything_is_made(
    tmp_path: Path, arguments: tuple[str, ...], words: str
) -> None:
    assert words in refused(*arguments, "--out", str(tmp_path / "out"))
    assert list(tmp_path.iterdir()) == []


def test_an_existing_folder_is_refused_and_left_alone(tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("mine", encoding="utf-8")
    assert "exists already" in refused(*QUICK, "--out", str(tmp_path))
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]


def test_help_shows_every_option_under_a_heading() -> None:
    shown = CliRunner().invoke(app, ["simulate", "-h"]).stdout
    headings = re.findall(r"^([A-Z].*):$", shown, re.MULTILINE)
    assert headings == ["Arguments", *PANELS, "Options"]
    assert "--peers" not in shown.split("\nOptions:\n")[1]
    listed = [name for names in PANELS.values() for name in names.split()]
    assert sorted(set(listed)) == sorted(listed)
    settings = CliRunner().invoke(app, ["simulate", "--settings"]).stdout
    assert {item.name for item in fields(Scenario)} <= {
        *listed,
        *(line.split()[0] for line in settings.splitlines()),
        *IN_FILE,
    }


def test_no_hyper_parameter_has_the_name_of_a_setting() -> None:
    """`--set` would never reach it."""
    for method in METHODS:
        kind = type(build_method(method, {}))
        assert {item.name for item in fields(kind)}.isdisjoint(SETTABLE), method


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("mining_s=fast", "mining_s"),
        ("committee_size=1.5", "committee_size"),
        ("idle_sleep=1", "idle_sleep"),
        ("minig_s=1", "unknown setting or hyper-parameter of dfpl 'minig_s'; did you mean 'mining_s'?"),
        ("local_step=1", "unknown setting or hyper-parameter of dfpl 'local_step'; did you mean 'local_steps'?"),
        ("peers=3", "--set peers: it is an option of its own, --peers"),
        ("changes=1", "--set changes: it stands in a scenario's file alone"),
        ("mining_s", "--set 'mining_s' is not of the form NAME=VALUE"),
    ],
)
def test_a_setting_that_cannot_be_is_one_line(setting: str, message: str) -> None:
    result = CliRunner().invoke(app, ["simulate", "--set", setting])
    assert (result.exit_code, result.stdout, result.stderr.count("\n")) == (2, "", 1)
    assert message in result.stderr


def test_an_option_goes_before_a_setting_of_the_same_name() -> None:
    found = with_settings({"seed": 1}, {"seed": 2, "mining_attempts": 3, "momentum": 0.5})
    assert found == {"seed": 1, "mining_attempts": 3, "hyperparameters": {"momentum": 0.5}}


@pytest.mark.parametrize(("option", "kept"), [((), True), (("--record",), True), (("--no-record",), False)])
def test_what_is_computed_is_kept_unless_one_asks_for_less(
    option: tuple[str, ...], kept: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = list[RunOptions]()
    monkeypatch.setattr("fedchain.cli.simulate.run_command", lambda *given, **others: asked.append(given[3]))
    assert CliRunner().invoke(app, ["simulate", *option]).exit_code == 0
    assert [(item.keeps_record, item.is_resumed, item.draws) for item in asked] == [(kept, False, False)]


@pytest.mark.parametrize(("violations", "code"), [([], 0), (["agreement: two heads"], 1)])
def test_a_run_that_broke_a_promise_ends_with_exit_code_1(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, violations: list[str], code: int
) -> None:
    asked = list[tuple[Scenario, Path]]()

    def run(scenario: Scenario, out: Path, *given: object, **more: object) -> list[str]:
        asked.append((scenario, out))
        return violations

    monkeypatch.setattr("fedchain.simulator.console.run_scenario", run)
    done = CliRunner().invoke(app, ["simulate", "--peers", "3", "--seed", "5", "--out", str(tmp_path / "run")])
    assert (done.exit_code, done.stdout) == (code, "")
    ((scenario, out),) = asked
    assert (scenario.peers, scenario.seed, out) == (3, 5, tmp_path / "run")


def test_help_imports_no_torch() -> None:
    code = (
        "import sys; sys.argv = ['fedchain', 'simulate', '--help']\n"
        "from fedchain.cli.main import main\n"
        "try: main()\n"
        "except SystemExit as end: assert not end.code\n"
        "assert not {'torch', 'sklearn', 'matplotlib', 'numpy'} & sys.modules.keys()"
    )
    finished = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=120)
    assert finished.returncode == 0, finished.stderr
    assert "--peers" in finished.stdout


@pytest.fixture(scope="module")
def run_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("cli") / "run"
    finished = CliRunner().invoke(app, ["simulate", *QUICK, "--draw", "--out", str(folder)])
    assert finished.exit_code == 0, finished.output
    return folder


@pytest.mark.long
def test_a_run_leaves_its_files(run_folder: Path) -> None:
    names = {path.name for path in run_folder.iterdir()}
    assert names >= {"scenario.toml", "metrics.jsonl", "result.json", "curves.png", "classes.png", "timeline.png"}
    rows = [json.loads(line) for line in (run_folder / "metrics.jsonl").read_text().splitlines()]
    assert [row["round"] for row in rows] == [1, 2]
    assert all(0 < row["taa"] <= 1 for row in rows)
    for name in ("curves", "classes", "timeline"):
        data = (run_folder / f"{name}.png").read_bytes()
        assert data.startswith(b"\x89PNG")
        width, height = (int.from_bytes(data[at : at + 4], "big") for at in (16, 20))
        assert 200 < height < 4_000
        assert 400 < width < 4_000


def test_the_explorer_verifies_a_run_and_notices_a_flipped_byte(run_folder: Path, tmp_path: Path) -> None:
    runner = CliRunner()
    status = runner.invoke(app, ["explorer", "status", str(run_folder), "--json"])
    assert status.exit_code == 0
    assert json.loads(status.stdout)["height"] == 2
    assert runner.invoke(app, ["explorer", "verify", str(run_folder)]).exit_code == 0
    database = next(run_folder.rglob("chain.sqlite"))
    copy = tmp_path / "chain" / database.name
    copy.parent.mkdir()
    data = bytearray(database.read_bytes())
    data[len(data) // 2 :] = bytes(len(data) - len(data) // 2)
    copy.write_bytes(data)
    result = runner.invoke(app, ["explorer", "verify", str(copy.parent)])
    assert result.exit_code == 1
    assert "Traceback" not in result.output


def _columns(database: Path) -> list[tuple[str, str]]:
    """Table and column of all that has a checksum, where the table has a row."""
    with closing(sqlite3.connect(database)) as connection:
        tables = [name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        filled = [table for table in tables if connection.execute(f"SELECT 1 FROM {table}").fetchone()]
        columns = [(table, row[1]) for table in filled for row in connection.execute(f"PRAGMA table_info({table})")]
    return [(table, column) for table, column in columns if column != "sequence"]


def test_whichever_column_is_altered_the_explorer_finds_the_chain_damaged(run_folder: Path, tmp_path: Path) -> None:
    chain = next(run_folder.rglob("chain.sqlite")).parent
    columns, found = _columns(chain / "chain.sqlite"), {}
    assert {table for table, _ in columns} >= {"genesis", "finals", "states", "posts", "contents"}
    for table, column in columns:
        copy = tmp_path / f"{table}-{column}"
        shutil.copytree(chain, copy)
        with closing(sqlite3.connect(copy / "chain.sqlite", isolation_level=None)) as connection:
            other = f"CASE typeof({column}) WHEN 'integer' THEN {column} + 7 ELSE x'00' END"
            connection.execute(f"UPDATE OR IGNORE {table} SET {column} = {other} WHERE {column} IS NOT NULL")
        found[table, column] = CliRunner().invoke(app, ["explorer", "verify", str(copy)]).exit_code
        shutil.rmtree(copy)
    assert {place: code for place, code in found.items() if code != 1} == {}


@contextmanager
def _started(command: list[str]) -> Iterator[subprocess.Popen[str]]:
    """A process group of its own, of which nothing is left after the test, however that ends."""
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    ) as process:
        try:
            yield process
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)


@pytest.mark.long
@pytest.mark.parametrize("number", some([signal.SIGINT, signal.SIGTERM], first=1))
def test_ctrl_c_and_sigterm_end_the_run_and_its_processes(number: signal.Signals, tmp_path: Path) -> None:
    words = ["simulate", *QUICK, "--rounds", "100000", "--out", str(tmp_path / "run")]
    with _started([sys.executable, "-u", "-m", "fedchain", *words]) as process:
        assert process.stdout is not None
        for line in process.stdout:
            if line.startswith("round 2/"):
                break
        process.send_signal(number)
        _, errors = process.communicate(timeout=60)
        assert (process.returncode, errors) == (130, "fedchain: interrupted\n")
        with pytest.raises(ProcessLookupError):  # the whole process group is gone
            os.killpg(process.pid, 0)


ENDLESS = """
name = "endless"
title = "A table that nobody waits for"
source = "nobody"
seeds = [0, 1, 2]
variants = [{ name = "SOLO", scenario = { method = "solo" } }]
cells = [{ name = "all" }]
scenario = { rounds = 100000, peers = 3, workers = 1, proof_function = "sha256d", mining_attempts = 4 }
"""


@pytest.mark.long
@pytest.mark.skipif(not Path("/proc").exists(), reason="looks for processes in /proc")
@pytest.mark.parametrize(
    ("number", "code"), [pytest.param(signal.SIGINT, 130, marks=pytest.mark.slow), (signal.SIGKILL, -9)]
)
def test_an_experiment_that_is_ended_or_killed_leaves_no_process(
    number: signal.Signals, code: int, tmp_path: Path
) -> None:
    (tmp_path / "endless.toml").write_text(ENDLESS)
    command = [sys.executable, "-m", "fedchain", "reproduce", str(tmp_path / "endless.toml"), "--out", str(tmp_path)]
    command += ["--jobs", "1"]  # two more runs are waiting, which must not begin instead
    with _started(command) as process:
        _wait_until(lambda: _living(process.pid) >= 4)  # itself, its resource tracker, the simulation, its trainer
        process.send_signal(number)
        _, errors = process.communicate(timeout=120)
        assert process.returncode == code
        _wait_until(lambda: _living(process.pid) == 0)
    assert number is signal.SIGKILL or errors.strip().splitlines() == ["fedchain: interrupted"]
    left = [path.suffix for path in (tmp_path / "results").iterdir()]
    assert left == [".record"]  # the same command goes on from it


@pytest.mark.slow
@pytest.mark.long
def test_a_run_that_fails_ends_the_experiment_with_one_line(tmp_path: Path) -> None:
    (tmp_path / "endless.toml").write_text(
        ENDLESS.replace("[0, 1, 2]", "[0]").replace("peers = 3", "peers = 3, max_virtual_s = 1")
    )
    words = ["reproduce", str(tmp_path / "endless.toml"), "--out", str(tmp_path), "--jobs", "1"]
    failed = CliRunner().invoke(app, words)
    assert failed.exit_code == 2, failed.output
    (line,) = failed.stderr.strip().splitlines()
    assert line.startswith("fedchain: not in the table: SOLO, all, seed 0: round 1 of ")
    assert line.endswith(" virtual s; max_virtual_s allows 1")


def _living(group: int) -> int:
    """How many processes of a group run; those that nobody has asked how they ended do not."""
    count = 0
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            state, _, member_of = path.read_text().rpartition(")")[2].split()[:3]
            count += int(member_of) == group and state != "Z"
    return count


def _wait_until(is_so: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 120
    while not is_so():
        assert time.monotonic() < deadline
        time.sleep(0.1)
