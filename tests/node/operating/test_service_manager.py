"""Messages of a node to systemd: it is ready, how it is, that its loop turns; and none where nobody listens."""

import os
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anyio
import pytest
from anyio import to_thread

from fedchain.node.operating.service_manager import ServiceManager, one_line
from tests.support.node.shell import on_trio

NOW: dict[str, Any] = {"height": 3, "round": 4, "peers": ["a"], "members": 3, "waiting_for": "a block\nREADY=0"}


@pytest.fixture
def listener(tmp_path: Path) -> Iterator[socket.socket]:
    """The service manager's end."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as end:
        end.bind(str(tmp_path / "notify"))
        end.settimeout(10)
        yield end


def place_of(listener: socket.socket) -> str:
    name = listener.getsockname()
    return name if isinstance(name, str) else "@" + name[1:].decode()


def test_facts_are_lines_and_no_value_makes_another(listener: socket.socket) -> None:
    ServiceManager(place_of(listener)).tell(STATUS=one_line(NOW), MAINPID=7)
    text = "height 3, round 4, 1 of 2 members connected; waiting for a block READY=0"
    assert listener.recv(1_000).decode() == f"STATUS={text}\nMAINPID=7"


def test_a_socket_of_the_abstract_namespace() -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as end:
        end.bind(f"\0fedchain-test-{os.getpid()}")
        ServiceManager(place_of(end)).tell(STOPPING=1)
        assert end.recv(1_000) == b"STOPPING=1"


def test_without_one_or_with_one_that_is_gone_nothing_happens(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    ServiceManager().tell(READY=1)
    assert caplog.text == ""
    ServiceManager(str(tmp_path / "gone")).tell(READY=1)
    assert "the service manager cannot be told" in caplog.text


@pytest.mark.parametrize(
    ("environment", "pause_s"),
    [
        ({}, 5.0),
        ({"WATCHDOG_USEC": "3000000"}, 1.0),
        ({"WATCHDOG_USEC": "3000000", "WATCHDOG_PID": str(os.getpid())}, 1.0),
        ({"WATCHDOG_USEC": "3000000", "WATCHDOG_PID": "1"}, 5.0),
        ({"WATCHDOG_USEC": "soon"}, 5.0),
        ({"WATCHDOG_USEC": "600000000"}, 5.0),
    ],
)
def test_a_watchdog_is_fed_three_times_in_its_time(environment: dict[str, str], pause_s: float) -> None:
    assert ServiceManager.from_environment(environment).pause_s == pause_s


def test_it_follows_a_node_until_it_ends(listener: socket.socket) -> None:
    heard: list[str] = []

    @on_trio
    async def follow() -> None:
        manager = ServiceManager(place_of(listener), watchdog_s=0.03)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(manager.follow, lambda: NOW)
            while len(heard) < 4:
                heard.append((await to_thread.run_sync(listener.recv, 1_000)).decode())
            tasks.cancel_scope.cancel()

    follow()
    assert heard[0] == "READY=1"
    assert all(text.startswith("WATCHDOG=1\nSTATUS=height 3") for text in heard[1:])
