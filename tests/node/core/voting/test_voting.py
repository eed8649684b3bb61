"""A node's own votes: when it casts them, what it writes down before, and what it says again after a crash."""

from dataclasses import replace
from itertools import permutations

import pytest

from fedchain.chain.block import Block
from fedchain.chain.certificate import Certificate, certify
from fedchain.chain.storage.store import MemoryStore
from fedchain.chain.vote import NIL, sign_vote
from fedchain.crypto.hashing import sha256
from fedchain.crypto.keys import PrivateKey, PublicKey
from fedchain.network.messages import (
    HELD_VOTES_MAX,
    CandidateMessage,
    CertificateMessage,
    GetCandidate,
    GetCertificate,
    GetVotes,
    VoteMessage,
)
from fedchain.node.core.effects import Tell
from fedchain.node.core.events import MessageReceived
from fedchain.node.core.notices import NotBelieved
from fedchain.node.core.voting.ballot import ATTEMPTS_AHEAD
from fedchain.node.core.voting.journal import Journal
from fedchain.node.core.voting.twins import LISTENING_MS, SILENT_TIMEOUTS
from fedchain.node.core.voting.voting import EARLY_MAX
from tests.support.chain.builders import ChainBuilder, genesis, keys
from tests.support.chain.changes import living_genesis
from tests.support.chain.forgeries import FORGED, Forge
from tests.support.node.driver import Federation, check_agreement, check_promises
from tests.support.node.stage import PRECOMMIT, PREVOTE, Stage, blamed, refused, sent, votes


def test_who_is_alone_decides_at_once() -> None:
    stage = Stage(genesis(1))
    block = stage.block()
    effects = stage.candidate(block)
    assert votes(effects) == [(PREVOTE, 0, block.hash), (PRECOMMIT, 0, block.hash)]
    assert stage.node.head.block_hash == block.hash, "its own votes are the quorum"


def test_the_own_vote_that_completes_a_quorum_has_its_effect_at_once() -> None:
    stage = Stage(genesis(4))
    block = stage.block()
    stage.vote(block, stage.others[:2], PREVOTE)
    stage.vote(block, stage.others[:2], PRECOMMIT)
    effects = stage.candidate(block)
    assert votes(effects) == [(PREVOTE, 0, block.hash), (PRECOMMIT, 0, block.hash)]
    assert stage.node.head.block_hash == block.hash


def test_who_is_silent_votes_when_its_silence_is_over() -> None:
    stage = Stage(genesis(4), is_heard=False)
    block = stage.block(without=[stage.me])
    assert votes(stage.candidate(block)) == [], "nobody was heard yet"
    assert votes(stage.wait(70)) == []
    assert votes(stage.receive(stage.status(), stage.others[0])) == []
    effects = stage.receive(stage.status(), stage.others[1])
    assert votes([*effects, *stage.wait(3)]) == [(PREVOTE, 0, block.hash)]


# --- leaders of later attempts


def _attempt_led_by_another(stage: Stage) -> tuple[int, PublicKey]:
    """The first attempt after 0 that another member leads."""
    electors = sorted(stage.node.head.roster.electors)
    leaders = ((attempt, electors[(stage.node.head.height + 1 + attempt) % len(electors)]) for attempt in (1, 2))
    return next((attempt, leader) for attempt, leader in leaders if leader != stage.me)


def test_electors_take_turns_in_leading_attempts_and_heights() -> None:
    stage = Stage(genesis(4))
    electors = sorted(stage.node.head.roster.electors)
    led = [stage.node.voting._leader(attempt) for attempt in range(8)]
    assert led == [*electors[1:], electors[0]] * 2, "height 1"
    stage.accept()
    assert [stage.node.voting._leader(attempt) for attempt in range(7)] == led[1:]


def test_the_leader_s_block_is_prevoted_and_named_first_although_another_one_is_preferred() -> None:
    stage = Stage(genesis(4))
    blocks = sorted((stage.block(miner=stage.chain.key(other)) for other in stage.others), key=lambda item: item.hash)
    attempt, leader = _attempt_led_by_another(stage)
    for block in blocks:
        stage.candidate(block)
    stage.vote(NIL, stage.others[:3], PREVOTE, attempt=0)
    stage.vote(NIL, stage.others[:3], PRECOMMIT, attempt=attempt - 1)
    assert stage.node.voting.agreement.attempt == attempt
    effects = stage.vote(blocks[-1], [leader], PREVOTE, attempt=attempt)
    assert votes(effects) == [(PREVOTE, attempt, blocks[-1].hash)]
    shown = stage.node._parts.answers.status(stage.node.voting.agreement)
    assert shown.candidates[0] == blocks[-1].hash
    assert blocks[-1].hash in stage.node._parts.blocks.wanted


# --- after a crash


def test_after_a_crash_nothing_is_voted_twice_and_the_height_goes_on() -> None:
    stage = Stage(genesis(4))
    block = stage.block()
    assert votes(stage.candidate(block)) == [(PREVOTE, 0, block.hash)]
    stage.restart()
    assert votes(stage.wait(60)) == [], "a prevote alone leads nowhere, and is not taken back"
    effects = stage.vote(block, stage.others[:2])
    assert votes(effects) == [(PRECOMMIT, 0, block.hash)]
    stage.restart()
    assert votes(stage.wait(60)) == []
    stage.vote(block, stage.others[:2], PRECOMMIT)
    assert stage.node.head.block_hash == block.hash
    check_promises(stage.victim)


def test_a_lock_holds_although_the_data_folder_is_lost() -> None:
    """The journal lies beside the key; the head that it belongs to is reached anew by catching up."""
    stage = Stage(genesis(4))
    (first,) = stage.accept()
    block, rival = stage.block(), stage.block(without=stage.others[:1], miner=stage.chain.key(stage.others[1]))
    stage.candidate(block)
    assert votes(stage.vote(block, stage.others[:2]))[-1] == (PRECOMMIT, 0, block.hash)
    stage.victim.store = MemoryStore()
    stage.restart(is_heard=False)
    stage.final(first)
    assert stage.node.voting.agreement.lock == (0, block.hash)
    stage.hear()
    stage.wait(LISTENING_MS / 1_000)
    stage.candidate(rival)
    effects = stage.vote(NIL, stage.others[:2], attempt=1) + stage.wait(1)
    assert votes(effects)[0] == (PREVOTE, 1, block.hash), "what it is locked on, which it does not even hold"
    check_promises(stage.victim)


def test_a_lock_is_explained_to_others_after_everybody_crashed() -> None:
    """A quorum of prevotes that only one member knows is all that can bring the others to its lock."""
    stage = Stage(genesis(4))
    block = stage.block()
    stage.candidate(block)
    stage.vote(block, stage.others[:2])
    stage.restart()
    shown = stage.node._parts.answers.status(stage.node.voting.agreement)
    assert shown.lock == (0, block.hash)
    (answer,) = sent(stage.receive(GetCertificate(1, 0, block.hash)), CertificateMessage)
    assert answer.certificate.block_hash == block.hash
    assert len(answer.certificate.votes) == 3


def _as_prevotes(forged: Certificate) -> Certificate:
    votes_in_it = tuple(replace(vote, kind=PREVOTE) for vote in forged.votes)
    return replace(forged, kind=PREVOTE, votes=votes_in_it)


def _of_a_rival(chain: ChainBuilder, block: Block) -> Certificate:
    return chain.certificate(chain.remake(block, key=keys(4)[3]), kind=PREVOTE)


def _of_another_attempt(chain: ChainBuilder, block: Block) -> Certificate:
    return chain.certificate(block, kind=PREVOTE, attempt=1)


def _of_another_height(chain: ChainBuilder, block: Block) -> Certificate:
    voters = sorted(keys(4)[1:], key=lambda key: key.public_key)
    height = block.header.height + 1
    return certify(sign_vote(key, chain.genesis.chain_id, (height, 0, PREVOTE), block.hash) for key in voters)


TRUE = ("prevotes", "prevotes, relabelled")
"""Forged decisions that are just what a lock needs once they are called prevotes."""

PROOFS = [
    *(forge for name, forge in FORGED.items() if name != TRUE[0]),
    *(
        lambda chain, block, f=forge: _as_prevotes(f(chain, block))
        for name, forge in FORGED.items()
        if name not in TRUE
    ),
    ChainBuilder.certificate,
    _of_a_rival,
    _of_another_attempt,
    _of_another_height,
]


@pytest.mark.parametrize("forge", PROOFS)
def test_a_wrong_proof_of_a_lock_in_a_journal_moves_nobody(forge: Forge) -> None:
    """Somebody altered the journal by hand: the lock holds, and what is said to have allowed it counts nothing."""
    stage = Stage(genesis(4))
    stage.accept()
    block = stage.block()
    stage.candidate(block)
    stage.vote(block, stage.others[:2])
    stage.victim.journal = replace(stage.node.journal, proof=forge(stage.chain, block))
    stage.victim.effects.clear()
    stage.restart()
    agreement = stage.node.voting.agreement
    assert agreement.lock == (0, block.hash)
    assert (agreement.ballots.newest_polka, agreement.ballots.decision) == (None, None)
    assert stage.node.head.height == 1
    (notice,) = [item.notice for item in stage.victim.effects if isinstance(item, Tell)]
    assert isinstance(notice, NotBelieved)
    assert notice.what == "the journal's proof of a lock at height 2"
    assert refused(stage.receive(CertificateMessage(stage.certificate(block, PREVOTE)))) == [], "the true one is taken"
    assert agreement.ballots.newest_polka is not None
    check_promises(stage.victim)


def test_votes_of_another_height_in_a_journal_decide_nothing() -> None:
    """Somebody put the precommits for the block below into it: the open height is decided by its own."""
    stage = Stage(genesis(4))
    below = stage.accept()[0]
    block = stage.block()
    stage.candidate(block)
    others = stage.certificate(below).votes
    stage.victim.journal = replace(stage.node.journal, votes=(*stage.node.journal.votes, *others))
    stage.restart()
    assert stage.node.voting.agreement.ballots.decision is None
    stage.candidate(block)
    for kind in (PREVOTE, PRECOMMIT):
        stage.vote(block, stage.others, kind)
    assert stage.node.head.block_hash == block.hash
    check_promises(stage.victim)


def test_votes_of_earlier_attempts_are_shown_again_after_a_crash() -> None:
    """Others may be an attempt behind, and need them to go on."""
    stage = Stage(genesis(4))
    block = stage.block()
    stage.candidate(block)
    for voter in stage.others[:2]:
        stage.vote(NIL, [voter])
        stage.vote(NIL, [voter], PRECOMMIT)
    assert stage.node.voting.agreement.attempt == 1
    assert (PREVOTE, 1, block.hash) in votes(stage.wait(1))
    stage.restart()
    shown = {(held.kind, held.attempt) for held in stage.node._parts.answers.status(stage.node.voting.agreement).votes}
    assert shown == {(PREVOTE, 0), (PRECOMMIT, 0), (PREVOTE, 1)}
    asked = GetVotes(1, PRECOMMIT, 0, stage.holds(stage.me))
    assert [answer.vote.block_hash for answer in sent(stage.receive(asked), VoteMessage)] == [NIL]


def test_the_votes_by_which_a_member_gave_up_a_block_or_an_attempt_outlive_its_process() -> None:
    """A liar shows its votes to one member, which goes on by them; the others need them, and it says them no more."""
    stage = Stage(genesis(4), contributes=False)
    honest, _, liar = stage.others
    for voter, block_hash in zip(stage.others, (sha256(b"a block"), NIL, NIL), strict=True):
        effects = stage.vote(block_hash, [voter])
    assert votes(effects) == [(PRECOMMIT, 0, NIL)], "no block can have a quorum any more"
    stage.restart()
    ballot = stage.node.voting.agreement.ballots.ballot
    assert ballot(0, PREVOTE).first.keys() == {*stage.others}
    stage.wait(LISTENING_MS / 1_000)
    stage.vote(NIL, [honest, liar], PRECOMMIT)
    assert stage.node.voting.agreement.attempt == 1
    assert votes(stage.wait(10)) == [(PREVOTE, 1, NIL)]
    stage.restart()
    ballot = stage.node.voting.agreement.ballots.ballot
    assert ballot(0, PRECOMMIT).first.keys() == {stage.me, honest, liar}
    asked = GetVotes(1, PRECOMMIT, 0, stage.holds(liar))
    assert [answer.vote.voter for answer in sent(stage.receive(asked), VoteMessage)] == [liar]
    assert not [item for item in stage.victim.notices if isinstance(item, NotBelieved)]
    check_promises(stage.victim)


def test_a_vote_that_one_member_alone_has_heard_holds_up_nobody_once_that_has_restarted() -> None:
    """Without a prevote of its own it gave the attempt up by a liar's, which is silent from then on."""
    federation = Federation(genesis(4, phase_timeout_ms=2_000), seed=1, silent=[3], miners=[0, 1])
    federation.drop = lambda sender, receiver, message: isinstance(message, CandidateMessage)
    third = federation.peers[2]
    federation.run(lambda: third.node.voting.agreement.attempt == 0)
    liar, chain_id = keys(4)[3], federation.genesis.chain_id
    vote = sign_vote(liar, chain_id, (1, 0, int(PREVOTE)), NIL)
    federation.feed(third, MessageReceived(liar.public_key, VoteMessage(vote)))
    assert [known.slot for known in third.journal.votes] == [(1, 0, int(PRECOMMIT))]
    federation.crash(2)
    federation.drop = lambda sender, receiver, message: False
    federation.restart(2)
    federation.run_to_height(2, 60)
    check_agreement(federation)


def test_the_votes_of_those_whom_a_member_followed_to_an_attempt_outlive_its_process() -> None:
    """However far that is, and with its first vote there, before it gives anything up."""
    stage, far = Stage(genesis(4), contributes=False), 2 * ATTEMPTS_AHEAD
    stage.vote(sha256(b"a block"), stage.others[:2], attempt=far)
    assert stage.node.voting.agreement.attempt == far
    assert stage.node.voting.agreement.ballots.ballot(far, PREVOTE).first.keys() == {*stage.others[:2]}
    said = next(filter(None, (votes(stage.tick(1)) for _ in range(200))))
    assert said == [(PREVOTE, far, NIL)]
    stage.restart()
    ballot = stage.node.voting.agreement.ballots.ballot(far, PREVOTE)
    assert ballot.first.keys() == {stage.me, *stage.others[:2]}
    check_promises(stage.victim)


def test_what_is_stored_was_said_although_the_journal_is_lost() -> None:
    stage = Stage(genesis(4))
    block = stage.block()
    stage.candidate(block)
    stage.vote(block, stage.others[:2])
    stage.victim.journal = Journal()
    stage.restart()
    assert stage.node.journal.slot == (1, 0, int(PRECOMMIT))
    assert stage.node.journal.lock == (0, block.hash)
    assert votes(stage.wait(60)) == []
    check_promises(stage.victim)


QUICK = genesis(4, phase_timeout_ms=2_000, vote_timeout_ms=1_000)
SILENCE_S = SILENT_TIMEOUTS * 2


@pytest.mark.parametrize("order", [*permutations(range(4))])
def test_in_whatever_order_a_node_hears_itself_its_lock_holds(order: tuple[int, ...]) -> None:
    """It lost disk and journal. Others show it what it said: locked in attempt 0, it prevoted so in attempt 1."""
    stage = Stage(QUICK, contributes=False)
    block, rival = stage.block(), stage.block(without=stage.others[:1], miner=stage.chain.key(stage.others[1]))
    said = [
        stage.a_vote(stage.me, block, PREVOTE, 0),
        stage.a_vote(stage.me, block, PRECOMMIT, 0),
        stage.a_vote(stage.me, block, PREVOTE, 1),
        stage.a_vote(stage.me, NIL, PRECOMMIT, 1),
    ]
    for place in order:
        stage.receive(VoteMessage(said[place]))
    assert stage.node.journal.lock == (0, block.hash)
    assert stage.node.journal.slot == (1, 1, int(PRECOMMIT))
    stage.candidate(rival)
    stage.wait(SILENCE_S)
    effects = stage.vote(rival, stage.others[:2], attempt=2) + stage.wait(60)
    assert votes(effects)[0] == (PREVOTE, 2, block.hash)
    assert rival.hash not in {item[2] for item in votes(effects)}


def test_a_lock_that_was_heard_of_holds_where_we_are_attempts_further() -> None:
    stage = Stage(QUICK, contributes=False)
    block, rival = stage.block(), stage.block(without=stage.others[:1], miner=stage.chain.key(stage.others[1]))
    stage.vote(NIL, stage.others[:2], attempt=2)
    assert stage.node.voting.agreement.attempt == 2
    stage.vote(block, [stage.me], PRECOMMIT)
    assert stage.node.is_silent()
    stage.candidate(rival)
    effects = stage.wait(SILENCE_S + 60)
    assert stage.node.voting.agreement.lock == (0, block.hash)
    assert votes(effects)[0] == (PREVOTE, 2, block.hash), "what its journal says it is locked on"


def test_a_status_tells_of_every_attempt_in_turn() -> None:
    """Else a member that lost its memory would not hear of the attempt in which it locked."""
    stage, attempts = Stage(QUICK, contributes=False), 12
    for attempt in range(attempts):
        for kind in (PREVOTE, PRECOMMIT):
            stage.vote(NIL, stage.others[:1], kind, attempt)
    told = set()
    for _ in range(2 * attempts):
        stage.now_ms += 1_000
        status = stage.node._parts.answers.status(stage.node.voting.agreement)
        assert len(status.votes) == HELD_VOTES_MAX
        told |= {(held.kind, held.attempt) for held in status.votes}
        stage.tick()
    held = {(kind, attempt) for kind in (PREVOTE, PRECOMMIT) for attempt in range(ATTEMPTS_AHEAD)}
    assert told == held, "those further ahead are not kept"


# --- votes that come early


def _early(stage: Stage) -> int:
    return sum(len(kept) for kept in stage.node.voting._early.values())


def test_votes_for_the_next_height_are_counted_when_it_opens() -> None:
    stage = Stage(genesis(4))
    block = stage.block()
    stage.candidate(block)
    after = stage.chain.extend(block.hash, certificate=stage.certificate(block))
    assert refused(stage.vote(after, stage.others, PREVOTE, height=2)) == ["OutOfWindow"] * 3
    stage.final(block)
    assert stage.node.voting.agreement.ballots.ballot(0, PREVOTE).tally == {after.hash: 3}
    assert stage.node.voting.agreement.attempt == 0, "enough of the others are there"


def test_early_votes_of_strangers_and_forged_ones_leave_no_trace() -> None:
    stage = Stage(genesis(4))
    before = stage.digest()
    for number in range(100):
        stranger = PrivateKey(sha256(b"stranger %d" % number))
        vote = sign_vote(stranger, stage.genesis.chain_id, (2, 0, PREVOTE), NIL)
        assert refused(stage.receive(VoteMessage(vote))) == ["OutOfWindow"]
        forged = replace(vote, voter=stage.others[0], attempt=number)
        assert refused(stage.receive(VoteMessage(forged))) == ["InvalidSignature"]
    assert stage.digest() == before
    assert _early(stage) == 0
    stage.vote(NIL, stage.others, height=2)
    assert _early(stage) == 3, "forged votes take nobody's place"


def test_who_has_no_vote_at_this_height_may_have_one_at_the_next() -> None:
    stage = Stage(genesis(7, committee_size=4))
    outside = [member for member in stage.others if member not in stage.node.head.roster.electors]
    stage.vote(NIL, outside, height=2)
    assert _early(stage) == len(outside) > 0


def test_a_member_has_room_for_few_early_votes() -> None:
    stage = Stage(genesis(4))
    for attempt in range(50):
        stage.vote(NIL, stage.others[:1], attempt=attempt, height=2)
    assert _early(stage) == EARLY_MAX
    stage.vote(NIL, stage.others, height=2)
    assert _early(stage) == EARLY_MAX + 2


def test_votes_beyond_the_next_height_are_not_kept() -> None:
    stage = Stage(genesis(4))
    before = stage.digest()
    assert refused(stage.vote(NIL, stage.others, height=3)) == ["OutOfWindow"] * 3
    assert (stage.digest(), _early(stage)) == (before, 0)


# --- attempts


def test_no_vote_ends_the_attempts_that_there_are() -> None:
    """One of three members may take the others to its attempt; they have to be able to go on from there."""
    stage = Stage(genesis(3))
    stage.vote(NIL, stage.others[:1], attempt=2**64 - 1)
    assert stage.node.voting.agreement.attempt < 1
    stage.vote(NIL, stage.others[:1], attempt=2**32)
    assert stage.node.voting.agreement.attempt == 2**32
    for kind in (PREVOTE, PRECOMMIT):
        stage.vote(NIL, stage.others, kind, attempt=2**32)
    assert stage.node.voting.agreement.attempt == 2**32 + 1
    assert (PREVOTE, 2**32 + 1, NIL) in votes(stage.wait(200)), "it can be signed, too"


def test_a_vote_that_no_honest_member_would_sign_is_its_voters_fault() -> None:
    stage = Stage(genesis(4))
    key = stage.chain.key(stage.others[0])
    odd = sign_vote(key, stage.genesis.chain_id, (1, 0, PREVOTE), NIL, clock_ms=5)
    effects = stage.receive(VoteMessage(odd))
    assert (refused(effects), blamed(effects)) == (["OutOfWindow"], [(key.public_key, "InvalidVote")])


def test_who_has_no_vote_at_this_height_is_not_heard() -> None:
    stage = Stage(genesis(7, committee_size=4))
    electors = stage.node.head.roster.electors
    outside = [member for member in stage.others if member not in electors]
    before = stage.digest()
    assert refused(stage.vote(NIL, outside)) == ["InvalidSignature"] * len(outside)
    assert stage.digest() == before


# --- certificates


def test_a_certificate_is_taken_of_anybody_and_checked() -> None:
    stage = Stage(genesis(4))
    block = stage.block()
    stage.candidate(block)
    for _ in range(2):
        stage.vote(NIL, stage.others[:2])
    good = stage.certificate(block, PREVOTE, attempt=0)
    forged = replace(good, votes=(*good.votes[:2], replace(good.votes[2], signature=bytes(64))))
    assert refused(stage.receive(CertificateMessage(forged))) == ["InvalidCertificate"]
    for wrong in (stage.certificate(block, PRECOMMIT), replace(good, height=2)):
        assert refused(stage.receive(CertificateMessage(wrong))) == ["OutOfWindow"]
    assert refused(stage.receive(CertificateMessage(good))) == []
    assert refused(stage.receive(CertificateMessage(good))) == ["AlreadyKnown"]
    polka = stage.node.voting.agreement.ballots.polka(0)
    assert polka is not None
    assert polka.block_hash == block.hash


def test_a_decision_without_its_block_has_the_block_asked_for() -> None:
    stage = Stage(genesis(4))
    block = stage.block()
    stage.vote(block, stage.others, PRECOMMIT)
    assert stage.node.head.height == 0
    status = stage.status(candidates=(block.hash,))
    assert sent(stage.receive(status), GetCandidate) == [GetCandidate(block.hash)]
    stage.receive(CandidateMessage(block))
    assert stage.node.head.block_hash == block.hash, "a quorum has its payloads"


def test_members_that_change_lead_in_the_order_of_their_places() -> None:
    """Otherwise a member could look for a key whose turn it is."""
    stage, fixed = Stage(living_genesis(5)), Stage(genesis(5))
    members = stage.genesis.members
    assert [stage.node.voting._leader(attempt) for attempt in range(5)] == [*members[1:], members[0]]
    assert [fixed.node.voting._leader(attempt) for attempt in range(-1, 4)] == sorted(fixed.genesis.members)
