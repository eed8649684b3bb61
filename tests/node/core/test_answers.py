"""Answers: what was asked for and nothing else, bounded in number and bytes, however much is held."""

from dataclasses import replace

import pytest

from fedchain.chain.block import Block
from fedchain.chain.membership.change import sign_rekey
from fedchain.chain.vote import NIL
from fedchain.crypto.hashing import sha256
from fedchain.crypto.keys import PublicKey
from fedchain.network.messages import (
    CandidateMessage,
    CertificateMessage,
    Chunk,
    FinalMessage,
    GetCandidate,
    GetCertificate,
    GetContent,
    GetFinal,
    GetPayloads,
    GetPosts,
    GetVotes,
    Payloads,
    PostMessage,
    Status,
    VoteMessage,
)
from fedchain.node.core import answers
from fedchain.node.core.events import Computed
from fedchain.node.core.jobs import Job
from tests.support.chain.builders import genesis, keys, payload, post
from tests.support.chain.changes import living_genesis
from tests.support.node.stage import PREVOTE, Stage, sent

MANY = 70
"""Members, more than one answer holds votes or posts of."""


def _chain(stage: Stage, height: int) -> list[Block]:
    return [stage.accept()[0] for _ in range(height)]


@pytest.mark.parametrize(
    ("first", "asked", "answered"), [(1, 2**16, 16), (1, 3, 3), (1, 0, 0), (15, 16, 6), (21, 1, 0)]
)
def test_at_most_sixteen_final_blocks_are_handed_out_at_once(first: int, asked: int, answered: int) -> None:
    stage = Stage(genesis(1))
    blocks = _chain(stage, 20)
    found = sent(stage.receive(GetFinal(first, asked)), FinalMessage)
    assert [answer.block for answer in found] == blocks[first - 1 : first - 1 + answered]


def test_at_most_64_votes_are_handed_out_at_once() -> None:
    stage = Stage(genesis(MANY))
    stage.vote(NIL, stage.others)
    question = GetVotes(1, PREVOTE, 0, stage.holds(*stage.others))
    first = [answer.vote.voter for answer in sent(stage.receive(question), VoteMessage)]
    rest = [member for member in stage.others if member not in first]
    question = GetVotes(1, PREVOTE, 0, stage.holds(*rest))
    then = [answer.vote.voter for answer in sent(stage.receive(question), VoteMessage)]
    assert (len(first), set(then)) == (64, set(rest)), "a peer that asks again gets the others"


def test_a_peer_that_forgot_its_post_is_sent_it_although_the_payload_never_came() -> None:
    """No status shows the post; the peer would sign another one, and be convicted for both."""
    stage = Stage(genesis(4, inline_size_max=0), contributes=False)
    said, *_ = stage.others_posts()
    author, other = said.sender, stage.others[-1]
    assert author != other
    stage.receive(PostMessage(said, None), author)
    assert sent(stage.receive(stage.status(), author), PostMessage) == [PostMessage(said, None)]
    told = stage.receive(stage.status(posts=stage.holds(author)), author)
    told += stage.receive(stage.status(), other) + stage.receive(stage.status(head_hash=bytes(32)), author)
    told += stage.receive(Chunk(said.payload_hash, 0, stage.chain.contents[said.payload_hash]), author)
    assert stage.node.holds(said), "from now on it is asked for"
    told += stage.receive(stage.status(), author)
    assert sent(told, PostMessage) == []


@pytest.mark.parametrize("is_useless", [False, True])
def test_a_peer_that_forgot_its_post_is_sent_it_while_it_is_checked_and_if_it_is_useless(is_useless: bool) -> None:
    """Checks may queue up for longer than a peer listens for its own key."""
    stage, jobs = Stage(genesis(4), contributes=False), list[Job]()
    stage.victim._verbs = replace(stage.victim._verbs, compute=jobs.append)
    author, other = stage.others[0], stage.others[1]
    data = b"no payload of the method's" if is_useless else payload(1)
    said = post(stage.chain.key(author), stage.genesis, 1, data)
    stage.receive(PostMessage(said, data), author)
    (job,) = jobs
    for _ in range(2):
        assert sent(stage.receive(stage.status(), author), PostMessage) == [PostMessage(said, None)]
        assert sent(stage.receive(stage.status(), other), PostMessage) == []
        if is_useless:
            stage.handle(Computed(job, stage.node._context.checks.run(job)))
    assert sent(stage.receive(stage.status(posts=stage.holds(author)), author), PostMessage) == []
    stage.handle(Computed(job, stage.node._context.checks.run(job)))
    assert stage.node.holds(said) != is_useless


@pytest.mark.parametrize("has_come", [True, False])
def test_a_peer_that_forgot_what_it_said_ahead_of_us_is_sent_that(has_come: bool) -> None:
    """It alone had the block, and lost it with its memory: until we go on, no status of ours shows what it said."""
    stage = Stage(genesis(4, inline_size_max=0), contributes=False)
    author, other = stage.others[0], stage.others[1]
    said = post(stage.chain.key(author), stage.genesis, 2, payload(1))
    vote = stage.a_vote(author, sha256(b"a block of the next height"), PREVOTE, height=2)
    stage.receive(PostMessage(said, payload(1) if has_come else None), author)
    stage.receive(VoteMessage(vote), author)
    for posts in (b"", stage.holds(author)):
        effects = stage.receive(stage.status(posts=posts), author)
        assert sent(effects, PostMessage) == [PostMessage(said, None)]
        assert sent(effects, VoteMessage) == [VoteMessage(vote)]
    told = stage.receive(stage.status(), other) + stage.receive(stage.status(head_hash=bytes(32)), author)
    stage.accept()
    told += stage.receive(Chunk(said.payload_hash, 0, payload(1)), author)
    told += stage.receive(stage.status(), author)
    assert not sent(told, PostMessage) + sent(told, VoteMessage), "from now on both are shown"
    assert stage.node.holds(said)


def test_at_most_64_posts_are_handed_out_at_once() -> None:
    stage = Stage(genesis(MANY))
    stage.post(*stage.chain.posts(members=stage.others))
    question = GetPosts(1, 0, stage.holds(*stage.others))
    assert len(sent(stage.receive(question), PostMessage)) == 64


def test_the_states_before_the_last_eight_blocks_are_handed_out() -> None:
    """A peer that was told of our head a few blocks ago joins there."""
    stage = Stage(genesis(1))
    blocks = _chain(stage, 12)
    for place, block in enumerate(reversed(blocks), 1):
        (chunk,) = sent(stage.receive(GetContent(block.header.state_root, 0)), Chunk)
        before = stage.chain.states[block.header.parent_hash]
        assert chunk.data == (before.encode() if place <= 8 else b"")


# --- bounds in bytes


def test_a_final_block_that_is_larger_than_an_answer_is_handed_out_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    stage = Stage(genesis(1))
    blocks = _chain(stage, 3)
    monkeypatch.setattr(answers, "FINALS_SIZE_MAX", 1)
    for height, block in enumerate(blocks, 1):
        assert [answer.block for answer in sent(stage.receive(GetFinal(height, 3)), FinalMessage)] == [block]


def test_a_final_block_counts_with_its_posts_its_votes_and_those_for_its_parent(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    stage = Stage(genesis(4))
    stage.accept(4)
    size = answers.RECORD_SIZE * (4 + 2 * 3)
    for limit, count in ((3 * size, 3), (3 * size - 1, 2)):
        monkeypatch.setattr(answers, "FINALS_SIZE_MAX", limit)
        assert len(sent(stage.receive(GetFinal(1, 4)), FinalMessage)) == count


def test_payloads_of_a_block_that_are_handed_out_together_fit_an_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    stage = Stage(genesis(4))
    (block,) = stage.accept()
    payloads = [stage.chain.contents[post.payload_hash] for post in block.transactions]
    for limit, count in ((4 * 32, 4), (4 * 32 - 1, 3), (31, 0)):
        monkeypatch.setattr(answers, "FINALS_SIZE_MAX", limit)
        (answer,) = sent(stage.receive(GetPayloads(1)), Payloads)
        assert list(answer.payloads) == payloads[:count]


def test_payloads_that_are_not_small_are_left_to_be_fetched_one_by_one() -> None:
    for inline_size_max, count in ((32, 4), (31, 0)):
        stage = Stage(genesis(4, inline_size_max=inline_size_max))
        stage.accept()
        (answer,) = sent(stage.receive(GetPayloads(1)), Payloads)
        assert len(answer.payloads) == count


# --- what is asked for, and nothing else


def test_votes_and_polkas_are_handed_out_for_the_height_and_block_that_was_asked_for() -> None:
    stage = Stage(genesis(4))
    block = stage.block()
    stage.candidate(block)
    stage.vote(block, stage.others[:2])
    everybody = stage.holds(*stage.genesis.members)
    for height, count in ((1, 3), (0, 0), (2, 0)):
        assert len(sent(stage.receive(GetVotes(height, PREVOTE, 0, everybody)), VoteMessage)) == count
    asked = [(1, 0, block.hash), (2, 0, block.hash), (1, 1, block.hash), (1, 0, bytes(32))]
    found = [len(sent(stage.receive(GetCertificate(*question)), CertificateMessage)) for question in asked]
    assert found == [1, 0, 0, 0]


def test_a_candidate_with_wrong_knowledge_is_not_handed_out() -> None:
    """Others would look at it, too, and hold it against its miner all the same."""
    stage = Stage(genesis(4))
    good = stage.block()
    wrong = stage.chain.remake(good, knowledge_root=b"!" * 32)
    for block, count in ((good, 1), (wrong, 0)):
        stage.candidate(block)
        assert block.hash in stage.node.ledger.entries
        assert len(sent(stage.receive(GetCandidate(block.hash)), CandidateMessage)) == count


# --- what is asked of others


def test_a_peer_at_another_block_is_asked_for_nothing_of_its_height() -> None:
    stage = Stage(genesis(4))
    shown = {
        "posts": stage.holds(*stage.others),
        "candidates": (b"c" * 32,),
        "votes": (stage.held(PREVOTE, 0, *stage.others),),
        "lock": (0, b"c" * 32),
    }
    asked = (GetCandidate, GetVotes, GetCertificate, GetPosts)
    for head_hash, counts in ((stage.genesis.chain_id, [1, 1, 1, 1]), (b"h" * 32, [0, 0, 0, 0])):
        effects = stage.receive(stage.status(head_hash=head_hash, **shown))
        assert [len(sent(effects, kind)) for kind in asked] == counts


def test_a_post_whose_payload_is_on_its_way_is_not_asked_for_again() -> None:
    stage = Stage(genesis(4))
    post = next(post for post in stage.chain.posts() if post.sender == stage.others[0])
    stage.receive(PostMessage(post, None))
    (asked,) = sent(stage.receive(stage.status(posts=stage.holds(*stage.others[:2]))), GetPosts)
    assert asked == GetPosts(1, 0, stage.holds(stage.others[1]))


def test_a_status_shows_the_posts_of_the_open_phase() -> None:
    stage = Stage(genesis(4), contributes=False)
    stage.post(*stage.chain.posts(members=stage.others[:2]))
    for rounds in range(2):
        assert stage.node._parts.answers.status(stage.node.voting.agreement).posts == (
            stage.holds() if rounds else stage.holds(*stage.others[:2])
        )
        block = stage.block()
        stage.final(block)


def test_a_status_shows_each_post_as_it_comes_and_none_that_was_dropped() -> None:
    stage = Stage(genesis(7), contributes=False)
    first, second, *others = stage.others_posts()
    mempool, held = stage.node._context.mempool, list[PublicKey]()

    def shown() -> bytes:
        return stage.node._parts.answers.status(stage.node.voting.agreement).posts

    for item in (first, second, *others[:2]):
        stage.post(item)
        held.append(item.sender)
        assert shown() == stage.holds(*held)
    mempool.drop(first)
    for item in others[2:4]:
        mempool.add(item, 0)
    assert shown() == stage.holds(*held[1:], *[item.sender for item in others[2:4]])
    early = [post(stage.chain.key(item.sender), stage.genesis, 2, payload(1)) for item in (first, second, *others)]
    for item in (*early, first):
        mempool.add(item, 0)
    assert shown() == stage.holds(*held, *[item.sender for item in others[2:4]])


def test_a_status_shows_the_posts_of_a_phase_that_were_held_before_it_was_open() -> None:
    stage = Stage(genesis(4), contributes=False)
    first, *others = stage.others_posts()
    stage.post(first)
    for item in others:
        stage.node._context.mempool.add(post(stage.chain.key(item.sender), stage.genesis, 2, payload(1)), 0)
    assert stage.node._parts.answers.status(stage.node.voting.agreement).posts == stage.holds(first.sender)
    stage.final(stage.block())
    shown = stage.node._parts.answers.status(stage.node.voting.agreement).posts
    assert shown == stage.holds(*[item.sender for item in others])


def test_a_status_has_a_bit_for_each_place_and_none_for_former_keys() -> None:
    stage = Stage(living_genesis(8))
    rekey = sign_rekey(keys(8)[7], keys(9)[8], stage.genesis.chain_id, sequence=0, until=50)
    stage.final(stage.block(changes=[rekey]))
    assert len(stage.node.head.roster.seats) == 9
    (status, *_) = sent(stage.wait(2), Status)
    assert len(status.posts) == 1
