"""Signatures of a long chain are verified by other processes, ahead of the judge."""

import os

import pytest

from fedchain.chain.explorer import ahead
from fedchain.chain.explorer.explorer import Explorer
from fedchain.crypto.signatures import Signed, is_valid_signature
from tests.support.chain.builders import (
    SumRules,
)
from tests.support.chain.explored import chain as chain
from tests.support.chain.explored import explore as explore
from tests.support.chain.explored import explorer as explorer


def _die(signed: list[Signed]) -> list[bool]:
    os._exit(1)


@pytest.mark.parametrize("is_broken", [False, True])
def test_other_processes_verify_signatures_and_who_judges_does_where_they_die(
    is_broken: bool, explorer: Explorer, monkeypatch: pytest.MonkeyPatch
) -> None:
    verified = list[bytes]()

    def verify(key: bytes, signature: bytes, message: bytes) -> bool:
        verified.append(signature)
        return is_valid_signature(key, signature, message)

    monkeypatch.setattr(ahead, "is_valid_signature", verify)
    monkeypatch.setattr(ahead, "BLOCKS_MIN", 1)
    monkeypatch.setattr(os, "cpu_count", lambda: 2)
    if is_broken:
        monkeypatch.setattr(ahead, "_verify", _die)
    assert explorer.verify(SumRules()).is_valid
    # 4 miners, 15 posts, and 3 votes for each block, though those for all but the last come twice.
    assert len(verified) == (4 + 15 + 4 * 3 if is_broken else 0)


def test_short_chains_are_judged_by_one_process(explorer: Explorer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ahead, "ProcessPoolExecutor", None)
    assert explorer.verify(SumRules()).is_valid
