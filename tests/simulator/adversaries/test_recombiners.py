"""The recombining adversary is busy: what its schedules show means nothing if it hands out little."""

from collections import Counter
from functools import cache

import pytest

from fedchain.network.messages import (
    CandidateMessage,
    CertificateMessage,
    Chunk,
    EvidenceMessage,
    FinalMessage,
    GetFinal,
    Message,
    Payloads,
    PostMessage,
    Status,
    VoteMessage,
)
from fedchain.simulator.adversaries.hoard import Hoard
from fedchain.simulator.adversaries.recombiners import Recombiner
from fedchain.simulator.disturbances import Traitors
from fedchain.simulator.engine.network import Parcel
from tests.support.chain.builders import ChainBuilder, genesis, keys
from tests.support.simulator.trivial import trivial_scenario, trivial_simulation

TRAITORS = (5, 6)
KINDS = (
    CandidateMessage,
    CertificateMessage,
    Chunk,
    EvidenceMessage,
    FinalMessage,
    GetFinal,
    Payloads,
    PostMessage,
    Status,
    VoteMessage,
)


@cache
def play() -> tuple[list[Recombiner], Counter[type[Message]]]:
    """Two recombiners of seven, and how much of what they sent to honest members."""
    liars = Traitors(behaviour="recombiner", peers=TRAITORS)
    simulation = trivial_simulation(trivial_scenario(peers=7, rounds=20, seed=1, adversaries=(liars,)))
    sent: Counter[type[Message]] = Counter()
    deliver = simulation.network._on_delivery

    def count(receiver: int, sender: int, parcel: Parcel) -> None:
        if sender in TRAITORS and receiver not in TRAITORS:
            sent[type(parcel.message)] += 1
        deliver(receiver, sender, parcel)

    simulation.network._on_delivery = count
    assert simulation.run().violations == []
    behaviours = [simulation.peers[number].behaviour for number in TRAITORS]
    return [item for item in behaviours if isinstance(item, Recombiner)], sent


@pytest.mark.long
def test_messages_of_every_kind_are_handed_out() -> None:
    _, sent = play()
    assert all(sent[kind] for kind in KINDS), f"none of {[kind for kind in KINDS if not sent[kind]]}"


@pytest.mark.long
def test_a_coalition_keeps_together_what_its_members_heard() -> None:
    (first, second), _ = play()
    assert first._hoard is second._hoard
    assert {key.public_key for key in first._hoard.keys} == {first.key.public_key, second.key.public_key}
    assert len(first._hoard.heights()) > 1
    voters = {voter for votes in first._hoard.votes.values() for voter in votes}
    assert voters >= {first.member(number) for number in first.coalition.honest}


def test_a_hoard_forgets_what_is_below_a_height_and_nothing_else() -> None:
    chain = ChainBuilder(genesis())
    blocks = chain.extend_many(3)
    hoard = Hoard(chain.genesis, keys(1))
    for block in blocks:
        hoard.note(CandidateMessage(block))
        hoard.note(VoteMessage(chain.vote(keys(4)[2].public_key, block)))
    hoard.forget_before(2)
    assert hoard.heights() == [2, 3]
    assert {height for _, height, _, _ in hoard.votes} == {2, 3}
