"""Damaged blocks, certificates and states: nothing wrong passes, and nothing but a ChainError is raised.

The valid block holds everything that a block can hold: posts, a certificate, a double vote and a double post.
"""

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import fields
from functools import cache
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedchain.chain.block import Block, Header
from fedchain.chain.certificate import Certificate
from fedchain.chain.difficulty import work_from_bits
from fedchain.chain.encoding import INTEGER_MAX, decode, encode
from fedchain.chain.evidence import Evidence
from fedchain.chain.exceptions import AlreadyKnown, ChainError, Invalid, InvalidEncoding, Unready
from fedchain.chain.post import Post
from fedchain.chain.state import STATE_SIZE_MAX, State, decode_state
from fedchain.chain.transition import judge_block, judge_final, judge_joined
from fedchain.chain.validation import validate_evidence, validate_post, validate_vote, validate_window
from fedchain.chain.vote import Vote
from fedchain.crypto.keys import is_valid_signature
from tests.fuzz.mutation import mutate, mutate_structure
from tests.support.campaigns import some
from tests.support.chain.builders import ChainBuilder, double_post, double_vote, genesis, keys
from tests.support.chain.states import read_anew

SIZE_MAX = 2**20
BUILDER = ChainBuilder(genesis(7))
BUILDER.extend_many(2)
CRIMES = [double_vote(keys(2)[1], BUILDER.genesis, 2), double_post(keys(3)[2], BUILDER.genesis, 2)]
BLOCK = BUILDER.extend(evidence=CRIMES)
STATE = BUILDER.states[BLOCK.header.parent_hash]
AFTER = BUILDER.state
FINAL = BUILDER.final(BLOCK)
ROOT = BLOCK.header.knowledge_root
NEXT = BUILDER.extend()

Path = tuple[int, ...]
"""Where a value stands in nested lists."""


def _judge(block: Block) -> State:
    return judge_block(BUILDER.genesis, STATE, block, ROOT, is_valid_signature)


def _leaves(value: Any, path: Path = ()) -> Iterator[Path]:
    if isinstance(value, list):
        for place, item in enumerate(value):
            yield from _leaves(item, (*path, place))
    else:
        yield path


def _get(value: Any, path: Path) -> Any:
    for place in path:
        value = value[place]
    return value


def _set(value: Any, path: Path, new: Any) -> Any:
    """A copy of ``value`` with another leaf."""
    if not path:
        return new
    return [_set(item, path[1:], new) if place == path[0] else item for place, item in enumerate(value)]


RECORD = BLOCK.to_record()
LEAVES = list(_leaves(RECORD))


def _others(value: Any) -> st.SearchStrategy[Any]:
    """Other values of the same kind and size."""
    if isinstance(value, bytes):
        return st.binary(min_size=len(value), max_size=len(value)).filter(lambda other: other != value)
    near = st.sampled_from([number for number in (value - 1, value + 1, value ^ 1) if number >= 0])
    return st.one_of(near, st.integers(0, INTEGER_MAX)).filter(lambda other: other != value)


def test_every_field_is_looked_at() -> None:
    """13 of the header, a signature, 7 posts of 6, a certificate of 4 and 5 votes of 4, 2 crimes of 17 and 13."""
    assert len(LEAVES) == 13 + 1 + 7 * 6 + 4 + 5 * 4 + 17 + 13
    assert _judge(Block.from_record(RECORD)) == AFTER


@pytest.mark.parametrize("path", LEAVES, ids=str)
@settings(max_examples=3, deadline=None)
@given(st.data())
def test_any_changed_field_is_refused(path: Path, data: st.DataObject) -> None:
    changed = _set(RECORD, path, data.draw(_others(_get(RECORD, path))))
    with pytest.raises(ChainError):
        _judge(Block.decode(encode(changed), SIZE_MAX))


BODY = [path for path in LEAVES if path[0] >= 2]


@pytest.mark.parametrize("path", BODY, ids=str)
@settings(max_examples=3, deadline=None)
@given(st.data())
def test_a_changed_body_is_refused_also_when_a_member_mines_it(path: Path, data: st.DataObject) -> None:
    """The miner makes the roots, the proof and its signature fit: it cannot speak for anybody else."""
    changed = _set(RECORD, path, data.draw(_others(_get(RECORD, path))))
    try:
        damaged = Block.decode(encode(changed), SIZE_MAX)
    except InvalidEncoding:
        return
    certificate, evidence = damaged.certificate, damaged.evidence
    mined = BUILDER.remake(BLOCK, transactions=damaged.transactions, certificate=certificate, evidence=evidence)
    with pytest.raises(Invalid):
        _judge(mined)


HEADER = {item.name for item in fields(Header) if item.init}
FREE = {"miner", "nonce", "members_root"}
"""Fields that a miner may choose, and the one that version 2 does not write."""
FITTING = {"transactions_root", "certificate_root", "evidence_root"}


@pytest.mark.parametrize("name", sorted(HEADER - FREE - FITTING))
@settings(max_examples=10, deadline=None)
@given(st.data())
def test_a_changed_header_is_refused_also_when_a_member_mines_it(name: str, data: st.DataObject) -> None:
    value = data.draw(_others(getattr(BLOCK.header, name)))
    changes = {name: value} if name != "bits" else {name: data.draw(st.sampled_from([0x207FFFFE, 0x203FFFFF]))}
    with pytest.raises(ChainError):
        _judge(BUILDER.remake(BLOCK, **changes))


# --- structural damage: thousands of blocks that nobody meant to send


@cache
def _donor() -> bytes:
    return encode([BLOCK.to_record(), FINAL.certificate.to_record(), [crime.to_record() for crime in CRIMES]])


def _damaged(seed: bytes, number: int) -> bytes:
    rng = Random(number)
    structured = mutate_structure(seed, _donor(), rng) if number % 4 else None
    return structured if structured is not None else mutate(seed, _donor(), rng)


@pytest.mark.long
@pytest.mark.parametrize("start", some(range(0, 4_000, 1_000), first=1))
def test_no_damaged_block_passes_or_does_harm(start: int) -> None:
    seed, judged = BLOCK.encode(), 0
    for number in range(start, start + 1_000):
        data = _damaged(seed, number)
        try:
            block = Block.decode(data, SIZE_MAX)
            judged += 1
            after = _judge(block)
        except ChainError:
            continue
        assert data == seed
        assert after == AFTER
    assert judged > 100


@pytest.mark.long
@pytest.mark.parametrize("start", some(range(0, 2_000, 500), first=1))
def test_no_damaged_body_passes_or_does_harm_when_a_member_mines_it(start: int) -> None:
    """A subset of the posts is valid, and so is a certificate with other voters; nothing else is."""
    seed, accepted = encode(BLOCK.to_record()[2:]), 0
    for number in range(start, start + 500):
        try:
            body = decode(_damaged(seed, number), SIZE_MAX)
            damaged = Block.from_record([*RECORD[:2], *body])
        except (ChainError, TypeError):  # TypeError: what is no list cannot be unpacked here
            continue
        certificate, evidence = damaged.certificate, damaged.evidence
        mined = BUILDER.remake(BLOCK, transactions=damaged.transactions, certificate=certificate, evidence=evidence)
        try:
            judge_block(BUILDER.genesis, STATE, mined, None, is_valid_signature)
        except Invalid:
            continue
        accepted += 1
        assert set(mined.transactions) <= set(BLOCK.transactions)
        assert set(mined.evidence) <= set(BLOCK.evidence)
        assert mined.certificate == BLOCK.certificate
        assert len(mined.transactions) >= 5
    assert accepted > 0


@pytest.mark.parametrize("start", some(range(0, 2_000, 500), first=1))
def test_no_damaged_certificate_makes_a_block_final(start: int) -> None:
    seed = encode(FINAL.certificate.to_record())
    for number in range(start, start + 500):
        data = _damaged(seed, number)
        try:
            certificate = Certificate.from_record(decode(data, SIZE_MAX))
            judge_final(BUILDER.genesis, STATE, BLOCK, certificate, None, is_valid_signature)
        except ChainError:
            continue
        assert data == seed


@pytest.mark.long
@pytest.mark.parametrize("start", some(range(0, 2_000, 500), first=1))
def test_no_damaged_state_is_joined(start: int) -> None:
    """Also one that a damaged block names: the block is not final then."""
    final = BUILDER.final(NEXT)
    assert len(AFTER.convicted) == 2
    for number in range(start, start + 500):
        data = _damaged(final.state, number)
        for block in (NEXT, _naming(NEXT, data)):
            try:
                judge_joined(BUILDER.genesis, data, block, final.certificate, is_valid_signature)
            except ChainError:
                continue
            assert data == final.state


def _naming(block: Block, data: bytes) -> Block:
    """A block on the damaged state, where it can be read at all."""
    try:
        state = decode_state(BUILDER.genesis, data)
    except ChainError:
        return block
    fitting = {"height": min(state.height + 1, INTEGER_MAX), "round": state.round, "phase": state.phase}
    return BUILDER.remake(block, state_root=state.root, parent_hash=state.block_hash, bits=_easy(state), **fitting)


def _easy(state: State) -> int:
    """Damage may ask for more work than a test can do."""
    return state.bits if work_from_bits(state.bits) < 2**10 else BLOCK.header.bits


def test_no_damaged_state_stops_the_next_block() -> None:
    """A state may say what it likes: judging and applying a block on it raises nothing else."""
    seed, read = STATE.encode(), 0
    for number in range(2_000):
        try:
            state = decode_state(BUILDER.genesis, _damaged(seed, number))
        except ChainError:
            continue
        read += 1
        assert read_anew(BUILDER.genesis, state) == state
        with suppress(ChainError):
            judge_block(BUILDER.genesis, state, _naming(BLOCK, state.encode()), None, is_valid_signature)
    assert read > 50


SIGNED = [*BLOCK.transactions, *FINAL.certificate.votes, *CRIMES]
"""All that anybody signed."""
JUDGES: dict[str, Any] = {
    "post": (Post, BLOCK.transactions[0]),
    "vote": (Vote, FINAL.certificate.votes[0]),
    "double vote": (Evidence, CRIMES[0]),
    "double post": (Evidence, CRIMES[1]),
}


@pytest.mark.long
@pytest.mark.parametrize("name", JUDGES)
def test_no_damaged_statement_passes_or_does_harm(name: str) -> None:
    kind, good = JUDGES[name]
    seed, judged = encode(good.to_record()), 0
    for number in range(2_000):
        try:
            statement = kind.from_record(decode(_damaged(seed, number), SIZE_MAX))
            judged += 1
            _judge_statement(statement)
        except (Invalid, Unready):
            continue
        assert statement in SIGNED
    assert judged > 100


def _judge_statement(statement: Any) -> None:
    if isinstance(statement, Post):
        validate_window(STATE, statement)
        validate_post(BUILDER.genesis, STATE, statement, is_valid_signature)
    elif isinstance(statement, Vote):
        validate_vote(BUILDER.genesis, STATE.roster.electors, statement, is_valid_signature)
    else:
        validate_evidence(BUILDER.genesis, STATE, statement, is_valid_signature)
        with pytest.raises(AlreadyKnown):
            validate_evidence(BUILDER.genesis, AFTER, statement, is_valid_signature)


def test_a_malformed_size_is_named() -> None:
    with pytest.raises(InvalidEncoding, match=r"^size: "):
        decode_state(BUILDER.genesis, bytes(STATE_SIZE_MAX + 1))
