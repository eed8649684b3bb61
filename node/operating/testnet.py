"""A test network: real node processes on loopback, with fresh keys and a genesis document, shown together."""

import json
import os
import shlex
import shutil
import socket
import sys
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import assert_never

from fedchain.chain.genesis import AggregatorRule
from fedchain.crypto.address import address
from fedchain.crypto.durable import create_file
from fedchain.crypto.keys import PrivateKey
from fedchain.files.layout import GENESIS_FILE, KEY_FILE
from fedchain.files.places import node_folder
from fedchain.learning.application import Application
from fedchain.learning.config import LearningConfig
from fedchain.node.config import NodeConfigError
from fedchain.node.custody.dealing import deal_keys, install_share
from fedchain.node.founding.aggregator import choose_aggregator, count_members
from fedchain.node.founding.consensus import Consensus
from fedchain.node.founding.task import found_federation
from fedchain.node.operating.local_node import LocalNode, stop_all
from fedchain.node.operating.status import look_for_node
from fedchain.node.operating.watch import Watch, status_table
from fedchain.terminal import Console

BOOTSTRAP_PEERS = 3
"""Earlier nodes that each node is given as bootstrap peers; it learns of the others from them."""

PEERS_MAX = 64
"""Most nodes on one machine; each is three processes."""


def run_testnet(
    nodes: Sequence[LocalNode], rule: AggregatorRule, timeout_s: float, *, shows_logs: bool = False
) -> bool:
    """Start the nodes of :func:`found_testnet`, show them until the last round is closed, and stop them.

    Args:
        nodes: the nodes, not started yet.
        rule: their federation's rule for aggregators.
        timeout_s: the longest time without a new block.
        shows_logs: whether to show what the nodes log instead of a table.

    Returns:
        Whether all that still ran then had the same head.

    Raises:
        NodeConfigError: a node ended at its start or all did, or there was no new block for too long.
    """
    console = Console()
    if said := name_aggregator(rule, len(nodes)):
        console.print(said)
    try:
        for node in nodes:
            node.start()
        Watch(nodes, console, shows_logs=shows_logs).until_finished(timeout_s)
    finally:
        stop_all(nodes)
    running = [node for node in nodes if not node.ended]
    heads = {node.status["head"] for node in running}
    console.print(status_table(nodes))
    console.print(f"genesis  {running[0].status['chain_id']}\nfolder   {nodes[0].folder.parent}")
    all_nodes = "all nodes" if len(running) == len(nodes) else f"the {len(running)} nodes that run"
    console.print(f"{all_nodes} have the same head" if len(heads) == 1 else f"{len(heads)} different heads")
    return len(heads) == 1


def name_aggregator(rule: AggregatorRule, count: int) -> str:
    """A line that says which of ``count`` nodes is the designated aggregator; empty if there is none."""
    match rule:
        case AggregatorRule.NONE:
            return ""
        case AggregatorRule.FIXED:
            return "the aggregator is node 0"
        case AggregatorRule.ROTATING:
            return "the nodes take turns as aggregator"
        case AggregatorRule.DEDICATED:
            return f"the aggregator is node {count - 1}, which has no data"
        case _:
            assert_never(rule)


def found_testnet(
    folder: Path,
    config: LearningConfig,
    consensus: Consensus,
    modules: Path | None = None,
    parts: int = 0,
) -> list[LocalNode]:
    """Write keys, genesis document and folders of nodes without starting them: one for each of the task's clients,
    and one for a dedicated aggregator.

    Args:
        folder: the folder to create.
        config: the learning task.
        consensus: what its members agree on.
        modules: folder of the method's module, if nodes would not find it otherwise.
        parts: number of parts of the data, some of them for members that join later; 0: one for each client.

    Raises:
        NodeConfigError: the folder exists, or these are too many nodes for one machine.
    """
    if config.clients > PEERS_MAX:
        raise NodeConfigError(f"peers is {config.clients}, at most {PEERS_MAX} processes are started on one machine")
    rule = choose_aggregator(config, consensus)
    try:
        folder.mkdir(parents=True)
    except FileExistsError:
        stop = f", and its nodes run (fedchain node testnet stop --out {shlex.quote(str(folder))})"
        running = stop if any(node.is_running() for node in _nodes_in(folder)) else ""
        raise NodeConfigError(f"{folder} exists already{running}; name another folder with --out") from None
    except OSError as error:
        raise NodeConfigError(f"{folder} cannot be made: {error.strerror}") from None
    try:
        return _write(folder, config, consensus, rule, modules, parts)
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)  # it would be in the way of the same command, given again
        raise


def _write(
    folder: Path,
    config: LearningConfig,
    consensus: Consensus,
    rule: AggregatorRule,
    modules: Path | None,
    parts: int,
) -> list[LocalNode]:
    """Write what :func:`found_testnet` says into a new folder. Raises OSError or CryptoError: the disk refuses."""
    keys = [PrivateKey.generate() for _ in range(count_members(config, rule))]
    config = replace(config, clients=parts or config.clients)
    config, dealing = deal_keys(config, [key.public_key for key in keys], os.urandom)
    genesis = found_federation(
        config,
        Application(config),
        [key.public_key for key in keys],
        name="testnet",
        created_ms=time.time_ns() // 1_000_000,
        aggregator=rule,
        **consensus.to_genesis(),
    )
    create_file(folder / GENESIS_FILE, genesis.encode(), is_public=True)
    nodes: list[LocalNode] = []
    for number, (key, port) in enumerate(zip(keys, free_ports(len(keys)), strict=True)):
        own = node_folder(folder, number)
        own.mkdir()
        key.save(own / KEY_FILE)
        if dealing is not None:
            install_share(own / KEY_FILE, key, None, dealing, number)
        place = f"/ip4/127.0.0.1/tcp/{port}"
        command = [sys.executable, "-m", "fedchain", "node", "start", "--listen", place, "--data", str(own)]
        command += ["--genesis", str(folder / GENESIS_FILE), "--key", str(own / KEY_FILE)]
        command += ["--set", f"data_dir={json.dumps(config.data_dir)}"] if config.data_dir else []
        if config.weights:
            command += ["--set", f"weights={json.dumps(str(Path(config.weights).absolute()))}"]
        command += ["--task", config.task] if config.task else []
        for other in nodes[:BOOTSTRAP_PEERS]:
            command += ["--bootstrap", other.address]
        nodes.append(LocalNode(number, own, f"{place}/p2p/{address(key.public_key)}", command, modules=modules))
    return nodes


def stop_testnet(folder: Path) -> list[int]:
    """Stop the nodes of a test network that run, whichever process started them; returns their numbers when their
    processes have ended."""
    running = [node for node in _nodes_in(folder) if node.is_running()]
    stop_all(running)
    return [node.number for node in running]


def find_silent(folder: Path) -> list[str]:
    """Why nodes of a test network that are there give no answer, so that nobody can stop them by their folders."""
    return [why for node in _nodes_in(folder) if (why := look_for_node(node.folder)[1])]


def is_testnet(folder: Path) -> bool:
    """Whether a folder holds a test network, running or not."""
    return bool(_nodes_in(folder))


def _nodes_in(folder: Path) -> list[LocalNode]:
    """The nodes of a test network by their folders, also those without a chain yet."""
    named = (path.name.removeprefix("node-") for path in folder.glob("node-*"))
    numbers = sorted(int(name) for name in named if name.isdecimal())
    return [LocalNode(number, node_folder(folder, number), "", []) for number in numbers]


def free_ports(count: int) -> list[int]:
    """Free ports. All are held until the last one is found, so no two are the same."""
    with ExitStack() as stack:
        probes = [stack.enter_context(socket.socket()) for _ in range(count)]
        for probe in probes:
            probe.bind(("127.0.0.1", 0))
        return [probe.getsockname()[1] for probe in probes]
