"""When a node ends by itself, and that it first lets the others have the last block."""

from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import anyio
import pytest

import fedchain.node.shell.ending as ending_module
from fedchain.chain.genesis import FaultModel
from fedchain.chain.membership.member import Member, Standing
from fedchain.node.shell.activity import Activity
from fedchain.node.shell.ending import Departure, Ending
from fedchain.node.shell.service import Service
from tests.support.chain.builders import genesis
from tests.support.node.service import OTHERS, Shell, serving, status_at
from tests.support.node.shell import on_trio, until


def left_after(ending: Ending, accuracies: list[float | None]) -> tuple[int, str]:
    """The round after which a peer with these accuracies leaves, and why; 0: it stays."""
    for number, accuracy in enumerate(accuracies, start=1):
        assert ending.reason(number, number, accuracy) == "", "the round is still open"
        if reason := ending.reason(number + 1, number, accuracy):
            return number, reason
        assert ending.reason(number + 1, number, accuracy) == "", "a round is looked at once"
    return 0, ""


def test_a_target_that_is_reached() -> None:
    assert left_after(Ending(accuracy=0.9), [0.5, 0.89, 0.9, 0.95]) == (3, "accuracy 0.9000 has reached 0.9 in round 3")
    assert left_after(Ending(accuracy=0.9), [0.5, 0.89]) == (0, "")


def test_rounds_without_a_better_model() -> None:
    said = "accuracy was never above 0.7000 in the last 2 rounds"
    assert left_after(Ending(patience=2), [0.5, 0.7, 0.6, 0.7, 0.9]) == (4, said)
    assert left_after(Ending(patience=2), [0.5, 0.4, 0.6, 0.5, 0.7, 0.6]) == (0, "")


def test_without_a_rule_or_a_measurement_nobody_leaves() -> None:
    assert left_after(Ending(), [0.1, 0.1, 1.0, 0.0]) == (0, "")
    assert left_after(Ending(accuracy=0.1, patience=1), [None, None]) == (0, "")


def test_a_setup_phase_is_no_round() -> None:
    assert Ending(accuracy=0.1).reason(0, 0, 0.9) == ""


class Stub:
    """A service with a head, an accuracy, and peers that lag."""

    def __init__(self, *, finished: bool = False) -> None:
        self.activity = Activity()
        self.node: Any = self
        self.head: Any = self
        self.round, self.height, self.finished = 2, 1, finished
        self.behind, self.peers, self.posted = ["a peer"], {"a peer"}, list[str]()
        self.moved = anyio.Event()
        self.record: Member | None = None
        self.rules = SimpleNamespace(fault_model=FaultModel.BYZANTINE)
        self.roster = SimpleNamespace(counting=("a peer", "another", "a third", "a fourth"), active=4)

    def own_record(self) -> Member | None:
        return self.record

    async def next_head(self) -> None:
        await self.moved.wait()

    def move(self) -> None:
        self.moved.set()
        self.moved = anyio.Event()

    def lagging(self, height: int) -> list[str]:
        assert height == 1
        return self.behind

    def open_posts(self) -> list[Any]:
        return [SimpleNamespace(sender=sender) for sender in self.posted]


@pytest.fixture(autouse=True)
def hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ending_module, "LINGER_S_MIN", 0.01)


@on_trio
async def test_it_leaves_when_all_that_are_connected_have_the_last_block() -> None:
    stub, left = Stub(), anyio.Event()
    departure = Departure(Ending(accuracy=0.8), exits_when_finished=False)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(departure.wait, cast(Service, stub), left.set)
        await anyio.wait_all_tasks_blocked()
        stub.activity.trained_round, stub.activity.accuracy = 1, 0.5
        stub.move()
        await anyio.wait_all_tasks_blocked()
        stub.activity.trained_round, stub.activity.accuracy, stub.round = 2, 0.8, 3
        stub.move()
        await anyio.sleep(0.05)
        assert not left.is_set(), "a peer lags"
        stub.behind = []
        await left.wait()


@on_trio
async def test_nobody_is_waited_for_without_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ending_module, "LINGER_S_MAX", 0.05)
    left = anyio.Event()
    departure = Departure(Ending(), exits_when_finished=True)
    await departure.wait(cast(Service, Stub(finished=True)), left.set)
    assert left.is_set()


@on_trio
async def test_a_finished_node_stays_unless_asked() -> None:
    departure = Departure(Ending(), exits_when_finished=False)
    with anyio.move_on_after(0.05) as scope:
        await departure.wait(cast(Service, Stub(finished=True)), lambda: None)
    assert scope.cancelled_caught


@pytest.mark.parametrize("standing", [Standing.LEFT, Standing.REMOVED])
@on_trio
async def test_a_member_that_is_gone_for_good_ends_and_one_that_is_away_stays(standing: Standing) -> None:
    stub, left = Stub(), anyio.Event()
    stub.behind = []
    departure = Departure(Ending(), exits_when_finished=False)
    async with anyio.create_task_group() as tasks:
        stub.record = Member(OTHERS[0].public_key, Standing.AWAY, Standing.AWAY, 1)
        tasks.start_soon(departure.wait, cast(Service, stub), left.set)
        await anyio.wait_all_tasks_blocked()
        assert not left.is_set()
        stub.record = replace(stub.record, standing=standing, next=standing)
        stub.move()
        await left.wait()


@on_trio
async def test_a_member_that_is_gone_and_cut_off_waits_for_somebody_to_hand_its_last_block_to() -> None:
    stub, left = Stub(), anyio.Event()
    stub.behind, stub.peers = [], set()
    stub.record = Member(OTHERS[0].public_key, Standing.LEFT, Standing.LEFT, 1)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(Departure(Ending(), exits_when_finished=False).wait, cast(Service, stub), left.set)
        await anyio.sleep(0.05)
        assert not left.is_set()
        stub.peers = {"a peer"}
        await left.wait()


@pytest.mark.parametrize(
    ("peers", "behind", "posted", "height", "is_known"),
    [
        ({"a peer", "another"}, [], [], 1, True),
        ({"a peer", "another"}, ["another"], [], 1, False),
        ({"a peer", "a guest"}, [], ["a peer"], 1, False),
        ({"a peer"}, [], ["another"], 1, True),
        (set(), [], [], 2, True),
    ],
    ids=["said", "one lags", "one may lie", "posted", "the chain goes on"],
)
@on_trio
async def test_a_member_that_is_gone_ends_where_others_had_its_last_block_before_they_let_go_of_it(
    peers: set[str],
    behind: list[str],
    posted: list[str],
    height: int,
    is_known: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """They do so a round later, if not sooner than it looks for those that lag. One of four may lie."""
    monkeypatch.setattr(ending_module, "LINGER_S_MIN", 0.1)
    stub, left = Stub(), anyio.Event()
    stub.behind, stub.peers, stub.posted = behind, peers, posted
    stub.record = Member(OTHERS[0].public_key, Standing.LEFT, Standing.LEFT, 1)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(Departure(Ending(), exits_when_finished=False).wait, cast(Service, stub), left.set)
        await anyio.wait_all_tasks_blocked()
        stub.behind, stub.peers, stub.posted, stub.height = [], set(), [], height
        with anyio.move_on_after(0.5):
            await left.wait()
        assert left.is_set() == is_known
        tasks.cancel_scope.cancel()


@on_trio
async def test_a_real_service_is_followed_to_its_last_round() -> None:
    shell, left = Shell(), anyio.Event()
    departure = Departure(Ending(accuracy=0.75), exits_when_finished=True)
    async with serving(shell, genesis(1, rounds=3, target_mining_time_ms=1_000), hears=0) as service:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(departure.wait, service, left.set)
            await left.wait()
        assert service.activity.accuracy == 0.75
        assert service.node.head.height >= 1


@on_trio
async def test_who_lags_is_told_by_its_status() -> None:
    async with serving(Shell(), genesis(4)) as service:
        other = OTHERS[0].public_key
        service.on_peer(other, True)
        await until(lambda: service.node.lagging(0) == [], "it said where it is")
        assert service.node.lagging(1) == [other]
        service._on_message(other, status_at(genesis(4), 1))
        assert service.node.lagging(1) == []
