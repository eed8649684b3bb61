"""``fedchain node check``: each thing that a node needs, by itself; one line for each, and no trace."""

import os
import shutil
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

import fedchain.node.operating.check as check_module
from fedchain.chain.genesis import Admission, Genesis
from fedchain.chain.membership.amendment import amendment_of
from fedchain.chain.membership.change import propose_amendment, sign_rekey
from fedchain.chain.storage.sqlite import Store
from fedchain.cli.main import app
from fedchain.crypto.address import address
from fedchain.crypto.keys import PrivateKey
from fedchain.files.layout import CHAIN_FOLDER, INVITATION_FILE, TRAINING_FILE
from fedchain.node.config import NodeConfig
from fedchain.node.custody.journal_file import JournalFile, journal_path
from fedchain.node.founding.task import learning_from_genesis
from fedchain.node.operating.check import (
    GREETING,
    Finding,
    Outcome,
    check_node,
    expected_size_bytes,
    is_clock_synchronized,
)
from fedchain.node.workers.training_file import KeptTraining
from tests.support.chain.builders import CREATED_MS, ChainBuilder, double_vote, keys
from tests.support.chain.changes import UNTIL, approved, joining, own
from tests.support.chain.explored import write as write_chain
from tests.support.node.checked import ME, OTHER
from tests.support.node.checked import config as config
from tests.support.node.checked import no_data as no_data
from tests.support.node.shell import DIGITS, write_genesis

MEMBERS = 2

TASK = """
import sys

import numpy as np
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.head = nn.Linear(8, 3)

    def forward(self, x):
        return x, self.head(x)


class Broken(Net):
    def forward(self, x):
        raise RuntimeError("no such layer")


class Ending(Net):
    def forward(self, x):
        return sys.exit(0) if len(x) > 2 else super().forward(x)


def load():
    points, labels = np.ones((30, 8), np.float32), np.arange(30) % 3
    return Net, (points, labels), (points, labels)


def broken():
    return Broken, *load()[1:]


def ending():
    return Ending, *load()[1:]
"""


def findings(config: NodeConfig, key: PrivateKey = ME, passphrase: str | None = "right") -> list[Finding]:
    return list(check_node(config, lambda: (key, passphrase), timeout_s=1.0))


def found(config: NodeConfig, name: str, key: PrivateKey = ME) -> tuple[str, str]:
    """Outcome and text of one check."""
    (finding,) = [item for item in findings(config, key) if item.name == name]
    assert "\n" not in finding.text
    return finding.outcome.value, finding.text


def test_a_node_that_can_start_leaves_no_trace(config: NodeConfig, tmp_path: Path) -> None:
    before = sorted(tmp_path.rglob("*"))
    said = findings(config)
    assert [(item.name, item.outcome.value) for item in said] == [
        ("libraries", "ok"),
        ("clock", "ok"),
        ("genesis", "ok"),
        ("key", "ok"),
        ("member", "ok"),
        ("journal", "ok"),
        ("folder", "ok"),
        ("disk", "ok"),
        ("port", "ok"),
        ("bootstrap", "warn"),
        ("data", "ok"),
    ]
    assert "a batch went through the model, loss " in said[-1].text
    assert sorted(tmp_path.rglob("*")) == before


def test_own_data_and_a_model_that_a_batch_does_not_go_through(
    config: NodeConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "task_to_check.py").write_text(TASK, encoding="utf-8")
    members = [word for key in (ME, OTHER) for word in ("--member", address(key.public_key))]
    words = ["genesis", "new", "own.fedchain", "--task", "task_to_check:load", "--method", "fedavg", *members]
    assert CliRunner().invoke(app, words).exit_code == 0
    config = replace(config, genesis="own.fedchain")
    assert found(replace(config, task="task_to_check:load"), "data")[0] == "ok"
    outcome, text = found(replace(config, task="task_to_check:broken"), "data")
    assert (outcome, "no such layer" in text) == ("fail", True)
    told = "a batch does not go through the model: SystemExit: 0"
    assert found(replace(config, task="task_to_check:ending"), "data") == ("fail", told)
    outcome, text = found(replace(config, task="task_to_check:none"), "data")
    assert (outcome, "none" in text) == ("fail", True)
    outcome, text = found(config, "data")
    assert (outcome, "name your function" in text) == ("fail", True)


def test_data_that_are_not_there(config: NodeConfig, tmp_path: Path) -> None:
    path = write_genesis(tmp_path / "fashion", replace(DIGITS, dataset="fashion-mnist"))
    outcome, text = found(replace(config, genesis=str(path), data_dir=str(tmp_path)), "data")
    assert (outcome, "train-images" in text) == ("fail", True)


@pytest.mark.parametrize(
    ("error", "text"),
    [(ImportError("failed to map\nlibtorch"), "ImportError: failed to map libtorch"), (MemoryError(), "MemoryError")],
)
def test_a_process_that_may_have_too_little_memory(
    config: NodeConfig, monkeypatch: pytest.MonkeyPatch, error: Exception, text: str
) -> None:
    """It used to end in a traceback, while a node says that its training process dies."""

    def load(*_: object) -> None:
        raise error

    monkeypatch.setattr(check_module, "_check_data", load)
    assert found(config, "data") == ("fail", text)


@pytest.mark.usefixtures("no_data")
def test_a_genesis_document_that_is_none_and_one_from_the_future(config: NodeConfig, tmp_path: Path) -> None:
    assert found(replace(config, genesis="none"), "genesis") == (
        "fail",
        "none cannot be read: No such file or directory",
    )
    names = [item.name for item in findings(replace(config, genesis="none"))]
    assert "member" not in names
    assert "port" in names, "what does not depend on it is looked at"
    why = "not checked: without genesis document and key the member is not known"
    assert found(replace(config, genesis="none"), "data") == ("warn", why)
    document = Genesis.decode(Path(config.genesis).read_bytes())
    (tmp_path / "later").write_bytes(replace(document, created_ms=CREATED_MS * 2).encode())
    later = replace(config, genesis=str(tmp_path / "later"))
    outcome, text = found(later, "genesis")
    assert (outcome, "one of the two clocks is wrong" in text) == ("warn", True)
    assert Outcome.FAIL not in {item.outcome for item in findings(later)}, "a node would start, and take part"
    assert found(later, "member")[0] == "ok", "it is known who is a member"


@pytest.mark.usefixtures("no_data")
def test_a_next_key_that_does_not_open_ends_a_node_once_it_runs(config: NodeConfig) -> None:
    path = Path(f"{config.key}.next")
    PrivateKey.generate().save(path, "right")
    assert found(config, "key")[0] == "ok"
    path.write_text("none", encoding="utf-8")
    assert found(config, "key") == ("fail", f"{path} cannot be opened: it is not a PEM key")
    assert found(config, "member")[0] == "ok"


@pytest.mark.usefixtures("no_data")
def test_a_key_that_is_a_stranger_s_or_does_not_open(config: NodeConfig) -> None:
    stranger = PrivateKey.generate()
    outcome, text = found(config, "member", stranger)
    assert (outcome, address(stranger.public_key) in text) == ("fail", True)
    why = "neither the founding document nor a chain here gives this key a place, and so a part of the data"
    assert found(config, "data", stranger) == ("warn", f"not checked: {why}")
    assert found(replace(config, wait_for=3), "member") == ("fail", "wait_for is 3, the federation has 2 founders")
    (key,) = [item for item in findings(config, passphrase=None) if item.name == "key"]
    assert (key.outcome, "is not encrypted" in key.text) == (Outcome.WARN, True)


@pytest.mark.usefixtures("no_data")
def test_a_journal_that_is_there_or_in_use(config: NodeConfig) -> None:
    chain_id = Genesis.decode(Path(config.genesis).read_bytes()).chain_id
    with JournalFile.open(journal_path(Path(config.key), chain_id), chain_id, ME.public_key, MEMBERS) as journal:
        journal.write(b"said")
        outcome, text = found(config, "journal")
        assert (outcome, "another process" in text) == ("fail", True)
    outcome, text = found(config, "journal")
    assert (outcome, text.endswith(" was written 1 time")) == ("ok", True)


@pytest.mark.usefixtures("no_data")
def test_a_link_to_nothing_in_the_journal_s_place_ends_a_start(config: NodeConfig) -> None:
    chain_id = Genesis.decode(Path(config.genesis).read_bytes()).chain_id
    journal_path(Path(config.key), chain_id).symlink_to("nowhere")
    outcome, text = found(config, "journal")
    assert (outcome, "symbolic links" in text) == ("fail", True)


@pytest.mark.usefixtures("no_data")
def test_a_key_in_a_folder_that_takes_no_journal(config: NodeConfig, monkeypatch: pytest.MonkeyPatch) -> None:
    folder, usual = Path(config.key).resolve().parent, os.access
    monkeypatch.setattr("os.access", lambda place, mode: place != folder and usual(place, mode))
    outcome, text = found(config, "journal")
    assert (outcome, f"cannot be made: {folder} cannot be written to; put the key file into" in text) == ("fail", True)


@pytest.mark.usefixtures("no_data")
def test_a_chain_that_has_begun_makes_nobody_wait(config: NodeConfig, tmp_path: Path) -> None:
    """Members may be more than founders by then; a node that has no block, and waits for them, would wait for ever."""
    document = replace(Genesis.decode(Path(config.genesis).read_bytes()), version=3, admission=Admission.QUORUM)
    chain = ChainBuilder(document, newcomers=1)
    (tmp_path / "open").write_bytes(document.encode())
    config = replace(config, genesis=str(tmp_path / "open"), wait_for=3)
    assert found(config, "member") == ("fail", "wait_for is 3, the federation has 2 founders")
    chain.extend()
    with Store.create(Path(config.data) / CHAIN_FOLDER, document) as store:
        write_chain(store, chain)
    assert found(config, "member")[0] == "ok"


@pytest.mark.usefixtures("no_data")
def test_amended_rules_and_a_key_that_the_chain_knows(config: NodeConfig, tmp_path: Path) -> None:
    path = write_genesis(tmp_path / "living", version=3, admission=Admission.QUORUM, retention_blocks=900, rounds=9)
    document = Genesis.decode(path.read_bytes())
    chain = ChainBuilder(document)
    newcomer = keys(3)[2]
    changes: dict[str, int | str] = {"hyperparameters.learning_rate": "0.05", "retention_blocks": 4}
    assert "rules" not in [item.name for item in findings(replace(config, genesis=str(path)))]
    amend = propose_amendment(amendment_of(changes), "", sequence=0, until=UNTIL)
    chain.extend(changes=sorted([joining(chain, 2), approved(chain, amend)], key=lambda change: change.hash))
    chain.extend_many(2)
    with Store.create(Path(config.data) / CHAIN_FOLDER, document) as store:
        write_chain(store, chain)
    newcomer.save(tmp_path / "newcomer.pem")
    config = replace(config, genesis=str(path), key=str(tmp_path / "newcomer.pem"))
    founded = dict(learning_from_genesis(document).hyperparameters)["learning_rate"]
    said = f"at height 4: learning_rate 0.05 in place of {founded}, retention_blocks 4 in place of 900"
    assert found(config, "rules", newcomer) == ("ok", said)
    assert found(config, "member", newcomer) == ("ok", "peer 2 of 3, counted from 0, active at height 3")
    assert found(config, "data", newcomer) == ("ok", "not looked at")
    (Path(config.data) / INVITATION_FILE).write_bytes(b"nonsense")  # which ends a start
    outcome, text = found(config, "member", newcomer)
    assert (outcome, f"{INVITATION_FILE} is no invitation" in text) == ("fail", True)


@pytest.mark.usefixtures("no_data")
@pytest.mark.parametrize("case", ["replaced", "replaced long ago", "left", "convicted"])
def test_a_key_that_takes_no_part_any_more(config: NodeConfig, tmp_path: Path, case: str) -> None:
    path = write_genesis(tmp_path / "living", replace(DIGITS, clients=5), version=3, admission=Admission.QUORUM)
    document = Genesis.decode(path.read_bytes())
    chain = ChainBuilder(document)
    if case.startswith("replaced"):
        chain.extend(changes=[sign_rekey(ME, keys(9)[8], document.chain_id, sequence=0, until=UNTIL)])
        while case == "replaced long ago" and chain.state.roster.successors:
            chain.extend()
        by, height = address(keys(9)[8].public_key), chain.state.height + 1
        said = f"the key in {config.key} was replaced by {by}, as of height {height}; name that key"
    elif case == "left":
        chain.extend(changes=[own(chain, 0)])
        chain.extend_many(2)
        said = "peer 0 left, from round 3 on; a key never comes back"
    else:
        chain.extend(miner=OTHER)
        chain.extend(miner=OTHER, evidence=[double_vote(ME, document, 1)])
        said = "peer 0 was convicted of a crime; it takes no part any more"
    chain.extend()
    with Store.create(Path(config.data) / CHAIN_FOLDER, document) as store:
        write_chain(store, chain)
    assert found(replace(config, genesis=str(path)), "member") == ("fail", said)


@pytest.mark.usefixtures("no_data")
def test_a_journal_that_is_lost_beside_a_chain_that_has_words_of_the_key(config: NodeConfig) -> None:
    document = Genesis.decode(Path(config.genesis).read_bytes())
    chain = ChainBuilder(document)
    chain.extend_many(2)
    with Store.create(Path(config.data) / CHAIN_FOLDER, document) as store:
        write_chain(store, chain)
    outcome, text = found(config, "journal")
    assert outcome == "warn"
    assert f"but the chain in {config.data} has 2 posts, " in text
    assert " 2 votes of this key: import it" in text


@pytest.mark.usefixtures("no_data")
def test_an_address_to_announce_is_one(config: NodeConfig) -> None:
    assert found(replace(config, announce=("/ip4/192.0.2.1/tcp/4001",)), "announce")[0] == "ok"
    assert found(replace(config, announce=("foo",)), "announce") == (
        "fail",
        "'foo' cannot be announced: it is not of the form /ip4/…/tcp/…",
    )


@pytest.mark.usefixtures("no_data")
def test_a_folder_of_another_federation_and_one_with_a_chain(config: NodeConfig, tmp_path: Path) -> None:
    document = Genesis.decode(Path(config.genesis).read_bytes())
    Store.create(Path(config.data) / CHAIN_FOLDER, document).close()
    assert found(config, "folder") == ("ok", f"{config.data} has this federation's chain, height 0")
    other = write_genesis(tmp_path / "other", rounds=9)
    outcome, text = found(replace(config, genesis=str(other)), "folder")
    assert (outcome, document.chain_id.hex()[:8] in text) == ("fail", True)


@pytest.mark.usefixtures("no_data")
def test_what_lies_in_the_folder_and_ends_a_start(config: NodeConfig) -> None:
    folder = Path(config.data)
    folder.mkdir(mode=0o700)
    said: dict[str, Any] = {"phase": "update", "round": 3, "knowledge": bytes(32), "answer": [b"", 2, "{}"]}
    chain_id = Genesis.decode(Path(config.genesis).read_bytes()).chain_id
    foreign = KeptTraining(chain_id=chain_id, member=1, **said, checkpoint=b"model").encode()
    (folder / TRAINING_FILE).write_bytes(foreign)
    outcome, text = found(config, "training")
    assert (outcome, "has the model of peer 1 of chain" in text) == ("fail", True)
    kept = KeptTraining(chain_id=chain_id, member=0, **said, checkpoint=b"model").encode()
    (folder / TRAINING_FILE).write_bytes(kept)
    assert found(config, "training") == ("ok", f"{TRAINING_FILE} has the model after round 3")
    (folder / TRAINING_FILE).write_bytes(kept[:-1])
    outcome, text = found(config, "training")
    assert (outcome, f"run: fedchain node repair {folder}" in text) == ("fail", True)
    (folder / CHAIN_FOLDER).write_text("a file", encoding="utf-8")
    assert found(config, "folder") == (
        "fail",
        f"{folder / CHAIN_FOLDER} is no folder, the chain needs one; move it away",
    )


def test_beside_a_running_node_all_is_tried_but_what_that_node_holds(
    config: NodeConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    document = Genesis.decode(Path(config.genesis).read_bytes())
    monkeypatch.setattr(check_module, "ask_status", lambda folder: {"height": 43})
    journal = JournalFile.open(
        journal_path(Path(config.key), document.chain_id), document.chain_id, ME.public_key, MEMBERS
    )
    with Store.create(Path(config.data) / CHAIN_FOLDER, document), journal, socket.socket() as port:
        port.bind(("127.0.0.1", 0))
        port.listen()
        place = f"127.0.0.1:{port.getsockname()[1]}"
        held = replace(config, listen=f"/ip4/127.0.0.1/tcp/{port.getsockname()[1]}", metrics=place)
        said = findings(held)
        assert [(item.name, item.outcome.value) for item in said] == [
            ("running", "warn"),
            ("libraries", "ok"),
            ("clock", "ok"),
            ("genesis", "ok"),
            ("key", "ok"),
            ("member", "ok"),
            ("folder", "ok"),
            ("disk", "ok"),
            ("bootstrap", "warn"),
            ("data", "ok"),
        ]
        assert "at height 43: its journal, port and metrics are not tried" in said[0].text
        other = write_genesis(Path(config.genesis).with_name("other"), rounds=9)
        outcome, text = found(replace(held, genesis=str(other)), "folder")
        assert (outcome, document.chain_id.hex()[:8] in text) == ("fail", True)
        assert run(held).exit_code == 0


@pytest.mark.usefixtures("no_data")
@pytest.mark.parametrize(("free", "outcome"), [(2**40, "ok"), (2**29, "warn"), (2**20, "fail")])
def test_a_disk_that_is_nearly_full(
    config: NodeConfig, monkeypatch: pytest.MonkeyPatch, free: int, outcome: str
) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda path: shutil._ntuple_diskusage(2**41, 0, free))
    assert found(config, "disk")[0] == outcome


def test_what_a_chain_may_take_follows_from_rounds_and_retention(tmp_path: Path) -> None:
    def size(**consensus: Any) -> int:
        return expected_size_bytes(Genesis.decode(write_genesis(tmp_path / "g", **consensus).read_bytes()))

    assert size(rounds=10) == 10 * size(rounds=1) > 0
    assert size(rounds=100, retention_blocks=7) == size(rounds=7)
    assert size(retention_blocks=7) == size(rounds=7)


@pytest.mark.usefixtures("no_data")
def test_a_port_in_use_and_a_place_for_metrics_that_is_none(config: NodeConfig) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        listen = f"/ip4/127.0.0.1/tcp/{other.getsockname()[1]}"
        assert found(replace(config, listen=listen), "port") == (
            "fail",
            f"cannot listen on {listen}: the port is in use",
        )
    assert found(replace(config, metrics="here"), "metrics")[0] == "fail"
    assert found(replace(config, metrics="127.0.0.1:0"), "metrics")[0] == "ok"


@contextmanager
def answering(data: bytes) -> Iterator[int]:
    """A port where somebody says this to the first client."""
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen()

        def answer() -> None:
            connection, _ = server.accept()
            with connection:
                connection.sendall(data)
                connection.recv(1_000)

        thread = threading.Thread(target=answer)
        thread.start()
        yield server.getsockname()[1]
        thread.join()


@pytest.mark.usefixtures("no_data")
@pytest.mark.parametrize(
    ("data", "outcome", "said"),
    [(GREETING, "ok", "answers"), (b"HTTP/1.1 400\r\n", "warn", "something answers that does not speak libp2p")],
)
def test_a_bootstrap_peer_that_answers(config: NodeConfig, data: bytes, outcome: str, said: str) -> None:
    with answering(data) as port:
        place = f"/ip4/127.0.0.1/tcp/{port}/p2p/{address(OTHER.public_key)}"
        result, text = found(replace(config, bootstrap=(place,)), "bootstrap")
    assert (result, said in text) == (outcome, True)


@pytest.mark.usefixtures("no_data")
def test_bootstrap_peers_that_do_not_answer_or_are_none(config: NodeConfig) -> None:
    with socket.socket() as deaf:  # bound, and listening to nobody
        deaf.bind(("127.0.0.1", 0))
        place = f"/ip4/127.0.0.1/tcp/{deaf.getsockname()[1]}/p2p/{address(OTHER.public_key)}"
        assert found(replace(config, bootstrap=(place,)), "bootstrap") == ("warn", f"{place}: Connection refused")
    assert found(replace(config, bootstrap=("nonsense",)), "bootstrap")[0] == "fail"
    beyond = f"/ip4/127.0.0.1/tcp/99999/p2p/{address(OTHER.public_key)}"
    assert found(replace(config, bootstrap=(beyond,)), "bootstrap")[0] == "fail"
    assert found(replace(config, genesis="none", bootstrap=(beyond,)), "bootstrap")[0] == "fail"
    stranger = f"/ip4/127.0.0.1/tcp/1/p2p/{address(PrivateKey.generate().public_key)}"
    outcome, text = found(replace(config, bootstrap=(stranger,)), "bootstrap")
    assert (outcome, text.endswith("is not a member")) == ("fail", True)


@pytest.mark.usefixtures("no_data")
def test_a_list_of_bootstrap_peers_may_name_this_member(config: NodeConfig) -> None:
    """The node leaves itself out; the check dialled it, and warned that nobody answers there."""
    own = f"/ip4/127.0.0.1/tcp/1/p2p/{address(ME.public_key)}"
    with answering(GREETING) as port:
        other = f"/ip4/127.0.0.1/tcp/{port}/p2p/{address(OTHER.public_key)}"
        said = findings(replace(config, bootstrap=(own, other)))
    outcomes = [(item.outcome.value, item.text.split()[0]) for item in said if item.name == "bootstrap"]
    assert outcomes == [("ok", own), ("ok", other)]
    alone = [item for item in findings(replace(config, bootstrap=(own,))) if item.name == "bootstrap"]
    assert [item.outcome.value for item in alone] == ["warn", "ok"]
    assert "none is named" in alone[0].text


@pytest.mark.usefixtures("no_data")
def test_a_newcomer_waits_for_nobody_to_dial_it(config: NodeConfig) -> None:
    assert found(config, "bootstrap")[0] == "warn"
    Path(config.data).mkdir(exist_ok=True)
    (Path(config.data) / INVITATION_FILE).touch()
    text = "none is named: this node dials those that its invitation names, and those that it met before"
    assert found(config, "bootstrap") == ("ok", text)


def test_a_clock_that_nobody_sets(config: NodeConfig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(check_module, "_check_data", lambda *_: "not looked at")
    for state, outcome in ((True, "ok"), (False, "warn"), (None, "ok")):
        monkeypatch.setattr(check_module, "is_clock_synchronized", lambda state=state: state)
        assert found(config, "clock")[0] == outcome


def test_the_kernel_is_asked() -> None:
    assert is_clock_synchronized() in (True, False, None)
    assert (is_clock_synchronized() is None) == (os.uname().sysname != "Linux")


# the command


def run(config: NodeConfig, *more: str) -> Result:
    words = ["node", "check", "--genesis", config.genesis, "--key", config.key, "--data", config.data]
    return CliRunner().invoke(app, [*words, "--listen", config.listen, *more])


def test_a_dedicated_aggregator_needs_no_data(config: NodeConfig, tmp_path: Path) -> None:
    members = [word for key in (ME, OTHER) for word in ("--member", address(key.public_key))]
    path = tmp_path / "dedicated.fedchain"
    words = ["genesis", "new", str(path), "--set", "aggregator=dedicated", "--set", "centralized=true", *members]
    assert CliRunner().invoke(app, words).exit_code == 0
    config = replace(config, genesis=str(path))
    assert found(config, "member", OTHER) == (
        "ok",
        "peer 1 of 2, counted from 0; the aggregator, which needs no data",
    )
    assert found(config, "data", OTHER) == ("ok", "the model is built; this member has no data, and needs none")
