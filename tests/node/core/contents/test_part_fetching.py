"""Fetching of parts: who is asked for one, when, and which downloads make way."""

from collections.abc import Sequence
from dataclasses import replace

import pytest

from fedchain.chain.genesis import AggregatorRule
from fedchain.chain.knowledge import AGGREGATOR
from fedchain.crypto.hashing import Hash, sha256
from fedchain.crypto.keys import PublicKey
from fedchain.network.messages import CHUNK_SIZE, Chunk, GetContent, PostMessage
from fedchain.network.source import STALL_MS
from fedchain.node.core.contents.part_fetching import FETCHED_AT_ONCE
from fedchain.node.core.effects import Effect, Send
from fedchain.node.core.events import PeersConnected, PeersDisconnected
from tests.support.chain.builders import genesis
from tests.support.node.driver import HeldParts
from tests.support.node.parts import GOOD, OTHER, PartRules, a_block, a_post, asked, held, send, stage
from tests.support.node.stage import Stage


def asked_for(effects: Sequence[Effect], data: bytes) -> list[PublicKey]:
    """The peers that are asked for a part."""
    questions = ((item.peer, item.message) for item in effects if isinstance(item, Send))
    return [peer for peer, item in questions if isinstance(item, GetContent) and item.content_hash == sha256(data)]


def nowhere(at: Stage, author: int, round_number: int) -> None:
    """A post by somebody that takes all places with parts that never come."""
    parts = [(b"good, but nowhere %d" % number, AGGREGATOR) for number in range(FETCHED_AT_ONCE)]
    at.receive(PostMessage(*a_post(at, *parts, author=author, round_number=round_number)))


def test_a_few_parts_are_fetched_at_a_time() -> None:
    at = stage()
    parts = [bytes([number]) * 10 for number in range(FETCHED_AT_ONCE + 2)]
    item, payload = a_post(at, *((b"good" + data, AGGREGATOR) for data in parts))
    wanted = asked(at.receive(PostMessage(item, payload)))
    assert len(wanted) == FETCHED_AT_ONCE
    for data in parts:
        wanted += asked(send(at, b"good" + data))
    assert wanted == [sha256(b"good" + data) for data in parts]
    assert held(at, item)


def test_of_those_that_list_a_part_the_one_is_asked_that_gave_one_last() -> None:
    at = stage()
    at.tick(1)
    listed = [a_post(at, (OTHER, AGGREGATOR if author == 1 else 2), author=author) for author in range(3)]
    at.chain.contents |= {item.payload_hash: payload for item, payload in listed}
    block = at.block(posts=tuple(sorted((item for item, _ in listed), key=lambda item: item.sender)))
    at.candidate(block)
    send(at, OTHER, at.others[1])
    at.final(block)
    nowhere(at, 2, round_number=2)
    effects = list[Effect]()
    for author in (0, 1):
        effects += at.receive(PostMessage(*a_post(at, (GOOD, AGGREGATOR), author=author, round_number=2)))
    assert asked_for(effects, GOOD) == [], "there is no room"
    assert asked_for(at.tick(STALL_MS / 1_000), GOOD) == [at.others[1]]


def test_an_author_that_is_gone_is_not_asked() -> None:
    at = stage()
    at.handle(PeersDisconnected((at.others[0],)))
    effects = list[Effect]()
    for author in (0, 1):
        effects += at.receive(PostMessage(*a_post(at, (GOOD, AGGREGATOR), author=author)))
    assert asked_for(effects, GOOD) == [at.others[1]]


def test_an_author_that_connects_while_a_part_is_fetched_is_asked_for_it() -> None:
    """It may be the only one that has it: a member that has just taken its next key has left under the former one."""
    at = stage()
    at.handle(PeersDisconnected((at.others[1],)))
    for author in (0, 1):
        at.receive(PostMessage(*a_post(at, (GOOD, AGGREGATOR), author=author)))
    at.handle(PeersConnected((at.others[1],)))
    assert at.others[1] in asked_for(at.wait(3), GOOD)


def test_what_a_closed_phase_did_not_count_takes_no_place_in_the_next() -> None:
    at = stage()
    nowhere(at, 2, round_number=1)
    block = a_block(at, reader=2)
    at.candidate(block)
    at.final(block)
    item, payload = a_post(at, (GOOD, AGGREGATOR), round_number=2)
    assert asked_for(at.receive(PostMessage(item, payload)), GOOD) == [item.sender]


def test_a_part_for_which_there_is_no_room_is_fetched_later() -> None:
    at = stage()
    downloads = at.node._context.contents.downloads
    count_max, downloads._count_max = downloads._count_max, 0
    assert asked_for(at.receive(PostMessage(*a_post(at, (GOOD, AGGREGATOR)))), GOOD) == []
    downloads._count_max = count_max
    assert asked_for(at.tick(1), GOOD) == [at.others[0]]


def test_a_part_that_made_way_is_fetched_again() -> None:
    at = stage()
    parts = [b"good, and late %d" % number for number in range(FETCHED_AT_ONCE + 1)]
    item, payload = a_post(at, *((data, AGGREGATOR) for data in parts))
    at.receive(PostMessage(item, payload))
    at.wait(6)
    for _ in range(2):
        for data in parts:
            send(at, data)
    assert held(at, item)


def test_everybody_that_lists_a_part_is_asked_for_it() -> None:
    document = genesis(16, aggregator=AggregatorRule.FIXED)
    at = Stage(document, 0, PartRules(document.members), contributes=False)
    for author in (5, 9):
        item, payload = a_post(at, (GOOD, AGGREGATOR), author=author)
        at.receive(PostMessage(item, payload))
    effects = at.wait(6)
    assert at.others[9] in {effect.peer for effect in effects if isinstance(effect, Send)}
    send(at, GOOD, at.others[9])
    assert held(at, item)


def test_parts_that_never_come_hold_up_no_others() -> None:
    at = stage()
    liar, listed = a_post(at, *((b"good, but nowhere %d" % number, AGGREGATOR) for number in range(64)))
    at.receive(PostMessage(liar, listed))
    item, payload = a_post(at, (GOOD, AGGREGATOR), (OTHER, AGGREGATOR), author=1)
    at.receive(PostMessage(item, payload))
    wanted = asked(at.wait(3))
    assert sha256(GOOD) in wanted
    send(at, GOOD, item.sender)
    assert sha256(OTHER) in [*wanted, *asked(at.wait(3))]
    send(at, OTHER, item.sender)
    assert held(at, item)
    assert not held(at, liar)


def test_who_gives_little_by_little_holds_up_no_others() -> None:
    at = stage()
    slow = [b"good" + bytes([number]) * 2 * CHUNK_SIZE for number in range(FETCHED_AT_ONCE)]
    liar, listed = a_post(at, *((data, AGGREGATOR) for data in slow))
    at.receive(PostMessage(liar, listed))
    item, payload = a_post(at, (GOOD, AGGREGATOR), author=1)
    effects = at.receive(PostMessage(item, payload))
    for data in slow[:4]:
        effects += at.tick(1)
        effects += at.receive(Chunk(sha256(data), 0, data[:CHUNK_SIZE]), liar.sender)
    assert sha256(GOOD) in asked(effects)


def test_of_one_members_parts_those_that_come_do_not_wait_for_those_that_do_not() -> None:
    at = stage()
    gone = [b"good, but nowhere %d" % number for number in range(FETCHED_AT_ONCE)]
    item, payload = a_post(at, *((data, AGGREGATOR) for data in (*gone, GOOD)))
    at.receive(PostMessage(item, payload))
    assert sha256(GOOD) in asked(at.wait(6))


def test_the_disk_is_asked_once_for_each_part(monkeypatch: pytest.MonkeyPatch) -> None:
    looked: list[Hash] = []
    has = HeldParts.has

    def look(parts: HeldParts, part_hash: Hash) -> bool:
        looked.append(part_hash)
        return has(parts, part_hash)

    monkeypatch.setattr(HeldParts, "has", look)
    at = stage()
    parts = [b"good %d" % number for number in range(200)]
    item, payload = a_post(at, *((data, AGGREGATOR) for data in parts))
    at.receive(PostMessage(item, payload))
    for data in parts:
        send(at, data)
    assert held(at, item)
    assert len(looked) <= 3 * len(parts)


def test_turns_are_as_long_as_the_rules_in_force_say() -> None:
    at = stage(phase_timeout_ms=44_000)  # no other test's, whose nodes would begin with the state that is altered here
    fetching, head = at.node._parts.bulk._fetching, at.node.head
    assert fetching._turns.shared_ms == head.rules.phase_timeout_ms // 2
    object.__setattr__(head, "rules", replace(head.rules, phase_timeout_ms=7_000))  # as an amendment does that begins
    fetching.doubt()
    assert fetching._turns.shared_ms == 3_500
