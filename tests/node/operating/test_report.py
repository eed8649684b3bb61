"""Two certified heads in a node's status; the rest is tested where it arises."""

import json
from types import SimpleNamespace
from typing import Any

import anyio
import pytest

from fedchain.chain.genesis import Genesis
from fedchain.crypto.address import address
from fedchain.crypto.keys import PublicKey
from fedchain.node.core.following.light_joining import LightJoining
from fedchain.node.core.notices import HeadConflicts
from fedchain.node.operating.console import show_service, status_lines
from fedchain.node.operating.report import report
from fedchain.node.shell.activity import Activity
from tests.support.chain.builders import genesis, keys
from tests.support.chain.changes import living_genesis
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
    service: Any = SimpleNamespace(
        node=stage.node,
        activity=Activity(),
        genesis=document,
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


def test_a_node_that_a_quorum_contradicts_waits_for_its_operator() -> None:
    """It said that it waits for the others before it speaks, and it would do so for ever."""
    for document in (genesis(4), living_genesis(4)):
        found = reported(document, is_contradicted=True)
        assert found["silent"]
        assert found["waiting_for"] == "its operator: a quorum disagrees with what it computes, and it votes no more"


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
