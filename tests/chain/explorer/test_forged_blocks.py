"""Blocks that no member made, in a folder that somebody else wrote, are named and end no question in a traceback."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from fedchain.chain.applying import apply_unjudged
from fedchain.chain.block import Block
from fedchain.chain.exceptions import StoreCorrupt
from fedchain.chain.explorer.columns import OFFSET_MS_MAX, Columns
from fedchain.chain.explorer.lives import Lives
from fedchain.chain.membership.change import Change, ChangeKind
from fedchain.chain.storage.store import Final
from tests.support.chain.builders import ChainBuilder, SumRules
from tests.support.chain.explored import Explore, finals, verdicts
from tests.support.chain.explored import explore as explore
from tests.support.chain.late import late_chain

STRANGER = b"\xff" * 32

CLOCK_MS = 2**64 - 1
"""The largest number that is written down."""


def with_stranger(block: Block) -> Block:
    post, *others = block.transactions
    return replace(block, transactions=(replace(post, sender=STRANGER), *others))


def with_change(block: Block) -> Block:
    return replace(block, changes=(Change(ChangeKind.AWAY, STRANGER, b"", "", 0, 9, bytes(64)),))


def with_clocks(block: Block) -> Block:
    assert block.certificate is not None
    votes = tuple(replace(vote, clock_ms=CLOCK_MS) for vote in block.certificate.votes)
    return replace(block, certificate=replace(block.certificate, votes=votes))


Forge = Callable[[Block], Block]


@pytest.fixture
def chain() -> ChainBuilder:
    """Four rounds in which late posts count."""
    chain = late_chain()
    chain.extend_many(3)
    return chain


def forged(chain: ChainBuilder, forge: Forge, place: int) -> list[Final]:
    """The chain with another body under one header."""
    records = finals(chain)
    records[place] = replace(records[place], block=forge(records[place].block))
    return records


@pytest.mark.parametrize("forge", [with_stranger, with_change])
def test_a_block_that_leads_to_no_state_is_invalid_and_those_after_it_are_unchecked(
    chain: ChainBuilder, explore: Explore, forge: Forge
) -> None:
    state = chain.states[finals(chain)[1].block.header.parent_hash]
    assert apply_unjudged(chain.genesis, state, forge(finals(chain)[1].block)) is None
    explorer = explore(chain, forged(chain, forge, 1))
    report = explorer.verify(SumRules())
    assert not report.is_valid
    assert verdicts(report)[:3] == ["ok", "invalid", "unchecked"]
    assert explorer.block("3").summary.height == 3
    assert explorer._store.state_before(3) is None
    assert Lives(chain.genesis).read(explorer._store, 4)


def test_no_state_has_a_time_that_is_never_written_down(chain: ChainBuilder) -> None:
    _, second, third, *_ = (record.block for record in finals(chain))
    state = apply_unjudged(chain.genesis, chain.states[second.header.parent_hash], with_clocks(second))
    assert state is not None
    assert state.settled_time_ms == CLOCK_MS
    assert apply_unjudged(chain.genesis, state, third) is None


def test_a_head_that_leads_to_no_state_is_told(chain: ChainBuilder, explore: Explore) -> None:
    with pytest.raises(StoreCorrupt, match="the head does not stand on the state that is kept with it"):
        explore(chain, forged(chain, with_stranger, 3))


def test_a_clock_beyond_all_bounds_is_shown_as_the_largest_offset(
    tmp_path: Path, chain: ChainBuilder, explore: Explore
) -> None:
    records = finals(chain)
    first, *others = records[-1].certificate.votes
    votes = (replace(first, clock_ms=CLOCK_MS), *others)
    records[-1] = replace(records[-1], certificate=replace(records[-1].certificate, votes=votes))
    explorer, columns = explore(chain, records), Columns(chain.genesis)
    assert columns.read(explorer._store, 1, 4)
    assert OFFSET_MS_MAX in [offset for line in columns.lines(4, 4) for offset in line.offsets_ms]
