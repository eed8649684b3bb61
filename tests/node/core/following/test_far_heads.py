"""One liar, f at once, or a flood lie to a starting node about far heads: it comes to the real chain, and soon."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cache, partial
from itertools import islice
from random import Random
from typing import Any

import pytest

from fedchain.chain.block import Block
from fedchain.chain.certificate import Certificate
from fedchain.chain.genesis import Genesis
from fedchain.chain.state import genesis_state, state_size_max
from fedchain.crypto.hashing import Hash
from fedchain.crypto.keys import PublicKey
from fedchain.network.messages import (
    CHUNK_SIZE,
    FINALS_MAX,
    Chunk,
    FinalMessage,
    GetContent,
    GetFinal,
    GetPayloads,
    Message,
    Payloads,
)
from fedchain.network.source import STALL_MS
from fedchain.network.sync import IN_HAND_MAX, OWED_MAX
from fedchain.node.core.checks import Checks
from fedchain.node.core.effects import Send
from fedchain.node.core.events import PeersConnected
from fedchain.node.core.following.finals_ahead import AHEAD_MAX
from fedchain.node.core.following.joining import WAITING_MAX, Joining
from fedchain.node.core.following.replay import JUDGED_MAX, Replay
from fedchain.node.core.node import Node
from fedchain.node.core.notices import HeadUnconfirmed
from fedchain.node.core.parts import Conduct
from tests.support.campaigns import some
from tests.support.chain.builders import ChainBuilder, genesis, keys
from tests.support.node.crowd import Answers, Crowd, forge_head, invented_root
from tests.support.node.stage import Stage, refused, sent

HEIGHT = 20
FAR = 10**6
MEMBERS, COMMITTEE, LIARS = 20, 7, 6
SEEDS = 100


def _genesis() -> Genesis:
    """Twenty members of whom seven are drawn to vote: six liars can be five of them, and make anything final."""
    return genesis(MEMBERS, committee_size=COMMITTEE, contributors_per_round=5)


@cache
def _real(genesis: Genesis, height: int = HEIGHT) -> tuple[ChainBuilder, tuple[Block, ...]]:
    """A chain that honest members have. Built once: many tests stand around it."""
    builder = ChainBuilder(genesis)
    return builder, tuple(builder.extend_many(height))


def _crowd(genesis: Genesis, seed: int = 0, height: int = HEIGHT, **options: Any) -> Crowd:
    stage = Stage(genesis, number=0, is_heard=False, contributes=False, **options)
    stage.chain, blocks = _real(genesis, height)
    return Crowd(stage, blocks, seed)


@cache
def _forged(genesis: Genesis, liars: tuple[PublicKey, ...]) -> tuple[Block, Certificate, bytes]:
    """A head of theirs alone."""
    return forge_head(ChainBuilder(genesis), liars, FAR)


def _forger(crowd: Crowd, liars: Sequence[PublicKey]) -> None:
    """Liars hand out a head of their own, and the state that goes with it."""
    block, certificate, data = _forged(crowd.stage.genesis, tuple(liars))

    def lie(message: Message) -> Answers:
        match message:
            case GetFinal():
                yield 0, FinalMessage(block, certificate)
            case GetContent(content_hash, offset):
                yield 0, Chunk(content_hash, offset, data if offset == 0 else b"")

    for liar in liars:
        crowd.add(liar, lie, lambda: (block.header.height, block.hash))


# --- where voters are drawn


@pytest.mark.long
@pytest.mark.parametrize("seed", some(range(SEEDS), first=10))
def test_no_liar_leads_a_node_that_starts_to_a_head_of_its_own(seed: int) -> None:
    """One was enough if it spoke first, and three of twenty among sixteen: its journal never signed anywhere else."""
    crowd, draw = _crowd(_genesis(), seed), Random(seed)
    others = draw.sample(crowd.stage.others, len(crowd.stage.others))
    liars, honest = sorted(others[:LIARS]), others[LIARS : LIARS + draw.randrange(LIARS + 1, MEMBERS - LIARS)]
    _forger(crowd, liars)
    crowd.add_honest(*honest, starts_ms=draw.choice((0, 3_000)))
    seconds = crowd.run(crowd.is_at_head, 30)
    assert crowd.is_at_head(), f"at height {crowd.stage.node.head.height} after {seconds} s"
    assert crowd.stage.victim.journal.slot[0] <= HEIGHT + 1
    assert seconds < 12


def test_liars_alone_are_not_followed_and_the_operator_hears_of_it() -> None:
    crowd = _crowd(_genesis())
    liars = sorted(crowd.stage.others[:LIARS])
    _forger(crowd, liars)
    crowd.run(lambda: False, 60)
    stage = crowd.stage
    assert (stage.node.head.height, stage.node.catching_up_to()) == (0, 0)
    assert stage.victim.journal.slot[0] == 0
    assert stage.node.is_silent()
    told = stage.node.unconfirmed()
    assert told is not None
    assert (told.height, told.members, told.required) == (FAR, LIARS, LIARS + 1)
    assert [item for item in stage.victim.notices if isinstance(item, HeadUnconfirmed)] == [told], "once"


def test_one_honest_member_is_enough_to_follow_the_chain_block_by_block() -> None:
    """No head is taken on its word, but nobody's word is needed for what follows from where one stands."""
    crowd = _crowd(_genesis())
    liars = sorted(crowd.stage.others[:LIARS])
    _forger(crowd, liars)
    crowd.add_honest(crowd.stage.others[-1])
    crowd.run(crowd.is_at_head, 120)
    assert crowd.is_at_head()
    assert crowd.stage.victim.store.base() == 1, "every block was looked at"


def test_who_is_no_member_has_no_say() -> None:
    crowd = _crowd(_genesis())
    block = crowd.blocks[-1]
    strangers = [key.public_key for key in keys(MEMBERS + 10)[MEMBERS:]]
    for stranger in strangers:
        crowd.add(stranger, lambda _: (), lambda: (FAR, block.hash))
    crowd.run(lambda: False, 5)
    assert crowd.asked == []
    assert (crowd.stage.node.catching_up_to(), crowd.stage.node.lagging(1)) == (0, crowd.stage.others)


# --- a flood of heads, and of blocks to be replayed


def _flood(crowd: Crowd, liar: PublicKey, messages: Iterator[FinalMessage], claimed: int) -> None:
    """A liar claims a height, and sends all it has as soon as it is asked for anything."""
    sent = {"done": False}

    def lie(message: Message) -> Answers:
        if isinstance(message, GetFinal) and not sent["done"]:
            sent["done"] = True
            yield from ((0, item) for item in messages)

    crowd.add(liar, lie, lambda: (claimed, invented_root(0)))


def _downloads(crowd: Crowd) -> set[Hash]:
    return {*crowd.stage.node._context.contents.downloads._downloads}


def test_heads_without_end_have_nothing_fetched_and_delay_nobody() -> None:
    """4,160 of them filled the table of downloads, and nothing that anybody needed was fetched from then on."""
    crowd = _crowd(genesis(4))
    stage, last = crowd.stage, crowd.blocks[-1]
    final = crowd.final(last)
    heads = (
        FinalMessage(
            replace(last, header=replace(last.header, height=FAR + number, state_root=invented_root(number))),
            final.certificate,
        )
        for number in range(4_160)
    )
    _flood(crowd, stage.others[0], heads, 10**12)
    crowd.run(lambda: bool(crowd.asked), 5)
    crowd.run(lambda: False, 1)
    assert len(_downloads(crowd)) <= WAITING_MAX
    crowd.add_honest(*stage.others[1:])
    assert crowd.run(crowd.is_at_head, 30) < 4
    assert crowd.is_at_head()
    assert _downloads(crowd) <= {last.header.knowledge_root}


def test_a_member_hands_out_signed_heads_without_end_and_has_one_state_fetched() -> None:
    """Where few vote, liars can sign what they like: as much as fits is fetched, and no more than a state has."""
    crowd = _crowd(_genesis())
    others = crowd.stage.others
    liars = tuple(sorted(others[:LIARS]))
    block, _, _ = _forged(crowd.stage.genesis, liars)
    builder = ChainBuilder(crowd.stage.genesis)
    honest = others[LIARS : 2 * LIARS + 1]
    forged = [builder.remake(block, state_root=invented_root(number)) for number in range(1_000)]
    heads = [FinalMessage(item, builder.certificate(item, liars[:5])) for item in forged]
    supply = iter(heads)

    def lie(message: Message) -> Answers:
        if isinstance(message, GetFinal):
            yield from ((0, item) for item in islice(supply, 2))

    for liar in liars:
        crowd.add(liar, lie, lambda: (block.header.height, block.hash))
    crowd.add(honest[0], lambda _: (), lambda: (HEIGHT, crowd.blocks[-1].hash))  # one more, which is slow to answer
    joining = crowd.stage.node._parts.catching_up._joining
    assert isinstance(joining, Joining)

    def is_at_head() -> bool:
        waiting, under_way = joining._waiting.values(), _downloads(crowd)
        assert len(waiting) <= WAITING_MAX
        assert under_way <= joining.states_wanted() | {crowd.stage.node.head.knowledge_root}, "it ends with its head"
        holders = [holder for head in waiting for holder in head.holders]
        assert len(holders) == len({*holders}), "a peer has one that waits"
        return crowd.is_at_head()

    seconds = crowd.run(is_at_head, 60)
    assert len(crowd.asked) < len(others) * seconds / (STALL_MS / 1_000), "no answer brings more than one question"
    assert len({*joining._waiting}) == len(liars)
    assert next(supply, None), "there was more to come"
    crowd.add_honest(*honest)
    assert crowd.run(is_at_head, 60) < 30
    assert crowd.is_at_head()


def test_of_a_state_no_more_is_taken_than_members_can_make() -> None:
    """A longer content may have the same hash: its sender is passed over, and not to blame."""
    stage = Stage(genesis(4))
    blocks = stage.chain.extend_many(HEIGHT)
    liar = stage.others[0]
    stage.receive(stage.status(height=HEIGHT, head_hash=blocks[-1].hash), liar)
    effects = stage.final(blocks[-1], liar)
    assert [question.offset for question in sent(effects, GetContent)][:1] == [0]
    root = blocks[-1].header.state_root
    effects = stage.receive(Chunk(root, 0, bytes(CHUNK_SIZE)), liar) + stage.wait(2 * STALL_MS / 1_000)
    assert stage.node._context.contents.downloads.arrived(root) == 0
    asked = [item.peer for item in effects if isinstance(item, Send) and isinstance(item.message, GetContent)]
    assert asked
    assert liar not in asked
    assert refused(effects) == []


def test_blocks_to_be_replayed_without_end_have_nothing_fetched_and_delay_nobody() -> None:
    """1,032 for one height, each with payloads of its own, filled the same table."""
    crowd = _crowd(genesis(4, inline_size_max=0), replays=True)
    first = crowd.blocks[0]

    def invented(number: int) -> Block:
        posts = tuple(
            replace(post, payload_hash=invented_root(4 * number + place))
            for place, post in enumerate(first.transactions)
        )
        return replace(first, transactions=posts)

    final = crowd.final(first)
    blocks = (FinalMessage(invented(number), final.certificate) for number in range(1_032))
    _flood(crowd, crowd.stage.others[0], blocks, HEIGHT)
    crowd.run(lambda: bool(crowd.asked), 5)
    crowd.run(lambda: False, 1)
    replay: Replay = crowd.stage.node._parts.catching_up._replay
    assert (_downloads(crowd), replay._asked) == (set(), {})
    crowd.add_honest(*crowd.stage.others[1:])
    assert crowd.run(crowd.is_at_head, 60) < 15
    assert crowd.is_at_head()


def test_every_possible_state_is_fetched_and_nothing_larger() -> None:
    for count_of in (1, 4, 40):
        founded = genesis(count_of)
        state = genesis_state(founded)
        most = replace(
            state,
            height=2**62,
            round=2**62,
            posts=2**62,
            settled_time_ms=2**62,
            delays_ms=((2**62,) * 16,) * len(founded.phases),
            deciders=frozenset(founded.members),
        )
        room = state_size_max(founded) - len(most.encode())
        assert 400 * count_of < room < 512 * (count_of + 1), "for a crime of each member"


# --- slow blocks, junk, answers that are none


@pytest.mark.parametrize("replays", [False, True], ids=["join", "replay"])
def test_blocks_one_at_a_time_do_not_keep_a_node_from_asking_others(replays: bool) -> None:
    """Two that were heard first held both places with a real block each 1.8 s: nobody else was asked for minutes."""
    height = 60
    crowd = _crowd(genesis(7), height=height, replays=replays)
    node = crowd.stage.node

    def drip(parity: int, message: Message) -> Answers:
        match message:
            case GetFinal(first, count) if first <= height:
                for number in range(first, min(height + 1, first + count)):
                    if number % 2 == parity:
                        yield 900 * (number + 1 - first), crowd.final(crowd.blocks[number - 1])
            case other:
                yield from crowd.answer(crowd.blocks, other)

    for place, liar in enumerate(crowd.stage.others[:2]):
        claim = lambda: (min(height, node.head.height + 8), invented_root(0))  # noqa: E731
        crowd.add(liar, partial(drip, place), claim)
    crowd.run(lambda: len(crowd.asked) == 2, 5)
    crowd.add_honest(*crowd.stage.others[2:])
    assert crowd.run(crowd.is_at_head, 120) < 20
    assert crowd.is_at_head()
    honest = [at_ms for at_ms, peer, _ in crowd.asked if peer in crowd.stage.others[2:]]
    assert honest[0] - crowd.asked[0][0] < 4_000


@pytest.mark.parametrize("number", [0, 1, 2])
def test_a_copy_that_is_none_costs_a_copy(number: int) -> None:
    """Junk under the real header's hash shadowed the honest copies for seconds.

    Where it is good enough to fetch the state for it, its sender stalls that once, too.
    """
    crowd = _crowd(genesis(7))
    last = crowd.blocks[-1]
    final = crowd.final(last)
    fewer = replace(final.certificate, votes=final.certificate.votes[: 2 + 1])  # f + 1 of them: no quorum
    copy = (
        FinalMessage(replace(last, transactions=()), final.certificate),
        FinalMessage(replace(last, signature=bytes(64)), final.certificate),
        FinalMessage(last, fewer),
    )[number]

    def lie(message: Message) -> Answers:
        if isinstance(message, GetFinal):
            yield from ((100 * place, copy) for place in range(20))

    liar, *honest = crowd.stage.others
    crowd.add(liar, lie, lambda: (HEIGHT, last.hash))
    crowd.run(lambda: bool(crowd.asked), 5)
    crowd.add_honest(*honest, starts_ms=200)  # the copy is here by then
    assert crowd.run(crowd.is_at_head, 30) < (1, 1, 4)[number]
    assert crowd.is_at_head()
    assert crowd.refused() == {liar}


@pytest.mark.parametrize("replays", [False, True], ids=["join", "replay"])
def test_empty_and_partial_answers_cost_seconds(replays: bool) -> None:
    crowd = _crowd(genesis(7), height=60, replays=replays)

    def evade(message: Message) -> Answers:
        match message:
            case GetFinal(height, count) if count > 1:
                yield 0, crowd.final(crowd.blocks[height - 1])
            case GetPayloads(height):
                yield 0, Payloads(height, ())
            case GetContent(content_hash, offset):
                yield 0, Chunk(content_hash, offset, b"")

    for liar in crowd.stage.others[:2]:
        crowd.add(liar, evade, lambda: (60, crowd.blocks[-1].hash))
    crowd.run(lambda: len(crowd.asked) == 2, 5)
    crowd.add_honest(*crowd.stage.others[2:])
    assert crowd.run(crowd.is_at_head, 120) < 20
    assert crowd.is_at_head()


def test_who_hands_out_blocks_and_no_payloads_is_soon_asked_for_none() -> None:
    crowd = _crowd(genesis(7), height=120, replays=True)
    liar, *honest = crowd.stage.others

    def evade(message: Message) -> Answers:
        match message:
            case GetFinal():
                yield from crowd.answer(crowd.blocks, message)
            case GetPayloads(height):
                yield 0, Payloads(height, ())

    crowd.add(liar, evade, lambda: (120, crowd.blocks[-1].hash))
    crowd.run(lambda: bool(crowd.asked), 5)
    crowd.add_honest(*honest, starts_ms=500)
    assert crowd.run(crowd.is_at_head, 120) < 15
    assert crowd.is_at_head()
    sends = [item for item in crowd.effects if isinstance(item, Send) and item.peer == liar]
    assert len(sent(sends, GetPayloads)) <= AHEAD_MAX, "what was on its way until the first answer"


# --- claims, where blocks are replayed


def test_what_is_asked_for_fits_above_what_waits() -> None:
    assert JUDGED_MAX + IN_HAND_MAX + FINALS_MAX <= AHEAD_MAX
    assert OWED_MAX >= IN_HAND_MAX + FINALS_MAX


def test_one_claim_of_a_far_height_has_no_aggregate_believed() -> None:
    """A node that recomputes what others must still have took every block on its certificate."""
    crowd = _crowd(genesis(4, retention_blocks=4), height=8, replays=True)
    crowd.add(crowd.stage.others[0], lambda _: (), lambda: (FAR, invented_root(0)))
    crowd.run(lambda: False, 3)
    crowd.add_honest(*crowd.stage.others[1:])
    payloads = {post.payload_hash for block in crowd.blocks[4:] for post in block.transactions}
    crowd.run(crowd.is_at_head, 60)
    assert crowd.is_at_head()
    assert all(crowd.stage.victim.store.content(payload) is not None for payload in payloads)


def test_a_block_that_others_need_not_have_any_more_is_taken_whatever_they_say_later() -> None:
    crowd = _crowd(genesis(4, retention_blocks=4), height=8, replays=True)
    height = {"said": FAR}

    def without_payloads(message: Message) -> Answers:
        if not isinstance(message, GetPayloads | GetContent):
            yield from crowd.answer(crowd.blocks, message)

    for other in crowd.stage.others:
        crowd.add(other, without_payloads, lambda: (height["said"], crowd.blocks[-1].hash))
    crowd.run(lambda: crowd.stage.node.catching_up_to() > 0, 5)
    height["said"] = 8
    for other in crowd.stage.others:
        crowd.send(other, crowd.stage.status(height=8))
    crowd.run(crowd.is_at_head, 60)
    assert crowd.is_at_head()


# --- older blocks in the background


@pytest.mark.parametrize("asked", [False, True], ids=["unasked", "asked"])
def test_a_fake_block_below_the_base_slows_a_backfill_by_a_question(asked: bool) -> None:
    """It emptied the batch each time: four times as long for one that was repeated, thirteen times for a flood."""
    crowd = _crowd(genesis(4), height=100)
    stage = crowd.stage
    victim, (liar, *honest) = stage.victim, stage.others
    victim.node = Node(
        stage.genesis,
        victim.key,
        Checks(stage.genesis, victim.rules),
        victim.store,
        conduct=Conduct(backfills=True),
        session=bytes(16),
    )
    for other in stage.others:
        stage.handle(PeersConnected((other,)))

    def fake() -> FinalMessage:
        below = crowd.blocks[max(2, victim.store.base()) - 2]
        return replace(crowd.final(below), block=replace(below, transactions=()))

    def lie(message: Message) -> Answers:
        match message:
            case GetFinal(_, count) if asked and count > 1:
                yield 0, fake()
            case GetFinal(_, count) if not asked:
                yield from crowd.answer(crowd.blocks, message)

    def claim() -> tuple[int, Hash]:
        if not asked and victim.store.base() > 1:
            crowd.send(liar, fake())
        return len(crowd.blocks), crowd.blocks[-1].hash

    crowd.add_honest(*honest)
    crowd.run(crowd.is_at_head, 10)
    crowd.add(liar, lie, claim, every_ms=50)
    assert crowd.run(lambda: victim.store.base() == 1, 600) < 15
    assert victim.store.base() == 1
    assert crowd.refused() == {liar} if asked else crowd.refused() <= {liar}
