"""Posts that change nothing yet are taken without a whole turn of the node: what a turn would have done is nothing."""

import pytest

from fedchain.node.core.attendance import Attendance
from fedchain.node.core.effects import Effect, Tell
from fedchain.node.core.node import Node
from fedchain.node.core.notices import Listening
from tests.support.simulator.trivial import run_trivial, trivial_scenario


@pytest.mark.parametrize("values", [{}, {"loss": 0.15, "replay": 0.1}, {"committee_size": 5, "degree": 4}])
def test_a_whole_turn_would_only_have_told_that_the_node_still_listens(
    values: dict[str, float], monkeypatch: pytest.MonkeyPatch
) -> None:
    is_quiet, would_have = list[bool](), list[Effect]()
    waits_for_more, advance = Attendance.waits_for_more, Node._advance

    def never_waits(attendance: Attendance) -> bool:
        is_quiet.append(waits_for_more(attendance))
        return False

    def watched(node: Node) -> None:
        quiet, before = bool(is_quiet) and is_quiet.pop(), len(node._context.effects)
        is_quiet.clear()
        advance(node)
        if quiet:
            quiet_turns.append(node)
            would_have.extend(node._context.effects[before:])

    quiet_turns: list[Node] = []
    monkeypatch.setattr(Attendance, "waits_for_more", never_waits)
    monkeypatch.setattr(Node, "_advance", watched)
    run_trivial(trivial_scenario(peers=10, rounds=3, **values))
    assert len(quiet_turns) > 50
    assert [item for item in would_have if not (isinstance(item, Tell) and isinstance(item.notice, Listening))] == []
