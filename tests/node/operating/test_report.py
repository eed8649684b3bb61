"""Two certified heads in a node's status; the rest is tested where it arises."""

import json
from types import SimpleNamespace
from typing import Any

from fedchain.chain.genesis import Genesis
from fedchain.crypto.address import address
from fedchain.node.core.following.light_joining import LightJoining
from fedchain.node.core.notices import HeadConflicts
from fedchain.node.operating.console import status_lines
from fedchain.node.operating.report import report
from fedchain.node.shell.activity import Activity
from tests.support.chain.builders import genesis, keys
from tests.support.chain.changes import living_genesis
from tests.support.node.stage import Stage

MEMBERS = [key.public_key for key in keys(4)]


def reported(document: Genesis, conflict: HeadConflicts | None = None) -> dict[str, Any]:
    stage = Stage(document, 1)
    if conflict is not None:
        joining = stage.node._parts.catching_up._joining
        assert isinstance(joining, LightJoining)
        joining.conflict = conflict
    service: Any = SimpleNamespace(
        node=stage.node,
        activity=Activity(),
        genesis=document,
        me=MEMBERS[1],
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
