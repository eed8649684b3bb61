"""A node's blocks: when it mines, what it counts, and which posts it leaves out."""

from collections.abc import Sequence
from dataclasses import replace

import pytest

from fedchain.chain.difficulty import bits_from_attempts, work_from_bits
from fedchain.chain.exceptions import MethodFailed
from fedchain.chain.genesis import AggregatorRule
from fedchain.chain.knowledge import Occasion
from fedchain.crypto.hashing import Hash, sha256
from fedchain.crypto.keys import PublicKey
from fedchain.network.messages import CandidateMessage, Chunk, PostMessage
from fedchain.node.core.events import Mined
from tests.support.chain.builders import GLOBAL, UPDATE, SumRules, genesis, payload, post
from tests.support.chain.changes import living_genesis
from tests.support.node.driver import check_promises
from tests.support.node.stage import Stage, asked_to_contribute, asked_to_mine, blamed, published, refused

TIMEOUT_S = 60


def test_a_block_is_mined_when_everybody_expected_has_posted() -> None:
    stage = Stage(genesis(4))
    posts = stage.others_posts()
    assert not asked_to_mine(stage.post(*posts[:-1]))
    (mine,) = asked_to_mine(stage.post(posts[-1]))
    assert mine.header.miner == stage.me
    assert stage.node.is_mining(mine.header)
    (message,) = published(stage.mine([mine]), CandidateMessage)
    assert len(message.block.transactions) == 4
    check_promises(stage.victim)


def test_without_a_quorum_of_posts_nothing_is_mined_and_with_one_after_the_deadline() -> None:
    stage = Stage(genesis(4))
    posts = stage.others_posts()
    stage.post(posts[0])
    assert not asked_to_mine(stage.wait(3 * TIMEOUT_S))
    assert not asked_to_mine(stage.post(posts[1])), "the quorum came late: stragglers get a part of that time"
    effects = stage.wait(TIMEOUT_S)
    assert [len(published(stage.mine(effects), CandidateMessage)[0].block.transactions)] == [3]


def test_mining_begins_at_the_deadline_and_not_at_the_tick_after_it() -> None:
    stage = Stage(genesis(4))
    stage.post(*stage.others_posts()[:2])
    stage.now_ms += 1_000 * TIMEOUT_S - 1
    assert not asked_to_mine(stage.tick())
    stage.now_ms += 1
    assert asked_to_mine(stage.tick())


def test_mining_stops_when_a_candidate_counts_all() -> None:
    stage = Stage(genesis(4))
    (mine,) = asked_to_mine(stage.post(*stage.others_posts()))
    stage.candidate(stage.block())
    assert not stage.node.is_mining(mine.header)
    assert published(stage.mine([mine]), CandidateMessage) == []


def test_mining_goes_on_while_more_could_be_counted() -> None:
    stage = Stage(genesis(4))
    posts = stage.others_posts()
    stage.post(*posts[:2])
    (first,) = asked_to_mine(stage.wait(TIMEOUT_S))
    few = stage.block(without=[posts[2].sender])
    stage.candidate(few)
    assert not stage.node.is_mining(first.header)
    (second,) = asked_to_mine(stage.post(posts[2]))
    (message,) = published(stage.mine([second]), CandidateMessage)
    assert len(message.block.transactions) == 4


def test_a_header_that_is_not_the_draft_is_ignored() -> None:
    stage = Stage(genesis(4))
    (mine,) = asked_to_mine(stage.post(*stage.others_posts()))
    for wrong in (
        replace(mine.header, parent_hash=sha256(b"")),
        replace(mine.header, knowledge_root=sha256(b"")),
        replace(mine.header, miner=stage.others[0]),
        replace(mine.header, bits=mine.header.bits - 1),
        replace(mine.header, transactions_root=sha256(b"")),
    ):
        assert published(stage.handle(Mined(wrong)), CandidateMessage) == []
    assert published(stage.mine([mine]), CandidateMessage)


def test_a_node_mines_at_its_own_difficulty() -> None:
    stage = Stage(living_genesis(4, initial_bits=bits_from_attempts(64)))
    stage.accept(3)
    (mine,) = asked_to_mine(stage.post(*stage.others_posts()))
    head = stage.node.head
    assert mine.header.bits == head.bits_of(stage.me) != head.bits
    (message,) = published(stage.mine([mine]), CandidateMessage)
    assert work_from_bits(message.block.header.bits) < work_from_bits(head.bits_of(stage.others[0])) / 4


def test_who_is_silent_mines_nothing() -> None:
    stage = Stage(genesis(4), is_heard=False)
    assert not asked_to_mine([*stage.post(*stage.others_posts()), *stage.wait(3 * TIMEOUT_S)])
    stage.hear()
    assert asked_to_mine(stage.victim.effects)


def test_a_node_that_a_quorum_contradicts_mines_no_more() -> None:
    """The others would refuse each of its blocks for its other knowledge, and ban it for an hour after a dozen."""
    stage = Stage(genesis(4))
    theirs = stage.contradict()
    stage.receive(Chunk(sha256(theirs), 0, theirs))
    assert stage.node.is_contradicted()
    assert not asked_to_mine([*stage.post(*stage.others_posts()), *stage.wait(3 * TIMEOUT_S)])
    assert stage.node.draft() is None


def test_only_the_aggregator_mines_posts_in_a_centralized_federation() -> None:
    founding = genesis(4, centralized=True, aggregator=AggregatorRule.FIXED)
    for number, expected in ((0, True), (1, False)):
        stage = Stage(founding, number)
        assert bool(asked_to_mine(stage.post(*stage.others_posts()))) == expected


def test_without_its_aggregator_anybody_closes_the_phase_empty() -> None:
    stage = Stage(genesis(4, centralized=True, aggregator=AggregatorRule.FIXED), 1)
    assert not asked_to_mine([*stage.post(*stage.others_posts()), *stage.wait(2 * TIMEOUT_S - 1)])
    effects = stage.wait(2)
    (message,) = published(stage.mine(effects), CandidateMessage)
    assert message.block.transactions == ()


def test_a_phase_of_the_aggregator_is_its_post_alone() -> None:
    founding = genesis(4, phases=(UPDATE, GLOBAL), aggregator=AggregatorRule.FIXED)
    aggregator, other = Stage(founding, 0), Stage(founding, 1)
    for stage in (aggregator, other):
        stage.accept()
        assert (1, 1) in asked_to_contribute(stage.victim.effects) or stage is other
    assert asked_to_mine(aggregator.victim.effects)
    (mine,) = asked_to_mine(other.post(*other.others_posts()))
    assert other.node.is_mining(mine.header)


# --- posts that the method let pass and cannot aggregate


class Picky(SumRules):
    """Its check is not total: it lets payloads pass that it cannot aggregate."""

    def __init__(self, limit: int, error: Exception | None = None) -> None:
        self.limit, self.error = limit, error or ValueError("too much")

    def aggregate(self, occasion: Occasion, knowledge: bytes, posts: Sequence[tuple[PublicKey, bytes]]) -> bytes:
        if sum(int.from_bytes(data[:4], "little") for _, data in posts) > self.limit:
            raise self.error
        return super().aggregate(occasion, knowledge, posts)


def test_a_post_that_cannot_be_aggregated_is_left_out_and_its_author_is_to_blame() -> None:
    stage = Stage(genesis(4), rules=Picky(1_000))
    culprit = stage.others[0]
    bad = post(stage.chain.key(culprit), stage.genesis, 1, payload(5_000))
    stage.receive(PostMessage(bad, payload(5_000)))
    effects = stage.post(*(item for item in stage.others_posts() if item.sender != culprit))
    assert blamed(effects) == [(culprit, "InvalidPayload")]
    effects = stage.wait(TIMEOUT_S)
    (message,) = published(stage.mine(effects), CandidateMessage)
    assert culprit not in {item.sender for item in message.block.transactions}
    assert refused(stage.receive(PostMessage(bad, payload(5_000)))) == ["AlreadyKnown"]


def test_a_post_that_the_method_s_own_code_fails_on_is_left_out_and_nobody_is_to_blame() -> None:
    stage = Stage(genesis(4), rules=Picky(1_000, MethodFailed("method", "boom")))
    sender = stage.others[0]
    bad = post(stage.chain.key(sender), stage.genesis, 1, payload(5_000))
    stage.receive(PostMessage(bad, payload(5_000)))
    effects = stage.post(*(item for item in stage.others_posts() if item.sender != sender))
    effects += stage.wait(TIMEOUT_S)
    assert blamed(effects) == []
    (message,) = published(stage.mine(effects), CandidateMessage)
    assert len(message.block.transactions) == 3
    assert sender not in {item.sender for item in message.block.transactions}


def test_a_post_whose_check_fails_is_looked_at_once_and_a_second_one_is_a_crime_all_the_same() -> None:
    looked: list[bytes] = []

    class Failing(SumRules):
        def check(self, occasion: Occasion, sender: PublicKey, knowledge: bytes, payload: bytes) -> None:
            if int.from_bytes(payload[:4], "little") >= 5_000:
                looked.append(payload)
                raise MethodFailed("method", "boom")

    stage = Stage(genesis(4), rules=Failing())
    sender = stage.others[0]
    first, second = (post(stage.chain.key(sender), stage.genesis, 1, payload(value)) for value in (5_000, 6_000))
    assert refused(stage.receive(PostMessage(first, payload(5_000)))) == []
    for _ in range(3):
        assert refused(stage.receive(PostMessage(first, payload(5_000)))) == ["AlreadyKnown"]
    assert looked == [payload(5_000)]
    effects = stage.receive(PostMessage(second, payload(6_000)))
    assert (refused(effects), blamed(effects)) == (["Equivocation"], [])


def test_where_posts_only_do_not_fit_together_nobody_is_to_blame() -> None:
    stage = Stage(genesis(4), rules=Picky(9))
    effects = stage.post(*stage.others_posts())
    effects += stage.wait(TIMEOUT_S)
    assert blamed(effects) == []
    (message,) = published(stage.mine(effects), CandidateMessage)
    assert len(message.block.transactions) == 3


# --- memory


def test_knowledge_is_read_from_the_store_once_after_a_restart(monkeypatch: pytest.MonkeyPatch) -> None:
    stage = Stage(genesis(4))
    stage.accept()
    root = stage.node.head.knowledge_root
    reads: list[bytes] = []
    read = stage.victim.store.content

    def counted(content_hash: Hash) -> bytes | None:
        reads.append(content_hash)
        return read(content_hash)

    monkeypatch.setattr(stage.victim.store, "content", counted)
    stage.restart()
    stage.wait(20)
    assert reads.count(root) == 1
