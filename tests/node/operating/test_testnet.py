"""Real node processes on loopback: they agree, survive ``kill -9``, are joined late, and end without a trace.

The lines and files of ``node testnet`` are tested in ``tests/node/shell/test_own_data.py``.
"""

import errno
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
from fedchain.cli.main import app
from fedchain.files.layout import CHAIN_FOLDER
from fedchain.learning.config import LearningConfig
from fedchain.node.founding.consensus import Consensus
from fedchain.node.operating.console import check_line
from fedchain.node.operating.local_node import LocalNode, stop_all
from fedchain.node.operating.status import ask_status
from fedchain.node.operating.testnet import found_testnet, free_ports
from fedchain.node.operating.watch import status_table
from tests.support.node.processes import Promises, height, kill, log_of, look
from tests.support.node.seen import Seen
from tests.support.node.shell import DIGITS, is_worker, wait_until, workers_of

PEERS = 4
LATE, KILLED, INTERRUPTED = 3, 1, 0

RETENTION = 3
"""Blocks whose payloads are kept; the late node comes when the first ones are gone."""


@dataclass
class Story:
    """History of a network that began with one node, in which two were killed and one of them had come late."""

    nodes: list[LocalNode]
    orphans: list[int]
    """Workers of the node that was killed."""
    workers: list[int]
    """Workers of the node that was interrupted."""
    has_torch: tuple[bool, bool]
    """Whether torch is in the memory of a node that has judged posts and aggregates, and of its trainer."""
    metrics: str
    """Metrics of a node about itself."""
    stood: dict[str, Any]
    """The first node's account of the federation while two of four were killed."""
    height: int
    """Height of the others when the killed node came back."""


@pytest.mark.slow
def test_a_network_in_which_nodes_come_late_are_killed_and_are_back(tmp_path: Path) -> None:
    with told(tmp_path / "net") as story:
        check_the_killed_and_the_late_node_have_the_same_head(story)
        check_the_late_node_took_the_first_blocks_on_their_certificates(story)
        check_ctrl_c_ends_a_node_with_its_workers(story)
        check_a_killed_node_leaves_no_worker_behind(story)
        check_metrics_say_what_a_node_does(story)
        check_torch_is_in_the_trainer_alone(story)
        check_a_standstill_names_those_that_were_killed(story)
    assert check_line(ask_status(story.nodes[INTERRUPTED].folder))[0] == 2
    check_nobody_promised_two_different_things(story)
    check_no_log_has_a_traceback(story)
    check_logs_say_when_what_took_how_long(story)


@contextmanager
def told(folder: Path) -> Iterator[Story]:
    """Start a node alone, then two, one late; kill one, then two of four; interrupt one, and stop them all in the end.

    A phase waits for a member that stays away until its timeout.
    """
    nodes = found_testnet(
        folder,
        replace(DIGITS, clients=PEERS),
        Consensus(rounds=0, mining_s=0.5, mining_attempts=1_000, phase_timeout_s=4.0, retention_blocks=RETENTION),
    )
    (port,) = free_ports(1)
    nodes[INTERRUPTED].command += ["--set", f"metrics=127.0.0.1:{port}"]
    try:
        meet(nodes[KILLED], nodes[INTERRUPTED], nodes[LATE - 1])
        wait_until(lambda: height(nodes[KILLED]) >= 2 * RETENTION, "payloads that nobody keeps any more")
        nodes[LATE].start()
        wait_until(lambda: height(nodes[LATE]) >= 1, "the late node has caught up")
        orphans = kill(nodes[KILLED])
        before = height(nodes[INTERRUPTED])
        wait_until(lambda: height(nodes[INTERRUPTED]) > before, "the others go on")
        stood = stand(nodes, Seen(nodes, port, folder))
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
        yield Story(nodes, orphans, workers, has_torch, metrics, stood, reached)
    finally:
        stop_all(nodes)


def meet(alone: LocalNode, told_of: LocalNode, other: LocalNode) -> None:
    """Start a node that is told of one that does not run, and then that one and another: it keeps trying."""
    name = told_of.address.rpartition("/")[2]
    alone.start()
    wait_until(lambda: f"{name} (peer 0) cannot be reached at" in log_of(alone), "it says so")
    wait_until(lambda: look(alone).get("peers") == [], "it runs")
    told_of.start()
    other.start()
    wait_until(lambda: name in str(look(alone)["peers"]), "it is connected")


def stand(nodes: list[LocalNode], seen: Seen) -> dict[str, Any]:
    """Kill a second one of four and start it again: page, monitoring and metric say that the federation stands, and
    then that it goes on. Returns what the first node said of it."""
    wait_until(seen.goes_on, "it goes on")
    kill(nodes[LATE])
    wait_until(seen.stands, "it stands")
    said: dict[str, Any] = nodes[INTERRUPTED].look()["stands"]
    stood_at = height(nodes[INTERRUPTED])
    nodes[LATE].start()
    wait_until(seen.goes_on, "it goes on again")
    wait_until(lambda: height(nodes[INTERRUPTED]) > stood_at, "the next block")
    return said


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


def check_a_standstill_names_those_that_were_killed(story: Story) -> None:
    said = story.stood
    assert (said["lacks"], said["needed"], said["here"]) == ("votes", 3, 2)
    assert sorted(said["missing"]) == sorted(story.nodes[k].address.rpartition("/")[2] for k in (KILLED, LATE))


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


@pytest.mark.parametrize("step", ["create_file", "PrivateKey.save"])
def test_a_full_disk_leaves_no_folder_in_the_way(tmp_path: Path, step: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(f"fedchain.node.operating.testnet.{step}", refuse)
    with pytest.raises(OSError, match="No space left"):
        found_testnet(tmp_path / "testnet", DIGITS, Consensus())
    assert list(tmp_path.iterdir()) == []
