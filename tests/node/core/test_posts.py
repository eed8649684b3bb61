"""Posts and their payloads: what gets into the mempool, when, and who is to blame for what does not."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from fedchain.chain.membership.change import propose_recovery, sign_rekey
from fedchain.chain.post import Post, sign_post
from fedchain.chain.state import State
from fedchain.crypto.hashing import Hash, sha256
from fedchain.network.messages import (
    CHUNK_SIZE,
    FINALS_SIZE_MAX,
    Chunk,
    EvidenceMessage,
    GetContent,
    GetPosts,
    PostMessage,
)
from fedchain.network.source import STALL_MS
from fedchain.node.core.effects import Compute, Effect, Persist, Send
from fedchain.node.core.events import Computed, MessageReceived, Moment
from fedchain.node.core.jobs import CheckPost, Knowledge, Recompute
from fedchain.node.core.posts import Arrival, taken_in_lulls
from fedchain.node.core.voting import vote_policy
from fedchain.node.core.voting.vote_policy import patience_ends_ms
from tests.support.chain.builders import CREATED_MS, UPDATE, genesis, keys, payload, post
from tests.support.chain.changes import approved, living_genesis
from tests.support.node.driver import BlobRules, SmallBlobRules
from tests.support.node.stage import Stage, blamed, published, refused, sent

JUNK = b"not eight numbers"


def _post(stage: Stage, number: int = 0, data: bytes | None = None, round_number: int = 1, phase: int = 0) -> Post:
    data = payload(number + 1) if data is None else data
    return post(stage.chain.key(stage.others[number]), stage.genesis, round_number, data, phase=phase)


def _held(stage: Stage, item: Post) -> bool:
    return stage.node._context.mempool.get((item.round, item.phase), item.sender) == item


# --- taken


def test_a_post_with_its_payload_is_held_and_known_from_then_on() -> None:
    stage = Stage(genesis(4))
    item = _post(stage)
    assert refused(stage.receive(PostMessage(item, payload(1)))) == []
    assert _held(stage, item)
    assert refused(stage.receive(PostMessage(item, payload(1)))) == ["AlreadyKnown"]


def test_a_payload_is_fetched_from_who_sent_the_post() -> None:
    stage = Stage(genesis(4))
    item = _post(stage)
    assert sent(stage.receive(PostMessage(item, None)), GetContent) == [GetContent(item.payload_hash, 0)]
    assert not _held(stage, item)
    stage.receive(Chunk(item.payload_hash, 0, payload(1)))
    assert _held(stage, item)


def test_a_payload_that_its_provider_does_not_send_is_asked_of_others() -> None:
    stage = Stage(genesis(4))
    item = _post(stage)
    stage.receive(PostMessage(item, None))
    asked = {
        effect.peer
        for _ in range(6)
        for effect in stage.tick(STALL_MS / 1_000)
        if isinstance(effect, Send) and effect.message == GetContent(item.payload_hash, 0)
    }
    assert asked == {*stage.others}


def test_who_asks_for_a_payload_that_is_on_its_way_gets_it_when_it_is_here() -> None:
    stage = Stage(genesis(4))
    item = _post(stage)
    stage.receive(PostMessage(item, None))
    assert sent(stage.receive(GetContent(item.payload_hash, 0), stage.others[0]), Chunk) == []
    effects = stage.receive(Chunk(item.payload_hash, 0, payload(1)))
    assert Send(stage.others[0], Chunk(item.payload_hash, 0, payload(1))) in effects
    nothing = sha256(b"nothing")
    assert sent(stage.receive(GetContent(nothing, 5)), Chunk) == [Chunk(nothing, 5, b"")]


# --- early


def test_posts_of_coming_phases_are_checked_when_their_phase_opens() -> None:
    stage = Stage(genesis(4))
    early = _post(stage, round_number=2)
    effects = stage.receive(PostMessage(early, payload(1)))
    assert not [effect for effect in effects if isinstance(effect, Compute)]
    assert refused(stage.receive(PostMessage(early, payload(1)))) == ["AlreadyKnown"]
    assert not _held(stage, early)
    stage.accept()
    assert _held(stage, early)


def test_posts_of_closed_and_of_far_rounds_are_not_taken() -> None:
    stage = Stage(genesis(4))
    stage.accept(2)
    for round_number, expected in ((1, ["OutOfWindow"]), (2, ["OutOfWindow"]), (3, []), (4, []), (5, ["OutOfWindow"])):
        item = _post(stage, round_number=round_number)
        assert refused(stage.receive(PostMessage(item, payload(1)))) == expected


def test_a_member_has_room_for_one_post_in_each_phase() -> None:
    stage = Stage(genesis(4, phases=(UPDATE, UPDATE)))
    for number in range(20):
        for round_number in (1, 2):
            for phase in (0, 1):
                item = _post(stage, data=payload(number), round_number=round_number, phase=phase)
                found = refused(stage.receive(PostMessage(item, payload(number))))
                assert found == (["Equivocation"] if number else [])
    assert len(stage.node._parts.posts._under_way) == 3, "the open phase's is in the mempool"


def _without_knowledge() -> tuple[Stage, Post]:
    """A node whose head was decided without it, so that it does not know what its posts are judged by."""
    stage = Stage(genesis(4))
    block = stage.block()
    assert GetContent(block.header.knowledge_root, 0) in sent(stage.final(block), GetContent), "it asks at once"
    assert stage.node.knowledge() is None
    item = _post(stage, round_number=2)
    assert refused(stage.receive(PostMessage(item, payload(1)))) == []
    assert not _held(stage, item)
    return stage, item


def test_posts_wait_for_the_knowledge_that_they_are_judged_by() -> None:
    stage, item = _without_knowledge()
    root = stage.node.head.knowledge_root
    stage.receive(Chunk(root, 0, stage.chain.contents[root]))
    assert _held(stage, item)


def test_posts_wait_no_longer_when_the_knowledge_was_computed_here_after_all() -> None:
    stage, item = _without_knowledge()
    job = Recompute(stage.chain.states[stage.genesis.chain_id], (), {})
    root = stage.node.head.knowledge_root
    effects = stage.handle(Computed(job, Knowledge(root, stage.chain.contents[root])))
    assert [effect for effect in effects if isinstance(effect, Persist)]
    assert _held(stage, item)


def test_knowledge_that_was_fetched_outlives_a_restart() -> None:
    """Else every restart would cost a download before the member posts again."""
    stage, _ = _without_knowledge()
    root = stage.node.head.knowledge_root
    stage.receive(Chunk(root, 0, stage.chain.contents[root]))
    stage.restart()
    assert stage.node.knowledge() == stage.chain.contents[root]


def test_early_posts_end_with_their_phase_although_nobody_could_look_at_them() -> None:
    stage, item = _without_knowledge()
    assert stage.node._parts.posts.waiting_payloads() == {item.payload_hash}
    stage.final(stage.block())
    assert stage.node.head.round == 3
    assert stage.node._parts.posts.waiting_payloads() == set()


def test_a_post_that_waits_for_its_payload_ends_with_its_sender_s_key() -> None:
    """Two other keys in one round, and nobody has a seat for the first one: no status could be answered any more."""
    stage = Stage(living_genesis(5, phases=(UPDATE, replace(UPDATE, name="second"))))
    stage.accept(2)
    first, second, third = keys(8)[3], keys(8)[6], keys(8)[7]
    early = post(first, stage.genesis, 3, payload(1))
    stage.receive(PostMessage(early, None))
    assert dict(stage.node.sizes())["posts without payloads"] == 1
    chain_id = stage.genesis.chain_id
    stage.final(stage.block(changes=(sign_rekey(first, second, chain_id, sequence=0, until=50),)))
    assert dict(stage.node.sizes())["posts without payloads"] == 0, "the former key speaks for its member no more"
    recovery = propose_recovery(first.public_key, third, chain_id, "", sequence=0, until=50)
    stage.final(stage.block(changes=(approved(stage.chain, recovery),)))
    assert (stage.node.head.round, stage.node.head.phase) == (3, 0)
    assert first.public_key not in stage.node.head.roster.seats
    stage.receive(Chunk(early.payload_hash, 0, payload(1)))
    stage.wait(2)
    stage.hear()
    assert not stage.node.holds(early)


def test_a_check_that_ends_after_its_sender_s_key_was_replaced_leaves_nothing_behind() -> None:
    stage = Stage(living_genesis(5, phases=(UPDATE,), late_rounds=2), contributes=False)
    stage.accept()
    key, following = keys(8)[3], keys(8)[6]
    late, data = post(key, stage.genesis, 2, payload(1)), payload(1)
    knowledge = stage.node.knowledge()
    assert knowledge is not None
    job = CheckPost(stage.node.head, knowledge, late, data)
    change = sign_rekey(key, following, stage.genesis.chain_id, sequence=0, until=50)
    stage.final(stage.block(without=[key.public_key], changes=(change,)))
    assert stage.node.head.owed_to(late.key) is not None, "its member may post it anew"
    stage.handle(Computed(job, None))
    assert not stage.node.holds(late)


def test_a_check_that_ends_after_its_phase_leaves_nothing_behind() -> None:
    stage = Stage(genesis(4))
    item = next(post for post in stage.chain.posts() if post.sender == stage.others[0])
    message = PostMessage(item, stage.chain.contents[item.payload_hash])
    moment = Moment(stage.now_ms - CREATED_MS, stage.now_ms)
    effects = stage.node.handle(MessageReceived(stage.relay, message), moment)
    (job,) = [effect.job for effect in effects if isinstance(effect, Compute)]
    assert stage.node._parts.posts.waiting_payloads() == {item.payload_hash}
    stage.accept()
    assert stage.node._parts.posts.waiting_payloads() == set()
    stage.handle(Computed(job, None))
    assert stage.node._context.mempool.get((1, 0), item.sender) is None


# --- not taken


def test_for_a_payload_of_nonsense_its_author_is_to_blame() -> None:
    stage = Stage(genesis(4))
    item = _post(stage, data=JUNK)
    effects = stage.receive(PostMessage(item, JUNK))
    assert (refused(effects), blamed(effects)) == ([], [(item.sender, "InvalidPayload")])
    assert not _held(stage, item)


@pytest.mark.parametrize("data", [JUNK, None])
def test_a_refused_payload_is_looked_at_once(data: bytes | None) -> None:
    """Each small message that passes the post on would otherwise cost a look at a payload of any size."""
    stage = Stage(genesis(4))
    item = _post(stage, data=JUNK)
    stage.receive(PostMessage(item, JUNK))
    effects = stage.receive(PostMessage(item, data))
    assert refused(effects) == ["AlreadyKnown"]
    assert not [effect for effect in effects if isinstance(effect, Compute | Send)]
    assert refused(stage.receive(PostMessage(_post(stage), payload(1)))) == ["Equivocation"], "it has spoken"
    stage.accept()
    assert stage.node._context.mempool.useless == {}


def test_a_payload_that_no_check_lets_pass_for_its_size_is_not_fetched() -> None:
    """A liar would otherwise have each member fetch as much in each round as the largest payload of any method has."""
    stage = Stage(genesis(4, inline_size_max=0), rules=SmallBlobRules(), contributes=False)
    large, small = _post(stage, data=bytes(101)), _post(stage, 1, data=bytes(100))
    effects = stage.receive(PostMessage(large, None))
    assert blamed(effects) == [(large.sender, "InvalidPayload")]
    assert sent([*effects, *stage.wait(10)], GetContent) == []
    assert refused(stage.receive(PostMessage(large, None))) == ["AlreadyKnown"]
    assert sent(stage.receive(PostMessage(small, None)), GetContent)[0] == GetContent(small.payload_hash, 0)


def test_a_post_that_was_refused_before_its_phase_opened_is_known_in_it() -> None:
    stage = Stage(genesis(4, inline_size_max=0))
    key, data = stage.chain.key(stage.others[0]), payload(1)
    unsigned = Post(2, 0, key.public_key, sha256(data), 7, bytes(64))
    lie = replace(unsigned, signature=key.sign(unsigned.signing_message(stage.genesis.chain_id)))
    stage.receive(PostMessage(lie, None))
    effects = [effect for _ in range(2) for effect in stage.receive(Chunk(lie.payload_hash, 0, data))]
    assert blamed(effects) == [(lie.sender, "InvalidPayload")]
    stage.accept()
    assert stage.node.head.round == 2
    assert refused(stage.receive(PostMessage(lie, None))) == ["AlreadyKnown"]
    effects = stage.receive(PostMessage(_post(stage, round_number=2), payload(1)))
    assert [message.evidence.culprit for message in published(effects, EvidenceMessage)] == [lie.sender]


def test_for_a_forged_post_who_sent_it_is_to_blame() -> None:
    stage = Stage(genesis(4))
    before = stage.digest()
    one, two = _post(stage), _post(stage, 1)
    for forged in (
        Post(1, 0, one.sender, one.payload_hash, 32, two.signature),
        Post(1, 0, bytes(32), one.payload_hash, 32, one.signature),
    ):
        effects = stage.receive(PostMessage(forged, payload(1)))
        assert (refused(effects), blamed(effects)) == (["InvalidSignature"], [])
    assert refused(stage.receive(PostMessage(one, payload(2)))) == ["InvalidPayload"], "a relay adds the payload"
    assert stage.digest() == before


def test_a_post_that_can_never_be_counted_is_refused() -> None:
    stage = Stage(genesis(4, payload_size_max=32, inline_size_max=32))
    """Its author is blamed, and its sender may have known less."""
    for item in (_post(stage, phase=1), _post(stage, data=bytes(33))):
        effects = stage.receive(PostMessage(item, None))
        assert (refused(effects), len(blamed(effects))) == (["OutOfWindow"], 1)


def test_for_a_wrong_size_its_author_is_to_blame_and_not_who_has_the_payload() -> None:
    """A member that copies another's hash and lies about the size would else have honest providers banned."""
    stage = Stage(genesis(4))
    honest = _post(stage, 1)
    key = stage.chain.key(stage.others[0])
    copied = sign_post(key, stage.genesis.chain_id, 1, 0, payload(2))
    lie = Post(1, 0, copied.sender, copied.payload_hash, 7, bytes(64))
    lie = Post(1, 0, copied.sender, copied.payload_hash, 7, key.sign(lie.signing_message(stage.genesis.chain_id)))
    stage.receive(PostMessage(lie, None))
    stage.receive(PostMessage(honest, None))
    effects = stage.receive(Chunk(honest.payload_hash, 0, payload(2)))
    assert (refused(effects), {*sent(effects, GetContent)}) == ([], {GetContent(honest.payload_hash, 0)})
    effects = stage.receive(Chunk(honest.payload_hash, 0, payload(2)))
    assert refused(effects) == []
    assert blamed(effects) == [(lie.sender, "InvalidPayload")]
    assert _held(stage, honest)


def test_a_byte_at_a_time_is_not_a_download() -> None:
    stage = Stage(genesis(4, inline_size_max=0), rules=BlobRules(), contributes=False)
    data = bytes(2 * CHUNK_SIZE)
    item = _post(stage, data=data)
    stage.receive(PostMessage(item, None))
    found = [refused(stage.receive(Chunk(item.payload_hash, 0, b"\x00"))) for _ in range(2)]
    assert found == [[], ["InvalidPayload"]], "the size may be a lie of who signed it; the hash is none"


# --- told


def test_one_question_for_posts_costs_a_bounded_number_of_bytes() -> None:
    size = 64 * 2**10
    stage = Stage(genesis(20), rules=BlobRules(), contributes=False)
    for number in range(19):
        data = bytes([number + 1]) * size
        stage.receive(PostMessage(_post(stage, number, data), data))
    answers = sent(stage.receive(GetPosts(1, 0, stage.holds(*stage.others))), PostMessage)
    assert 1 < len(answers) <= FINALS_SIZE_MAX // size
    (first,) = sent(stage.receive(GetPosts(1, 0, stage.holds(stage.others[7]))), PostMessage)
    assert first.post.sender == stage.others[7]


def test_posts_are_asked_of_whoever_shows_more_than_we_hold() -> None:
    stage = Stage(genesis(4), contributes=False)
    stage.receive(PostMessage(_post(stage), payload(1)))
    (asked,) = sent(stage.receive(stage.status(posts=stage.holds(*stage.others))), GetPosts)
    assert asked == GetPosts(1, 0, stage.holds(*stage.others[1:]))


def checks(effects: list[Effect]) -> int:
    """How many payloads are looked at."""
    return sum(isinstance(item, Compute) and isinstance(item.job, CheckPost) for item in effects)


def test_nothing_is_published_twice_or_for_others() -> None:
    stage = Stage(genesis(4))
    effects = stage.receive(PostMessage(_post(stage), payload(1)))
    assert (checks(effects), published(effects, PostMessage)) == (1, [])


# --- in a lull


class _Good:
    """Another node of the process found all of these good, at every head."""

    def __init__(self, *messages: PostMessage) -> None:
        self.payloads = {item.post.hash: item.payload for item in messages if item.payload is not None}

    def note(self, state: State, post: Post, payload: bytes) -> None:
        self.payloads[post.hash] = payload

    def at(self, state: State) -> dict[Hash, bytes]:
        return self.payloads


def _in_a_lull(members: int = 7, version: int = 2) -> tuple[Stage, list[PostMessage]]:
    """A node that has a first post, and others' posts for it, which are known to be good."""
    stage = Stage(living_genesis(members) if version > 2 else genesis(members), contributes=False)
    posts = [PostMessage(item, stage.chain.contents[item.payload_hash]) for item in stage.others_posts()]
    stage.node._parts.posts._good = _Good(*posts)
    stage.receive(posts[0])
    return stage, posts[1:]


def _takes(stage: Stage, message: PostMessage, later_ms: int = 0) -> bool:
    arrival = Arrival(message.post, message.payload, stage.node._context.now.ms + later_ms)
    return taken_in_lulls(arrival, (0,), 0, (stage.node.lull(),)) == 1


@pytest.mark.parametrize("version", [2, 3])
def test_good_posts_are_taken_in_a_lull_up_to_the_one_that_makes_a_difference(version: int) -> None:
    stage, posts = _in_a_lull(version=version)
    required = stage.node.posts_required()
    assert [_takes(stage, item) for item in posts] == [True] * (required - 2) + [False] * (len(posts) - required + 2)
    assert all(stage.node.holds(item.post) for item in posts[: required - 2])
    assert [stage.node.content(item.post.payload_hash) for item in posts[:2]] == [item.payload for item in posts[:2]]
    assert stage.node._context.clock.quorum_ms is None
    stage.tick(0.5)
    stage.receive(posts[required - 2])
    assert stage.node._context.clock.quorum_ms == 500
    assert refused(stage.receive(posts[0])) == ["AlreadyKnown"]


def test_what_is_not_known_to_be_good_is_no_matter_of_a_lull() -> None:
    stage, (first, second, *_) = _in_a_lull()
    assert first.payload is not None
    copy = PostMessage(first.post, bytes(bytearray(first.payload)))
    unknown = PostMessage(_post(stage, 3, payload(99)), payload(99))
    late = PostMessage(_post(stage, 3, round_number=2), payload(4))
    own = PostMessage(post(stage.chain.key(stage.me), stage.genesis, 1, payload(1)), payload(1))
    for item in (late, own):
        stage.node._parts.posts._good.note(stage.node.head, item.post, item.payload or b"")
    for item in (copy, unknown, late, own, replace(first, payload=None)):
        assert not _takes(stage, item)
    unknown_too = replace(unknown, payload=None)
    assert not _takes(stage, unknown_too), "nothing is known of it, and nothing came with it"
    assert _takes(stage, first), "all of that left the lull as it was"
    assert _takes(stage, second)
    assert not _takes(stage, first), "it is held"


def test_a_second_post_of_a_member_is_a_crime_in_a_lull_too() -> None:
    stage, (first, *_) = _in_a_lull()
    assert _takes(stage, first)
    other = PostMessage(post(stage.chain.key(first.post.sender), stage.genesis, 1, payload(99)), payload(99))
    stage.node._parts.posts._good.note(stage.node.head, other.post, other.payload or b"")
    assert not _takes(stage, other)
    assert refused(stage.receive(other)) == ["Equivocation"]


def _early(stage: Stage, posts: list[PostMessage]) -> None:
    early = _post(stage, 2, round_number=2)
    stage.receive(PostMessage(early, payload(3)))


def _refused(stage: Stage, posts: list[PostMessage]) -> None:
    stage.receive(PostMessage(_post(stage, 5, JUNK), JUNK))


def _awaited(stage: Stage, posts: list[PostMessage]) -> None:
    stage.receive(PostMessage(_post(stage, 5), None))


def _wanted(stage: Stage, posts: list[PostMessage]) -> None:
    stage.node._context.contents._askers[posts[0].post.payload_hash] = {}


def _a_candidate(stage: Stage, posts: list[PostMessage]) -> None:
    stage.candidate(stage.block(), payloads=False)


def _of_parts(stage: Stage, posts: list[PostMessage]) -> None:
    stage.node._parts.bulk.is_used = True


@pytest.mark.parametrize("happens", [_early, _refused, _awaited, _wanted, _a_candidate, _of_parts])
def test_no_lull_while_anything_is_under_way_that_a_post_could_meet(
    happens: Callable[[Stage, list[PostMessage]], None],
) -> None:
    stage, posts = _in_a_lull()
    stage.tick(1)
    assert _takes(stage, posts[1])
    happens(stage, posts)
    stage.tick()
    assert not _takes(stage, posts[0])


def test_no_lull_before_the_knowledge_is_here_that_posts_are_judged_by() -> None:
    stage = Stage(genesis(7), contributes=False)
    stage.final(stage.block())
    posts = [PostMessage(_post(stage, number, round_number=2), payload(number + 1)) for number in range(2)]
    stage.node._parts.posts._good = _Good(*posts)
    stage.tick(1)
    assert stage.node.knowledge() is None
    assert not _takes(stage, posts[0])
    root = stage.node.head.knowledge_root
    stage.receive(Chunk(root, 0, stage.chain.contents[root]))
    assert _takes(stage, posts[0])


def test_a_lull_ends_with_patience_and_with_the_phase() -> None:
    stage, posts = _in_a_lull()
    for item in posts[:-1]:
        stage.receive(item)
    assert stage.node._context.clock.quorum_ms is not None, "what is missing is waited for"
    left_ms = patience_ends_ms(stage.node._context) - stage.node._context.now.ms
    assert not _takes(stage, posts[-1], left_ms)
    stage.accept()
    assert not _takes(stage, posts[-1])
    stage, posts = _in_a_lull()
    for item in posts[:-1]:
        stage.receive(item)
    assert _takes(stage, posts[-1], left_ms - 1)


def test_the_post_that_is_waited_for_longest_is_no_matter_of_a_lull(monkeypatch: pytest.MonkeyPatch) -> None:
    stage, (*first, patient, other) = _in_a_lull(10, version=3)
    granted = {patient.post.sender: 30_000, other.post.sender: 1_000, stage.me: 500}
    monkeypatch.setattr(vote_policy, "patience_of", lambda state: granted)
    for item in first:
        stage.receive(item)
    assert stage.node._context.clock.quorum_ms is not None
    assert not _takes(stage, patient), "without it, less is waited for"
    assert _takes(stage, other)


def test_nodes_in_lulls_take_a_post_in_turn_up_to_the_first_that_does_not() -> None:
    stages = [_in_a_lull()[0] for _ in range(5)]
    message = _in_a_lull()[1][0]
    for stage in (*stages[:3], stages[4]):  # at the head of the other one, nobody has found it good
        stage.node._parts.posts._good = _Good(message)
    stages[1].receive(message)
    lulls = [stage.node.lull() for stage in stages]
    arrival = Arrival(message.post, message.payload, 0)
    rounds = [(2, 0), (0, 1), (4, 3), (3, 0)]
    assert [taken_in_lulls(arrival, numbers, 0, lulls) for numbers in rounds] == [2, 0, 1, 0]
    assert taken_in_lulls(arrival, (1, 0, 2), 1, [None, *lulls[1:]]) == 1
    assert [stage.node.holds(message.post) for stage in stages] == [True, True, True, False, True]


def test_what_posts_in_a_lull_leave_is_there_whoever_asks_the_node() -> None:
    stage, posts = _in_a_lull()
    held = dict(stage.node.sizes())
    since_ms = stage.node._context.now.ms + 7
    for item, asked in zip(posts, ("content", "sizes", "waiting"), strict=False):
        lull = stage.node.lull()
        assert _takes(stage, item, 7)
        if asked == "content":
            assert stage.node.content(item.post.payload_hash) == item.payload
        elif asked == "sizes":
            found = dict(stage.node.sizes())
            assert [found[name] - held[name] for name in ("posts", "contents")] == [2, 2]
        else:
            assert item.post.sender not in stage.node.waiting_for()
        assert lull.is_over
        assert not taken_in_lulls(Arrival(posts[-1].post, posts[-1].payload, 0), (0,), 0, (lull,))
        assert item.post.sender in stage.node._context.mempool.held_by(stage.node._context.phase, since_ms)
        assert item.post.sender not in stage.node._context.mempool.held_by(stage.node._context.phase, since_ms - 1)
