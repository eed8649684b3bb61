"""``python -m tests.soak same_knowledge [METHOD …]``: real processes know what a simulation of the same members knows.

Five members, and an aggregator where the method wants one, learn for three rounds by a method that posts by reference;
then the same keys and the same genesis document are simulated. After every phase the knowledge must be the same.
"""

import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from fedchain.chain.block import Block
from fedchain.chain.genesis import AggregatorRule, Genesis
from fedchain.chain.storage.sqlite import Store
from fedchain.crypto.hashing import Hash
from fedchain.crypto.keys import PrivateKey
from fedchain.files.layout import CHAIN_FOLDER, GENESIS_FILE
from fedchain.learning.application import Application
from fedchain.learning.config import LearningConfig
from fedchain.learning.executors.last_answers import LastAnswers
from fedchain.learning.executors.processes import ProcessExecutor
from fedchain.learning.executors.remembering import Remembering
from fedchain.learning.payload.part_folder import PARTS
from fedchain.learning.worker.plan import LearnerPlan
from fedchain.node.founding.aggregator import choose_aggregator
from fedchain.node.founding.consensus import Consensus
from fedchain.node.founding.genesis_file import read_genesis
from fedchain.node.founding.task import learning_from_genesis
from fedchain.node.operating.local_node import LocalNode, stop_all
from fedchain.node.operating.testnet import found_testnet
from fedchain.simulator.engine.simulation import Simulation
from fedchain.simulator.scenario import Scenario
from tests.soak._figures import Figures, campaign
from tests.support.node.processes import log_of, look
from tests.support.node.shell import wait_until

PEERS, ROUNDS = 5, 3
MINING_S, ATTEMPTS = 1.0, 4_000
TIMEOUT_S = 400.0

SPLIT_MLPS = {"dataset": "tmd", "model": "split-mlp-1+split-mlp-2+split-mlp-3", "partition": "dirichlet"}
TASKS: dict[str, dict[str, Any]] = {
    "fedict": SPLIT_MLPS,
    "fedgkt": SPLIT_MLPS,
    "feddkc": SPLIT_MLPS,
    "fededs": {"dataset": "fashion-mnist", "model": "plain-cnn", "partition": "dirichlet", "train_examples": 500},
}
"""Task of each method."""

SETTINGS: dict[str, dict[str, Any]] = {
    "feddkc": {"peak": 0.3},
    "fededs": {"extractor_epochs": 1, "encryptor_epochs": 1, "encryptor_width": 4},
}
"""Hyper-parameters that five classes need, or that keep it short."""


def main() -> None:
    """Run the methods that were asked for, or all."""
    for method in sys.argv[1:] or TASKS:
        with campaign(f"same_knowledge-{method}") as (figures, folder):
            compare(method, folder / "net", figures)


def compare(
    method: str, net: Path, figures: Figures, disturb: Callable[[list[LocalNode], Figures], None] | None = None
) -> None:
    """Let processes learn, whatever is done to them meanwhile, and then simulate them undisturbed."""
    config = LearningConfig(method=method, clients=PEERS, hyperparameters=SETTINGS.get(method, {}), **TASKS[method])
    rule = choose_aggregator(config, Consensus())
    nodes = found_testnet(
        net,
        config,
        Consensus(
            rounds=ROUNDS,
            mining_s=MINING_S,
            mining_attempts=ATTEMPTS,
            fault_model="crash",
            contribution_quorum=PEERS,
            phase_timeout_s=120.0,
            aggregator=rule.value,
            centralized=rule is not AggregatorRule.NONE,
        ),
    )
    try:
        for node in nodes:
            node.start()
        if disturb is not None:
            disturb(nodes, figures)
        wait_until(lambda: all(look(node).get("finished") for node in nodes), "all rounds are closed", TIMEOUT_S)
    finally:
        stop_all(nodes)
    known, posts = known_to_processes(nodes[0])
    figures.show(f"{method}: {len(nodes)} nodes, posts of each block: {posts}")
    simulated = known_to_simulation(read_genesis(net / GENESIS_FILE), nodes)
    figures.require(known == simulated, f"{method}: the same knowledge after each of {len(known)} blocks")
    for node in nodes:
        figures.require("Traceback" not in log_of(node), f"no error in the log of node {node.number}")


def known_to_processes(node: LocalNode) -> tuple[list[Hash], list[int]]:
    """Knowledge root and number of posts of each block."""
    with Store.open(node.folder / CHAIN_FOLDER, read_only=True) as store:
        blocks: list[Block] = []
        while (found := store.final(len(blocks) + 1)) is not None:
            blocks.append(found[0])
    return [block.header.knowledge_root for block in blocks], [len(block.transactions) for block in blocks]


def known_to_simulation(genesis: Genesis, nodes: list[LocalNode]) -> list[Hash]:
    """The knowledge roots of the same members in virtual time."""
    keys = [PrivateKey.load(node.folder / "key.pem") for node in nodes]
    config = learning_from_genesis(genesis)
    pool = ProcessExecutor(LearnerPlan(config=config, members=genesis.members, chain_id=genesis.chain_id), 2)
    executor = Remembering(pool, LastAnswers(pool.folder))
    scenario = Scenario(
        peers=PEERS,
        rounds=genesis.rounds,
        method=config.method,
        aggregator=genesis.aggregator.value,
        mining_s=MINING_S,
        mining_attempts=ATTEMPTS,
        max_virtual_s=100_000.0,
    )
    try:
        rules = Application(config, genesis.members, genesis.chain_id)
        simulation = Simulation(scenario, replace(genesis, created_ms=0), keys, rules, executor, pool.folder / PARTS)
        outcome = simulation.run()
    finally:
        executor.close()
    assert outcome.violations == [], outcome.violations
    storage, roots = simulation.peers[0].storage, list[Hash]()
    while (found := storage.final(len(roots) + 1)) is not None:
        roots.append(found[0].header.knowledge_root)
    return roots


if __name__ == "__main__":
    main()
