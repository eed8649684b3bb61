"""The bound on a port's connections: half requests go first, answers last, and the process keeps files for itself."""

import resource

import pytest

from fedchain.connections import CONNECTIONS_MIN, FILES_KEPT, Connections, connections_max


class Clients:
    """Connects clients by name, and notes the names of those that are closed."""

    def __init__(self, most: int) -> None:
        self.connections, self.closed = Connections(most), list[str]()

    def open(self, *names: str) -> None:
        for name in names:
            self.connections.opened(name, lambda name=name: self.closed.append(name))  # type: ignore[misc]


def test_the_oldest_half_request_makes_room() -> None:
    clients = Clients(3)
    clients.open("a", "b", "c")
    assert clients.closed == []
    clients.open("d")
    assert clients.closed == ["a"]
    assert len(clients.connections) == 3


def test_no_answer_is_cut_while_there_is_a_half_request() -> None:
    clients = Clients(2)
    clients.open("asked", "half")
    clients.connections.asked("asked")
    clients.open("new")
    assert clients.closed == ["half"]
    clients.connections.asked("new")
    clients.open("last")  # there are only answers: the oldest goes
    assert clients.closed == ["half", "asked"]


def test_a_connection_that_was_answered_waits_again() -> None:
    clients = Clients(2)
    clients.open("answered", "half")
    clients.connections.asked("answered")
    clients.connections.answered("answered")
    clients.open("new")
    assert clients.closed == ["half"]  # it waits for longer than the one that was answered
    clients.open("other")
    assert clients.closed == ["half", "answered"]


def test_a_connection_that_ended_takes_no_place() -> None:
    clients = Clients(2)
    clients.open("a", "b")
    clients.connections.closed("a")
    clients.connections.asked("a")  # news of a connection that is gone change nothing
    clients.open("c")
    assert clients.closed == []
    assert len(clients.connections) == 2


def test_an_answer_that_ended_takes_no_place() -> None:
    clients = Clients(2)
    clients.open("a", "b")
    clients.connections.asked("a")
    clients.connections.closed("a")
    clients.open("c")
    assert clients.closed == []


@pytest.mark.parametrize(("limit", "expected"), [(resource.RLIM_INFINITY, 500), (10**6, 500), (8, CONNECTIONS_MIN)])
def test_the_bound_leaves_files_to_the_process(monkeypatch: pytest.MonkeyPatch, limit: int, expected: int) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda kind: (limit, limit))
    assert connections_max(500, under_way=10) == expected


def test_what_is_open_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda kind: (1_000, 1_000))
    monkeypatch.setattr("os.listdir", lambda folder: ["file"] * 100)
    assert connections_max(2_000, under_way=10) == 1_000 - 100 - FILES_KEPT - 10
