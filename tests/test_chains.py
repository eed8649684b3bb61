"""A stored chain from Python."""

import sys
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

import fedchain
from fedchain.chain.exceptions import ChainError
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


def test_a_member_is_named_by_its_number_too(run: fedchain.Run) -> None:
    """As blocks are by their height: a number ended in an AttributeError."""
    with fedchain.open_chain(run.folder) as chain:
        assert chain.peer(1) == chain.peer("1") == chain.peer(chain.peer(1).address)


def test_a_round_is_named_by_a_number_of_numpy_s_too(run: fedchain.Run) -> None:
    """As of `np.arange`: there was said to be no such round."""
    number: Any = np.int64(1)
    with fedchain.open_chain(run.folder) as chain:
        assert chain.round(number) == chain.round(1)
        assert chain.knowledge(number) == chain.knowledge(1)
        assert chain.tensors(number).keys() == chain.tensors(1).keys()
        assert chain.blocks(number) == chain.blocks(1)


def test_a_chain_that_was_closed_says_so_and_not_that_it_is_damaged(run: fedchain.Run) -> None:
    with fedchain.open_chain(run.folder) as chain:
        pass
    for ask in (chain.status, chain.verify, chain.tensors, lambda: chain.block(1)):
        with pytest.raises(ChainError, match=r"^the chain in .* was closed: open it again$"):
            ask()
    assert chain.genesis == run.chain.genesis
    chain.close()


def test_threads_share_a_chain(run: fedchain.Run) -> None:
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        with fedchain.open_chain(run.folder) as chain, ThreadPoolExecutor(6) as threads:
            asked = [(threads.submit(chain.status), threads.submit(chain.verify)) for _ in range(40)]
            assert {status.result() for status, _ in asked} == {chain.status()}
            assert all(audit.result().is_valid for _, audit in asked)
    finally:
        sys.setswitchinterval(before)
