"""Blocks that leave out posts which all honest members held: some may, and some break a promise."""

from types import SimpleNamespace
from typing import Any

import pytest

from fedchain.chain.exceptions import InvalidBlock
from fedchain.network.messages import CandidateMessage, PostMessage
from fedchain.node.core.deadlines import forgiven_after_ms
from fedchain.node.core.effects import Effect, Publish, Refuse
from fedchain.node.core.events import Computed, Event, MessageReceived, Tick
from fedchain.node.core.jobs import CheckPost, KeepPart
from fedchain.simulator.disturbances import Traitors
from fedchain.simulator.oracles.inclusion import Inclusion
from tests.support.chain.builders import keys
from tests.support.chain.late import late_chain
from tests.support.simulator.trivial import trivial_scenario, trivial_simulation

MEMBERS = range(4)
PEERS: Any = [SimpleNamespace(number=number, public_key=keys(4)[number].public_key) for number in MEMBERS]
LONG_MS = 60_000


@pytest.mark.parametrize(("in_time", "broken"), [(1, 0), (2, 1)])
def test_owed_posts_are_none_of_those_that_a_phase_needs_to_be_closed_with_posts(in_time: int, broken: int) -> None:
    """Two contributors are drawn and both are needed; of two rounds before, one post is owed that everybody has."""
    chain = late_chain(len(MEMBERS), contributors_per_round=2)
    late = chain.posts()[:1]
    chain.extend(posts=())
    before, found = chain.state, list[str]()
    assert before.owed_to(late[0].key)
    oracle = Inclusion(chain.genesis, MEMBERS, found.append)
    for post in (*late, *chain.posts()[:in_time]):
        oracle.on_post(MEMBERS, post, 0)
    block = chain.extend(posts=())
    for peer in PEERS:
        oracle.on_message(peer, CandidateMessage(block), (), LONG_MS)
    oracle.on_first_final(before, block, LONG_MS + 1, PEERS)
    assert len(found) == broken


@pytest.mark.parametrize("can_tell", [True, False])
def test_a_post_may_be_left_out_if_somebody_cannot_tell_whether_its_parts_came(can_tell: bool) -> None:
    chain, found = late_chain(len(MEMBERS)), list[str]()
    before, posts, oracle = chain.state, chain.posts(), Inclusion(chain.genesis, MEMBERS, found.append)
    for peer in PEERS:
        node = SimpleNamespace(insists_on=lambda post, sees=can_tell or peer.number: sees)
        seeing: Any = SimpleNamespace(**vars(peer), node=node)
        for post in posts:
            oracle.on_message(seeing, PostMessage(post, b""), (), 0)
    block = chain.extend(posts=posts[1:])
    for peer in PEERS:
        oracle.on_message(peer, CandidateMessage(block), (), LONG_MS)
    oracle.on_first_final(before, block, LONG_MS + 1, PEERS)
    assert len(found) == can_tell


@pytest.mark.parametrize(
    ("came_ms", "is_refused", "broken"),
    [(LONG_MS - 2_001, False, 1), (LONG_MS - 2_000, False, 0), (LONG_MS - 2_001, True, 0)],
)
def test_a_post_that_came_shortly_before_the_block_may_be_left_out(came_ms: int, is_refused: bool, broken: int) -> None:
    """Nobody's wait is counted from a block that was refused."""
    chain, found = late_chain(len(MEMBERS)), list[str]()
    before, posts, oracle = chain.state, chain.posts(), Inclusion(chain.genesis, MEMBERS, found.append)
    for post in posts:
        oracle.on_post(MEMBERS, post, came_ms)
    block = chain.extend(posts=posts[1:])
    effects = [Refuse(bytes(32), InvalidBlock("block", "why"))] if is_refused else []
    for peer in PEERS:
        oracle.on_message(peer, CandidateMessage(block), effects, LONG_MS)
    oracle.on_first_final(before, block, LONG_MS + 1, PEERS)
    assert len(found) == broken
    assert oracle.posts_lost == 1


def test_a_post_that_a_crash_took_from_one_member_may_be_left_out() -> None:
    chain, found = late_chain(len(MEMBERS)), list[str]()
    before, posts, oracle = chain.state, chain.posts(), Inclusion(chain.genesis, MEMBERS, found.append)
    for post in posts:
        oracle.on_post(MEMBERS, post, 0)
    oracle.on_crash(2)
    block = chain.extend(posts=posts[1:])
    for peer in PEERS:
        oracle.on_message(peer, CandidateMessage(block), (), LONG_MS)
    oracle.on_first_final(before, block, LONG_MS + 1, PEERS)
    assert found == []


def test_a_late_post_is_due_as_long_as_it_may_count() -> None:
    chain, found = late_chain(len(MEMBERS)), list[str]()
    oracle, first = Inclusion(chain.genesis, MEMBERS, found.append), chain.posts()[0]
    forgiven_ms = forgiven_after_ms(chain.genesis)
    oracle.on_post(MEMBERS, first, 0)
    for number in range(3):
        before = chain.state
        posts = [post for post in chain.posts() if post.sender != first.sender]
        block = chain.extend(posts=posts)
        for peer in PEERS:
            oracle.on_message(peer, CandidateMessage(block), (), (number + 1) * forgiven_ms)
        waited_ms = forgiven_ms - (number == 2)
        oracle.on_first_final(before, block, (number + 1) * forgiven_ms + waited_ms, PEERS)
        assert len(found) == (number == 2)


@pytest.mark.parametrize("way", ["message", "check", "part", "own"])
def test_a_post_is_due_however_it_came_to_be_held(way: str) -> None:
    chain, found = late_chain(len(MEMBERS)), list[str]()
    before, posts, oracle = chain.state, chain.posts(), Inclusion(chain.genesis, MEMBERS, found.append)
    held: Any = SimpleNamespace(insists_on=lambda post: True)
    for post in posts:
        events: dict[str, tuple[Event, list[Effect]]] = {
            "message": (MessageReceived(post.sender, PostMessage(post, b"")), []),
            "check": (Computed(CheckPost(before, b"", post, b""), None), []),
            "part": (Computed(KeepPart(before, post, b"", post.payload_hash, b""), None), []),
            "own": (Tick(), [Publish(PostMessage(post, b""))]),
        }
        for peer in PEERS:
            seeing: Any = SimpleNamespace(**vars(peer), node=held)
            oracle.on_event(seeing, *events[way], 0)
    block = chain.extend(posts=posts[1:])
    for peer in PEERS:
        oracle.on_message(peer, CandidateMessage(block), (), LONG_MS)
    oracle.on_first_final(before, block, LONG_MS + 1, PEERS)
    assert len(found) == 1


def test_the_wait_for_a_better_block_begins_when_the_first_voter_has_this_one_which_its_miner_may_be() -> None:
    chain, found = late_chain(len(MEMBERS)), list[str]()
    before, posts, oracle = chain.state, chain.posts(), Inclusion(chain.genesis, MEMBERS, found.append)
    for post in posts:
        oracle.on_post(MEMBERS, post, 0)
    message, end_ms = CandidateMessage(chain.extend(posts=posts[1:])), LONG_MS + forgiven_after_ms(chain.genesis)
    oracle.on_event(PEERS[0], Tick(), [Publish(message)], LONG_MS)
    for peer in PEERS[1:]:
        oracle.on_message(peer, message, (), end_ms)
    oracle.on_first_final(before, message.block, end_ms, PEERS)
    assert found == []


@pytest.mark.parametrize("shares_checks", [False, True])
def test_honest_members_that_vote_for_a_censor_s_blocks_are_found(
    shares_checks: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whether each of them has to check a post, or one of them did for all."""
    monkeypatch.setattr("fedchain.node.core.voting.voting.deserves_vote", lambda *_: True)
    censor = Traitors(behaviour="censor", peers=(3,))
    scenario = trivial_scenario(rounds=4, mining_s=5.0, hash_rates=(1.0, 1.0, 1.0, 20.0), adversaries=(censor,))
    founded = {"omission_slack_ms": 150}
    outcome = trivial_simulation(scenario, founded=founded, shares_checks=shares_checks).run()
    assert outcome.violations
    assert outcome.totals["posts_sent"] == 12
    assert outcome.totals["posts_lost"] == 2
    assert all(violation.startswith("inclusion: height ") for violation in outcome.violations)
