"""A worker's inbox: calls before forecasts, the newest forecast of each client, and none that a call overtakes."""

from collections import deque
from dataclasses import dataclass

import pytest

from fedchain.learning.executors.inbox import CONTRIBUTE, FORESEE, Inbox


@dataclass(frozen=True)
class Asked:
    method: str
    client: int
    number: int = 0


class Box:
    """An inbox, and what comes into it; it must not wait for what does not come."""

    def __init__(self, *sent: list[Asked]) -> None:
        self.sent, self.overtaken = deque(sent), list[Asked]()
        self.inbox = Inbox[Asked](lambda: [self.sent.popleft()], lambda: bool(self.sent), self.overtaken.append)

    def take_all(self) -> list[list[Asked]]:
        """All that can be taken without waiting."""
        taken = []
        while True:
            try:
                taken.append(list(self.inbox.take()))
            except IndexError:
                return taken


def contribute(client: int, number: int = 0) -> Asked:
    return Asked(CONTRIBUTE, client, number)


def forecast(client: int, number: int = 0) -> Asked:
    return Asked(FORESEE, client, number)


def test_calls_come_before_forecasts_and_each_in_its_order() -> None:
    box = Box([forecast(0)], [forecast(1)], [contribute(2), contribute(3)], [Asked("save_model", 0)])
    first = [[contribute(2), contribute(3)], [Asked("save_model", 0)]]
    assert box.take_all() == [*first, [forecast(0)], [forecast(1)]]
    assert box.overtaken == []


@pytest.mark.parametrize("method", [CONTRIBUTE, "restore", FORESEE])
def test_a_forecast_that_is_not_begun_goes_when_its_client_is_asked(method: str) -> None:
    later = Asked(method, 1, 2)
    box = Box([forecast(0)], [forecast(1, 1)], [later])
    assert [forecast(1, 1)] not in box.take_all()
    assert box.overtaken == [forecast(1, 1)]


def test_a_forecast_waits_behind_what_its_client_was_asked_before() -> None:
    box = Box([contribute(1, 1)], [forecast(1, 2)])
    assert box.take_all() == [[contribute(1, 1)], [forecast(1, 2)]]
    assert box.overtaken == []


def test_what_leaves_a_client_as_it_was_overtakes_nothing() -> None:
    box = Box([forecast(1)], [Asked("evaluate_received", 1)])
    assert box.take_all() == [[Asked("evaluate_received", 1)], [forecast(1)]]
    assert box.overtaken == []


def test_it_says_whose_contribution_is_waited_for() -> None:
    box = Box([forecast(1)])
    assert box.inbox.take() == [forecast(1)]
    box.sent.extend([[contribute(2)], [Asked("save_model", 3)]])
    assert [box.inbox.is_asked(client) for client in (1, 2, 3)] == [False, True, False]
