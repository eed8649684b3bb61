"""Real node processes on loopback: they agree, survive ``kill -9``, are joined late, and end without a trace."""

import os
import re
import signal
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from rich.console import Console
from typer.testing import CliRunner

from fedchain.chain.storage.sqlite import Store
from fedchain.chain.storage.store import Storage
from fedchain.cli.main import app
from fedchain.crypto.hashing import Hash
from fedchain.crypto.keys import PrivateKey
from fedchain.files.layout import CHAIN_FOLDER
from fedchain.learning.application import Application
from fedchain.learning.config import LearningConfig
from fedchain.learning.executors.last_answers import LastAnswers
from fedchain.learning.executors.processes import ProcessExecutor
from fedchain.learning.executors.remembering import Remembering
from fedchain.learning.worker.plan import LearnerPlan
from fedchain.node.founding.consensus import Consensus
from fedchain.node.founding.genesis_file import read_genesis
from fedchain.node.founding.task import learning_from_genesis
from fedchain.node.operating.local_node import LocalNode, stop_all
from fedchain.node.operating.status import ask_status
from fedchain.node.operating.testnet import found_testnet, free_ports
from fedchain.node.operating.watch import status_table
from fedchain.simulator.engine.simulation import Simulation
from fedchain.simulator.scenario import Scenario
from tests.support.node.processes import Promises, height, kill, log_of, look
from tests.support.node.shell import DIGITS, is_worker, wait_until, workers_of

PEERS = 4
LATE, KILLED, INTERRUPTED = 3, 1, 0

RETENTION = 3
"""Blocks whose payloads are kept; the late node comes when the first ones are gone."""


@pytest.mark.long
def test_three_peers_close_two_rounds_and_the_explorer_agrees(tmp_path: Path) -> None:
    folder = tmp_path / "net"
    words = ["--peers", "3", "--rounds", "2", "--set", "mining_s=0.3", "--set", "local_steps=2", "--out", str(folder)]
    result = CliRunner().invoke(app, ["node", "testnet", *words], env={"COLUMNS": "80"})
    assert result.exit_code == 0, result.output
    assert result.stdout.splitlines()[-1] == "all nodes have the same head"
    for number in range(3):
        checked = CliRunner().invoke(app, ["explorer", "verify", str(folder / f"node-{number}")])
        assert checked.exit_code == 0, checked.output
    log = (folder / "node-0" / "node.log").read_text(encoding="utf-8")
    assert re.search(r"head height=2 hash=[0-9a-f]{16} round=2 posts=3 finished=True\n", log)
    assert "round=3" not in log  # in a federation of two
    assert knowledge_of_processes(folder) == knowledge_of_simulation(folder)
    again = CliRunner().invoke(app, ["node", "testnet", *words])
    assert (again.exit_code, again.stderr) == (
        2,
        f"fedchain: {folder} exists already; name another folder with --out\n",
    )


def knowledge_of_processes(folder: Path) -> list[Hash]:
    """Knowledge root at every height of a node's chain."""
    with Store.open(folder / "node-0" / CHAIN_FOLDER, read_only=True) as store:
        return _knowledge_roots(store)


def knowledge_of_simulation(folder: Path) -> list[Hash]:
    """The same of the same federation, with the same keys, in virtual time."""
    genesis = replace(read_genesis(folder / "genesis.fedchain"), created_ms=0)  # virtual time begins at 0
    keys = [PrivateKey.load(folder / f"node-{number}" / "key.pem") for number in range(len(genesis.members))]
    config = learning_from_genesis(genesis)
    pool = ProcessExecutor(LearnerPlan(config=config), 1)
    executor = Remembering(pool, LastAnswers(pool.folder))
    scenario = replace(Scenario(), peers=len(keys), rounds=genesis.rounds, max_virtual_s=10_000.0)
    try:
        simulation = Simulation(scenario, genesis, keys, Application(config), executor)
        outcome = simulation.run()
    finally:
        executor.close()
    assert outcome.violations == []
    return _knowledge_roots(simulation.peers[0].storage)


def _knowledge_roots(storage: Storage) -> list[Hash]:
    head = storage.head()
    assert head is not None
    found = (storage.final(number) for number in range(1, head.block.header.height + 1))
    return [final[0].header.knowledge_root for final in found if final is not None]


@dataclass
class Story:
    """History of a network in which one node was killed and one came late."""

    nodes: list[LocalNode]
    orphans: list[int]
    """Workers of the node that was killed."""
    workers: list[int]
    """Workers of the node that was interrupted."""
    has_torch: tuple[bool, bool]
    """Whether torch is in the memory of a node that has judged posts and aggregates, and of its trainer."""
    metrics: str
    """Metrics of a node about itself."""
    height: int
    """Height of the others when the killed node came back."""


@pytest.mark.long
@pytest.mark.slow
def test_a_network_in_which_a_node_is_killed_and_one_comes_late(tmp_path: Path) -> None:
    with told(tmp_path / "net") as story:
        check_the_killed_and_the_late_node_have_the_same_head(story)
        check_the_late_node_took_the_first_blocks_on_their_certificates(story)
        check_ctrl_c_ends_a_node_with_its_workers(story)
        check_a_killed_node_leaves_no_worker_behind(story)
        check_metrics_say_what_a_node_does(story)
        check_torch_is_in_the_trainer_alone(story)
    check_nobody_promised_two_different_things(story)
    check_no_log_has_a_traceback(story)
    check_logs_say_when_what_took_how_long(story)


@pytest.mark.long
def test_a_node_keeps_trying_to_reach_the_one_it_was_told_of(tmp_path: Path) -> None:
    first, second = found_testnet(tmp_path / "net", DIGITS, Consensus(rounds=0, mining_s=1.0, mining_attempts=4_000))
    try:
        second.start()
        wait_until(
            lambda: f"{first.address.rpartition('/')[2]} (peer 0) cannot be reached at" in log_of(second), "it says so"
        )
        wait_until(lambda: look(second).get("peers") == [], "it runs")
        first.start()
        wait_until(lambda: look(second)["peers"] == [first.address.rpartition("/")[2]], "it is connected")
    finally:
        stop_all([first, second])


@contextmanager
def told(folder: Path) -> Iterator[Story]:
    """Kill a node of a running network, start one late, interrupt one, and stop them all in the end."""
    nodes = found_testnet(
        folder,
        replace(DIGITS, clients=PEERS),
        Consensus(rounds=0, mining_s=1.0, mining_attempts=4_000, phase_timeout_s=4.0, retention_blocks=RETENTION),
    )
    (port,) = free_ports(1)
    nodes[INTERRUPTED].command += ["--set", f"metrics=127.0.0.1:{port}"]
    try:
        for node in nodes[:LATE]:
            node.start()
        wait_until(lambda: height(nodes[KILLED]) >= 2 * RETENTION, "payloads that nobody keeps any more")
        nodes[LATE].start()
        wait_until(lambda: height(nodes[LATE]) >= 1, "the late node has caught up")
        orphans = kill(nodes[KILLED])
        before = height(nodes[INTERRUPTED])
        wait_until(lambda: height(nodes[INTERRUPTED]) > before, "the others go on")
        reached = height(nodes[INTERRUPTED])
        nodes[KILLED].start()
        wait_until(lambda: height(nodes[KILLED]) > reached, "the killed node has caught up")
        wait_until(lambda: posted_again(nodes[KILLED]), "the killed node takes part again")
        wait_until(lambda: len({look(node)["head"] for node in nodes}) == 1, "all have the same head")
        url = f"http://127.0.0.1:{port}/metrics"
        with urllib.request.urlopen(url, timeout=10) as answer:
            metrics = answer.read().decode()
        process = nodes[INTERRUPTED].process
        assert process is not None
        workers = workers_of(process.pid, "train") + workers_of(process.pid, "mine")
        has_torch = holds_torch(process.pid), holds_torch(workers[0])
        process.send_signal(signal.SIGINT)
        process.wait(10)
        yield Story(nodes, orphans, workers, has_torch, metrics, reached)
    finally:
        stop_all(nodes)


def holds_torch(process: int) -> bool:
    """Whether a process has loaded torch's library."""
    return "libtorch" in Path(f"/proc/{process}/maps").read_text(encoding="utf-8")


def posted_again(node: LocalNode) -> bool:
    """Whether the node that was started twice has trained since."""
    return "trained round=" in log_of(node).split("listening on ")[-1]


def check_the_killed_and_the_late_node_have_the_same_head(story: Story) -> None:
    assert len({node.status["head"] for node in story.nodes}) == 1
    assert len({node.status["knowledge_root"] for node in story.nodes}) == 1
    assert {node.status["height"] > story.height for node in story.nodes} == {True}


def check_the_late_node_took_the_first_blocks_on_their_certificates(story: Story) -> None:
    with Store.open(story.nodes[LATE].folder / CHAIN_FOLDER, read_only=True) as store:
        assert store.base() == 1, "older blocks are fetched, too"
        first = store.final(1)
        assert first is not None
        assert store.content(first[0].transactions[0].payload_hash) is None


def check_nobody_promised_two_different_things(story: Story) -> None:
    promises = Promises()
    for node in story.nodes:
        promises.add_store(node)
    assert len(promises.posts) > PEERS
    assert promises.votes
    assert promises.broken() == 0


def check_no_log_has_a_traceback(story: Story) -> None:
    for node in story.nodes:
        log = log_of(node)
        assert "Traceback" not in log, log
        assert " ERROR " not in log, log


def check_logs_say_when_what_took_how_long(story: Story) -> None:
    lines = "".join(map(log_of, story.nodes))
    when = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3} INFO fedchain\.node "
    for what in (
        r"trained round=1 steps=2 seconds=\d+\.\d{3} accuracy=[01]\.\d{4}",
        r"mining height=1 round=1",
        r"mined height=1 seconds=\d+\.\d{3}",
        r"head height=1 hash=[0-9a-f]{16} round=2 posts=[34] finished=False",
    ):
        assert re.search(f"^{when}{what}$", lines, re.MULTILINE), what


def check_ctrl_c_ends_a_node_with_its_workers(story: Story) -> None:
    process = story.nodes[INTERRUPTED].process
    assert process is not None
    assert process.returncode == 0
    assert len(story.workers) == 2
    assert not [worker for worker in story.workers if is_worker(worker, "train") or is_worker(worker, "mine")]
    assert ask_status(story.nodes[INTERRUPTED].folder) is None


def check_torch_is_in_the_trainer_alone(story: Story) -> None:
    assert story.has_torch == (False, True)


def check_a_killed_node_leaves_no_worker_behind(story: Story) -> None:
    assert len(story.orphans) == 2
    assert not [worker for worker in story.orphans if is_worker(worker, "train") or is_worker(worker, "mine")]


def check_metrics_say_what_a_node_does(story: Story) -> None:
    lines = (line.rpartition(" ") for line in story.metrics.splitlines() if not line.startswith("#"))
    values = {name: float(value) for name, _, value in lines}
    assert values["fedchain_head_height"] >= story.nodes[INTERRUPTED].status["height"]
    assert values["fedchain_round"] == values["fedchain_head_height"] + 1
    assert values["fedchain_peers"] == PEERS - 1
    assert 0.0 <= values["fedchain_accuracy"] <= 1.0
    for name in (
        'messages_total{direction="in"}',
        'messages_total{direction="out"}',
        'message_bytes_total{direction="in"}',
        'message_bytes_total{direction="out"}',
        "validation_seconds_total",
        "training_seconds_total",
        "mining_seconds_total",
    ):
        assert values[f"fedchain_{name}"] > 0, name
    assert "fedchain_messages_dropped_total" in values
    assert "fedchain_aggregator" not in values, "nobody is"


def test_the_table_fits_eighty_columns() -> None:
    status = {
        "height": 12_345,
        "round": 1_000,
        "peers": ["peer"] * 100,
        "accuracy": 1.0,
        "head": "0123456789abcdef" * 4,
        "waiting_for": "999 posts, or the phase's deadline",
    }
    nodes = [LocalNode(100, Path(), "", [], None, status), LocalNode(101, Path(), "", [])]
    console = Console(width=80, file=open(os.devnull, "w", encoding="utf-8"), record=True)  # noqa: SIM115
    console.print(status_table(nodes))
    shown = console.export_text()
    assert "…" not in shown
    assert "999 posts, or the phase's deadline" in shown
    assert max(map(len, shown.splitlines())) <= 80
    assert len(shown.splitlines()) == 3


def test_nodes_import_a_method_that_lies_elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setitem(sys.modules, "net_method", ModuleType("unused"))
    monkeypatch.delitem(sys.modules, "net_method")  # what is imported is forgotten afterwards
    folder = tmp_path / "elsewhere"
    folder.mkdir()
    (folder / "net_method.py").write_text(
        "from fedchain.learning.methods.blade_fl import BladeFl\n\nclass Mine(BladeFl):\n    pass\n", encoding="utf-8"
    )
    asked: list[tuple[LearningConfig, dict[str, Any]]] = []

    def found(out: Path, config: LearningConfig, rounds: int, **others: Any) -> list[LocalNode]:
        asked.append((config, others))
        return []

    monkeypatch.setattr("fedchain.node.operating.testnet.found_testnet", found)
    monkeypatch.setattr("fedchain.node.operating.testnet.run_testnet", lambda *others, **named: True)
    result = CliRunner().invoke(app, ["node", "testnet", "--method", f"{folder}/net_method.py:Mine", "--out", "unused"])
    assert result.exit_code == 0, result.output
    ((config, others),) = asked
    assert config.method == "net_method:Mine"
    (folder / "wave.py").write_text("raise SystemExit('this is not the library')\n", encoding="utf-8")
    program = "from fedchain.learning.registry import use_current_folder as use; use(); import net_method, wave"
    node = LocalNode(0, tmp_path, "", [sys.executable, "-c", program], modules=others["modules"])
    node.start()
    assert node.process is not None
    assert node.process.wait(60) == 0, (tmp_path / "node.log").read_text(encoding="utf-8")
