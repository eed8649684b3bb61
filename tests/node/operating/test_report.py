"""Two certified heads in a node's status; the rest is tested where it arises."""

import json
from types import SimpleNamespace
from typing import Any

import anyio
import pytest

from fedchain.chain.genesis import Genesis
from fedchain.chain.membership.change import Change, ChangeKind
from fedchain.chain.vote import VoteKind
from fedchain.crypto.address import address
from fedchain.crypto.keys import PublicKey
from fedchain.node.core.events import PeersConnected, PeersDisconnected
from fedchain.node.core.following.light_joining import LightJoining
from fedchain.node.core.notices import HeadConflicts
from fedchain.node.operating.console import show_service, status_lines
from fedchain.node.operating.metrics import _readiness
from fedchain.node.operating.report import report
from fedchain.node.shell.activity import Activity
from tests.support.chain.builders import double_vote, genesis, keys
from tests.support.chain.changes import living_genesis, own
from tests.support.node.stage import Stage

MEMBERS = [key.public_key for key in keys(4)]


def reported(
    document: Genesis,
    conflict: HeadConflicts | None = None,
    me: PublicKey = MEMBERS[1],
    *,
    is_contradicted: bool = False,
) -> dict[str, Any]:
    stage = Stage(document, 1)
    stage.node._parts.blocks.is_contradicted = is_contradicted
    if conflict is not None:
        joining = stage.node._parts.catching_up._joining
        assert isinstance(joining, LightJoining)
        joining.conflict = conflict
    return report_of(stage, me)


def report_of(stage: Stage, me: PublicKey) -> dict[str, Any]:
    service: Any = SimpleNamespace(
        node=stage.node,
        activity=Activity(),
        genesis=stage.genesis,
        me=me,
        peers=frozenset(MEMBERS[2:]),
        asks=lambda: "",
        method_failure=lambda: "",
    )
    return report(service)


def test_two_certified_heads_stand_in_the_status_with_those_that_signed_both() -> None:
    found = reported(living_genesis(4), HeadConflicts(9, (b"a" * 32, b"b" * 32), (MEMBERS[0], MEMBERS[3])))
    signers = [address(MEMBERS[0]), address(MEMBERS[3])]
    assert found["conflict"] == {"height": 9, "hashes": ["61" * 32, "62" * 32], "signers": signers}
    assert found["waiting_for"].startswith("its operator: two blocks of height 9 are certified")
    assert {found["numbers"][signer] for signer in signers} == {0, 3}
    (line,) = [line for line in status_lines(json.loads(json.dumps(found))) if line.startswith("conflict")]
    assert line.endswith(f"both signed by {signers[0]} (peer 0), {signers[1]} (peer 3)")


def test_without_them_the_status_says_nothing_of_a_conflict() -> None:
    for document in (genesis(4), living_genesis(4)):
        found = reported(document)
        assert found["conflict"] is None
        assert not [line for line in status_lines(found) if line.startswith("conflict")]
        assert not found["waiting_for"].startswith("its operator")


def test_a_node_that_waits_for_others_before_it_begins_is_not_ready() -> None:
    """With three of four a quorum is there, and still it posts and mines nothing."""
    stage = Stage(genesis(4), 1, wait_for=4, is_heard=False)
    stage.handle(PeersDisconnected((MEMBERS[0],)))
    for other in MEMBERS[2:]:
        stage.receive(stage.status(), other)
    found = report_of(stage, MEMBERS[1])
    assert _readiness(found) == (False, "it posts nothing, and waits for members: 3 of 4 are here")
    assert not [line for line in status_lines(found) if line.startswith("gathers")]
    stage.handle(PeersConnected((MEMBERS[0],)))
    stage.tick(1)
    assert _readiness(report_of(stage, MEMBERS[1])) == (True, "it takes part")


def test_a_node_that_a_quorum_contradicts_waits_for_its_operator() -> None:
    """It said that it waits for the others before it speaks, and it would do so for ever."""
    for document in (genesis(4), living_genesis(4)):
        found = reported(document, is_contradicted=True)
        assert found["silent"]
        assert found["waiting_for"] == "its operator: a quorum disagrees with what it computes, and it votes no more"


def test_a_member_that_does_not_count_is_not_ready_and_says_what_it_waits_for() -> None:
    """One that was away for its silence was said to take part, and an upgrade went on to the next member."""
    stage = Stage(living_genesis(5), 1)

    def seen(*changes: Change) -> tuple[bool, str, tuple[bool, str]]:
        if changes:
            stage.final(stage.block(changes=changes))
        stage.accept(2)
        found = report_of(stage, stage.me) | {"silent": False, "stands": None}
        return found["counts"], found["waiting_for"], _readiness(found)

    place = stage.chain.state.roster.seats[stage.me]
    assert seen()[0::2] == (True, (True, "it takes part"))
    waits = "its operator: this member is away until `fedchain node back`"
    why = f"it does not count, and waits for {waits}"
    assert seen(own(stage.chain, place, ChangeKind.AWAY)) == (False, waits, (False, why))
    stage.final(stage.block(changes=[own(stage.chain, place, ChangeKind.BACK)]))
    begin = stage.node.head.records[place].round
    assert report_of(stage, stage.me)["waiting_for"] == f"round {begin}, from which on it counts"
    assert seen()[0::2] == (True, (True, "it takes part"))


@pytest.mark.parametrize("document", [genesis(5), living_genesis(5)], ids=["version 2", "version 3"])
def test_a_convicted_member_is_not_ready(document: Genesis) -> None:
    """It was said to take part, and to wait for a block."""
    stage = Stage(document, 1)
    stage.accept()
    crime = double_vote(stage.chain.key(stage.me), stage.genesis, 1, attempt=2)
    stage.final(stage.block(evidence=[crime]))
    found = report_of(stage, stage.me) | {"silent": False, "stands": None}
    waits = "nothing: this member was convicted, and counts no more"
    assert (found["counts"], found["waiting_for"]) == (False, waits)
    assert _readiness(found) == (False, f"it does not count, and waits for {waits}")


@pytest.mark.parametrize(("number", "place"), [(1, "peer 1"), (7, "no place yet")])
def test_the_panel_of_a_terminal_shows_members_and_newcomers(
    number: int, place: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """A newcomer's node, which has no number, ended at once with a traceback where it had a terminal."""
    me = keys(8)[number].public_key
    found = reported(living_genesis(4), me=me)
    found["clocks_off"] = {address(me): 7_000}
    service: Any = SimpleNamespace(status=lambda: found)

    async def main() -> None:
        with anyio.move_on_after(0):
            await show_service(service)

    anyio.run(main)
    shown = capsys.readouterr().out
    assert f"({place})" in shown
    assert "by +7 s" in shown


def test_the_votes_that_are_told_are_those_for_one_block_in_the_step_that_lasts() -> None:
    """All prevotes were counted together, whatever for, also when precommits were lacking: votes, 5 of 4."""
    stage = Stage(genesis(5), 1)
    stage.accept()

    def waits() -> str:
        return str(report_of(stage, stage.me)["waiting_for"])

    one, another = stage.block(), stage.block(without=stage.others[:1])
    assert not waits().startswith("votes")
    stage.candidate(one)
    stage.vote(another, stage.others[:1])
    stage.vote(one, stage.others[1:2])
    assert waits() == "votes: 2 of 4 in attempt 1", "one of them is its own, and a third member prevoted otherwise"
    stage.vote(one, stage.others[2:])
    assert waits() == "votes: 1 of 4 in attempt 1", "all have prevoted, and it alone has precommitted"
    stage.vote(one, stage.others[:2], VoteKind.PRECOMMIT)
    assert waits() == "votes: 3 of 4 in attempt 1"
