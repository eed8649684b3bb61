"""``python -m tests.soak privacy_budget``: real processes that encrypt, add noise, and run out of their budgets.

Four members learn by FedPH with split noise, DP-SGD beneath it, and a budget of two rounds. One of them has spent its
budget before, as if it had lost its data folder: it posts nothing from the first round on, says why, and helps to open
sums. The others go on without it until their budgets are spent too, and then let nothing out any more.
"""

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fedchain.chain.storage.sqlite import Store
from fedchain.files.layout import CHAIN_FOLDER, GENESIS_FILE
from fedchain.learning.config import LearningConfig
from fedchain.learning.methods.fedph import FedPh
from fedchain.learning.privacy.ledger import Budget, Entry
from fedchain.learning.privacy.releases import Release, total_epsilon
from fedchain.node.custody.ledger_file import open_ledger
from fedchain.node.custody.secrets_file import secrets_path
from fedchain.node.founding.consensus import Consensus
from fedchain.node.founding.genesis_file import read_genesis
from fedchain.node.operating.local_node import LocalNode, stop_all
from fedchain.node.operating.testnet import found_testnet
from tests.soak._figures import Figures, campaign
from tests.support.node.processes import height, log_of, look
from tests.support.node.shell import wait_until

PEERS, SPENT = 4, 3
ROUNDS_PAID, ROUNDS = 2, 3
SETTINGS: dict[str, Any] = {
    "encryption": "threshold",
    "decryption_threshold": 2,
    "contributors_min": 3,
    "noise": "split",
    "noise_multiplier": 1.0,
    "gradient_noise": 2.0,
    "class_examples_min": 4,
    "local_epochs": 1,
}
TIMEOUT_S = 300.0


def main() -> None:
    """Let members spend what they have, and read what they say."""
    with campaign("privacy_budget") as (figures, folder):
        releases = FedPh(**SETTINGS).round_releases()
        paid = total_epsilon([*releases] * ROUNDS_PAID, FedPh().privacy_delta)
        budget = paid + 0.01
        config = LearningConfig(
            method="fedph",
            clients=PEERS,
            partition="iid",
            hyperparameters={**SETTINGS, "epsilon_budget": budget},
        )
        net = folder / "net"
        nodes = found_testnet(
            net, config, Consensus(rounds=ROUNDS, mining_s=1.0, mining_attempts=4_000, phase_timeout_s=10.0)
        )
        spend_before(nodes[SPENT], net / GENESIS_FILE, releases)
        try:
            for node in nodes:
                node.start()
            wait_until(
                lambda: height(nodes[0]) >= 2 * ROUNDS_PAID, "the rounds that are paid for are closed", TIMEOUT_S
            )
            wait_until(lambda: all(refusal(node) for node in nodes), "all are refused", TIMEOUT_S)
            heads = {str(look(node).get("head")) for node in nodes}
        finally:
            stop_all(nodes)
        figures.require(len(heads) == 1, f"{len(heads)} head after {ROUNDS_PAID} rounds")
        judge(figures, nodes, net / GENESIS_FILE, budget, paid)


def spend_before(node: LocalNode, genesis: Path, releases: Sequence[Release]) -> None:
    """Charge a member's ledger for rounds that it posted other prototypes in."""
    secrets = secrets_path(node.folder / "key.pem", read_genesis(genesis).chain_id)
    for number in range(1, ROUNDS_PAID + 1):
        for release in releases:
            entry = Entry(number, "update", f"{number:032x}", release)
            open_ledger(secrets, node.number).charge(entry, Budget(0.0, 1e-5))


def refusal(node: LocalNode) -> str:
    """The node's reason to wait, if that is its own budget; otherwise empty."""
    found = str(look(node).get("waiting_for", ""))
    return found if "total epsilon would be" in found else ""


def judge(figures: Figures, nodes: list[LocalNode], genesis: Path, budget: float, paid: float) -> None:
    """Require posts, messages and ledgers to be what was paid for."""
    posts = posts_by_member(nodes[0])
    expected = [[] if node.number == SPENT else [1, 2] for node in nodes]
    figures.require(posts == expected, f"rounds that members posted prototypes in: {posts}")
    for node in nodes:
        first = 1 if node.number == SPENT else ROUNDS_PAID + 1
        said = f"member {node.number}, round {first}: its total epsilon would be "
        told = f"the budget is {budget:g} (delta 1e-05); nothing is posted"
        lines = [line for line in log_of(node).splitlines() if said in line and told in line]
        figures.require(bool(lines), f"member {node.number} names itself, round {first} and both figures")
        figures.require("Traceback" not in log_of(node), f"no error beside it in the log of member {node.number}")
        command = [sys.executable, "-m", "fedchain", "node", "privacy", str(node.folder / "key.pem")]
        shown = subprocess.run([*command, "--genesis", str(genesis), "--json"], capture_output=True, check=True)
        found = json.loads(shown.stdout)
        rounds = [row["round"] for row in found["releases"]]
        figures.require(
            rounds == [1, 1, 2, 2] and abs(found["epsilon"] - paid) < 1e-9,
            f"ledger of member {node.number}: rounds {rounds}, epsilon {found['epsilon']:.4f} of {budget:.4f}",
        )


def posts_by_member(node: LocalNode) -> list[list[int]]:
    """Rounds in which each member's prototypes were counted."""
    rounds: list[list[int]] = [[] for _ in range(PEERS)]
    with Store.open(node.folder / CHAIN_FOLDER, read_only=True) as store:
        for number in range(1, 2 * ROUNDS_PAID + 1):
            found = store.final(number)
            assert found is not None, f"height {number} is final"
            header, posts = found[0].header, found[0].transactions
            for post in posts if header.phase == 0 else ():
                rounds[store.genesis.index[post.sender]].append(header.round)
    return rounds


if __name__ == "__main__":
    main()
