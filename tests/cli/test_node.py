"""``fedchain keys``, ``genesis`` and ``node``: what a user can mend is one line and exit code 2."""

import json
import socket
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fedchain.chain.genesis import Genesis
from fedchain.chain.storage.database import DATABASE
from fedchain.chain.storage.sqlite import Store
from fedchain.crypto.address import address
from fedchain.crypto.keys import PrivateKey
from fedchain.files.layout import CHAIN_FOLDER, TRAINING_FILE
from fedchain.learning.config import LearningConfig
from fedchain.node.operating.local_node import LocalNode
from fedchain.node.shell.run import open_store
from tests.support.chain.builders import keys
from tests.support.cli_node import ANYWHERE, done, refused, run, start
from tests.support.node.shell import DIGITS, write_genesis

STRANGER = PrivateKey.generate()


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a genesis document of two members and the key of the first."""
    monkeypatch.chdir(tmp_path)
    write_genesis(tmp_path / "genesis")
    keys(2)[0].save(tmp_path / "key.pem")
    return tmp_path


# keys


@pytest.mark.usefixtures("quick_passphrases")
def test_a_key_is_made_once_and_shown(tmp_path: Path) -> None:
    path, env = tmp_path / "key.pem", {"FEDCHAIN_PASSPHRASE": "correct horse"}
    made = done("keys", "new", path, env=env)
    assert made.startswith("12D3KooW")
    assert b"ENCRYPTED" in path.read_bytes()
    assert done("keys", "show", path, env=env) == made
    data = path.read_bytes()
    assert "exists" in refused("keys", "new", path, env=env)
    assert path.read_bytes() == data


@pytest.mark.usefixtures("quick_passphrases")
def test_a_wrong_passphrase_and_none(tmp_path: Path) -> None:
    path = tmp_path / "key.pem"
    done("keys", "new", path, env={"FEDCHAIN_PASSPHRASE": "correct horse"})
    assert "passphrase" in refused("keys", "show", path, env={"FEDCHAIN_PASSPHRASE": "wrong"})
    assert "passphrase" in refused("keys", "show", path)


def test_a_plain_key_needs_no_passphrase(tmp_path: Path) -> None:
    path = tmp_path / "key.pem"
    made = done("keys", "new", "--plain", path)
    assert done("keys", "show", path, env={"FEDCHAIN_PASSPHRASE": "not needed"}) == made


def test_files_that_are_no_keys(tmp_path: Path) -> None:
    assert "none.pem" in refused("keys", "show", tmp_path / "none.pem")
    (tmp_path / "text").write_text("a text", encoding="utf-8")
    (tmp_path / "text").chmod(0o600)
    assert "text" in refused("keys", "show", tmp_path / "text")
    assert str(tmp_path) in refused("keys", "show", tmp_path)


# genesis


def test_a_federation_is_founded_and_shown(tmp_path: Path) -> None:
    members = [address(key.public_key) for key in keys(3)]
    path = tmp_path / "genesis"
    words = [word for member in members for word in ("--member", member)]
    chain_id = done("genesis", "new", path, *words, "--rounds", "7", "--set", "local_steps=3", "--set", "mining_s=1.5")
    document = Genesis.decode(path.read_bytes())
    assert document.chain_id.hex() == chain_id
    assert (document.rounds, document.target_mining_time_ms) == (7, 1_500)
    shown = done("genesis", "show", path).splitlines()
    assert [line.split()[-1] for line in shown if "12D3KooW" in line] == members
    assert [line.split()[-1] for line in shown if line.startswith("chain id")] == [chain_id]
    answer = json.loads(done("genesis", "show", path, "--json"))
    assert (answer["chain_id"], answer["rounds"], answer["learning"]["method"]) == (chain_id, 7, "dfpl")
    assert answer["members"] == [{"number": place, "address": member} for place, member in enumerate(members)]
    assert [line.split()[-1] for line in shown if line.startswith("  local steps")] == ["3"]
    assert "exists already" in refused("genesis", "new", path, *words)
    assert path.read_bytes() == document.encode()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--set", "local_stepz=3"), "local_steps"),
        (("--set", "model=digits-mpl"), "unknown model 'digits-mpl'; did you mean 'digits-mlp'?"),
        (("--set", "model=cnn"), "model 'cnn' does not fit digits; use digits-mlp"),
        (("--partition", "n-wai"), "unknown partition 'n-wai'; did you mean 'n-way'?"),
        (("--set", "shots=0"), "shots must be between 1 and"),
        (("--set", "nonsense"), "NAME=VALUE"),
        (("--method", "dfplx"), "unknown method 'dfplx'; did you mean 'dfpl'?"),
        (("--dataset", "digitz"), "unknown data set 'digitz'; did you mean 'digits'?"),
        (("--dataset", "nothing"), "nothing"),
        (("--set", "learning_rate=fast"), "dfpl.learning_rate must be float, not str ('fast')"),
        (("--set", "local_steps=0"), "local_steps must lie in [1, 1048576], not 0"),
        (("--member", "nobody"), "nobody"),
        (("--set", "contribution_quorum=4"), "contribution_quorum"),
        (("--rounds", "-1"), "rounds"),
        (("--set", "mining_s=0"), "mining_s is 0, it must be between 0.004 and 1,000,000"),
        (("--set", "mining_s=nan"), "mining_s is nan"),
        (("--set", "phase_timeout_s=inf"), "phase_timeout_s is inf"),
        (("--set", "mining_attempts=0"), "attempts"),
    ],
    ids=lambda value: value[0] + value[1] if isinstance(value, tuple) else "",
)
def test_a_federation_that_cannot_be_is_not_founded(tmp_path: Path, words: tuple[str, ...], said: str) -> None:
    members = [word for key in keys(2) for word in ("--member", address(key.public_key))]
    assert said in refused("genesis", "new", tmp_path / "genesis", *members, *words)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--method", "dfplx"), "unknown method 'dfplx'; did you mean 'dfpl'?"),
        (("--dataset", "digitz"), "unknown data set 'digitz'; did you mean 'digits'?"),
        (("--set", "model=digits-mpl"), "unknown model 'digits-mpl'; did you mean 'digits-mlp'?"),
        (("--set", "local_steps=2.5"), "dfpl.local_steps must be int, not float (2.5)"),
        (("--set", "learning_rate=-1"), "learning_rate must lie in (0.0, 1000.0], not -1.0"),
        (("--peers", "65"), "peers is 65, at most 64 processes are started on one machine"),
        (("--set", "mining_s=nan"), "--set mining_s is nan, it must be between 0.004 and 1,000,000"),
        (("--set", "timeout_s=nan"), "--set timeout_s is nan, it must be between 0.001 and 1,000,000,000"),
        (
            ("--set", "dirichlet_alpha=0.1"),
            "dirichlet_alpha is 0.1, which has no effect: it is of partition dirichlet or dirichlet-hsu, not of n-way",
        ),
        (("--set", "classes_avg=11"), "classes_avg must be between 1 and 10, not 11"),
    ],
    ids=lambda value: value[0] + value[1] if isinstance(value, tuple) else "",
)
def test_a_test_network_that_cannot_be_is_not_started(tmp_path: Path, words: tuple[str, ...], said: str) -> None:
    out = tmp_path / "out"
    assert said == refused("node", "testnet", "--peers", "2", "--rounds", "1", "--out", out, *words)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("is_one_chain", [True, False])
def test_a_test_network_is_founded_as_it_was_asked_for_and_ends_with_1_where_its_nodes_differ(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_one_chain: bool
) -> None:
    asked = list[Any]()

    def found(folder: Path, config: LearningConfig, settings: Any, **more: object) -> list[LocalNode]:
        asked.append((folder, config.clients, settings.rounds, settings.mining_s, more))
        return []

    def play(nodes: object, rule: object, timeout_s: float, *, shows_logs: bool) -> bool:
        asked.append((timeout_s, shows_logs))
        return is_one_chain

    monkeypatch.setattr("fedchain.node.operating.testnet.found_testnet", found)
    monkeypatch.setattr("fedchain.node.operating.testnet.run_testnet", play)
    words = ("--peers", "3", "--rounds", "4", "--set", "timeout_s=7", "--set", "mining_s=0.5", "--log")
    result = run("node", "testnet", *words, "--out", tmp_path / "net")
    assert (result.exit_code, result.output) == (0 if is_one_chain else 1, "")
    assert asked == [(tmp_path / "net", 3, 4, 0.5, {"modules": None, "parts": 3}), (7.0, True)]


@pytest.mark.parametrize(("code", "line"), [(0, "goes on"), (1, "stands")])
def test_a_check_ends_with_the_code_that_monitoring_reads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int, line: str
) -> None:
    monkeypatch.setattr("fedchain.node.operating.status.ask", lambda folder, question: question)
    monkeypatch.setattr("fedchain.node.operating.console.check_line", lambda answer: (code, line))
    checked = run("node", "status", tmp_path, "--check")
    assert (checked.exit_code, checked.stdout) == (code, f"{line}\n")


def test_a_genesis_document_in_a_folder_that_is_not_there(tmp_path: Path) -> None:
    member = address(keys(1)[0].public_key)
    assert "cannot be written" in refused("genesis", "new", tmp_path / "none" / "genesis", "--member", member)


def test_a_file_that_is_no_genesis_document(tmp_path: Path) -> None:
    (tmp_path / "text").write_text("a text", encoding="utf-8")
    assert "is no genesis document" in refused("genesis", "show", tmp_path / "text")
    assert "cannot be read" in refused("genesis", "show", tmp_path / "none")


# node


@pytest.mark.parametrize("is_verbose", [True, False])
def test_a_node_logs_what_was_refused_where_it_is_asked_to(
    here: Path, monkeypatch: pytest.MonkeyPatch, is_verbose: bool
) -> None:
    said = list[bool]()
    monkeypatch.setattr("fedchain.cli.node.run", lambda config, complaints, *, verbose: said.append(verbose))
    words = ("--genesis", here / "genesis", "--key", here / "key.pem", "--data", here / "data", "--listen", ANYWHERE)
    done("node", "start", *words, *(["--verbose"] if is_verbose else []))
    assert said == [is_verbose]


def test_a_key_that_is_no_member_s(here: Path) -> None:
    STRANGER.save(here / "stranger.pem")
    assert address(STRANGER.public_key) in start(key="stranger.pem")
    assert not (here / "data").exists()


@pytest.mark.usefixtures("quick_passphrases")
def test_a_node_whose_key_does_not_open(here: Path) -> None:
    keys(2)[0].save(here / "locked.pem", "correct horse")
    words = ("node", "start", "--genesis", "genesis", "--key", "locked.pem", "--data", "data", "--listen", ANYWHERE)
    assert "passphrase is wrong" in refused(*words, env={"FEDCHAIN_PASSPHRASE": "wrong"})
    assert "needs a passphrase" in refused(*words)
    assert not (here / "data").exists()


def test_files_that_are_missing(here: Path) -> None:
    assert start(genesis="none") == "none cannot be read: No such file or directory"
    assert "none.pem" in start(key="none.pem")
    assert refused("node", "start", "none.toml") == "none.toml cannot be read: No such file or directory"
    assert refused("node", "start").startswith("genesis is missing; ")
    assert not (here / "data").exists()


def test_a_setting_that_is_not_known(here: Path) -> None:
    (here / "node.toml").write_text('genesys = "genesis"\n', encoding="utf-8")
    assert refused("node", "start", "node.toml") == "node.toml has no key 'genesys'; did you mean 'genesis'?"


def test_a_port_in_use(here: Path) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        assert str(port) in start("--listen", f"/ip4/127.0.0.1/tcp/{port}", code=1)  # it may be free later
        assert f"127.0.0.1:{port}" in start("--set", f"metrics=127.0.0.1:{port}", code=1)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--bootstrap", "nonsense"), "nonsense"),
        (("--bootstrap", "/ip4/127.0.0.1/tcp/4001"), "/p2p/"),
        (("--bootstrap", f"/ip4/127.0.0.1/tcp/4001/p2p/{address(STRANGER.public_key)}"), "member"),
        (("--listen", "localhost:4001"), "localhost:4001"),
        (("--set", "metrics=localhost"), "HOST:PORT"),
        (("--set", "metrics=127.0.0.1:99999"), "HOST:PORT"),
    ],
    ids=lambda value: value[1][:24] if isinstance(value, tuple) else "",
)
def test_addresses_that_cannot_be_used(here: Path, words: tuple[str, ...], said: str) -> None:
    assert said in start(*words)


def test_a_data_folder_of_another_chain(here: Path) -> None:
    other = Genesis.decode(write_genesis(here / "other", rounds=9).read_bytes())
    Store.create(here / "data" / CHAIN_FOLDER, other).close()
    assert other.chain_id.hex()[:8] in start()


def test_a_data_folder_that_another_process_writes(here: Path) -> None:
    document = Genesis.decode((here / "genesis").read_bytes())
    with Store.create(here / "data" / CHAIN_FOLDER, document):
        assert "another process" in start()


def test_a_repair_takes_the_folder_that_an_error_names_and_the_node_s(here: Path) -> None:
    genesis = Genesis.decode((here / "genesis").read_bytes())
    Store.create(here / "data" / CHAIN_FOLDER, genesis).close()
    said = {done("node", "repair", folder) for folder in (here / "data", here / "data" / CHAIN_FOLDER)}
    assert len(said) == 1


def test_a_repair_sets_a_damaged_file_of_the_training_process_aside(here: Path) -> None:
    Store.create(here / "data" / CHAIN_FOLDER, Genesis.decode((here / "genesis").read_bytes())).close()
    for folder in ("data", f"data/{CHAIN_FOLDER}"):
        (here / "data" / TRAINING_FILE).write_bytes(bytes(4_096))
        nothing, said = done("node", "repair", folder).splitlines()
        assert nothing.endswith(": nothing is damaged, nothing was changed")
        assert f"{TRAINING_FILE} is damaged" in said
        assert not (here / "data" / TRAINING_FILE).exists()
        assert len(done("node", "repair", folder).splitlines()) == 1


def test_a_repair_takes_a_folder_that_came_from_a_backup_and_has_no_chain(here: Path) -> None:
    (here / "data").mkdir()
    assert "data holds no chain" in refused("node", "repair", "data")
    (here / "data" / TRAINING_FILE).write_bytes(bytes(4_096))
    assert f"{here / 'data' / TRAINING_FILE} is damaged" in done("node", "repair", "data")
    assert not (here / "data" / TRAINING_FILE).exists()


def test_a_file_in_the_chain_s_place_is_named(here: Path) -> None:
    (here / "data").mkdir()
    (here / "data" / CHAIN_FOLDER).write_text("a file", encoding="utf-8")
    assert start() == f"data/{CHAIN_FOLDER} is no folder, the chain needs one; move it away"


def test_a_chain_that_does_not_open_is_set_aside_and_a_start_begins_another(here: Path) -> None:
    genesis, folder = Genesis.decode((here / "genesis").read_bytes()), Path("data") / CHAIN_FOLDER
    Store.create(folder, genesis).close()
    (folder / DATABASE).write_bytes(b"no database\n" * 1_000)
    assert f"run: fedchain node repair {folder}" in start()
    said = done("node", "repair", folder).splitlines()
    assert said[2] == f"the chain is set aside as {folder}.damaged-1; start the node, it joins from the network"
    open_store(folder, genesis).close()
    assert done("node", "repair", "data") == f"{folder}: nothing is damaged, nothing was changed"
    assert (here / "data" / f"{CHAIN_FOLDER}.damaged-1" / DATABASE).exists()


def test_a_data_folder_that_cannot_be_made(here: Path) -> None:
    (here / "data").write_text("a file", encoding="utf-8")
    assert "data" in start()


def test_more_members_than_there_are_cannot_be_waited_for(here: Path) -> None:
    assert start("--set", "wait_for=3") == "wait_for is 3, the federation has 2 founders"
    assert not (here / "data").exists()


@pytest.mark.long
def test_data_that_cannot_be_read(here: Path) -> None:
    write_genesis(here / "fashion", replace(DIGITS, dataset="fashion-mnist"))
    assert "train-images-idx3-ubyte" in start("--set", "data_dir=nowhere", genesis="fashion")


def test_nobody_answers_in_a_folder_without_a_node(tmp_path: Path) -> None:
    assert refused("node", "status", tmp_path) == f"no node answers in {tmp_path}; is it running?"
    # Nor does one that cannot be asked, as by another user: it may well run.
    unasked = f"{tmp_path / ('x' * 200)} is too long a path for the node's local socket; choose a shorter one"
    assert refused("node", "status", tmp_path / ("x" * 200)) == unasked
    checked = run("node", "status", tmp_path / ("x" * 200), "--check")
    assert (checked.exit_code, checked.stdout) == (2, f"no answer: {unasked}\n")


def test_a_test_network_is_refused_where_it_cannot_be(tmp_path: Path) -> None:
    assert "exists already" in refused("node", "testnet", "--out", tmp_path)
    assert "dfpl" in refused("node", "testnet", "--method", "dfplx", "--out", tmp_path / "new")
    assert list(tmp_path.iterdir()) == []
