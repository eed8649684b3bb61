"""``explorer verify`` against every forged certificate: at the head, below it, and in the block that carries it."""

import sqlite3
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from fedchain.chain.certificate import Certificate
from fedchain.chain.explorer.audit import ChainAudit, audit_store
from fedchain.chain.storage.database import DATABASE
from fedchain.chain.storage.rows import FINALS, to_row
from fedchain.chain.storage.sqlite import Store
from fedchain.chain.storage.store import Contents
from tests.support.campaigns import some
from tests.support.chain.builders import ChainBuilder, SumRules, double_vote, genesis, keys
from tests.support.chain.forgeries import FORGED, Forge
from tests.support.cli_explorer import explore

BLOCKS = 4


def build(members: int = 4, **options: object) -> ChainBuilder:
    chain = ChainBuilder(genesis(members, **options))
    chain.extend_many(BLOCKS)
    return chain


def verify(folder: Path, chain: ChainBuilder, kept: dict[int, Certificate] | None = None) -> ChainAudit:
    """The audit of a chain of which other certificates are kept at some heights; all checksums are right."""
    with Store.create(folder, chain.genesis) as store:
        blocks = list(chain.blocks.values())
        store.append([chain.final(block) for block in blocks])
        store.append([Contents(chain.contents)])
    with closing(sqlite3.connect(folder / DATABASE)) as connection, connection:
        for height, certificate in (kept or {}).items():
            record = chain.final(blocks[height - 1], certificate)
            FINALS.insert(connection, to_row(record)[1], replace=True)
    with Store.open(folder, read_only=True) as store:
        return audit_store(store, SumRules())


def invalid(audit: ChainAudit) -> list[int]:
    return [check.height for check in audit.blocks if check.verdict == "invalid"]


@pytest.mark.long
@pytest.mark.parametrize("height", some([1, BLOCKS - 1, BLOCKS], chosen={BLOCKS - 1, BLOCKS}))
@pytest.mark.parametrize("forge", FORGED.values(), ids=FORGED)
def test_a_certificate_that_is_kept_beside_a_block(tmp_path: Path, forge: Forge, height: int) -> None:
    chain = build()
    if height == 1 and forge is FORGED["of the parent"]:
        return  # nobody votes for the genesis document
    audit = verify(tmp_path, chain, {height: forge(chain, list(chain.blocks.values())[height - 1])})
    assert (audit.is_valid, invalid(audit)) == (False, [height])
    assert len(audit.damaged) == (height == BLOCKS), "the head is where a node would go on"
    result = explore("verify", tmp_path)
    assert result.exit_code == 1
    assert result.exception is None or isinstance(result.exception, SystemExit)


@pytest.mark.parametrize("forge", FORGED.values(), ids=FORGED)
def test_a_certificate_that_the_next_block_carries(tmp_path: Path, forge: Forge) -> None:
    """Its miner, and a quorum of liars that votes for it, make all the rest fit."""
    chain = ChainBuilder(genesis(4))
    chain.extend_many(BLOCKS - 1)
    forged = forge(chain, chain.blocks[chain.tip])
    chain.extend(certificate=forged)
    chain.extend_many(1)
    audit = verify(tmp_path, chain)
    assert (audit.is_valid, invalid(audit)[0]) == (False, BLOCKS)
    assert explore("verify", tmp_path).exit_code == 1


def test_another_good_certificate_than_the_next_block_carries_is_no_fault(tmp_path: Path) -> None:
    chain = build()
    second = list(chain.blocks.values())[1]
    audit = verify(tmp_path, chain, {2: chain.certificate(second, chain.genesis.members, attempt=2)})
    assert (audit.is_valid, invalid(audit)) == (True, [])


def test_votes_of_members_that_are_not_drawn_count_for_nothing(tmp_path: Path) -> None:
    chain = build(7, committee_size=4)
    tip = chain.blocks[chain.tip]
    electors = chain.states[tip.header.parent_hash].roster.electors
    others = [member for member in chain.genesis.members if member not in electors]
    assert len(others) == 3
    mixed = chain.certificate(tip, [*others[:1], *sorted(electors)[:2]])
    assert len(mixed.votes) == len(chain.certificate(tip).votes)
    audit = verify(tmp_path, chain, {BLOCKS: replace(mixed)})
    assert invalid(audit) == [BLOCKS]


def test_votes_of_a_convicted_member_count_for_nothing(tmp_path: Path) -> None:
    chain = ChainBuilder(genesis(5))
    chain.extend_many(2)
    culprit = keys(5)[1]
    chain.extend(evidence=[double_vote(culprit, chain.genesis, 2)])
    tip = chain.extend()
    left = chain.states[tip.header.parent_hash].roster.electors
    assert culprit.public_key not in left
    count = len(chain.certificate(tip).votes)
    audit = verify(tmp_path, chain, {4: chain.certificate(tip, [culprit.public_key, *sorted(left)[: count - 1]])})
    assert invalid(audit) == [4]
