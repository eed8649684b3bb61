"""Candidates for the open height: which are kept, what they cost, and who is to blame for bad ones."""

from collections.abc import Sequence
from dataclasses import replace

import pytest

from fedchain.chain import proof_of_work
from fedchain.chain.block import sign_block
from fedchain.chain.exceptions import MethodFailed
from fedchain.chain.knowledge import Occasion
from fedchain.chain.proof_of_work import is_sealed
from fedchain.chain.storage.store import Contents
from fedchain.chain.vote import NIL
from fedchain.crypto import signature_memory
from fedchain.crypto.hashing import sha256
from fedchain.crypto.keys import PublicKey, is_valid_signature
from fedchain.network.messages import (
    CANDIDATES_MAX,
    CandidateMessage,
    Chunk,
    FinalMessage,
    GetCandidate,
    GetContent,
    Message,
)
from fedchain.node.core.answers import UNKNOWN_MAX
from fedchain.node.core.checks import Checks
from fedchain.node.core.effects import Compute, Persist
from fedchain.node.core.events import Computed, MessageReceived, Moment
from fedchain.node.core.jobs import Recompute
from fedchain.node.core.notices import Contradicted
from tests.support.chain.builders import CREATED_MS, SumRules, genesis, payload, post
from tests.support.node.driver import SmallBlobRules
from tests.support.node.stage import PRECOMMIT, PREVOTE, Stage, blamed, refused, sent, votes

# --- which are kept


def test_one_status_asks_for_few_unknown_blocks_and_first_for_what_is_needed() -> None:
    stage = Stage(genesis(4))
    unknown = tuple(sha256(bytes([number])) for number in range(CANDIDATES_MAX))
    asked = sent(stage.receive(stage.status(candidates=unknown)), GetCandidate)
    assert [question.block_hash for question in asked] == list(unknown[:UNKNOWN_MAX])
    stage.vote(unknown[-1], stage.others)
    asked = sent(stage.receive(stage.status(candidates=unknown)), GetCandidate)
    assert asked[0].block_hash == unknown[-1]


# --- what they cost


@pytest.fixture
def costs(monkeypatch: pytest.MonkeyPatch) -> dict[str, int]:
    """How many signatures and proofs of work were checked."""
    counts = {"signatures": 0, "proofs": 0}
    check, prove = is_valid_signature, proof_of_work.PROOF_FUNCTIONS["sha256d"]

    def count_check(key: bytes, signature: bytes, message: bytes) -> bool:
        counts["signatures"] += 1
        return check(key, signature, message)

    def count_proof(data: bytes) -> bytes:
        counts["proofs"] += 1
        return prove(data)

    monkeypatch.setattr(signature_memory, "is_valid_signature", count_check)
    monkeypatch.setitem(proof_of_work.PROOF_FUNCTIONS, "sha256d", count_proof)
    return counts


def test_blocks_of_other_heights_cost_nothing(costs: dict[str, int]) -> None:
    stage = Stage(genesis(4))
    stage.accept(2)
    old = stage.chain.extend(stage.genesis.chain_id)
    ahead = [stage.chain.extend(stage.node.head.block_hash), stage.chain.extend()][1]
    before = stage.digest()
    costs.update(signatures=0, proofs=0)
    for block in (old, ahead):
        effects = stage.receive(CandidateMessage(block))
        assert refused(effects) == ["UnknownParent"]
        assert sent(effects, GetContent) == []
    assert costs == {"signatures": 0, "proofs": 0}
    assert stage.digest() == before


def test_a_block_of_a_stranger_costs_nothing_and_one_without_work_little(costs: dict[str, int]) -> None:
    stage = Stage(genesis(4))
    block = stage.block()
    stranger = replace(block, header=replace(block.header, miner=bytes(32)))
    nonces = (replace(block.header, nonce=nonce) for nonce in range(100))
    header = next(header for header in nonces if not is_sealed("sha256d", header))
    key = stage.chain.key(header.miner)
    lazy = sign_block(key, stage.genesis.chain_id, header, block.transactions, block.certificate)
    is_sealed.cache_clear()  # it was asked of this header above
    costs.update(signatures=0, proofs=0)
    assert refused(stage.receive(CandidateMessage(stranger))) == ["InvalidSignature"]
    assert costs == {"signatures": 0, "proofs": 0}
    effects = stage.receive(CandidateMessage(lazy))
    assert costs == {"signatures": 1, "proofs": 1}, "its posts were not looked at"
    assert blamed(effects) == [(header.miner, "InvalidBlock")]


def test_a_known_block_costs_nothing(costs: dict[str, int]) -> None:
    stage = Stage(genesis(4))
    block = stage.block()
    stage.candidate(block)
    costs.update(signatures=0, proofs=0)
    assert refused(stage.receive(CandidateMessage(block))) == ["AlreadyKnown"]
    assert costs == {"signatures": 0, "proofs": 0}


# --- who is to blame


def test_for_a_bad_block_its_miner_is_to_blame_and_not_who_passed_it_on() -> None:
    stage = Stage(genesis(4))
    block = stage.block()
    for bad in (
        stage.chain.remake(block, transactions=block.transactions[:1]),
        stage.chain.remake(block, round=2),
        stage.chain.remake(block, state_root=bytes(32)),
        stage.chain.remake(block, bits=block.header.bits - 1),
    ):
        before = stage.digest()
        effects = stage.receive(CandidateMessage(bad))
        assert blamed(effects) == [(block.header.miner, "InvalidBlock")]
        assert refused(effects) == ["UnknownParent"]
        assert stage.digest() == before


def test_for_a_forged_body_who_sent_it_is_to_blame() -> None:
    stage = Stage(genesis(4))
    block = stage.block()
    post = block.transactions[0]
    for forged in (
        replace(block, transactions=block.transactions[1:]),
        replace(block, transactions=(replace(post, signature=bytes(64)), *block.transactions[1:])),
        replace(block, signature=bytes(64)),
    ):
        effects = stage.receive(CandidateMessage(forged))
        assert (refused(effects), blamed(effects)) == (["InvalidSignature"], [])
    assert "Invalid" not in "".join(refused(stage.candidate(block)))


def test_for_wrong_knowledge_its_miner_is_to_blame_once_another_block_is_final() -> None:
    stage = Stage(genesis(4))
    block = stage.block()
    wrong = stage.chain.remake(block, knowledge_root=bytes(32))
    effects = stage.candidate(wrong)
    assert (votes(effects), blamed(effects)) == ([], []), "it might be we who compute something else"
    assert votes(stage.wait(100)) == []
    assert blamed(stage.final(block)) == [(wrong.header.miner, "InvalidBlock")]


def test_what_a_quorum_contradicts_stops_our_voting_loudly_and_bans_nobody() -> None:
    stage = Stage(genesis(4))
    wrong = stage.chain.remake(stage.block(), knowledge_root=sha256(b"what the others compute"))
    effects = stage.candidate(wrong)
    for kind in (PREVOTE, PRECOMMIT):
        effects += stage.vote(wrong, stage.others, kind)
    assert stage.node.head.block_hash == wrong.hash, "a quorum said so"
    assert [type(notice) for notice in stage.victim.notices] == [Contradicted]
    assert (blamed(effects), votes(effects)) == ([], [])
    assert stage.node.is_silent()
    assert sent(stage.tick(1), GetContent) == [GetContent(wrong.header.knowledge_root, 0)], "it is followed"


def test_a_node_that_was_contradicted_follows_the_chain_and_votes_at_no_later_height() -> None:
    """Until an operator has looked at it: it may compute something else again."""
    stage = Stage(genesis(4))
    theirs = stage.contradict()
    stage.tick(1)
    stage.receive(Chunk(sha256(theirs), 0, theirs))
    following = stage.block()
    effects = stage.candidate(following)
    assert stage.node.ledger.entries[following.hash].is_valid, "it could vote"
    effects += stage.vote(NIL, stage.others[:2], attempt=1)
    effects += stage.vote(following, stage.others[:2], attempt=2)
    assert votes([*effects, *stage.wait(200)]) == []
    strange = stage.chain.remake(following, knowledge_root=sha256(b"what we do not compute"))
    stage.candidate(strange)
    assert blamed(stage.final(following)) == [], "it may be we who compute something else"
    assert (stage.node.head.block_hash, stage.node.is_silent()) == (following.hash, True)


def test_where_our_method_failed_once_a_final_block_is_followed_and_we_vote_again() -> None:
    """We computed nothing, so nothing contradicts the others, and what they know is fetched."""
    failures: list[MethodFailed] = []

    class FailsOnce(SumRules):
        def aggregate(self, occasion: Occasion, knowledge: bytes, posts: Sequence[tuple[PublicKey, bytes]]) -> bytes:
            if failures:
                raise failures.pop()
            return super().aggregate(occasion, knowledge, posts)

    stage = Stage(genesis(4), rules=FailsOnce())
    block = stage.block()
    failures.append(MethodFailed("method", "aggregate of phase update: RuntimeError: boom (own.py, line 5)"))
    effects = stage.candidate(block)
    for kind in (PREVOTE, PRECOMMIT):
        effects += stage.vote(block, stage.others, kind)
    assert failures == []
    assert stage.node.head.block_hash == block.hash
    assert (stage.victim.notices, blamed(effects), votes(effects)) == ([], [], [])
    assert not stage.node.is_silent()
    assert sent(stage.tick(1), GetContent) == [GetContent(block.header.knowledge_root, 0)]


def test_who_joins_further_up_holds_nothing_against_the_miner_of_a_candidate() -> None:
    """It passes over the decision, by which it would see whether the miner computed wrongly, or it did."""
    stage = Stage(genesis(4), contributes=False)
    first = stage.block()
    wrong = stage.chain.remake(first, knowledge_root=sha256(b"what we do not compute"))
    effects = stage.candidate(wrong)
    assert stage.node.ledger.entries[wrong.hash].is_refuted
    blocks, peer = stage.chain.extend_many(20), stage.others[0]
    head, before = blocks[-1], stage.chain.states[blocks[-2].hash]
    effects += stage.receive(stage.status(height=head.header.height, head_hash=head.hash), peer)
    effects += stage.receive(FinalMessage(head, stage.chain.certificate(head)), peer)
    effects += stage.receive(Chunk(before.root, 0, before.encode()), peer)
    assert stage.node.head.block_hash == head.hash
    assert blamed(effects) == []


# --- sizes


@pytest.mark.parametrize("size", [100, 101])
def test_nothing_is_fetched_for_a_block_with_a_payload_that_no_check_lets_pass_for_its_size(size: int) -> None:
    stage = Stage(genesis(4, inline_size_max=0), rules=SmallBlobRules(), contributes=False)
    data = {member: bytes([place]) * size for place, member in enumerate(stage.others)}
    stage.chain.contents |= {sha256(item): item for item in data.values()}
    block = stage.block(
        posts=sorted(
            (post(stage.chain.key(member), stage.genesis, 1, item) for member, item in data.items()),
            key=lambda item: item.sender,
        )
    )
    effects = [*stage.candidate(block), *stage.tick(1)]
    assert len({item.content_hash for item in sent(effects, GetContent)}) == (3 if size == 100 else 0)
    assert stage.node.ledger.entries[block.hash].is_refuted == (size == 101)
    stage.final(block)
    assert stage.node.head.block_hash == block.hash, "a quorum said so"


# --- contents


def test_what_is_posted_again_in_a_later_round_is_stored_again() -> None:
    """In between it may have been swept from the store."""
    stage = Stage(genesis(4))
    data = payload(5)
    stage.chain.contents[sha256(data)] = data
    for round_number in (1, 2):
        stage.victim.store.retain([stage.node.head.knowledge_root])
        same = post(stage.chain.key(stage.others[0]), stage.genesis, round_number, data)
        rest = stage.chain.posts(stage.node.head.block_hash, members=stage.others[1:])
        block = stage.block(posts=sorted([same, *rest], key=lambda item: item.sender))
        stage.candidate(block)
        stage.final(block)
        assert stage.victim.store.content(sha256(data)) == data


def test_each_candidate_is_stored_with_all_that_it_counts() -> None:
    """Another one may become final, and the node be killed then."""
    stage = Stage(genesis(4), contributes=False)
    for missing in stage.others[:2]:
        block = stage.block(without=[missing])
        stage.candidate(block)
        counted = (block.header.knowledge_root, *block.payload_hashes)
        assert all(stage.victim.store.content(item) is not None for item in counted)


def test_blocks_that_votes_named_are_forgotten_with_their_height() -> None:
    stage = Stage(genesis(4))
    named = [sha256(b"block %d" % number) for number in range(3)]
    for attempt, item in enumerate(named):
        stage.vote(item, stage.others, PREVOTE, attempt=attempt)
    assert {*named} <= stage.node._parts.blocks.wanted
    (block,) = stage.accept()
    assert not stage.node._parts.blocks.wanted & {*named, block.hash}


def test_a_block_is_valid_once_the_payloads_that_it_counts_are_here() -> None:
    stage = Stage(genesis(4))
    block = stage.block()
    effects = stage.receive(CandidateMessage(block))
    missing = [post.payload_hash for post in block.transactions if post.sender != stage.me]
    assert [question.content_hash for question in sent(effects, GetContent)] == missing
    for item in missing:
        assert not stage.node.ledger.entries[block.hash].is_valid
        effects = stage.receive(Chunk(item, 0, stage.chain.contents[item]))
    assert stage.node.ledger.entries[block.hash].is_valid
    assert votes(effects) == [(PREVOTE, 0, block.hash)]
    stored = [record for effect in effects if isinstance(effect, Persist) for record in effect.records]
    assert {*missing} <= {item for record in stored if isinstance(record, Contents) for item in record.by_hash}


def test_a_block_is_valid_once_the_posts_that_it_counts_arrive() -> None:
    stage = Stage(genesis(4))
    block = stage.block()
    stage.receive(CandidateMessage(block))
    effects = stage.post(*(post for post in block.transactions if post.sender != stage.me))
    assert (PREVOTE, 0, block.hash) in votes(effects), "whoever was asked for the payloads may never answer"


def test_a_block_over_a_payload_that_the_method_refuses_gets_no_vote() -> None:
    stage = Stage(genesis(4))
    bad = stage.chain.posts()[1]
    sender = stage.others[0]
    data = b"not eight numbers"
    stage.chain.contents[sha256(data)] = data
    bad = post(stage.chain.key(sender), stage.genesis, 1, data)
    good = [item for item in stage.chain.posts() if item.sender != sender]
    block = stage.block(posts=stage.chain.posts())
    forged = stage.chain.remake(block, transactions=tuple(sorted([*good, bad], key=lambda item: item.sender)))
    assert votes([*stage.candidate(forged), *stage.wait(100)]) == []
    assert (forged.header.miner, "InvalidPayload") in blamed(stage.final(block))


def test_what_a_block_leaves_behind_says_nothing_of_another_one_over_as_many_posts() -> None:
    """Both are being recomputed when the first result comes."""
    stage, jobs = Stage(genesis(6), contributes=False), list[Recompute]()
    blocks = [stage.block(without=[stage.me, other]) for other in stage.others[:2]]

    def receive(message: Message) -> None:
        """The shell takes its time for the jobs that follow."""
        moment = Moment(stage.now_ms - CREATED_MS, stage.now_ms)
        effects = stage.node.handle(MessageReceived(stage.relay, message), moment)
        jobs.extend(item.job for item in effects if isinstance(item, Compute) and isinstance(item.job, Recompute))

    for block in blocks:
        receive(CandidateMessage(block))
        for item in block.transactions:
            receive(Chunk(item.payload_hash, 0, stage.chain.contents[item.payload_hash]))
    assert [job.transactions for job in jobs] == [block.transactions for block in blocks]
    entries = [stage.node.ledger.entries[block.hash] for block in blocks]
    for count, job in enumerate(jobs, 1):
        stage.handle(Computed(job, Checks(stage.genesis, stage.chain.rules).recompute(job)))
        assert [entry.is_valid for entry in entries] == [count > 0, count > 1]
        assert not any(entry.is_refuted for entry in entries)
