"""A member that puts messages together from parts of others: one node takes none of them for what it is not."""

import pytest

from fedchain.network.messages import FinalMessage
from tests.support.chain.builders import keys
from tests.support.node.recombination import (
    MEMBERS,
    SITUATIONS,
    VERSIONS,
    Trial,
    every_message,
    hoard,
    messages,
    shuffled,
)

THINNED = 32
"""One message in so many is handed out in each situation; ``make soak ARGS='messages'`` hands out all of them."""

AT_ONCE = 150
"""Messages that a victim gets one upon the other, before it hears of the honest ones again."""


@pytest.mark.long
@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("name", SITUATIONS)
def test_no_recombination_passes_for_what_it_is_not(name: str, version: int) -> None:
    trial = Trial(version, name)
    for message in messages(version)[[*SITUATIONS].index(name) % THINNED :: THINNED]:
        trial.hand(message)
    assert trial.broken == []
    assert trial.played > 5_000 / THINNED
    assert trial.anew > 0, "nothing that a traitor may say does anything"


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("name", ["prevoted", "next height"])
def test_no_votes_but_precommits_of_a_quorum_make_a_block_that_is_held_final(name: str, version: int) -> None:
    """Two honest prevotes and the traitor's own used to do."""
    trial = Trial(version, name)
    for message in messages(version):
        if isinstance(message, FinalMessage) and message.block in trial.held():
            trial.hand(message)
    assert trial.broken == []
    assert trial.played > 100


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("name", SITUATIONS)
def test_recombinations_one_upon_the_other_keep_nobody_from_what_was_decided(name: str, version: int) -> None:
    trial = Trial(version, name)
    trial.hand_all(shuffled(messages(version), 1, AT_ONCE))
    assert trial.broken == []


@pytest.mark.parametrize("version", VERSIONS)
def test_with_the_keys_of_a_quorum_it_is_seen_that_the_head_is_another_one(version: int) -> None:
    """Otherwise the other tests would pass with an oracle that is blind."""
    held, trial = hoard(version, without_victim=True), Trial(version, "prevoted")
    held.keys = keys(MEMBERS)[1:]
    for message in every_message(held, set()):
        trial.hand(message)
        if trial.broken:
            break
    assert "not on what was decided" in trial.broken[0]
