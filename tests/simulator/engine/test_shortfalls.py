"""Reasons for which peers have nothing to post, and the moment at which that ends a run."""

from dataclasses import replace

from fedchain.chain.state import genesis_state, posts_required
from fedchain.learning.exceptions import DecryptionRefused, NothingToPost
from fedchain.node.core.effects import Contribute
from fedchain.simulator.engine.shortfalls import Shortfalls
from tests.support.simulator.trivial import contribution, trivial_genesis, trivial_scenario

GENESIS = trivial_genesis(trivial_scenario())
HEAD = genesis_state(GENESIS)
EFFECT = Contribute(round=HEAD.round, phase=HEAD.phase, phase_name="local", knowledge=b"")


def test_a_phase_fails_when_fewer_can_post_than_it_needs() -> None:
    shortfalls, spare = Shortfalls(GENESIS), len(HEAD.roster) - posts_required(GENESIS, HEAD)
    ends = [
        shortfalls.on_nothing(number, HEAD, EFFECT, NothingToPost(f"peer {number} diverged"))
        for number in [0, *range(spare + 1)]
    ]
    assert ends == [False] * (spare + 1) + [True], "a peer that fails twice is one peer"
    assert shortfalls.not_posted == [f"peer {number} diverged" for number in range(spare + 1)]


def test_a_phase_of_shares_may_have_none_and_a_late_failure_harms_no_phase() -> None:
    shortfalls, late = Shortfalls(GENESIS), replace(EFFECT, round=HEAD.round + 1)
    assert not any(shortfalls.on_nothing(number, HEAD, EFFECT, DecryptionRefused("no")) for number in range(4))
    assert not any(shortfalls.on_nothing(number, HEAD, late, NothingToPost("no")) for number in range(4))


def test_behind_a_phase_that_closed_empty_there_is_nothing_to_work_on_and_no_run_ends() -> None:
    shortfalls, behind = Shortfalls(GENESIS), replace(HEAD, phase=1, posts=0)
    assert not any(shortfalls.on_nothing(number, behind, EFFECT, NothingToPost("no")) for number in range(4))
    assert shortfalls.not_posted == ["no"] * 4


def test_what_was_not_used_is_told_once_for_each_sender_and_round() -> None:
    shortfalls, made = Shortfalls(GENESIS), replace(contribution(0, 1, b""), skipped=((3, "not a number"),))
    for round_number in (1, 1, 2):
        shortfalls.on_contribution(0, round_number, made)
    assert shortfalls.skipped == [
        "peer 0, round 1: nothing of peer 3 is used: not a number",
        "peer 0, round 2: nothing of peer 3 is used: not a number",
    ]
