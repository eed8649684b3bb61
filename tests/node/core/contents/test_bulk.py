"""Payloads by reference in a node: whose parts it fetches, what counts when, and who is to blame for wrong bytes."""

from pathlib import Path

import pytest

from fedchain.chain.block import Block
from fedchain.chain.exceptions import InvalidPayload, LimitReached
from fedchain.chain.genesis import AggregatorRule
from fedchain.chain.knowledge import AGGREGATOR, EVERYBODY, NEXT_AGGREGATOR
from fedchain.chain.storage.store import Contents, MemoryStore
from fedchain.chain.vote import VoteKind
from fedchain.crypto.hashing import Hash, sha256
from fedchain.learning.payload.part_folder import PartFolder
from fedchain.network.limits import Limits
from fedchain.network.messages import CHUNK_SIZE, Chunk, GetContent, PostMessage
from fedchain.node.core.checks import Checks
from fedchain.node.core.contents.bulk import PATIENCE_MS
from fedchain.node.core.deadlines import parts_forgiven_after_ms
from fedchain.node.core.effects import Compute, Contribute, Effect, Send
from fedchain.node.core.events import Computed, Contributed, MessageReceived, Moment
from fedchain.node.core.jobs import CheckPost, KeepPart
from fedchain.node.shell.parts import run_part
from fedchain.node.shell.run import limits_of
from tests.support.chain.builders import CREATED_MS, SumRules, genesis, post
from tests.support.node.driver import Federation, check_agreement
from tests.support.node.parts import (
    GOOD,
    OTHER,
    RECORD,
    NewestRules,
    PartRules,
    a_block,
    a_post,
    asked,
    held,
    listing,
    part_of,
    send,
    stage,
)
from tests.support.node.stage import Stage, blamed, refused, sent, votes

BAD = b"evil" * 100


def judged(at: Stage) -> list[Hash]:
    """Posts by whose lists the node has checked parts."""
    return [post_hash for part in at.node._parts.bulk._fetching._parts.values() for post_hash in part.judged]


def test_an_author_that_forgot_its_post_is_sent_it_although_its_parts_never_came() -> None:
    at = stage()
    item, payload = a_post(at, (GOOD, AGGREGATOR))
    at.receive(PostMessage(item, payload))
    assert not held(at, item)
    assert sent(at.receive(at.status(), item.sender), PostMessage) == [PostMessage(item, None)]
    assert sent(at.receive(at.status(), at.others[-1]), PostMessage) == []


@pytest.mark.parametrize(
    ("number", "reader", "is_read"),
    [
        (0, AGGREGATOR, True),
        (1, AGGREGATOR, False),
        (0, NEXT_AGGREGATOR, True),
        (1, EVERYBODY, True),
        (1, 1, True),
        (1, 2, False),
        (1, 9, False),
    ],
)
def test_only_its_readers_fetch_a_part(number: int, reader: int, is_read: bool) -> None:
    at = stage(number)
    item, payload = a_post(at, (GOOD, reader))
    effects = at.receive(PostMessage(item, payload))
    assert asked(effects) == ([sha256(GOOD)] if is_read else [])
    assert held(at, item) != is_read, "who reads nothing of it counts it at once"
    if is_read:
        send(at, GOOD)
        assert held(at, item)
        assert at.victim.parts == {sha256(GOOD): GOOD}


def test_a_post_counts_when_all_its_parts_are_here() -> None:
    at = stage()
    item, payload = a_post(at, (GOOD, AGGREGATOR), (OTHER, AGGREGATOR), (BAD, 2))
    at.receive(PostMessage(item, payload))
    send(at, OTHER)
    assert not held(at, item)
    assert refused(at.receive(PostMessage(item, payload))) == ["AlreadyKnown"]
    send(at, GOOD)
    assert held(at, item)
    assert set(at.victim.parts) == {sha256(GOOD), sha256(OTHER)}, "what others read is theirs to judge"


def test_wrong_bytes_are_their_authors_fault_and_are_not_fetched_again() -> None:
    at = stage()
    item, payload = a_post(at, (BAD, AGGREGATOR))
    at.receive(PostMessage(item, payload))
    effects = send(at, BAD)
    assert blamed(effects) == [(item.sender, "InvalidPayload")]
    assert dict(at.node.sizes())["posts under way"] == 0
    assert not held(at, item)
    assert not at.victim.parts
    assert asked(at.receive(PostMessage(item, payload))) == []


def test_a_lie_about_anothers_part_hurts_nobody_else() -> None:
    at = stage()
    lie = RECORD.pack(sha256(GOOD), len(GOOD) + 1, AGGREGATOR)
    liar = post(at.chain.key(at.others[0]), at.genesis, 1, lie)
    at.receive(PostMessage(liar, lie))
    item, payload = a_post(at, (GOOD, AGGREGATOR), author=1)
    at.receive(PostMessage(item, payload))
    effects: list[Effect] = []
    for provider in (*at.others, *at.others, *at.others):  # whoever is asked
        effects += send(at, GOOD, provider)
    assert blamed(effects) == [(liar.sender, "InvalidPayload")]
    assert held(at, item)
    assert not held(at, liar)


@pytest.mark.parametrize(("size", "counts"), [(len(GOOD), True), (len(GOOD) + 1, False)])
def test_a_part_that_is_here_already_is_judged_by_each_list(size: int, counts: bool) -> None:
    at = stage()
    first, payload = a_post(at, (GOOD, AGGREGATOR))
    at.receive(PostMessage(first, payload))
    send(at, GOOD)
    again = RECORD.pack(sha256(GOOD), size, AGGREGATOR)
    item = post(at.chain.key(at.others[1]), at.genesis, 1, again)
    effects = at.receive(PostMessage(item, again))
    assert asked(effects) == []
    assert held(at, item) == counts
    assert blamed(effects) == ([] if counts else [(item.sender, "InvalidPayload")])


def test_a_part_that_comes_once_is_judged_by_all_lists() -> None:
    at = stage()
    lie = RECORD.pack(sha256(GOOD), len(GOOD) + 1, AGGREGATOR)
    item, payload = a_post(at, (GOOD, AGGREGATOR), author=1)
    liar = post(at.chain.key(at.others[0]), at.genesis, 1, lie)
    at.receive(PostMessage(item, payload))
    at.receive(PostMessage(liar, lie))
    assert blamed(send(at, GOOD, item.sender)) == [(liar.sender, "InvalidPayload")]
    assert held(at, item)
    assert not held(at, liar)


def test_a_part_that_was_here_and_is_lost_is_fetched_again() -> None:
    at = stage()
    first, payload = a_post(at, (GOOD, AGGREGATOR))
    at.receive(PostMessage(first, payload))
    send(at, GOOD)
    at.victim.parts.clear()
    item, payload = a_post(at, (GOOD, AGGREGATOR), author=1)
    assert asked(at.receive(PostMessage(item, payload))) == [sha256(GOOD)]
    send(at, GOOD, item.sender)
    assert held(at, item)


def test_a_part_that_is_also_somebodys_payload_does_not_hide_it() -> None:
    at = stage()
    item, payload = a_post(at, (GOOD, 2), author=1)
    thief, listed = a_post(at, (payload, AGGREGATOR), author=0)
    at.receive(PostMessage(thief, listed))
    at.receive(PostMessage(item, None))
    for provider in (at.others[0], at.relay):
        at.receive(Chunk(sha256(payload), 0, payload), provider)
    assert held(at, item)
    assert not held(at, thief)
    (chunk,) = sent(at.receive(GetContent(sha256(payload), 0)), Chunk)
    assert chunk.data == payload, "it was checked, so anybody may have it"


def test_a_reader_votes_for_a_block_once_it_has_the_parts() -> None:
    at = stage()
    at.wait(at.genesis.phase_timeout_ms / 1_000)
    block = a_block(at)
    effects = [*at.candidate(block), *at.wait(2)]
    for number in range(1, 4):
        assert votes(effects) == []
        effects = send(at, part_of(number, 1), at.genesis.members[number])
    effects += at.wait(1)
    assert votes(effects) == [(VoteKind.PREVOTE, 0, block.hash)]


def test_parts_that_do_not_come_hold_a_vote_back_for_a_while() -> None:
    at = stage()
    timeout_s, least_s = at.genesis.phase_timeout_ms / 1_000, parts_forgiven_after_ms(at.genesis) / 1_000
    assert votes(at.wait(timeout_s)) == []
    block = a_block(at)
    effects = [*at.candidate(block), *at.wait(least_s - 1)]
    assert votes(effects) == []
    assert votes(at.wait(3)) == [(VoteKind.PREVOTE, 0, block.hash)]


def test_parts_are_waited_for_as_long_as_posts_are() -> None:
    """Though the block counts everybody: by then somebody has mined one without the posts whose parts lack."""
    at = stage(phase_timeout_ms=60_000)
    at.handle(Contributed(1, 0, listing()))
    posts = [post(at.chain.key(at.me), at.genesis, 1, listing())]
    posts += [a_post(at, (part_of(number, 1), AGGREGATOR), author=number - 1)[0] for number in range(1, 4)]
    payloads = [listing(), *(listing((part_of(number, 1), AGGREGATOR)) for number in range(1, 4))]
    at.chain.contents |= {sha256(payload): payload for payload in payloads}
    block = at.block(posts=sorted(posts, key=lambda item: item.sender))
    assert votes([*at.candidate(block), *at.wait(59)]) == []
    assert votes(at.wait(3)) == [(VoteKind.PREVOTE, 0, block.hash)]


@pytest.mark.parametrize("wrong", [None, BAD], ids=["missing", "wrong"])
def test_a_part_that_one_reader_does_not_get_stops_nobody(wrong: bytes | None) -> None:
    document = genesis(4, aggregator=AggregatorRule.FIXED)
    written: list[tuple[int, bytes]] = []

    def write(number: int, effect: Contribute) -> bytes:
        data = b"good %d %d %d" % (number, effect.round, effect.phase)
        if number == 3:
            data = wrong or data
        if number != 3 or wrong:
            written.append((number, data))
        return listing((data, AGGREGATOR))

    def is_over() -> bool:
        while written:
            number, data = written.pop()
            federation.peers[number].parts[sha256(data)] = data
        return all(peer.node.head.height >= 2 for peer in federation.peers[:3])

    federation = Federation(document, rules=PartRules(document.members), payloads=write, miners=range(3))
    # the liar says nothing but what it posts, and gives its part; without its vote all others have to agree
    federation.drop = lambda sender, receiver, message: sender == 3 and not isinstance(message, PostMessage | Chunk)
    federation.run(is_over, limit_s=300)
    check_agreement(federation)


def test_a_block_is_valid_at_once_for_who_reads_nothing_of_it() -> None:
    at = stage(1)
    block = a_block(at)
    at.candidate(block)
    assert at.node.ledger.entries[block.hash].is_valid


def test_who_missed_the_posts_fetches_what_the_knowledge_lists_before_it_works() -> None:
    at = stage()
    block = a_block(at)
    at.candidate(block)
    effects = at.final(block)
    wanted = asked(effects)
    assert not [item for item in effects if isinstance(item, Contribute)]
    for number in range(1, 4):
        effects = send(at, part_of(number, 1), at.genesis.members[number])
    assert [item for item in effects if isinstance(item, Contribute)], "all parts are here"
    assert wanted == []  # they had been asked for when the candidate came
    assert len(at.victim.parts) == 3


def test_parts_of_which_nothing_comes_are_waited_for_once_and_not_long() -> None:
    at = stage(phase_timeout_ms=60_000)
    block = a_block(at)
    at.candidate(block)
    at.final(block)
    assert not [item for item in at.wait(7) if isinstance(item, Contribute)]
    assert [item for item in at.wait(3) if isinstance(item, Contribute)]
    again = a_block(at, reader=2)
    at.candidate(again)
    effects = at.final(again)
    assert [item for item in effects if isinstance(item, Contribute)], "the next phase does not wait for them again"


def test_authors_are_not_to_blame_for_a_knowledge_that_comes_when_half_of_the_phase_is_over() -> None:
    at = stage(phase_timeout_ms=30_000)
    late = a_block(at)
    at.final(late)
    at.wait(16)
    root = late.header.knowledge_root
    effects = at.receive(Chunk(root, 0, at.chain.contents[root]), at.others[0])
    assert {*asked(effects)} == {sha256(part_of(number, 1)) for number in (1, 2, 3)}
    assert [item for item in effects if isinstance(item, Contribute)], "there is no time to wait for them"
    block = a_block(at)
    at.candidate(block)
    effects = [*at.final(block), *at.wait(7)]
    assert not [item for item in effects if isinstance(item, Contribute)], "they are waited for where there is"


def test_parts_that_keep_coming_are_waited_for_half_of_a_phase() -> None:
    at = stage(phase_timeout_ms=30_000)
    block = a_block(at)
    at.candidate(block)
    at.final(block)
    for number in (1, 2):
        assert not [item for item in at.wait(7) if isinstance(item, Contribute)]
        send(at, part_of(number, 1), at.genesis.members[number])
    assert [item for item in at.wait(3) if isinstance(item, Contribute)]


def test_what_nothing_lists_any_more_is_dropped_and_what_is_listed_stays() -> None:
    at = stage()
    at.victim.parts[sha256(BAD)] = BAD  # left by an earlier life, for a phase that is long closed
    for height in (1, 2):
        block = a_block(at)
        at.candidate(block)
        for number in range(1, 4):
            send(at, part_of(number, height), at.genesis.members[number])
        at.final(block)
    assert sorted(at.victim.parts.values()) == sorted(
        part_of(number, height) for height in (1, 2) for number in (1, 2, 3)
    )


def test_what_was_listed_at_the_last_head_stays_for_those_that_are_still_there() -> None:
    document = genesis(4, aggregator=AggregatorRule.FIXED)
    at = Stage(document, 0, NewestRules(document.members), contributes=False)
    for height in (1, 2, 3):
        block = a_block(at)
        at.candidate(block)
        for number in range(1, 4):
            send(at, part_of(number, height), at.genesis.members[number])
        assert judged(at)
        at.final(block)
        assert not judged(at), "it was about posts that nobody asks for any more"
    assert {*at.victim.parts.values()} == {part_of(number, height) for height in (2, 3) for number in (1, 2, 3)}


def test_what_an_early_post_lists_stays_when_its_phase_opens() -> None:
    """Where several nodes share their checks, another one may have found the post good; this one looks no more."""
    at = stage()
    block, part = a_block(at, reader=2), sha256(GOOD)
    at.candidate(block)
    at.victim.parts |= {part: GOOD, sha256(BAD): BAD}  # both were listed before
    item, payload = a_post(at, (GOOD, AGGREGATOR), round_number=2)
    at.receive(PostMessage(item, payload))
    knowledge = at.chain.contents[block.header.knowledge_root]
    assert at.node._context.checks.run(CheckPost(at.chain.states[block.hash], knowledge, item, payload)) is None
    assert asked(at.final(block)) == []
    assert held(at, item)
    assert at.victim.parts == {part: GOOD}


def test_a_late_post_whose_parts_were_on_their_way_when_its_phase_closed_counts_once_they_are_here() -> None:
    at = stage(version=3, late_rounds=1)
    block = a_block(at)
    at.candidate(block)
    at.final(block)
    late, payload = a_post(at, (GOOD, AGGREGATOR), author=2, round_number=2)
    at.receive(PostMessage(late, payload))
    at.chain.contents[sha256(b"")] = b""
    posts = {item.sender: item for item in (*a_block(at).transactions, post(at.victim.key, at.genesis, 2, b""))}
    block = at.block(posts=[posts[sender] for sender in sorted(posts.keys() - {late.sender})])
    at.candidate(block)
    at.final(block)
    assert at.node.head.owed_to(late.key) is not None
    assert not held(at, late)
    send(at, GOOD, late.sender)
    assert held(at, late)


def test_a_node_does_not_fetch_parts_of_its_own_posts() -> None:
    """It lost its data, and hears its post from others; what its trainer wrote for it nobody else has."""
    at, payload = stage(), listing((GOOD, AGGREGATOR))
    own = post(at.victim.key, at.genesis, 1, payload)
    effects = at.receive(PostMessage(own, payload))
    assert held(at, own)
    assert asked([*effects, *at.wait(3)]) == []


def test_a_restart_drops_nothing_of_the_open_phase() -> None:
    at = stage()
    at.victim.parts[sha256(GOOD)] = GOOD  # its trainer has written it, and nobody knows the post yet
    at.restart()
    assert at.victim.parts


def test_a_node_that_lost_its_chain_drops_nothing_before_it_is_where_it_has_posted() -> None:
    """On its way there it sees what was known then, which does not list what it has sent since."""
    document = genesis(4, aggregator=AggregatorRule.FIXED)
    at = Stage(document, 0, NewestRules(document.members), contributes=False)
    blocks = list[Block]()
    for height in (1, 2, 3):
        blocks.append(a_block(at))
        at.candidate(blocks[-1])
        if height == 3:
            own = post(at.victim.key, document, 3, listing((GOOD, AGGREGATOR)))
            at.victim.journal = at.victim.journal.with_post(own)
            at.victim.parts[sha256(GOOD)] = GOOD
        else:
            at.final(blocks[-1])
    at.victim.store = MemoryStore()
    at.restart()
    for block in blocks[:2]:
        at.candidate(block)
        at.final(block)
        assert sha256(GOOD) in at.victim.parts
    at.candidate(blocks[2])
    at.final(blocks[2])
    assert sha256(GOOD) not in at.victim.parts, "the block does not count its post"


def test_a_part_that_was_fetched_before_a_restart_is_not_fetched_again() -> None:
    at = stage()
    item, payload = a_post(at, (GOOD, AGGREGATOR), (OTHER, AGGREGATOR))
    at.receive(PostMessage(item, payload))
    send(at, GOOD)
    at.restart()
    assert {*asked(at.receive(PostMessage(item, payload)))} == {sha256(OTHER)}
    send(at, OTHER)
    assert held(at, item)


def test_who_cannot_tell_does_not_demand_that_a_block_counts_a_post() -> None:
    reader, other = stage(0), stage(1)
    for at in (reader, other):
        item, payload = a_post(at, (GOOD, AGGREGATOR), author=-1)
        at.receive(PostMessage(item, payload))
        send(at, GOOD, item.sender)
        assert held(at, item)
        demanded = [*at.node._context.mempool.held_before((1, 0), at.now_ms + 1)]
        assert demanded == ([item.sender] if at is reader else [])
        assert at.node.insists_on(item) == (at is reader)


def test_who_reads_one_part_of_a_post_cannot_tell_about_the_others() -> None:
    at = stage(1)
    item, payload = a_post(at, (GOOD, EVERYBODY), (OTHER, AGGREGATOR), author=-1)
    at.receive(PostMessage(item, payload))
    send(at, GOOD, item.sender)
    assert held(at, item)
    assert [*at.node._context.mempool.held_before((1, 0), at.now_ms + 1)] == []
    assert not at.node.insists_on(item)


def chunk_alone(at: Stage, data: bytes) -> tuple[KeepPart, list[Effect]]:
    """A part comes from the peer that is asked, and the disk is slow: its job, and the effects that follow."""
    moment, effects = Moment(at.now_ms - CREATED_MS, at.now_ms), list[Effect]()
    for provider in (*at.others, *at.others, *at.others):  # a size that is a lie makes it begin again
        effects += at.node.handle(MessageReceived(provider, Chunk(sha256(data), 0, data)), moment)
    (job,) = (effect.job for effect in effects if isinstance(effect, Compute))
    assert isinstance(job, KeepPart)
    return job, effects


def test_who_contributes_waits_for_the_disk_too() -> None:
    at = stage()
    block = a_block(at)
    at.candidate(block)
    at.final(block)
    for number in (1, 2):
        send(at, part_of(number, 1), at.genesis.members[number])
    at.wait(PATIENCE_MS / 1_000 - 1)
    job, effects = chunk_alone(at, part_of(3, 1))
    assert not [item for item in (*effects, *at.wait(3)) if isinstance(item, Contribute)]
    assert job.data is not None
    at.victim.parts[job.part_hash] = job.data
    assert [item for item in at.handle(Computed(job, None)) if isinstance(item, Contribute)]


def test_what_the_knowledge_lists_is_fetched_again_after_a_lie_about_it() -> None:
    at = stage()
    lie = RECORD.pack(sha256(part_of(1, 1)), 1, AGGREGATOR)
    liar = post(at.chain.key(at.others[2]), at.genesis, 1, lie)
    at.receive(PostMessage(liar, lie))
    job, _ = chunk_alone(at, part_of(1, 1))
    assert job.post == liar
    block = a_block(at)
    at.candidate(block)
    at.final(block)
    refusal = InvalidPayload("part", "another size is listed")
    wanted = asked([*at.handle(Computed(job, refusal)), *at.tick(1)])
    assert sha256(part_of(1, 1)) in wanted


def test_a_part_that_the_disk_refuses_is_fetched_again_after_a_while() -> None:
    at = stage()
    item, payload = a_post(at, (GOOD, AGGREGATOR))
    at.receive(PostMessage(item, payload))
    job, _ = chunk_alone(at, GOOD)
    at.handle(Computed(job, LimitReached("disk", "no space left")))
    assert asked(at.wait(6)) == []
    assert sha256(GOOD) in asked(at.wait(4))
    send(at, GOOD)
    assert held(at, item)


def test_a_lie_about_the_size_of_a_large_part_is_no_fault_of_who_gives_it() -> None:
    at, data = stage(payload_size_max=2**10, inline_size_max=2**10), b"good" + bytes(5 * CHUNK_SIZE)
    lie = RECORD.pack(sha256(data), len(data) + 1, AGGREGATOR)
    liar = post(at.chain.key(at.others[0]), at.genesis, 1, lie)
    item, payload = a_post(at, (data, AGGREGATOR), author=1)
    effects = [*at.receive(PostMessage(liar, lie)), *at.receive(PostMessage(item, payload))]
    for effect in effects:  # which grow: every peer gives what it is asked for
        if isinstance(effect, Send) and isinstance(effect.message, GetContent):
            start = effect.message.offset
            effects += at.receive(Chunk(sha256(data), start, data[start : start + CHUNK_SIZE]), effect.peer)
    assert refused(effects) == []
    assert held(at, item)
    assert blamed(effects) == [(liar.sender, "InvalidPayload")]


def test_what_the_disk_is_about_to_drop_is_not_here() -> None:
    at = stage()
    for _ in range(2):
        block = a_block(at, reader=2)
        at.candidate(block)
        at.final(block)
    at.victim.parts[sha256(GOOD)] = GOOD  # it was listed long ago, and the disk is slow
    item, payload = a_post(at, (GOOD, AGGREGATOR), round_number=at.node.head.round)
    assert asked(at.receive(PostMessage(item, payload))) == [sha256(GOOD)]


def test_whoever_needs_parts_dials_everybody() -> None:
    document = genesis(20)
    assert limits_of(document, PartRules(document.members)).peers_wanted == 19
    assert limits_of(document, SumRules()).peers_wanted == 13, "twice as many as may lie, and one"
    small = genesis(7)
    assert limits_of(small, SumRules()) == Limits()


def test_a_disk_that_refuses_a_part_is_nobodys_fault_and_nothing_is_left_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    at = stage()
    item, payload = a_post(at, (GOOD, AGGREGATOR))
    at.receive(PostMessage(item, payload))
    job = KeepPart(at.node.head, item, payload, sha256(GOOD), GOOD)
    folder = PartFolder(tmp_path / "parts")

    def refuse(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("fedchain.learning.payload.part_folder.os.fsync", refuse)
    result = run_part(Checks(at.genesis, at.chain.rules), folder, job)
    assert isinstance(result, LimitReached)
    assert "No space left on device" in caplog.text
    assert folder.size_bytes() == 0
    effects = at.victim.handle(Computed(job, result), at.now_ms)
    assert blamed(effects) == []
    assert not held(at, item), "it counts as not posted"
    assert at.tick(1) is not None, "and the node goes on"


def test_a_question_for_a_chunk_does_not_read_all_of_a_stored_content(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whether it is a part was asked behind that: 16 MiB were read and hashed 64 times, on the loop, for one asker."""
    read, content = list[bytes](), MemoryStore.content

    def note(store: MemoryStore, content_hash: bytes) -> bytes | None:
        read.append(content_hash)
        return content(store, content_hash)

    monkeypatch.setattr(MemoryStore, "content", note)
    stage, data = Stage(genesis(4)), bytes(100)
    stage.victim.store.append([Contents({sha256(data): data})])
    effects = stage.receive(GetContent(sha256(data), 0))
    assert [effect.message for effect in effects if isinstance(effect, Send)] == [Chunk(sha256(data), 0, data)]
    assert sha256(data) not in read
