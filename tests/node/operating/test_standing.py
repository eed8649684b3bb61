"""Standstills: which members' absence keeps the federation from learning, and since when."""

from types import SimpleNamespace
from typing import Any

import pytest

from fedchain.chain.genesis import AggregatorRule, Genesis
from fedchain.crypto.address import address
from fedchain.crypto.keys import PublicKey
from fedchain.node.operating.console import check_line
from fedchain.node.operating.standing import plain_standstill, standstill, standstill_text
from fedchain.node.shell.activity import Activity
from tests.support.chain.builders import genesis, keys
from tests.support.node.stage import Stage

MEMBERS = tuple(key.public_key for key in keys(7))


def as_seen(document: Genesis, *absent: int, stage: Stage | None = None, me: int = 1) -> tuple[Any, ...] | None:
    """A member's view while some members are away: what is lacking, how much, who is here, the numbers missing."""
    stage = stage or Stage(document, me)
    peers = frozenset(MEMBERS[number] for number in range(len(document.members)) if number not in (me, *absent))
    service: Any = SimpleNamespace(node=stage.node, genesis=document, me=MEMBERS[me], peers=peers)
    found = standstill(service)
    return None if found is None else (found.lacks, found.needed, found.here, [*map(MEMBERS.index, found.missing)])


def test_a_federation_goes_on_while_a_quorum_is_connected() -> None:
    assert as_seen(genesis(4)) is None
    assert as_seen(genesis(4), 3) is None
    assert as_seen(genesis(4), 2, 3) == ("votes", 3, 2, [2, 3])
    assert as_seen(genesis(4), 0, 2, 3) == ("votes", 3, 1, [0, 2, 3])


def test_posts_may_need_more_members_than_votes() -> None:
    document = genesis(4, contribution_quorum=4)
    assert as_seen(document, 3) == ("posts", 4, 3, [3])
    stage = Stage(document, 1)
    stage.post(*(post for post in stage.others_posts() if post.sender == MEMBERS[3]))
    assert as_seen(document, 3, stage=stage) is None  # it posted before it left


def test_posts_that_a_round_can_do_without_are_no_standstill() -> None:
    assert as_seen(genesis(7, contribution_quorum=7, contributors_per_round=7), 5) is None


@pytest.mark.parametrize(
    ("rule", "expected"), [(AggregatorRule.FIXED, ("the aggregate", 1, 0, [0])), (AggregatorRule.ROTATING, None)]
)
def test_a_designated_aggregator_is_needed_unless_others_take_turns(
    rule: AggregatorRule, expected: tuple[Any, ...] | None
) -> None:
    document = genesis(4, centralized=True, aggregator=rule)
    (aggregator,) = (
        number for number in range(4) if MEMBERS[number] == Stage(document).node.head.roster.aggregator_of(1)
    )
    found = as_seen(document, aggregator, me=3)
    assert found == (expected and (*expected[:3], [aggregator]))


def test_a_finished_federation_waits_for_nobody() -> None:
    document = genesis(4, rounds=1)
    stage = Stage(document, 1)
    stage.accept()
    assert stage.node.head.finished
    assert as_seen(document, 0, 2, 3, stage=stage) is None


def test_a_standstill_begins_once_and_ends() -> None:
    activity = Activity()
    activity.stand(stands=True)
    begun = activity.stands_since_ms
    assert begun is not None
    activity.stand(stands=True)
    assert activity.stands_since_ms == begun
    activity.stand(stands=False)
    assert activity.stands_since_ms is None


def plain(*missing: PublicKey) -> dict[str, Any]:
    return {"lacks": "votes", "needed": 3, "here": 1, "missing": [address(key) for key in missing], "since_ms": 5}


def test_a_standstill_is_one_line_however_many_are_missing() -> None:
    stage = Stage(genesis(4), 1)
    service: Any = SimpleNamespace(node=stage.node, genesis=stage.genesis, me=MEMBERS[1], peers=frozenset())
    found = standstill(service)
    assert found is not None
    said = plain_standstill(found, 5)
    assert said == plain(*sorted(MEMBERS[number] for number in (0, 2, 3)))
    numbers = {address(key): number for number, key in enumerate(MEMBERS)}
    text = "votes of 3 members needed, 1 is here; missing: "
    assert standstill_text(plain(MEMBERS[0], MEMBERS[2]), numbers) == f"{text}peer 0, peer 2"
    assert standstill_text(plain(MEMBERS[0]), {}) == f"{text}{address(MEMBERS[0])}"
    assert standstill_text(plain(*[MEMBERS[0]] * 11), numbers) == f"{text}{', '.join(['peer 0'] * 8)} and 3 more"


def test_monitoring_gets_a_code_and_the_reason() -> None:
    well = {"stands": None, "height": 7, "head_age_s": 12.4, "waiting_for": "a nonce"}
    assert check_line(well) == (0, "goes on: height 7, last block 12 s ago; waits for a nonce")
    assert check_line(well | {"head_age_s": None})[1].startswith("goes on: height 7, no block since this node started")
    code, line = check_line(well | {"stands": plain(MEMBERS[2]), "numbers": {address(MEMBERS[2]): 2}})
    assert (code, line.startswith("stands still since "), line.endswith("missing: peer 2")) == (1, True, True)
    conflict = {"height": 9, "hashes": ["aa", "bb"], "signers": [address(MEMBERS[2]), "12D3KooWgone"]}
    assert check_line(well | {"conflict": conflict, "numbers": {address(MEMBERS[2]): 2}}) == (
        1,
        f"joins no chain: height 9 has aa and bb, both signed by {address(MEMBERS[2])} (peer 2), 12D3KooWgone",
    )
    assert check_line(None) == (2, "no answer: no node runs in this folder")
