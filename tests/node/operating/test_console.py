"""Addresses with their numbers, and a panel whose terminal is closed."""

import logging
import os
from contextlib import suppress
from types import SimpleNamespace
from typing import Any

import anyio
import pytest

from fedchain.node.operating import console
from fedchain.node.operating.console import LINE, show_service
from fedchain.node.operating.member_numbers import MemberNumbers


class Named:
    """Writes itself as an address, as libp2p's peer ids do."""

    def __str__(self) -> str:
        return "12D3KooWone"


NUMBERS = {"12D3KooWone": 3, "12D3KooWother": 11}


def record_of(message: str, *values: object) -> logging.LogRecord:
    record = logging.LogRecord("fedchain.node", logging.INFO, __file__, 1, message, values, None)
    assert MemberNumbers(NUMBERS).filter(record)
    return record


@pytest.mark.parametrize(
    ("message", "values", "text"),
    [
        ("%s heard %s", ("12D3KooWother", -1.5), "12D3KooWother (peer 11) heard -1.5"),
        ("%s is banned for %.0f s: %s", (Named(), 60.0, "12"), "12D3KooWone (peer 3) is banned for 60 s: 12"),
        ("%s is not admitted", ("12D3KooWstranger",), "12D3KooWstranger is not admitted"),
        ("height=%d of %s", (3, "12D3KooWone is told"), "height=3 of 12D3KooWone is told"),
        ("stopping", (), "stopping"),
    ],
)
def test_an_address_has_its_number_behind_it(message: str, values: tuple[object, ...], text: str) -> None:
    assert logging.Formatter(LINE).format(record_of(message, *values)).endswith(f" INFO fedchain.node {text}")


def test_a_panel_ends_with_its_terminal_and_the_node_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """It ended the node with a traceback."""
    master, slave = os.openpty()
    looks = 0

    def status() -> dict[str, Any]:
        nonlocal looks
        looks += 1
        if looks == 3:
            os.close(master)
        if looks == 5:
            scopes[0].cancel()
        return {
            "address": "me",
            "numbers": {"me": 0},
            "head": "aa",
            "height": 1,
            "round": 2,
            "phase": "update",
            "members": 1,
            "peers": [],
            "quorum": 1,
            "electors": 1,
            "quorum_reachable": True,
            "electors_missing": [],
            "accuracy": None,
            "epsilon": None,
            "waiting_for": "a nonce",
            "clocks_off": {},
            "conflict": None,
            "stands": None,
            "not_counted": "",
            "method_fails": "",
        }

    scopes = list[anyio.CancelScope]()
    service: Any = SimpleNamespace(status=status)

    async def main() -> None:
        with anyio.CancelScope() as scope:
            scopes.append(scope)
            await show_service(service)

    monkeypatch.setattr(console, "REFRESH_S", 0.001)
    monkeypatch.setenv("TERM", "xterm")
    terminal = os.fdopen(slave, "w")
    monkeypatch.setattr("sys.stdout", terminal)
    try:
        anyio.run(main)
    finally:
        with suppress(OSError):  # Python 3.14 still wants to write the rest
            terminal.close()
    assert looks >= 3
