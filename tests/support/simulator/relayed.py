"""A federation whose aggregator answers in parts."""

from functools import cache
from pathlib import Path

import pytest

from fedchain.chain.block import Block
from fedchain.chain.storage.sqlite import Store
from fedchain.simulator.engine.outcome import Outcome
from fedchain.simulator.run import load_learner, simulate
from fedchain.simulator.scenario import Scenario

SCENARIO = Scenario(
    peers=4,
    rounds=3,
    workers=1,
    method="tests.support.learning.relay:Relay",
    aggregator="fixed",
    centralized=True,
    test_every=0,
)


def run(scenario: Scenario, folder: Path | None = None) -> Outcome:
    outcome = simulate(scenario, load_learner(scenario), chain_folder=folder)
    assert outcome.violations == []
    assert len(outcome.rows) == scenario.rounds
    return outcome


def posts(folder: Path) -> list[int]:
    """How many posts each block counts."""
    store = Store.open(folder)
    try:
        blocks: list[Block] = []
        while (found := store.final(len(blocks) + 1)) is not None:
            blocks.append(found[0])
        return [len(block.transactions) for block in blocks]
    finally:
        store.close()


@pytest.fixture
def outcome(tmp_path_factory: pytest.TempPathFactory) -> tuple[Outcome, list[int]]:
    return _outcome(tmp_path_factory.getbasetemp() / "relay" / "chain")


@cache  # the files that import a fixture have one each
def _outcome(folder: Path) -> tuple[Outcome, list[int]]:
    return run(SCENARIO, folder), posts(folder)
