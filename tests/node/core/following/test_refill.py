"""Payloads and knowledge that are gone come back in the background, from anybody that has them."""

from collections.abc import Iterable
from functools import partial

import pytest

from fedchain.chain.knowledge import EMPTY_ROOT
from fedchain.chain.membership.amendment import amendment_of
from fedchain.chain.membership.change import propose_amendment
from fedchain.chain.storage.store import MemoryStore
from fedchain.crypto.hashing import Hash
from fedchain.crypto.keys import PublicKey
from fedchain.network.messages import Chunk, GetContent, PostMessage
from fedchain.node.core.checks import Checks
from fedchain.node.core.contents.retention import contents_of
from fedchain.node.core.effects import Effect, Refuse, Send
from fedchain.node.core.events import PeersConnected, PeersDisconnected, Tick
from fedchain.node.core.following import refill
from fedchain.node.core.following.refill import AT_ONCE, HELD_UP_MS, LOOK_MAX, RETRY_MS, SETTLED_MS
from fedchain.node.core.node import Node
from fedchain.node.core.parts import Conduct
from tests.support.campaigns import some
from tests.support.chain.builders import genesis, payload, post
from tests.support.chain.changes import UNTIL, approved, living_genesis
from tests.support.node.driver import Federation, Peer, check_agreement, check_promises
from tests.support.node.stage import Stage

LATE = 3


def refilling(peer: Peer, *, backfills: bool = False) -> Node:
    """A node that looks for what is missing, as one on a real network does."""
    checks = Checks(peer.genesis, peer.rules)
    return Node(
        peer.genesis,
        peer.key,
        checks,
        peer.store,
        peer.journal,
        conduct=Conduct(parts=peer.parts, backfills=backfills, refills=True),
        session=bytes(16),
    )


def questions(effects: Iterable[Effect]) -> list[tuple[PublicKey, Hash]]:
    """The peers that were asked, each with its content, in order."""
    sent = [(item.peer, item.message) for item in effects if isinstance(item, Send)]
    return [(peer, message.content_hash) for peer, message in sent if isinstance(message, GetContent)]


def asked(effects: Iterable[Effect]) -> list[Hash]:
    """Contents that were asked for, in order."""
    return [content_hash for _, content_hash in questions(effects)]


def missing(peer: Peer, first: int = 1) -> set[Hash]:
    """Contents of final blocks from a height on that are not stored."""
    found = (peer.store.final(height) for height in range(first, peer.node.head.height))
    needed = contents_of(item[0] for item in found if item is not None)
    return {item for item in needed if item != EMPTY_ROOT and not peer.store.holds_content(item)}


# --- a federation


@pytest.mark.long
@pytest.mark.parametrize("liar", some(["none", "silent", "lacking", "wrong"], chosen={"none", "wrong"}))
def test_a_member_whose_contents_are_gone_gets_them_back_and_goes_on(liar: str) -> None:
    """A lie of one of the others only costs time."""
    federation = Federation(genesis(4))
    federation.run_to_height(20, 200)
    late = federation.peers[LATE]
    federation.crash(LATE)
    late.store.retain(())
    late.up, late.node = True, refilling(late)
    assert len(missing(late)) > 80
    federation.drop = lambda sender, receiver, message: (
        liar == "silent" and (sender, receiver) == (0, LATE) and isinstance(message, Chunk)
    )
    lying = federation.peers[0]
    if liar in ("lacking", "wrong"):
        answer = b"" if liar == "lacking" else b"not this"
        lying.node._context.contents.chunk = (  # type: ignore[method-assign]
            lambda peer, request: Chunk(request.content_hash, request.offset, answer)
        )
    begun_ms, height = federation.now_ms, late.node.head.height
    federation.start(late)
    federation.run(lambda: not missing(late), 600)
    assert federation.now_ms - begun_ms <= 60_000
    federation.run_to_height(height + 8, 120)
    assert late.posts()[-1].round > height
    check_agreement(federation)
    for peer in federation.peers:
        check_promises(peer)
    is_refused = any(isinstance(effect, Refuse) and "hash" in str(effect.error) for effect in late.effects)
    assert is_refused == (liar == "wrong")


def test_who_joins_gets_the_contents_of_the_blocks_that_it_fetches_afterwards() -> None:
    federation = Federation(genesis(4), silent=[LATE])
    federation.run_to_height(30, 300)
    late = federation.peers[LATE]
    late.up, late.node = True, refilling(late, backfills=True)
    federation.start(late)
    federation.run(lambda: late.store.base() == 1 and late.node.head.height >= 30 and not missing(late), 300)


@pytest.mark.parametrize("slow_ms", [0, 3_000])
def test_who_comes_back_gets_the_contents_of_what_it_missed_also_where_its_disk_is_slow(slow_ms: int) -> None:
    """The gap between its old blocks and the head was passed over before the store knew of it, until the next start."""
    federation = Federation(genesis(4))
    federation.run_to_height(5)
    late = federation.peers[LATE]
    federation.crash(LATE)
    federation.run_to_height(25, 300)
    append = late.store.append
    late.store.append = lambda records: federation.later(slow_ms, partial(append, records))  # type: ignore[method-assign]
    late.up, late.node = True, refilling(late, backfills=True)
    federation.start(late)
    federation.run(lambda: all(late.store.final(height) is not None for height in range(1, 26)))
    federation.run(lambda: not missing(late), 15)


def test_who_joins_and_wants_no_older_blocks_gets_what_its_first_block_is_recomputed_from() -> None:
    federation = Federation(genesis(4), silent=[LATE])
    federation.run_to_height(30, 300)
    late = federation.peers[LATE]
    late.up, late.node = True, refilling(late)
    federation.start(late)
    federation.run(lambda: late.node.head.height >= 32, 60)
    base = late.store.base()
    assert base > 1
    federation.run(lambda: not missing(late, base), 120)
    before = federation.peers[0].store.final(base - 1)
    assert before is not None
    assert late.store.holds_content(before[0].header.knowledge_root)


def test_only_what_others_must_still_have_is_looked_for() -> None:
    federation = Federation(genesis(4, retention_blocks=8))
    federation.run_to_height(24, 300)
    late = federation.peers[LATE]
    federation.crash(LATE)
    late.store.retain(())
    late.up, late.node = True, refilling(late)
    height = late.node.head.height
    older = contents_of(item[0] for place in range(1, height - 8) if (item := late.store.final(place)) is not None)
    late.effects.clear()
    federation.start(late)
    federation.run(lambda: not missing(late, late.node.head.height - 7), 120)
    assert not older & {*asked(late.effects)}


# --- one node


@pytest.fixture
def stage() -> Stage:
    """A node that lost the contents of six blocks; its head is settled, and nothing is on its way."""
    return lost(6)


def lost(blocks: int, **options: object) -> Stage:
    result = Stage(genesis(4, **options))
    result.accept(blocks)
    lose(result)
    refill_from_now_on(result)
    return result


def lose(stage: Stage) -> None:
    """All contents are gone from the disk but the knowledge at the head."""
    assert stage.node.knowledge() is not None
    stage.victim.store.retain({stage.node.head.knowledge_root})


def refill_from_now_on(stage: Stage) -> None:
    """It starts again, as one that looks for what is missing."""
    stage.victim.node = refilling(stage.victim)
    stage.handle(Tick())
    for other in stage.others:
        stage.handle(PeersConnected((other,)))
    stage.hear()


def give(stage: Stage, effects: Iterable[Effect]) -> list[Effect]:
    """The contents that were asked for come."""
    found: list[Effect] = []
    for peer, item in questions(effects):
        found += stage.receive(Chunk(item, 0, stage.chain.contents[item]), peer)
    return found


def test_a_few_contents_are_fetched_at_a_time_and_stored_as_they_come(stage: Stage) -> None:
    effects, count = stage.tick(6), 0
    while wanted := asked(effects):
        count += len(wanted)
        assert len(wanted) <= AT_ONCE
        assert len(stage.node._parts.refill._downloads) <= AT_ONCE
        effects = give(stage, effects)
        assert all(stage.victim.store.holds_content(item) for item in wanted)
    stage.tick(6)
    assert count == 4 * 6 + 5, "of each block the payloads, and of all but the head, whose is here, the knowledge"
    assert missing(stage.victim) == set()
    assert asked(stage.wait(60)) == [], "all is here"


def test_one_knowledge_is_fetched_at_a_time(stage: Stage) -> None:
    """Nobody signed how large it is."""
    found = (stage.victim.store.final(height) for height in range(1, 7))
    roots = {item[0].header.knowledge_root for item in found if item is not None}
    effects = stage.tick(6)
    for _ in range(24):
        effects = give(stage, [item for item in effects if {*asked([item])}.isdisjoint(roots)])
        assert len(roots & {*stage.node._parts.refill._downloads._downloads}) <= 1
    assert {*stage.node._parts.refill._missing} <= roots, "all payloads came meanwhile"


def test_what_is_not_kept_any_more_is_looked_for_no_longer() -> None:
    stage = lost(6, retention_blocks=8)
    stage.tick(6)
    assert {item.height for item in stage.node._parts.refill._missing.values()} == {*range(1, 7)}
    stage.accept(8)
    stage.tick(6)
    assert {item.height for item in stage.node._parts.refill._missing.values()} == {6}


def test_what_an_amendment_lets_all_drop_is_not_looked_for() -> None:
    stage = Stage(living_genesis(4))
    amendment = propose_amendment(amendment_of({"retention_blocks": 8}), "", sequence=0, until=UNTIL)
    block = stage.block(changes=[approved(stage.chain, amendment)])
    stage.candidate(block)
    stage.final(block)
    dropped = contents_of([block, *stage.accept(13)[:4]])
    lose(stage)
    refill_from_now_on(stage)
    lowest = []
    for _ in range(2):
        assert dropped.isdisjoint(asked(stage.wait(6)))
        lowest.append(min(item.height for item in stage.node._parts.refill._missing.values()))
        stage.accept(4)
    assert lowest == [14 - 8, 18 - 8]


def test_contents_of_a_new_head_are_looked_for_when_it_has_stood_for_a_while(stage: Stage) -> None:
    effects = stage.tick(6)
    while asked(effects):
        effects = give(stage, effects)
    block = stage.block()
    give(stage, stage.final(block))  # the knowledge
    payloads = {item.payload_hash for item in block.transactions if item.sender != stage.me}  # its own is made again
    assert payloads.isdisjoint(asked(stage.wait(SETTLED_MS / 1_000 - 1)))
    assert {*asked(stage.wait(2))} == payloads


def test_what_is_in_memory_is_stored_and_not_fetched() -> None:
    stage = Stage(genesis(4), contributes=False)
    refill_from_now_on(stage)
    stage.accept(6)
    lose(stage)
    assert missing(stage.victim)
    assert asked(stage.tick(6)) == []
    assert not missing(stage.victim)


def test_nothing_is_fetched_beside_what_is_open_but_for_one_content_now_and_then(stage: Stage) -> None:
    """A liar may keep a download open for ever: its post has a payload that nobody gives."""
    never = post(stage.chain.key(stage.others[0]), stage.genesis, 7, payload(99))
    stage.receive(PostMessage(never, None))
    first = asked(stage.wait(HELD_UP_MS / 1000 - 10))
    assert {*first} == {never.payload_hash}
    later = stage.wait(15)
    assert len({*asked(later)} - {never.payload_hash}) == 1
    assert {*asked(give(stage, [item for item in later if asked([item]) != [never.payload_hash]]))} <= {
        never.payload_hash
    }


def test_what_nobody_has_is_given_up_and_asked_for_again_later(stage: Stage) -> None:
    def lack(effects: Iterable[Effect]) -> set[Hash]:
        found = questions(effects)
        for peer, item in found:
            stage.receive(Chunk(item, 0, b""), peer)
        return {item for _, item in found}

    named: set[Hash] = set()
    for _ in range(180):
        named |= lack(stage.tick(1))
        stage.hear()
    assert len(named) == 4 * 6 + 5
    assert len(stage.node._parts.refill._missing) == len(stage.node._parts.refill._downloads) == 0
    assert lack(stage.wait(60)) == set()
    stage.now_ms += RETRY_MS
    assert len(lack(stage.wait(30))) > 0


def test_a_stale_lack_list_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(refill, "LATER_MAX", 5)
    monkeypatch.setattr(refill, "MISSING_MAX", 8)
    stage = lost(6)
    for _ in range(300):
        stage.tick(1)
        assert len(stage.node._parts.refill._missing) <= 8 + 5
    assert len(stage.node._parts.refill._later) == 5


def test_a_peer_that_leaves_is_replaced(stage: Stage) -> None:
    effects = stage.tick(6)
    gone, _ = questions(effects)[0]
    wanted = {item for peer, item in questions(effects) if peer == gone}
    again = questions(stage.handle(PeersDisconnected((gone,))))
    assert {item for _, item in again} == wanted
    assert gone not in {peer for peer, _ in again}


def test_peers_that_leave_at_once_do_not_replace_each_other(stage: Stage) -> None:
    gone = tuple(dict.fromkeys(peer for peer, _ in questions(stage.tick(6))))[:2]
    assert len(gone) == 2
    again = questions(stage.handle(PeersDisconnected(gone)))
    assert again
    assert {peer for peer, _ in again}.isdisjoint(gone)


def test_blocks_are_looked_at_a_few_at_a_time() -> None:
    stage = lost(LOOK_MAX + 4)  # which ends with its first tick
    heights = {item.height for item in stage.node._parts.refill._missing.values()}
    assert heights == {*range(5, LOOK_MAX + 5)}, "the newest first"
    stage.tick(6)
    assert {item.height for item in stage.node._parts.refill._missing.values()} == {*range(1, LOOK_MAX + 5)}


def test_who_does_not_want_it_asks_for_nothing(stage: Stage) -> None:
    stage.restart()
    assert asked(stage.wait(20)) == []


def test_chunks_that_nobody_asked_for_change_nothing(stage: Stage) -> None:
    effects = stage.tick(6)
    sender, item = questions(effects)[0]
    other = next(member for member in stage.others if member != sender)
    assert stage.receive(Chunk(item, 0, stage.chain.contents[item]), other) == []
    assert not stage.victim.store.holds_content(item)


def test_an_empty_store_has_nothing_to_look_for() -> None:
    stage = Stage(genesis(4))
    stage.victim.store = MemoryStore()
    stage.victim.node = refilling(stage.victim)
    assert asked(stage.wait(10)) == []
