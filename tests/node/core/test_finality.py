"""Precommits of a quorum make a block final, and nothing else does, also where it is held as a candidate."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from fedchain.chain.block import Block
from fedchain.chain.certificate import Certificate
from fedchain.network.messages import CertificateMessage, EvidenceMessage, FinalMessage, VoteMessage
from fedchain.node.core.effects import Persist
from tests.support.chain.builders import genesis
from tests.support.node.stage import PRECOMMIT, PREVOTE, Stage, published, refused, votes

Forge = Callable[[Stage, Block, Block], tuple[Block, Certificate]]
"""A final block that is none, from a candidate that the node holds and a rival of it."""


def _rivals(stage: Stage) -> tuple[Block, Block]:
    """A candidate that the node holds and has voted for, and another one that it holds, too."""
    held = stage.block()
    assert votes(stage.candidate(held)) == [(PREVOTE, 0, held.hash)]
    rival = stage.block(miner=stage.chain.key(stage.others[1]))
    stage.candidate(rival)
    return held, rival


FORGED: dict[str, Forge] = {
    "prevotes": lambda stage, held, rival: (held, stage.certificate(held, PREVOTE)),
    "prevotes of a later attempt": lambda stage, held, rival: (held, stage.certificate(held, PREVOTE, attempt=1)),
    "prevotes under the name of precommits": lambda stage, held, rival: (
        held,
        replace(stage.certificate(held, PREVOTE), kind=PRECOMMIT),
    ),
    "one precommit": lambda stage, held, rival: (held, stage.chain.certificate(held, stage.others[:1])),
    "one precommit less": lambda stage, held, rival: (held, stage.chain.certificate(held, stage.others[:2])),
    "precommits for another block": lambda stage, held, rival: (held, stage.certificate(rival)),
    "precommits for another block under its name": lambda stage, held, rival: (
        held,
        replace(stage.certificate(rival), block_hash=held.hash),
    ),
    "precommits under another height": lambda stage, held, rival: (held, replace(stage.certificate(held), height=2)),
    "another body": lambda stage, held, rival: (
        replace(held, transactions=held.transactions[1:]),
        stage.certificate(held),
    ),
    "another signature": lambda stage, held, rival: (
        replace(held, signature=rival.signature),
        stage.certificate(held),
    ),
}


@pytest.mark.parametrize("forge", FORGED.values(), ids=FORGED)
def test_a_held_candidate_is_not_final_by(forge: Forge) -> None:
    """Every member holds the candidates of the open height: a liar needs no block, only something like a proof.

    Nor is the candidate final at the second try: a proof that failed leaves no trace.
    """
    stage = Stage(genesis(4))
    held, rival = _rivals(stage)
    block, certificate = forge(stage, held, rival)
    before = stage.digest()
    for _ in range(2):
        effects = stage.receive(FinalMessage(block, certificate))
        assert refused(effects) in (["InvalidCertificate"], ["InvalidSignature"])
        assert not any(isinstance(effect, Persist) for effect in effects)
        assert stage.node.head.height == 0
        assert stage.digest() == before
    stage.final(held)
    assert stage.node.ledger.final(1) == (held, stage.certificate(held)), "the true proof is taken all the same"


# --- what a certificate says is compared with what was heard


def test_a_precommit_in_the_proof_of_a_final_block_convicts_a_member_that_told_us_another_one() -> None:
    stage = Stage(genesis(4))
    held, rival = _rivals(stage)
    culprit = stage.others[0]
    heard, shown = (stage.chain.vote(culprit, block) for block in (rival, held))
    stage.receive(VoteMessage(heard))
    effects = stage.final(held)
    assert stage.node.head.block_hash == held.hash
    (message,) = published(effects, EvidenceMessage)
    assert {message.evidence.first, message.evidence.second} == {heard, shown}


def test_a_prevote_in_a_polka_convicts_a_member_that_told_us_another_one() -> None:
    stage = Stage(genesis(4))
    held, rival = _rivals(stage)
    culprit = stage.others[0]
    heard, shown = (stage.chain.vote(culprit, block, kind=PREVOTE) for block in (rival, held))
    stage.receive(VoteMessage(heard))
    (message,) = published(stage.receive(CertificateMessage(stage.certificate(held, PREVOTE))), EvidenceMessage)
    assert {message.evidence.first, message.evidence.second} == {heard, shown}


def test_votes_that_agree_with_what_was_heard_convict_nobody() -> None:
    stage = Stage(genesis(4))
    held, _ = _rivals(stage)
    for vote in stage.certificate(held, PREVOTE).votes[:2]:
        stage.receive(VoteMessage(vote))
    stage.vote(held, stage.others[:1], PRECOMMIT)  # by another clock than in the proof
    effects = stage.receive(CertificateMessage(stage.certificate(held, PREVOTE))) + stage.final(held)
    assert published(effects, EvidenceMessage) == []
