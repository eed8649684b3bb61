"""A stored chain from Python."""

from typing import Any

import pytest

import fedchain
from tests.python.tasks import load

QUICK: dict[str, Any] = {"peers": 3, "mining_attempts": 8, "hyperparameters": {"local_steps": 3}}


@pytest.fixture(scope="module")
def run() -> fedchain.Run:
    return fedchain.simulate(task=load, rounds=2, **QUICK)


def test_the_chain_is_looked_into_and_judged(run: fedchain.Run) -> None:
    assert run.chain.status().head.hex() == run.tip
    assert run.chain.verify().is_valid
    with fedchain.open_chain(run.folder) as chain:
        assert chain.block(2).header.knowledge_root.hex() == run.knowledge_root
        tensors = chain.tensors()
    assert {name: array.tolist() for name, array in tensors.items()} == {
        name: array.tolist() for name, array in run.knowledge.items()
    }
