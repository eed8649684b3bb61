"""Calls that come together are answered as if they had come one by one."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fedchain.learning.executors.handover import Incoming
from fedchain.learning.executors.serving import Call, replies_to


class Noting:
    """A learner that notes in which order it is asked."""

    def __init__(self) -> None:
        self.done = list[Any]()

    def amend(self, amended: object) -> None:
        pass

    def take_key(self, client: int, key: bytes) -> None:
        pass

    def contribute_together(self, clients: Sequence[int], phase: str, number: int, *_: Any, **given: Any) -> list[str]:
        self.done.append((number, list(clients)))
        return [f"{client} in round {number}" for client in clients]

    def contribute(self, client: int, phase: str, number: int, *_: Any, **given: Any) -> str:
        self.done.append((number, client))
        return f"{client} in round {number}"

    def evaluate_received(self, client: int, *_: Any, **given: Any) -> str:
        self.done.append(("measured", client))
        return f"{client} measured"


def contribution(number: int, client: int, round_number: int) -> Call:
    return Call(number, "contribute", client, ("update", round_number, 3, (), b"", b""), False)


def answers(learner: Any, calls: Sequence[Call]) -> list[Any]:
    return [reply.value for reply in replies_to(learner, Path(), Incoming(), calls)]


def test_what_a_client_is_asked_after_something_else_is_not_computed_before_it() -> None:
    """A measurement would be one of the model after the next round, and a state that is written down one of it."""
    learner = Noting()
    asked = [
        Call(1, "evaluate_received", 0, (1, (), b""), False),
        *(contribution(client + 2, client, 1) for client in range(3)),
    ]
    assert answers(learner, asked) == ["0 measured", "0 in round 1", "1 in round 1", "2 in round 1"]
    assert learner.done == [(1, [1, 2]), ("measured", 0), (1, 0)]
    learner = Noting()
    answers(learner, [contribution(2 * number + client, client, number) for number in (1, 2) for client in (0, 1)])
    assert learner.done == [(1, [0, 1]), (2, 0), (2, 1)]
