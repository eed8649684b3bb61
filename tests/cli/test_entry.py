"""Imports of a command before it does its work: nobody shall wait for a module that it does not need."""

import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from fedchain.chain.storage.sqlite import Store
from fedchain.cli.entry import end, end_when_interrupted
from fedchain.cli.main import COMMANDS, app
from tests.support.chain.builders import ChainBuilder, genesis
from tests.support.chain.explored import write as write_chain


def imported_by(*arguments: object) -> set[str]:
    """The modules of a process that has run a command."""
    code = (
        "import sys; from fedchain.cli.main import app; "
        f"app({[str(argument) for argument in arguments]!r}, standalone_mode=False); "
        "print('imported', *sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return set(done.stdout.splitlines()[-1].split()[1:])


def test_the_explorer_imports_the_chain_and_nothing_else(tmp_path: Path) -> None:
    chain = ChainBuilder(genesis(4))
    chain.extend_many(2)
    with Store.create(tmp_path / "chain", chain.genesis) as store:
        write_chain(store, chain)
    modules = imported_by("explorer", "status", tmp_path, "--json")
    assert "fedchain.cli.explorer" in modules
    assert not {"numpy", "pydantic", "rich.console", "torch", "trio"} & modules
    strangers = ("fedchain.learning", "fedchain.network", "fedchain.node", "fedchain.simulator")
    assert sorted(name for name in modules if name.startswith(strangers)) == []


def test_a_folder_that_exists_is_refused_before_anything_that_trains_is_imported(tmp_path: Path) -> None:
    code = (
        "import sys; from fedchain.cli.main import app\n"
        f"try: app(['simulate', '--out', {str(tmp_path)!r}])\n"
        "finally: print('imported', *sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert "exists already" in done.stderr
    assert not {"torch", "matplotlib", "rich.console"} & {*done.stdout.split()}


@pytest.mark.parametrize("name", COMMANDS)
def test_help_lists_every_command_and_each_has_help(name: str) -> None:
    listed = CliRunner().invoke(app, ["--help"]).stdout
    assert f"\n  {name} " in listed
    shown = CliRunner().invoke(app, [name, "--help"])
    assert shown.exit_code == 0
    assert f"Usage: fedchain {name} " in shown.stdout


def test_a_misspelt_command_is_answered_with_the_right_one() -> None:
    result = CliRunner().invoke(app, ["explore"])
    assert result.exit_code == 2
    assert "did you mean 'explorer'?" in result.stderr


CUT_SHORT = """
import os, sys
from pathlib import Path
from fedchain.cli import entry, main
from fedchain.files.spool import map_file
from fedchain.node.workers import process
def read_what_was_cut():
    path = Path(sys.argv[1])
    data = map_file(path)
    os.truncate(path, 0)
    data[-1]
main.main = process.verify = read_what_was_cut
"""


@pytest.mark.parametrize("run", ["entry.main()", "process.main(['verify'])"])
def test_a_process_that_ends_because_a_mapped_file_was_cut_short_says_where(run: str, tmp_path: Path) -> None:
    path = tmp_path / "content"
    path.write_bytes(bytes(10_000))
    done = subprocess.run([sys.executable, "-c", CUT_SHORT + run, path], check=False, capture_output=True, text=True)
    assert done.returncode == -signal.SIGBUS
    assert "Bus error" in done.stderr
    assert "in read_what_was_cut" in done.stderr


@pytest.mark.parametrize(("before", "after"), [(signal.SIG_IGN, signal.SIG_IGN), (signal.default_int_handler, end)])
def test_a_process_that_ignores_ctrl_c_keeps_ignoring_it(before: Any, after: Any) -> None:
    held = signal.signal(signal.SIGINT, before)
    try:
        end_when_interrupted()
        assert signal.getsignal(signal.SIGINT) is after
    finally:
        signal.signal(signal.SIGINT, held)
