"""Costly checks are done once, and what passed vouches for nothing else."""

from dataclasses import replace

import pytest

from fedchain.chain.block import Block
from fedchain.chain.exceptions import InvalidPayload, InvalidSignature, Refused
from fedchain.chain.genesis import Genesis
from fedchain.chain.knowledge import Occasion, recompute
from fedchain.chain.membership.turnout import MARKS_SIZE_MAX, Turnout
from fedchain.chain.post import Post
from fedchain.chain.state import State
from fedchain.chain.transition import judge_block
from fedchain.chain.vote import Vote, VoteKind, sign_vote
from fedchain.crypto.hashing import sha256
from fedchain.crypto.keys import PublicKey
from fedchain.crypto.signatures import SignatureCheck
from fedchain.node.core.checks import MARKS_SIZE_KEPT, Checks, PassedChecks
from fedchain.node.core.jobs import CheckPost, Knowledge, Recompute
from tests.support.chain.builders import ChainBuilder, SumRules, genesis, keys, payload, post
from tests.support.chain.changes import living_genesis


class CountingRules(SumRules):
    """Notes what was checked, and refuses payloads that begin with 99."""

    def __init__(self) -> None:
        self.checked: list[tuple[str, PublicKey, int, bytes, bytes]] = []

    def check(self, occasion: Occasion, sender: PublicKey, knowledge: bytes, payload: bytes) -> None:
        super().check(occasion, sender, knowledge, payload)
        self.checked.append((occasion.phase, sender, occasion.round, knowledge, payload))
        if payload.startswith(b"\x63"):
            raise ValueError("a false proof")


BUILDER = ChainBuilder(genesis(4))
KEYS = {key.public_key: key for key in keys(4)}


def job(state: State, item: Post, content: bytes) -> CheckPost:
    return CheckPost(state, BUILDER.contents[state.knowledge_root], item, content)


def recomputation(state: State, posts: tuple[Post, ...]) -> Recompute:
    return Recompute(state, posts, dict(BUILDER.contents))


def test_a_post_is_checked_once_when_it_comes_and_never_again_for_any_block() -> None:
    rules, state, posts = CountingRules(), BUILDER.state, BUILDER.posts()
    checks = Checks(BUILDER.genesis, rules)
    for _ in range(2):
        for item in posts:
            assert checks.run(job(state, item, BUILDER.contents[item.payload_hash])) is None
    for counted in (posts, posts[:3], posts[1:], posts):
        found = checks.run(recomputation(state, counted))
        assert isinstance(found, Knowledge)
        assert found.root == sha256(recompute(BUILDER.genesis, SumRules(), state, counted, BUILDER.contents.get))
    assert [sender for _, sender, *_ in rules.checked] == [item.sender for item in posts]


def test_posts_that_come_in_a_block_first_are_checked_there() -> None:
    rules, state, posts = CountingRules(), BUILDER.state, BUILDER.posts()
    checks = Checks(BUILDER.genesis, rules)
    assert isinstance(checks.run(recomputation(state, posts[:2])), Knowledge)
    assert all(checks.has_passed(state, item) for item in posts[:2])
    assert isinstance(checks.run(recomputation(state, posts)), Knowledge)
    assert [sender for _, sender, *_ in rules.checked] == [item.sender for item in posts]


def test_what_passed_vouches_for_no_other_bytes_sender_round_or_head() -> None:
    rules, builder = CountingRules(), ChainBuilder(BUILDER.genesis)
    checks, before = Checks(builder.genesis, rules), builder.state
    content = payload(5)
    first, second = (post(key, builder.genesis, 1, content) for key in keys(2))
    assert checks.run(CheckPost(before, b"", first, content)) is None
    assert checks.run(CheckPost(before, b"", second, content)) is None  # the same bytes, of another sender
    other = replace(first, payload_hash=sha256(payload(6)))
    assert checks.run(CheckPost(before, b"", other, payload(6))) is None
    builder.extend()
    after, known = builder.state, builder.contents[builder.state.knowledge_root]
    third = post(keys(1)[0], builder.genesis, 2, content)  # the same bytes of the same sender, in the next round
    assert not checks.has_passed(after, third)
    assert checks.run(CheckPost(after, known, third, content)) is None
    assert not checks.has_passed(after, first)  # what was posted in another phase
    assert [(sender, number, data) for _, sender, number, _, data in rules.checked] == [
        (first.sender, 1, content),
        (second.sender, 1, content),
        (first.sender, 1, payload(6)),
        (first.sender, 2, content),
    ]


def test_what_fails_is_never_taken_for_passed() -> None:
    rules, state, content = CountingRules(), BUILDER.state, payload(99)
    checks, item = Checks(BUILDER.genesis, rules), post(keys(1)[0], BUILDER.genesis, 1, payload(99))
    assert isinstance(checks.run(job(state, item, content)), InvalidPayload)
    assert not checks.has_passed(state, item)
    bad = Recompute(state, (item,), {item.payload_hash: content})
    assert isinstance(checks.run(bad), InvalidPayload)
    with pytest.raises(Refused, match="a false proof"):
        checks.recompute(bad)


def test_a_vote_that_passed_is_good_among_its_electors_alone() -> None:
    checks, key = Checks(BUILDER.genesis, SumRules()), keys(1)[0]
    vote = sign_vote(key, BUILDER.genesis.chain_id, (1, 0, VoteKind.PREVOTE), b"b" * 32)
    electors = frozenset(KEYS)
    for _ in range(2):
        checks.vote(electors, vote)
    with pytest.raises(InvalidSignature, match="electorate"):
        checks.vote(electors - {key.public_key}, vote)


def test_of_a_vote_that_marks_very_many_members_nothing_large_is_remembered() -> None:
    """A member may sign any number of precommits of one block, each with two kilobytes of marks."""
    founding, key, marks = living_genesis(), keys(1)[0], b"\xff" * MARKS_SIZE_MAX
    checks, electors = Checks(founding, SumRules()), frozenset(item.public_key for item in keys(5))
    for size in (MARKS_SIZE_KEPT, 2 * MARKS_SIZE_MAX):
        turnout = Turnout(0, size, marks[: size // 2], marks[: size // 2])
        slot = (1, 0, VoteKind.PRECOMMIT)
        vote = sign_vote(key, founding.chain_id, slot, b"b" * 32, clock_ms=1, turnout=turnout)
        for _ in range(2):
            checks.vote(electors, vote)
    kept = [part for identity in checks._passed._checked for part in identity if isinstance(part, Vote)]  # type: ignore[attr-defined]
    assert [vote.turnout and vote.turnout.size for vote in kept] == [MARKS_SIZE_KEPT]
    held = [part for identity in checks.signatures._valid for part in identity]  # type: ignore[attr-defined]
    assert max(map(len, held)) < MARKS_SIZE_MAX


def test_a_block_is_recomputed_from_the_payloads_that_its_posts_name() -> None:
    checks, state, (first, *_) = Checks(BUILDER.genesis, SumRules()), BUILDER.state, BUILDER.posts()
    found = checks.run(Recompute(state, (first,), {first.payload_hash: payload(6)}))
    assert isinstance(found, InvalidPayload)
    assert found.rule == "payload hash"


def test_recomputed_knowledge_is_held_in_the_one_copy_and_bounded_by_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    state, posts, held = BUILDER.state, BUILDER.posts(), dict[bytes, bytes]()
    checks = Checks(BUILDER.genesis, CountingRules(), held.setdefault)
    jobs = [recomputation(state, posts[:count]) for count in (1, 2, 3)]
    found = [checks.recompute(job) for job in jobs]
    assert all(known.data is held[known.root] for known in found)
    assert [checks.recompute(job) is known for job, known in zip(jobs, found, strict=True)] == [True] * 3
    monkeypatch.setattr("fedchain.node.core.checks.RECOMPUTED_SIZE_MAX", 2 * len(found[0].data))
    newest = checks.recompute(recomputation(state, posts[:4]))
    again = [checks.recompute(job) is known for job, known in zip(jobs[2:], found[2:], strict=True)]
    assert (again, len(checks._passed._knowledge)) == ([True], 2)
    monkeypatch.setattr("fedchain.node.core.checks.RECOMPUTED_SIZE_MAX", 0)
    assert checks.recompute(jobs[0]).data is held[found[0].root]
    assert list(checks._passed._knowledge) == [jobs[0].key], "the newest stays, however large it is"
    assert checks.recompute(recomputation(state, posts[:4])).data is newest.data


def test_knowledge_is_that_of_its_head_also_where_the_same_posts_are_counted() -> None:
    """Phases that close empty all count the same posts: none."""
    builder = ChainBuilder(genesis(4))
    checks = Checks(builder.genesis, SumRules())
    for block in (builder.extend(posts=()), builder.extend(), builder.extend(posts=())):
        before = builder.states[block.header.parent_hash]
        assert checks.recompute(Recompute(before, block.transactions, dict(builder.contents))).root == (
            block.header.knowledge_root
        )
    assert len({block.header.knowledge_root for block in builder.blocks.values()}) == 2


def test_a_block_is_judged_once_on_a_state_and_any_other_block_or_state_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    builder = ChainBuilder(genesis(4))
    before, checks, judged = builder.state, Checks(builder.genesis, SumRules()), list[Block]()

    def counted(genesis: Genesis, state: State, block: Block, root: None, check: SignatureCheck) -> State:
        judged.append(block)
        return judge_block(genesis, state, block, root, check)

    monkeypatch.setattr("fedchain.node.core.checks.judge_block", counted)
    block = builder.extend()
    assert checks.block(before, block) is checks.block(before, block)
    assert checks.block(before, block) == builder.state
    assert len(judged) == 1
    with pytest.raises(Refused, match="parent"):
        checks.block(builder.state, block)
    unsigned = replace(block, signature=bytes(64))  # of the same hash
    for _ in range(2):
        with pytest.raises(Refused, match="signature"):
            checks.block(before, unsigned)
    assert len(judged) == 4, "what was refused is judged again"


def test_blocks_that_are_remembered_are_few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fedchain.node.core.checks.JUDGED_MAX", 2)
    builder = ChainBuilder(genesis(4))
    checks = Checks(builder.genesis, SumRules())
    for _ in range(4):
        before = builder.state
        checks.block(before, builder.extend())
        assert len(checks._passed._judged) <= 2


def test_what_is_remembered_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fedchain.node.core.checks.CHECKED_MAX", 2)
    rules, state, posts = CountingRules(), BUILDER.state, BUILDER.posts()
    checks = Checks(BUILDER.genesis, rules)
    for item in posts:
        checks.run(job(state, item, BUILDER.contents[item.payload_hash]))
    assert [checks.has_passed(state, item) for item in posts] == [False, False, True, True]


def test_a_knowledge_that_a_thread_adds_while_their_sizes_are_counted_disturbs_nobody() -> None:
    """A job is computed beside the node's loop, which recomputes a few by itself."""
    passed = PassedChecks()
    empty = Knowledge(sha256(b""), b"")

    class Large(bytes):
        def __len__(self) -> int:
            if passed.knowledge((bytes(32), ())) is None:
                passed.keep_knowledge((bytes(32), ()), empty)
            return 0

    for first in b"ab":
        passed.keep_knowledge((bytes([first] * 32), ()), Knowledge(empty.root, Large()))
    assert passed.knowledge((b"b" * 32, ())) is not None
