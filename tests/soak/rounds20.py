"""Cost of a round beyond training and mining: ``python -m tests.soak rounds20 [--nodes 20 --rounds 3]``.

Twenty node processes close three rounds on digits. Three parts of each round are measured, from the times in the
nodes' logs:

* *posts to head*: from the moment when the last node whose post is counted had trained to the moment when the last node
  has the block as its head. In it: the post is stored and reaches all, they check it and draft a block; mining; the
  block reaches all, and they check it and vote twice; the votes reach all.
* *mining*: how long the block's miner searched.
* *head to training*: the longest time between a node's head and the begin of its next training.

The round's cost is the first part without the second, and with the third.
"""

import argparse
import re
import time
from dataclasses import dataclass, field, replace
from datetime import datetime
from itertools import pairwise

from fedchain.chain.block import Block
from fedchain.chain.storage.sqlite import Store
from fedchain.crypto.address import public_key_from_address
from fedchain.files.layout import CHAIN_FOLDER
from fedchain.node.founding.consensus import Consensus
from fedchain.node.operating.local_node import LocalNode, stop_all
from fedchain.node.operating.testnet import found_testnet
from tests.soak._figures import Figures, campaign, percentile
from tests.support.node.processes import log_of, look
from tests.support.node.shell import DIGITS

COST_S_MAX = 3.0
LINE = re.compile(r"^(\S+) INFO fedchain\.node (head|trained|mined) (.*)$", re.MULTILINE)


@dataclass(slots=True)
class Log:
    """Moments in one node's log, in seconds since the Unix epoch."""

    heads: dict[int, float] = field(default_factory=dict)
    """By height."""
    began_training: dict[int, float] = field(default_factory=dict)
    """By round."""
    trained: dict[int, float] = field(default_factory=dict)
    mined: dict[int, float] = field(default_factory=dict)
    """Seconds of the search for the nonce, by height."""


def read_log(text: str) -> Log:
    """Read the lines that matter."""
    log = Log()
    for time_text, kind, rest in LINE.findall(text):
        at_s = datetime.fromisoformat(time_text).timestamp()
        values = dict(pair.split("=", 1) for pair in rest.split())
        if kind == "head":
            log.heads.setdefault(int(values["height"]), at_s)
        elif kind == "trained":
            log.trained[int(values["round"])] = at_s
            log.began_training[int(values["round"])] = at_s - float(values["seconds"])
        else:
            log.mined[int(values["height"])] = float(values["seconds"])
    return log


@dataclass(frozen=True, slots=True)
class Round:
    """Where the time of a round went, in seconds."""

    posts: int
    training: float
    """Training time of the slowest node."""
    posts_to_head: float
    mining: float
    head_to_training: float

    @property
    def cost(self) -> float:
        """All but training and mining."""
        return self.posts_to_head - self.mining + self.head_to_training


def measure(blocks: list[Block], logs: dict[bytes, Log]) -> list[Round]:
    """Every round of a chain in which each round is one block; ``logs`` by member."""
    rounds = []
    for parent, block in pairwise([None, *blocks]):
        assert block is not None
        height, number = block.header.height, block.header.round
        last_post_s = max(logs[post.sender].trained[number] for post in block.transactions)
        last_head_s = max(log.heads[height] for log in logs.values())
        begun = (
            []
            if parent is None
            else [
                log.began_training[number] - log.heads[parent.header.height]
                for log in logs.values()
                if number in log.began_training
            ]
        )
        training = [log.trained[number] - log.began_training[number] for log in logs.values() if number in log.trained]
        rounds.append(
            Round(
                posts=len(block.transactions),
                training=max(training),
                posts_to_head=last_head_s - last_post_s,
                mining=logs[block.header.miner].mined[height],
                head_to_training=max(begun, default=0.0),
            )
        )
    return rounds


def run(nodes: list[LocalNode], timeout_s: float) -> float:
    """Let the nodes close all rounds; seconds that it took."""
    begun = time.monotonic()
    try:
        for node in nodes:
            node.start()
        while not all(look(node).get("finished") for node in nodes):
            if time.monotonic() - begun > timeout_s:
                raise AssertionError(f"the rounds were not closed within {timeout_s:.0f} s")
            time.sleep(0.5)
        return time.monotonic() - begun
    finally:
        stop_all(nodes)


def chain_of(node: LocalNode) -> list[Block]:
    """The chain that a node has stored, oldest block first."""
    with Store.open(node.folder / CHAIN_FOLDER, read_only=True) as store:
        head = store.head()
        heights = range(1, 1 if head is None else head.block.header.height + 1)
        return [found[0] for height in heights if (found := store.final(height)) is not None]


def main() -> None:
    """Run, read and judge."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, default=20, help="node processes")
    parser.add_argument("--rounds", type=int, default=3, help="rounds to close")
    parser.add_argument("--timeout-s", type=float, default=900.0, help="fails if they are not closed by then")
    options = parser.parse_args()
    with campaign("rounds20") as (figures, folder):
        config = replace(DIGITS, clients=options.nodes)
        nodes = found_testnet(
            folder / "net",
            config,
            Consensus(rounds=options.rounds, mining_s=2.0, mining_attempts=4_000, phase_timeout_s=300.0),
        )
        figures.show(f"{options.nodes} nodes closed {options.rounds} rounds in {run(nodes, options.timeout_s):.1f} s")
        judge(figures, nodes, options.rounds)


def judge(figures: Figures, nodes: list[LocalNode], wanted: int) -> None:
    """Print the rounds; the median may cost so much."""
    figures.require(len({node.status["head"] for node in nodes}) == 1, "all have the same head")
    logs = {public_key_from_address(node.address.rpartition("/")[2]): read_log(log_of(node)) for node in nodes}
    rounds = measure(chain_of(nodes[0]), logs)
    figures.require(len(rounds) == wanted, f"{len(rounds)} rounds in the chain")
    for number, one in enumerate(rounds, 1):
        figures.show(
            f"round {number}: {one.posts} posts; cost {one.cost:.2f} s = {one.posts_to_head:.2f} posts to head"
            f" - {one.mining:.2f} mining + {one.head_to_training:.2f} head to training ({one.training:.2f} training)"
        )
    worst = max(one.cost for one in rounds)
    figures.require(worst < COST_S_MAX, f"a round costs {worst:.2f} s at most beyond training and mining, 3 allowed")
    figures.show(f"median {percentile([one.cost for one in rounds], 50):.2f} s")


if __name__ == "__main__":
    main()
