"""Posts that change nothing yet are taken without a whole turn of the node: what a turn would have done is nothing."""

import pytest

from fedchain.chain.storage.store import MemoryStore
from fedchain.network.session import SESSION_SIZE
from fedchain.node.core.attendance import Attendance, Quiet
from fedchain.node.core.checks import Checks
from fedchain.node.core.effects import Effect, Tell
from fedchain.node.core.node import Node
from fedchain.node.core.notices import Listening
from fedchain.simulator.disturbances import Fault
from tests.support.chain.builders import SumRules, double_vote, genesis, keys
from tests.support.chain.changes import living_genesis
from tests.support.node.stage import Stage
from tests.support.simulator.trivial import run_trivial, trivial_scenario


@pytest.mark.parametrize(("said", "most"), [(0, 2**28), (2**29, 2**29)])
def test_knowledge_as_large_as_the_method_leaves_it_is_fetched(said: int, most: int) -> None:
    """A provider that sends more than a content may have is to blame, so no honest one may seem to."""

    class LargeRules(SumRules):
        def knowledge_size_max(self) -> int:
            return said

    document, (key, *_) = genesis(4), keys(4)
    node = Node(document, key, Checks(document, LargeRules()), MemoryStore(), session=bytes(SESSION_SIZE))
    assert node._context.contents.downloads.size_max == most
    assert node._parts.refill._downloads.size_max == most


SLOW_AND_GONE = (
    *(Fault(at_s=0, kind="slow", peers=(peer,), factor=factor) for peer, factor in ((6, 3.0), (7, 6.0), (8, 9.0))),
    Fault(at_s=30, kind="crash", peers=(9,)),
)
"""The wait for the one that is gone ends when a slower one's post has come."""


@pytest.mark.parametrize(
    "values",
    [{}, {"loss": 0.15, "replay": 0.1}, {"committee_size": 5, "degree": 4}, {"rounds": 12, "faults": SLOW_AND_GONE}],
)
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
    monkeypatch.setattr(Attendance, "quiet", lambda _: Quiet(0, None, None))  # posts in lulls take whole turns, too
    monkeypatch.setattr(Node, "_advance", watched)
    run_trivial(trivial_scenario(peers=10, **values))
    assert len(quiet_turns) > 50
    assert [item for item in would_have if not (isinstance(item, Tell) and isinstance(item.notice, Listening))] == []


def test_a_height_is_confirmed_by_more_members_than_may_lie_of_those_that_count() -> None:
    """Seven bear two liars, and six bear one."""
    stage = Stage(living_genesis(7), contributes=False)
    culprit = stage.chain.key(stage.others[-1])
    block = stage.block(evidence=[double_vote(culprit, stage.genesis, 1, attempt=3)])
    stage.candidate(block)
    stage.final(block)
    for count, claimant in enumerate((culprit.public_key, *stage.others[:2])):
        assert stage.node.catching_up_to() == 0, count
        stage.receive(stage.status(height=9), claimant)
    assert stage.node.catching_up_to() == 9
