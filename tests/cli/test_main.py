"""All commands alike: wrong input is one line and exit code 2, and a closed pipe is no error."""

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from fedchain.chain.storage.sqlite import Store
from fedchain.cli.main import COMMANDS
from fedchain.crypto.address import address
from tests.support.chain.builders import ChainBuilder, genesis
from tests.support.chain.explored import write as write_chain
from tests.support.cli_shell import KEY, run, started
from tests.support.cli_shell import folder as folder

MEMBER = address(KEY.public_key)


# --- help


@pytest.mark.parametrize("command", ["", *COMMANDS, "explorer block", "keys new", "node start"])
def test_h_is_help(command: str) -> None:
    short, long = run(*command.split(), "-h"), run(*command.split(), "--help")
    assert (short.exit_code, short.stdout) == (0, long.stdout)
    assert f"Usage: fedchain {command}".strip() in short.stdout
    assert "-h, --help" in short.stdout


def test_each_command_has_a_summary_that_is_not_cut() -> None:
    listed = run("--help").stdout
    for name, (_, summary) in COMMANDS.items():
        assert f"  {name} " in listed
        assert f" {summary}\n" in listed


def test_help_and_completion_of_names_import_no_command() -> None:
    code = (
        "import sys; from fedchain.cli.main import app\n"
        "try: app(sys.argv[1:], prog_name='fedchain')\n"
        "finally: print(*sorted(name for name in sys.modules if name.startswith('fedchain.')), file=sys.stderr)"
    )
    complete = {"_FEDCHAIN_COMPLETE": "complete_bash", "COMP_WORDS": "fedchain e", "COMP_CWORD": "1"}
    for words, environment in ((["--help"], {}), ([], complete)):
        command = [sys.executable, "-c", code, *words]
        done = subprocess.run(command, capture_output=True, text=True, check=True, env=os.environ | environment)
        assert "explorer" in done.stdout
        names = ("cli", "cli.common", "cli.common.exit_codes", "cli.common.usage", "cli.main")
        assert done.stderr.split() == [f"fedchain.{name}" for name in names]


# --- what a shell does with commands


def test_a_key_is_not_made_without_a_passphrase_or_a_terminal(tmp_path: Path) -> None:
    done = started("fedchain keys new key.pem", cwd=tmp_path, env={"FEDCHAIN_PASSPHRASE": ""})
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == (
        "fedchain: key.pem is not made: no terminal to ask for a passphrase; set FEDCHAIN_PASSPHRASE, or take --plain\n"
    )
    assert list(tmp_path.iterdir()) == []


def test_characters_that_the_output_lacks_are_escaped(folder: Path) -> None:
    """They ended a command with a traceback."""
    done = started("PYTHONIOENCODING=ascii fedchain explorer blocks run", cwd=folder)
    assert (done.returncode, done.stderr) == (0, "")
    assert "\\u2026" in done.stdout


@pytest.mark.parametrize("words", ["--help", "--version", "node --help", "simulate --settings", "methods"])
def test_output_that_cannot_be_written_is_one_line_or_none(words: str) -> None:
    """Help and the like ended in a traceback, or with the exit code of an answer."""
    full = started(f"fedchain {words} > /dev/full")
    assert (full.returncode, full.stderr) == (2, "fedchain: input or output: No space left on device\n")
    closed = started(f"(sleep 0.2; fedchain {words}; echo $? >&2) | true")
    assert closed.stderr == "141\n"


@pytest.mark.parametrize(
    "words", ["--version", "explorer blocks run", "genesis show nowhere", "runs run", "genesis show $(printf 'a\\377')"]
)
def test_streams_that_were_closed_before_lead_nowhere(words: str, folder: Path) -> None:
    """A command without an output ended in an AttributeError, and files that it opened had the streams' numbers."""
    expected = started(f"fedchain {words}", cwd=folder).returncode
    for closed in ("<&-", ">&-", "2>&-", "<&- >&- 2>&-"):
        done = started(f"fedchain {words} {closed}", cwd=folder)
        assert done.returncode == expected
        assert "Traceback" not in done.stderr


def test_what_is_opened_has_the_number_of_no_stream(tmp_path: Path) -> None:
    code = "from fedchain.cli.entry import open_closed_streams as o; o(); f = open('it', 'w'); f.write(str(f.fileno()))"
    started(f'"{sys.executable}" -c "{code}" <&- >&- 2>&-', cwd=tmp_path)
    assert int((tmp_path / "it").read_text()) > 2


HANG_UP = """
import signal, sys
from fedchain.cli import main
def app():
    try:
        signal.raise_signal(signal.SIGHUP)
    except KeyboardInterrupt:
        print("is ended as by Ctrl-C")
    else:
        print("goes on")
main.app = app
signal.signal(signal.SIGHUP, signal.Handlers[sys.argv[1]])
main.main()
"""


@pytest.mark.parametrize(("before", "said"), [("SIG_DFL", "is ended as by Ctrl-C\n"), ("SIG_IGN", "goes on\n")])
def test_a_terminal_that_closes_ends_a_command_as_ctrl_c_does(before: str, said: str) -> None:
    """It left the nodes of a test network running."""
    done = subprocess.run([sys.executable, "-c", HANG_UP, before], capture_output=True, text=True, check=True)
    assert done.stdout == said


@pytest.mark.parametrize("before", ["SIG_DFL", "SIG_IGN"])
def test_a_service_has_no_terminal_that_could_close(before: str) -> None:
    """A node that starts, which may take minutes, ended for good at a SIGHUP that it ignores later."""
    command = [sys.executable, "-c", HANG_UP, before]
    given = os.environ | {"NOTIFY_SOCKET": "/run/systemd/notify"}
    assert subprocess.run(command, capture_output=True, text=True, check=True, env=given).stdout == "goes on\n"


@pytest.mark.parametrize("words", ["methods", "explorer blocks run"])
@pytest.mark.parametrize("hears", [True, False])
def test_a_terminal_that_is_gone_is_no_wrong_input(folder: Path, words: str, hears: bool) -> None:
    """It was an error of input or output, with exit code 2, or a traceback with 1 that nobody saw."""
    master, slave = os.openpty()
    os.close(master)
    command = [sys.executable, "-c", "from fedchain.cli.main import main; main()", *words.split()]
    errors = subprocess.PIPE if hears else slave
    done = subprocess.run(command, stdout=slave, stderr=errors, text=True, check=False, cwd=folder)
    os.close(slave)
    assert done.returncode == 130
    assert done.stderr in ("", "fedchain: interrupted\n", None)


SECOND = """
import atexit, os, signal, sys
from fedchain.cli import main
def app():
    sys.exit(130)
main.app = app
number = signal.Signals[sys.argv[1]]
signal.signal(number, signal.SIG_DFL)  # it may be ignored where these tests run
atexit.register(os.kill, os.getpid(), number)
main.main()
"""


@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM", "SIGHUP"])
def test_another_ctrl_c_while_python_ends_is_no_traceback(name: str) -> None:
    """It came out of what waited there for processes of a parallel run."""
    done = subprocess.run([sys.executable, "-c", SECOND, name], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (-signal.Signals[name], "")


# --- modules of the current folder

MINE = """
from fedchain.learning.methods.fedavg import FedAvg

class Mine(FedAvg):
    pass
"""


@pytest.mark.long
def test_a_method_of_the_current_folder_is_found(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(MINE, encoding="utf-8")
    (tmp_path / "statistics.py").write_text("raise RuntimeError('a file of the user in the library's place')\n")
    done = started(f"fedchain genesis new there --member {MEMBER} --method mine:Mine", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert b'"mine:Mine"' in (tmp_path / "there").read_bytes()


def test_the_explorer_imports_nothing_of_the_folder_in_which_it_looks_around(tmp_path: Path) -> None:
    chain = ChainBuilder(genesis(4, learning=(("hyperparameters", "[]"), ("method", '"evil:Evil"'))))
    chain.extend()
    with Store.create(tmp_path / "chain", chain.genesis) as store:
        write_chain(store, chain)
    (tmp_path / "evil.py").write_text("open('was-here', 'w')\n", encoding="utf-8")
    done = started("fedchain explorer verify .", cwd=tmp_path)
    assert done.returncode == 2
    assert "there is no module 'evil' on Python's path, to which PYTHONPATH=. adds the current folder" in done.stderr
    assert not (tmp_path / "was-here").exists()


# --- wrong input


WRONG = """
nonsense
--nonsense
simulate --peers abc
simulate --peers
simulate --peers 0
simulate --peers -1
simulate --peers 20000
simulate --peers 3.5
simulate --rounds 0
simulate --rounds 1e3
simulate --peer 3 --nonsense
simulate --seed x
simulate --loss 2
simulate --loss much
simulate --method nonsense
simulate --method no_such_module:Class
simulate --method no_such_module.py:Class
simulate --method os:Class
simulate --dataset nonsense
simulate --partition nonsense
simulate --set model=nonsense
simulate --set learning_rate
simulate --set nonsense=3
simulate --set learning_rate=fast
simulate --set learning_rate=-1
simulate --set delay_min_ms=200 --set delay_max_ms=100
simulate --set committee_size=99
simulate --set aggregator=nobody
simulate --set encryption=nonsense
simulate --set name=a/b
simulate {0}/none.toml
simulate {0}/x.toml
simulate {0}/broken.toml
simulate {0}/noise
simulate {0}
simulate a.toml b.toml
reproduce nonsense
reproduce {0}/x.toml
reproduce {0}/broken.toml
reproduce fig3 --jobs 0
reproduce fig3 --jobs many
reproduce dfpl-table1-fmnist --seeds 0
data nonsense
data --download
data cifar10 --nonsense
plan --set rounds_max=0
plan --set alpha=x
plan --set chi=0
plan --out {0}/plan
plan --t-sum soon
attack inversion {0}/run
attack inversion --set images=0
attack inversion --set informed=true
attack inversion --method nonsense
attack nonsense
node nonsense
node start {0}/none.toml
node start {0}/broken.toml
node start --genesis {0}/genesis
node status {0}/empty
node status {0}/none
node testnet --peers 0
node testnet --peers two
node testnet --method nonsense
node testnet --out {0}/empty --method nonsense
node repair {0}/empty
node repair {0}/none
node bans {0}/none
node unban {0}/none
node privacy {0}/key.pem --genesis {0}/genesis
keys new {0}/key.pem --plain
keys new {0}/none/key.pem --plain
keys new {0}/new.pem
keys show {0}/none
keys show {0}/noise
keys show {0}
keys protect {0}/none
keys install-share {0}/key.pem {0}/noise --genesis {0}/genesis
keys export-journal {0}/key.pem --genesis {0}/noise
keys import-journal {0}/key.pem {0}/none --genesis {0}/genesis
genesis new {0}/new --member nobody
genesis new {0}/new
genesis new {0}/genesis --member {1}
genesis new {0}/none/new --member {1}
genesis new {0}/new --member {1} --set mining_attempts=0
genesis new {0}/new --member {1} --set mining_attempts=99999999999999999999999
genesis new {0}/new --member {1} --set phase_timeout_s=1 --set phase_floor_s=5
genesis new {0}/new --member {1} --name 
genesis new {0}/new --member {1} --set fault_model=brave
genesis new {0}/new --member {1} --set mining_s=-1
genesis new {0}/new --member {1} --rounds -1
genesis new {0}/new --member {1} --method nonsense
genesis show {0}/none
genesis show {0}/noise
genesis show {0}
explorer status {0}/none
explorer status {0}/empty
explorer status {0}/noise
explorer block {0}/run 99
explorer block {0}/run -1
explorer block {0}/run xyz
explorer block {0}/run
explorer blocks {0}/run --limit 0
explorer blocks {0}/run --limit all
explorer tx {0}/run ffffffff
explorer tx {0}/run zz
explorer peer {0}/run nobody
explorer peer {0}/run 17
explorer round {0}/run 9
explorer round {0}/run one
explorer proof {0}/run ffffffff
explorer export {0}/run
explorer nonsense {0}/run
explorer members {0}/empty
explorer peer {0}/run 4
explorer serve {0}/noise
explorer serve {0}/run --port 70000
explorer serve {0}/run --port web
explorer serve {0}/run --host nowhere.invalid
explorer serve
explorer report {0}/run
explorer report {0}/none --html {0}/new.html
explorer report {0}/run --html {0}/x.toml
explorer report {0}/run --html {0}/none/new.html
methods nonsense
methods dfpl more
compare --methods
compare --methods nonsense
compare --methods dfpl,nonsense
compare --methods dfpl --seeds 0
compare --methods dfpl --seeds few
compare --methods dfpl --sweep learning_rate
compare --methods dfpl --sweep nonsense=1,2
compare --methods dfpl --sweep seed=1,2
compare --methods dfpl --metric nonsense
compare --methods dfpl --peers abc
compare {0}/none.toml
model nonsense
model export {0}/run
model export {0}/none --out {0}/new.safetensors
model export {0}/empty --out {0}/new.safetensors
model export {0}/run --out {0}/new.safetensors --round many
model evaluate {0}/none
model evaluate {0}/empty
runs {0}/none
runs {0}/noise
runs --limit
runs {0}/run more
node check {0}/none.toml
node check {0}/x.toml
node check --timeout-s 0
node check --timeout-s soon
node start --wait-for many
node start --recent-mib 0
node start --log-format xml --genesis {0}/genesis --key {0}/key.pem --data {0}/data
node start --stop-accuracy 2 --genesis {0}/genesis --key {0}/key.pem --data {0}/data
node start --listen nowhere --genesis {0}/genesis --key {0}/key.pem --data {0}/data
node start --metrics nowhere --genesis {0}/genesis --key {0}/key.pem --data {0}/data
node start --bootstrap nobody --genesis {0}/genesis --key {0}/key.pem --data {0}/data
simulate --task nonsense
simulate --task {0}/none.py:load
simulate --task {0}/noise:load
simulate --task {0}/x.py:load
simulate --task os:nonsense
simulate --dataset own
genesis new {0}/new --member {1} --task {0}/none.py:load
genesis new {0}/new --member {1} --set committee_size=9 --set version=2
genesis new {0}/new --member {1} --set phase_timeout_s=0
genesis new {0}/new --member {1} --member {1}
"""


@pytest.mark.parametrize("line", WRONG.split("\n")[1:-1])
def test_wrong_input_is_one_line_and_exit_code_2(
    line: str, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    before = _files(folder)
    result = run(*line.format(folder, MEMBER).split(" "))
    assert result.exit_code == 2, result.output
    assert isinstance(result.exception, SystemExit)
    assert result.stdout == "" or re.fullmatch(r"preparing .* for 20 peers\n", result.stdout)
    (said,) = result.stderr.splitlines()
    assert said.startswith("fedchain")
    assert "Traceback" not in said
    assert _files(folder) == before
    assert list(tmp_path.iterdir()) == []


def _files(folder: Path) -> list[Path]:
    """List the files, without bytecode and the two that a reader of a database makes beside it."""
    found = (path for path in folder.rglob("*") if "__pycache__" not in path.parts)
    return sorted(path for path in found if not path.name.startswith("chain.sqlite-"))
