"""Parts that are claimed and not given: what an honest reader loses by members that list what never comes."""

from collections.abc import Callable
from functools import partial

import pytest

from fedchain.chain.genesis import AggregatorRule
from fedchain.chain.knowledge import AGGREGATOR
from fedchain.crypto.hashing import Hash, sha256
from fedchain.network.messages import CHUNK_SIZE, Chunk, Message, PostMessage
from fedchain.node.core.contents.bulk import PATIENCE_MS
from fedchain.node.core.contents.part_fetching import FETCHED_AT_ONCE
from fedchain.node.core.contents.part_lists import PartLists
from fedchain.node.core.effects import Contribute
from fedchain.node.core.events import MessageReceived
from tests.support.chain.builders import CREATED_MS, genesis, post
from tests.support.node.driver import Federation, Peer, check_agreement
from tests.support.node.parts import (
    RECORD,
    PartRules,
    a_block,
    a_post,
    held,
    listing,
    part_of,
    send,
    stage,
)
from tests.support.node.stage import Stage, asked_to_contribute

MEMBERS, LIARS = 7, (5, 6)
HEIGHTS = 6
SLOW_MS = 900
"""Milliseconds that a liar takes for a chunk."""


def own_parts(number: int, round_number: int) -> list[bytes]:
    return [b"good %d %d %d" % (number, round_number, place) for place in range(2)]


def refs(*parts: tuple[Hash, int]) -> bytes:
    return b"".join(RECORD.pack(part_hash, size, AGGREGATOR) for part_hash, size in parts)


def none_of_few(number: int, round_number: int) -> bytes:
    return refs(*((sha256(b"nowhere %d %d %d" % (number, round_number, place)), 100) for place in range(2)))


def none_of_many(number: int, round_number: int) -> bytes:
    return refs(*((sha256(b"nowhere %d %d %d" % (number, round_number, place)), 100) for place in range(256)))


def large(number: int, round_number: int) -> bytes:
    size = 8 * CHUNK_SIZE
    return refs(*((sha256(b"large %d %d %d" % (number, round_number, place)), size) for place in range(32)))


def others_parts(number: int, round_number: int, lie: int = 0) -> bytes:
    parts = [part for other in range(1, LIARS[0]) for part in own_parts(other, round_number)]
    return refs(*((sha256(part), len(part) + lie) for part in parts))


def the_same(number: int, round_number: int) -> bytes:
    return none_of_few(0, round_number)


def now_and_then(number: int, round_number: int) -> bytes:
    if round_number % 2:
        return none_of_few(number, round_number)
    return listing(*((part, AGGREGATOR) for part in own_parts(number, round_number)))


class Claimants(Federation):
    """Members 5 and 6 list parts that they give badly; 0 reads all parts.

    Args:
        lists: what such a member posts in a round.
        wrong: what it sends for a chunk that it does not have, after ``SLOW_MS`` each; None: an empty one, at once.
        are_mute: whether it says nothing but posts and chunks, so that the others need each other's votes.
    """

    def __init__(self, lists: Callable[[int, int], bytes], wrong: bytes | None = None, *, are_mute: bool) -> None:
        document = genesis(MEMBERS, aggregator=AggregatorRule.FIXED)
        self._lists, self._wrong = lists, wrong
        self._free_ms: dict[int, int] = {}
        self.downloads_max, self.heights_ms = 0, list[int]()
        honest = [number for number in range(MEMBERS) if number not in LIARS]
        super().__init__(document, rules=PartRules(document.members), payloads=self.write, miners=honest)
        if are_mute:
            self.drop = lambda sender, _, message: sender in LIARS and not isinstance(message, PostMessage | Chunk)

    def write(self, number: int, effect: Contribute) -> bytes:
        """Keep one's parts, and list them."""
        parts = own_parts(number, effect.round)
        if number not in LIARS or self._lists is now_and_then:
            self.peers[number].parts.update({sha256(part): part for part in parts})
        return self._lists(number, effect.round) if number in LIARS else listing(*((p, AGGREGATOR) for p in parts))

    def run_heights(self, limit_s: int) -> float:
        """Seconds until all honest members are at the last height."""
        self.run(self._is_over, limit_s)
        check_agreement(self)
        return (self.now_ms - CREATED_MS) / 1_000

    def _is_over(self) -> bool:
        reader = self.peers[0].node
        self.downloads_max = max(self.downloads_max, len(reader._context.contents.downloads))
        return min(peer.node.head.height for peer in self.peers if peer.number not in LIARS) >= HEIGHTS

    def _carry(self, sender: Peer, receiver: Peer, message: Message) -> None:
        if sender.number in LIARS and isinstance(message, Chunk) and not message.data and self._wrong is not None:
            at_ms = self._free_ms[sender.number] = max(self._free_ms.get(sender.number, 0), self.now_ms) + SLOW_MS
            chunk = Chunk(message.content_hash, message.offset, self._wrong)
            event = MessageReceived(sender.key.public_key, chunk)
            self.later(at_ms - self.now_ms, partial(self._if_alive, receiver, receiver.life, event))
        else:
            super()._carry(sender, receiver, message)


KINDS: dict[str, tuple[Callable[[int, int], bytes], bytes | None]] = {
    "none of few": (none_of_few, None),
    "none of many": (none_of_many, None),
    "slowly": (large, b"good" + bytes(CHUNK_SIZE - 4)),
    "of the right size, and wrong": (none_of_few, bytes(100)),
    "what others give": (others_parts, None),
    "what others give, of another size": (partial(others_parts, lie=1), None),
    "the same, all of them": (the_same, None),
    "in every other round": (now_and_then, None),
}


@pytest.mark.long
@pytest.mark.parametrize(
    ("kind", "are_mute"),
    [
        *((kind, False) for kind in KINDS),
        *(pytest.param(kind, True, marks=() if kind == "none of few" else pytest.mark.slow) for kind in KINDS),
    ],
)
def test_parts_that_are_claimed_and_not_given_cost_some_heights_and_not_all_of_them(kind: str, are_mute: bool) -> None:
    """Without liars a height takes 1.4 s; with members that are silent altogether, the first one takes 61 s."""
    federation = Claimants(*KINDS[kind], are_mute=are_mute)
    taken_s = federation.run_heights(limit_s=400)
    assert taken_s <= (190 if are_mute else 80)
    assert federation.downloads_max <= FETCHED_AT_ONCE + MEMBERS


def test_a_long_list_is_read_once_however_much_else_happens(monkeypatch: pytest.MonkeyPatch) -> None:
    at = stage()
    payload = none_of_many(1, 1)
    item, _ = a_post(at, author=0)
    item = post(at.chain.key(item.sender), at.genesis, 1, payload)
    at.chain.contents[item.payload_hash] = payload
    at.receive(PostMessage(item, payload))
    at.chain.contents |= {sha256(b""): b""}
    others = [a_post(at, author=other)[0] for other in (1, 2)]
    block = at.block(posts=tuple(sorted((item, *others), key=lambda counted: counted.sender)))
    at.candidate(block)
    (entry,) = at.node.ledger.entries.values()
    assert entry.is_valid
    assert entry.lacks_parts
    looked = 0
    is_ours = PartLists.is_ours

    def look(lists: PartLists, reader: int, posted_in: int) -> bool:
        nonlocal looked
        looked += 1
        return is_ours(lists, reader, posted_in)

    monkeypatch.setattr(PartLists, "is_ours", look)
    at.wait(8)
    assert looked <= 10
    assert not held(at, item)


# --- how long one author is waited for


def height_without(at: Stage, silent: int = 0) -> bool:
    """A block counts a part of each other member, of which one does not come; whether work waits for it."""
    block, height = a_block(at), at.node.head.height + 1
    at.candidate(block)
    for number in range(1, len(at.genesis.members)):
        if number != silent:
            send(at, part_of(number, height), at.genesis.members[number])
    waits = not asked_to_contribute(at.final(block))
    if waits:
        assert asked_to_contribute(at.wait(PATIENCE_MS / 1_000))
    return waits


def test_an_author_is_waited_for_less_and_less_often() -> None:
    at = stage()
    assert [height for height in range(1, 9) if height_without(at, silent=3)] == [1, 3, 7]


def test_with_a_short_timeout_an_author_is_not_waited_for_in_every_phase_either() -> None:
    at = stage(phase_timeout_ms=3_000)
    assert [height for height in range(1, 9) if height_without(at, silent=3)] == [1, 3, 7]


def test_a_part_that_did_not_come_is_not_waited_for_again_when_its_author_is() -> None:
    at = stage()
    assert [height_without(at, silent=3), *(height_without(at) for _ in range(4))] == [True, *[False] * 4]


def test_an_author_whose_parts_were_wrong_is_not_waited_for() -> None:
    at = stage()
    data = {number: part_of(number, 1) if number != 3 else b"evil" for number in (1, 2, 3)}
    listed = {member: listing((data[at.genesis.index[member]], AGGREGATOR)) for member in sorted(at.others)}
    posts = [post(at.chain.key(member), at.genesis, 1, payload) for member, payload in listed.items()]
    at.chain.contents |= {sha256(payload): payload for payload in listed.values()}
    block = at.block(posts=tuple(posts))
    at.candidate(block)
    for number, part in data.items():
        send(at, part, at.genesis.members[number])
    assert asked_to_contribute(at.final(block)), "a quorum let it pass, and it is fetched, but nothing waits for it"
