"""Commands in a shell: pipes, missing values, Ctrl-C."""

import json
import logging
import os
import subprocess
import sys
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from fedchain.cli.common.command import GroupedCommand, clear_errors
from fedchain.cli.main import app
from fedchain.learning.executors.workers import WorkerDiedError
from fedchain.node.config import NodeConfigError, NodeFailed
from fedchain.node.operating.json_log import JsonFormatter
from fedchain.node.shell.service import NodeStopped
from tests.support.cli_shell import folder as folder
from tests.support.cli_shell import started


def test_an_option_without_its_value_is_told_with_the_command_s_help() -> None:
    done = started("fedchain simulate --peers")
    expected = "fedchain: --peers needs a value; see fedchain simulate --help\n"
    assert (done.returncode, done.stderr) == (2, expected)


@pytest.mark.parametrize(
    ("words", "name"),
    [
        (["keys", "new"], "path"),
        (["genesis", "show"], "path"),
        (["genesis", "new", "--member", "x"], "path"),
        (["node", "status"], "folder"),
        (["explorer", "status"], "folder"),
        (["passport", "verify"], "file"),
        (["simulate", "--out"], "--out"),
        (["simulate"], "SCENARIO.toml"),
        (["runs"], "folder"),
    ],
)
def test_an_empty_path_is_not_the_current_folder(words: list[str], name: str, tmp_path: Path) -> None:
    """As from a variable that is not set."""
    said = CliRunner().invoke(app, [*words, ""])
    assert (said.exit_code, said.stdout, list(tmp_path.iterdir())) == (2, "", [])
    command = " ".join(word for word in words[:2] if word not in ("--out",))
    assert said.stderr.strip() == f"fedchain: {name} is empty; see fedchain {command} --help"


def test_an_empty_path_among_several_is_refused_as_well() -> None:
    """As by the explorer's server, which would begin."""
    several = typer.Typer()

    @several.command(cls=GroupedCommand)
    def look(folders: list[Path]) -> None:
        typer.echo(f"looks at {len(folders)}")

    assert CliRunner().invoke(several, ["one", "two"]).stdout == "looks at 2\n"
    said = CliRunner().invoke(several, ["one", ""])
    assert (said.exit_code, said.stdout) == (2, "")
    assert "is empty" in said.stderr


@pytest.mark.parametrize("line", ["data", "reproduce", "explorer export --help", "explorer blocks RUN"])
def test_a_closed_pipe_ends_a_command_quietly(line: str, folder: Path) -> None:
    done = started(f"(sleep 0.2; fedchain {line.replace('RUN', str(folder / 'run'))}) | true; echo ${{PIPESTATUS[0]}}")
    assert (done.stdout, done.stderr) == ("141\n", "")


def test_a_pipe_that_is_closed_after_a_line_is_no_error() -> None:
    done = started("fedchain data | head -n 1")
    assert (done.stdout[:7], done.stderr) == ("cifar10", "")


@pytest.mark.parametrize("code", ["from fedchain.cli.entry import main; main()", ""])
def test_ctrl_c_ends_a_command_that_is_still_imported_with_one_line(code: str, tmp_path: Path) -> None:
    """It comes in the middle of the first library that the command imports."""
    (tmp_path / "typer.py").write_text("import os, signal\nos.kill(os.getpid(), signal.SIGINT)\n")
    command = [sys.executable, *(("-c", code) if code else ("-m", "fedchain")), "--help"]
    path = os.pathsep.join((str(tmp_path), os.environ.get("PYTHONPATH", "")))
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=os.environ | {"PYTHONPATH": path})
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "fedchain: interrupted\n")


@pytest.mark.parametrize(("kind", "code"), [(NodeStopped, 2), (NodeConfigError, 2), (NodeFailed, 1)])
def test_systemd_starts_again_what_a_start_may_mend_and_no_key_that_speaks_elsewhere(
    kind: type[NodeConfigError], code: int
) -> None:
    """RestartPreventExitStatus is 2; docs/troubleshooting.md says which end has which code."""
    with pytest.raises(typer.Exit) as ended, clear_errors():
        raise kind("this key is in use elsewhere")
    assert ended.value.exit_code == code


def test_a_file_of_a_stranger_does_not_speak_to_the_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    """A key or a name that is wrong stands in the line that says so."""
    with pytest.raises(typer.Exit), clear_errors():
        raise NodeConfigError("no such key: \x1b]0;pwned\x07\x9b2J\n a")
    assert capsys.readouterr().err == "fedchain: no such key: \ufffd]0;pwned\ufffd\ufffd2J a\n"


def test_killed_training_processes_are_no_wrong_input() -> None:
    with pytest.raises(typer.Exit) as ended, clear_errors():
        raise WorkerDiedError("training process train-0 ended with exit code -9")
    assert ended.value.exit_code == 1


def test_whoever_reads_json_alone_reads_why_a_fault_of_the_program_ends_a_node(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def run() -> None:
        with clear_errors() as complaints:
            complaints.are_logged = True
            raise ExceptionGroup("tasks", [KeyError("height")])

    with pytest.raises(typer.Exit) as ended:
        run()
    (record,) = caplog.records
    line = json.loads(JsonFormatter().format(record))
    assert (ended.value.exit_code, record.levelno) == (1, logging.CRITICAL)
    assert line["message"] == "a fault of this program ends it: KeyError: 'height'"
    assert "ExceptionGroup: tasks" in line["error"]


def test_a_fault_of_the_program_is_python_s_to_print_where_nothing_is_read_as_json() -> None:
    with pytest.raises(KeyError), clear_errors():
        raise KeyError("height")
