"""One function decides a block's fate; peers that catch up or join ask it too, and cannot be told another chain."""

from collections.abc import Callable
from dataclasses import replace
from random import Random
from typing import Any

import pytest

from fedchain.chain.block import Block, Header, sign_block
from fedchain.chain.certificate import Certificate, certificate_root, certify
from fedchain.chain.difficulty import bits_from_attempts
from fedchain.chain.encoding import decode, encode
from fedchain.chain.evidence import Evidence, evidence_of
from fedchain.chain.exceptions import (
    Invalid,
    InvalidBlock,
    InvalidCertificate,
    InvalidEncoding,
    InvalidEvidence,
    InvalidSignature,
    Refused,
    UnknownParent,
)
from fedchain.chain.genesis import AggregatorRule, FaultModel, Genesis
from fedchain.chain.proof_of_work import search_nonce
from fedchain.chain.state import (
    STATE_SIZE_MAX,
    State,
    decode_state,
    may_close_empty,
    posts_required,
    votes_required,
)
from fedchain.chain.transition import judge_block, judge_final, judge_joined, judge_stored
from fedchain.chain.validation import CLOCK_MS_MAX
from fedchain.chain.vote import NIL, VoteKind, sign_vote
from fedchain.crypto.hashing import sha256
from fedchain.crypto.keys import PrivateKey, is_valid_signature
from tests.support.campaigns import some
from tests.support.chain.builders import (
    CREATED_MS,
    GLOBAL,
    UPDATE,
    ChainBuilder,
    double_post,
    double_vote,
    genesis,
    keys,
)
from tests.support.chain.changes import living

KEYS = keys(12)


class Scene:
    """Two final blocks, and a third one that was made final, too."""

    def __init__(self, count: int = 4, **overrides: Any) -> None:
        self.builder = ChainBuilder(genesis(count, **overrides))
        self.first, self.second, self.third = self.builder.extend_many(3)
        self.state = self.builder.states[self.second.hash]
        self.certificate = self.builder.certificate(self.third)

    @property
    def genesis(self) -> Genesis:
        return self.builder.genesis

    def judge(self, block: Block, certificate: Certificate) -> State:
        root = block.header.knowledge_root
        return judge_final(self.genesis, self.state, block, certificate, root, is_valid_signature)


def _expect(scene: Scene, block: Block, certificate: Certificate, error: type[Refused], message: str) -> None:
    before = scene.state.encode()
    with pytest.raises(error) as caught:
        scene.judge(block, certificate)
    assert type(caught.value) is error
    assert str(caught.value) == message
    assert scene.state.encode() == before


def test_a_valid_block_says_what_follows() -> None:
    scene = Scene()
    root = scene.third.header.knowledge_root
    for known in (root, None):
        after = judge_block(scene.genesis, scene.state, scene.third, known, is_valid_signature)
        assert after == scene.builder.states[scene.third.hash]
    assert scene.judge(scene.third, scene.certificate) == after


def test_the_whole_chain_is_judged_from_its_certificates() -> None:
    builder = ChainBuilder(genesis(7, committee_size=4))
    state = builder.state
    builder.extend(evidence=[double_vote(KEYS[1], builder.genesis, 1)])
    builder.extend(evidence=[double_post(KEYS[2], builder.genesis, 1)])
    builder.extend_many(4)
    for block in list(builder.blocks.values()):
        state = judge_final(builder.genesis, state, block, builder.certificate(block), None, is_valid_signature)
    assert state == builder.state


def test_recomputed_knowledge_has_to_agree_also_against_a_quorum() -> None:
    scene = Scene()
    wrong = sha256(b"mine")
    with pytest.raises(InvalidBlock, match=r"^knowledge root: "):
        judge_final(scene.genesis, scene.state, scene.third, scene.certificate, wrong, is_valid_signature)


RULES: list[dict[str, Any]] = [
    {},
    {"fault_model": FaultModel.CRASH, "contribution_quorum": 1},
    {"setup": (UPDATE, UPDATE), "phases": (UPDATE, GLOBAL), "aggregator": AggregatorRule.ROTATING},
    {"centralized": True, "aggregator": AggregatorRule.FIXED, "phases": (UPDATE, GLOBAL)},
    {"aggregator": AggregatorRule.DEDICATED, "phases": (UPDATE, GLOBAL), "contributors_per_round": 4},
    {"committee_size": 6, "contributors_per_round": 3, "phases": (UPDATE, UPDATE)},
    {"initial_bits": bits_from_attempts(20), "rounds": 9},
]


@pytest.mark.long
@pytest.mark.parametrize("seed", some(range(10), first=3))
@pytest.mark.parametrize("rules", RULES, ids=lambda rules: ",".join(rules))
def test_whoever_follows_reads_or_joins_knows_the_same(rules: dict[str, Any], seed: int) -> None:
    """Random chains: any posts that suffice, any voters, any clocks, crimes in between, and three ways to the end."""
    builder, rng = ChainBuilder(genesis(7, **rules)), Random(seed)
    follower = reader = joiner = builder.state
    for _ in range(8):
        block = _extend(builder, rng)
        certificate = _decide(builder, block, rng)
        data = reader.encode()
        follower = judge_final(builder.genesis, follower, block, certificate, None, is_valid_signature)
        reader = judge_final(
            builder.genesis,
            decode_state(builder.genesis, data),
            Block.decode(block.encode(), 2**20),
            Certificate.from_record(decode(encode(certificate.to_record()), 2**20)),
            block.header.knowledge_root,
            is_valid_signature,
        )
        joiner = judge_joined(builder.genesis, data, block, certificate, is_valid_signature)
        assert follower == reader == joiner == builder.state
        assert follower.root == reader.root == joiner.root
        assert follower.roster == joiner.roster
        if follower.finished:
            break


def _extend(builder: ChainBuilder, rng: Random) -> Block:
    state = builder.state
    due = sorted(state.roster.contributors)
    least = min(len(due), posts_required(builder.genesis, state))
    posts = builder.posts(members=rng.sample(due, rng.randint(least, len(due))))
    if may_close_empty(builder.genesis, state) and (not due or rng.random() < 0.2):
        posts = ()
    active = [key for key in KEYS[:7] if state.roster.is_active(key.public_key)]
    crimes = [double_vote(rng.choice(active), builder.genesis, 5)] if len(active) > 2 and rng.random() < 0.2 else []
    aggregator = state.roster.aggregator_of(state.round)
    miner = None if builder.genesis.centralized and aggregator is not None else rng.choice(active)
    if builder.genesis.centralized and aggregator is not None and not state.roster.is_active(aggregator):
        posts, miner = (), rng.choice(active)
    certificate = _decide(builder, builder.blocks[builder.tip], rng) if state.height else None
    return builder.extend(posts=posts, evidence=crimes, miner=miner, certificate=certificate)


def _decide(builder: ChainBuilder, block: Block, rng: Random) -> Certificate:
    """Precommits of any quorum in any attempt, with any clocks."""
    electors = sorted(builder.states[block.header.parent_hash].roster.electors)
    voters = rng.sample(electors, rng.randint(votes_required(builder.genesis, frozenset(electors)), len(electors)))
    clocks = {voter: max(0, CREATED_MS + rng.randrange(-(10**6), 10**6)) for voter in voters}
    times = {voter: rng.choice((0, rng.randrange(10_000), CLOCK_MS_MAX)) for voter in voters}
    return builder.certificate(block, voters, attempt=rng.randrange(3), clock_ms=clocks, mining_ms=times)


# --- what does not make a block final


def test_a_block_of_another_height_is_nobodys_fault_and_costs_nothing() -> None:
    """Two honest peers that are a block apart must not blame each other for it."""
    scene = Scene()

    def never(*_: object) -> bool:
        raise AssertionError("no signature has to be looked at")

    ahead = scene.builder.extend()
    for block in (scene.first, scene.second, ahead):
        with pytest.raises(UnknownParent, match=r"^parent: "):
            judge_final(scene.genesis, scene.state, block, scene.builder.certificate(block), None, never)


def test_a_certificate_is_for_the_block() -> None:
    scene = Scene()
    other = scene.builder.extend(scene.second.hash, payload_of=50)
    message = f"certificate's block: {other.hash.hex()} found, {scene.third.hash.hex()} expected"
    _expect(scene, scene.third, scene.builder.certificate(other), InvalidCertificate, message)


def test_prevotes_make_nothing_final() -> None:
    scene = Scene()
    prevotes = scene.builder.certificate(scene.third, kind=VoteKind.PREVOTE)
    message = "certificate's kind: prevotes found, precommits expected"
    _expect(scene, scene.third, prevotes, InvalidCertificate, message)


def test_too_few_votes_make_nothing_final() -> None:
    scene = Scene()
    few = scene.builder.certificate(scene.third, sorted(scene.state.roster.electors)[:2])
    _expect(scene, scene.third, few, InvalidCertificate, "quorum: 2 votes found, 3 of 4 required")


def test_a_voter_twice_makes_nothing_final() -> None:
    scene = Scene()
    one, two, _ = scene.certificate.votes
    again = scene.builder.vote(one.voter, scene.third, clock_ms=1)
    voter = one.voter.hex()
    message = f"vote order: {voter} follows {voter}"
    _expect(scene, scene.third, certify([one, again, two]), InvalidCertificate, message)


def test_votes_of_two_attempts_make_nothing_final() -> None:
    scene = Scene()
    later = scene.builder.certificate(scene.third, attempt=1).votes
    mixed = certify([*scene.certificate.votes[:2], later[2]])
    with pytest.raises(InvalidCertificate, match=r"^certificate's vote: slot \(3, 1, 2\) found, \(3, 0, 2\) expected"):
        scene.judge(scene.third, mixed)
    with pytest.raises(InvalidCertificate, match=r"^certificate's vote: signature: "):
        scene.judge(scene.third, Certificate.from_record(mixed.to_record()))
    scene.judge(scene.third, scene.builder.certificate(scene.third, attempt=2**64 - 1))


def test_nothing_makes_no_block_final() -> None:
    scene = Scene()
    nil = certify(sign_vote(key, scene.genesis.chain_id, (3, 0, VoteKind.PRECOMMIT), NIL) for key in KEYS[:3])
    message = f"certificate's block: {NIL.hex()} found, {scene.third.hash.hex()} expected"
    _expect(scene, scene.third, nil, InvalidCertificate, message)


def test_a_certified_block_with_another_body_is_its_senders_fault() -> None:
    """Everything under the header's hash can be exchanged on the way, and nothing of it passes."""
    scene = Scene()
    crime = double_vote(KEYS[1], scene.genesis, 1)
    for block in (
        replace(scene.third, transactions=scene.third.transactions[:3]),
        replace(scene.third, certificate=scene.builder.certificate(scene.second, attempt=1)),
        replace(scene.third, certificate=None),
        replace(scene.third, evidence=(crime,)),
        replace(scene.third, signature=bytes(64)),
    ):
        assert block.hash == scene.third.hash
        with pytest.raises(InvalidSignature):
            scene.judge(block, scene.certificate)


def test_a_quorum_does_not_make_a_wrong_block_right() -> None:
    scene = Scene()
    for changes in ({"height": 9}, {"state_root": bytes(32)}, {"bits": 0x203FFFFF}, {"version": 1}):
        block = scene.builder.remake(scene.third, **changes)
        certificate = scene.builder.certificate(block) if "height" not in changes else _certify(scene, block, 3)
        with pytest.raises(InvalidBlock):
            scene.judge(block, certificate)


def _certify(scene: Scene, block: Block, height: int) -> Certificate:
    chain_id = scene.genesis.chain_id
    return certify(
        sign_vote(key, chain_id, (height, 0, VoteKind.PRECOMMIT), block.hash, clock_ms=CREATED_MS) for key in KEYS[:3]
    )


def test_when_all_are_convicted_nothing_follows() -> None:
    builder = ChainBuilder(genesis(1))
    builder.extend(evidence=[double_vote(KEYS[0], builder.genesis, 1)])
    state = builder.state
    assert not state.roster.electors
    block = builder.extend(posts=(), miner=KEYS[0])
    with pytest.raises(InvalidSignature, match=r"^miner: .* is no active member$"):
        judge_block(builder.genesis, state, block, None, is_valid_signature)
    certificate = builder.certificate(block, [KEYS[0].public_key])
    with pytest.raises(InvalidCertificate, match=r"^quorum: 1 votes found, 1 of 0 required$"):
        judge_final(builder.genesis, state, block, certificate, None, is_valid_signature)


# --- who joins


def _join(scene: Scene, data: bytes, block: Block, certificate: Certificate) -> State:
    return judge_joined(scene.genesis, data, block, certificate, is_valid_signature)


def _start(scene: Scene, data: bytes, block: Block, certificate: Certificate) -> State:
    """The state of a node after it judges the block as its store's head."""
    return judge_stored(scene.genesis, decode_state(scene.genesis, data), block, certificate, is_valid_signature)


Judge = Callable[[Scene, bytes, Block, Certificate], State]


def test_who_joins_goes_on_as_who_has_the_whole_chain() -> None:
    scene = Scene(7)
    convicting = scene.builder.extend(evidence=[double_vote(KEYS[1], scene.genesis, 2)])
    later = scene.builder.extend_many(3)
    for block in (scene.first, scene.second, scene.third, convicting, *later):
        final = scene.builder.final(block)
        assert _join(scene, final.state, final.block, final.certificate) == scene.builder.states[block.hash]


def test_the_state_is_the_one_that_the_header_names() -> None:
    scene = Scene()
    changed = replace(scene.state, settled_time_ms=scene.state.settled_time_ms + 1)
    with pytest.raises(InvalidBlock, match=r"^state root: "):
        _join(scene, changed.encode(), scene.third, scene.certificate)
    with pytest.raises(InvalidEncoding):
        _join(scene, b"", scene.third, scene.certificate)


class Forger:
    """Makes up a state, a block on it, and the votes of those who are in league with the forger."""

    def __init__(self, scene: Scene, league: tuple[PrivateKey, ...], judge: Judge = _join) -> None:
        self.scene, self.league, self.judge = scene, league, judge

    def tell(self, state: State) -> State:
        """The state that a peer computes if it joins here."""
        scene, key = self.scene, self.league[0]
        parent = certify(self._votes(state.height, state.block_hash))
        header = Header(
            version=2,
            parent_hash=state.block_hash,
            height=state.height + 1,
            round=state.round,
            phase=state.phase,
            transactions_root=bytes(32),
            certificate_root=certificate_root(parent),
            evidence_root=bytes(32),
            state_root=state.root,
            knowledge_root=bytes(32),
            bits=state.bits,
            miner=key.public_key,
            nonce=0,
        )
        mined = search_nonce("sha256d", header, 0, 1_000)
        assert mined is not None
        block = sign_block(key, scene.genesis.chain_id, mined, (), parent)
        certificate = certify(self._votes(state.height + 1, block.hash))
        return self.judge(scene, state.encode(), block, certificate)

    def _votes(self, height: int, block_hash: bytes) -> list[Any]:
        chain_id = self.scene.genesis.chain_id
        return [sign_vote(key, chain_id, (height, 0, VoteKind.PRECOMMIT), block_hash) for key in self.league]


def _invented(scene: Scene, league: tuple[PrivateKey, ...], convicted: tuple[Evidence, ...]) -> bytes:
    """A state in which only the league may vote."""
    left = frozenset(key.public_key for key in league)
    return replace(scene.state, convicted=convicted, deciders=left).encode()


@pytest.mark.parametrize("judge", [_join, _start])
def test_one_member_cannot_convict_the_others_in_a_state_that_it_makes_up(judge: Judge) -> None:
    """The state says who votes for it: without the culprits' own signatures one member would be a quorum."""
    scene = Scene(contributors_per_round=3)
    league = KEYS[:1]
    forged = []
    for key in KEYS[1:4]:
        true = double_vote(key, scene.genesis, 1)
        forged.append(evidence_of(*(replace(item, signature=bytes(64)) for item in (true.first, true.second))))
    state = decode_state(scene.genesis, _invented(scene, league, tuple(forged)))
    assert state.roster.electors == {KEYS[0].public_key}
    with pytest.raises(InvalidEvidence, match=r"^evidence: signature: "):
        Forger(scene, league, judge).tell(state)


def test_nobody_is_convicted_twice_or_from_outside_in_a_state() -> None:
    scene = Scene()
    first, second = double_vote(KEYS[1], scene.genesis, 1), double_post(KEYS[1], scene.genesis, 1)
    stranger = double_vote(KEYS[9], scene.genesis, 1)
    for crimes, message in (
        ((first, second), "convicted: 2 crimes of 1 members found"),
        ((stranger,), "convicted: 1 crimes of 0 members found"),
    ):
        with pytest.raises(InvalidEvidence) as caught:
            Forger(scene, KEYS[:3]).tell(decode_state(scene.genesis, _invented(scene, KEYS[:3], crimes)))
        assert str(caught.value) == message


def test_strangers_cannot_be_the_members_of_a_state_that_they_make_up() -> None:
    scene = Scene()
    record = decode(scene.state.encode(), STATE_SIZE_MAX)
    record[12] = b"".join(key.public_key for key in KEYS[4:8])
    with pytest.raises(InvalidEncoding, match=r"^state: its 128 bytes of keys are not the 4 members'$"):
        _join(scene, encode(record), scene.third, scene.certificate)


def test_a_parent_that_was_chosen_cannot_draw_a_committee_of_liars() -> None:
    """A committee follows from the parent's hash, and a forger of a state may try as many hashes as it likes."""
    scene = Scene(10, committee_size=4, contributors_per_round=3)  # 3 of 10 may lie, 3 of 4 decide
    league = KEYS[:3]
    liars = frozenset(key.public_key for key in league)
    for number in range(10_000):
        state = replace(scene.state, block_hash=sha256(b"%d" % number), deciders=liars)
        state = decode_state(scene.genesis, state.encode())
        if liars <= state.roster.electors:
            break
    else:
        raise AssertionError("such a hash is found within some thirty tries")
    with pytest.raises(UnknownParent) as caught:
        Forger(scene, league).tell(state)
    assert str(caught.value) == "state: 3 drawn electors vouch for it, 3 members may lie"


def test_a_committee_that_needs_an_honest_member_can_be_believed() -> None:
    for count, size, model in ((10, 7, FaultModel.BYZANTINE), (4, 2, FaultModel.CRASH), (4, 3, FaultModel.BYZANTINE)):
        scene = Scene(count, committee_size=size, fault_model=model)
        final = scene.builder.final(scene.third)
        assert _join(scene, final.state, final.block, final.certificate) == scene.builder.state


def test_real_convictions_do_not_let_the_other_liars_decide() -> None:
    """Two of seven may lie. One gives its own crimes away to make the electorate smaller: an honest vote is missing."""
    scene = Scene(7, contributors_per_round=3)
    crime = double_vote(KEYS[0], scene.genesis, 1)
    state = decode_state(scene.genesis, _invented(scene, KEYS[1:2], (crime,)))
    with pytest.raises(Invalid, match=r"^quorum: 1 votes found, 4 of 6 required$"):
        Forger(scene, KEYS[1:2]).tell(state)


def test_nobody_joins_by_a_state_where_members_change() -> None:
    """The state would name the members that vouch for it."""
    chain = living(4)
    block = chain.extend_many(3)[-1]
    data, certificate = chain.states[block.header.parent_hash].encode(), chain.certificate(block)
    with pytest.raises(UnknownParent, match="only certificates from the founding on"):
        judge_joined(chain.genesis, data, block, certificate, is_valid_signature, is_confirmed=True)
    with pytest.raises(UnknownParent, match="only certificates from the founding on"):
        judge_joined(chain.genesis, data, block, certificate, is_valid_signature, proven=block.header.parent_hash)
    after = judge_joined(chain.genesis, data, block, certificate, is_valid_signature, proven=block.hash)
    assert after == chain.state
