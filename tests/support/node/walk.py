"""The walk of an event through a node: the modules that it enters, in order."""

import sys
from collections.abc import Iterator
from types import FrameType

PACKAGE = "fedchain."
ROOMS = ("node.core.", "chain.validation")
UNCOUNTED = {"node", "reception", "parts", "context", "ledger", "mempool", "contents.content_cache"}
UNCOUNTED |= {"jobs", "effects", "events"}
"""Modules that decide nothing: those that hand an event on, and those that only hold values."""

TURNS = ("_advance", "_on_head")
"""Functions of a node that let every part take its turn, whatever the event was: they belong to no walk."""


class Walk:
    """Notes the stays inside of ``with``. A stay is a module that another one has entered."""

    def __init__(self) -> None:
        self.stays: list[str] = []

    def __enter__(self) -> "Walk":
        sys.setprofile(self._note)
        return self

    def __exit__(self, *_: object) -> None:
        sys.setprofile(None)

    @property
    def returns(self) -> int:
        """Number of stays in a module that was left before."""
        return len(self.stays) - len(set(self.stays))

    def _note(self, frame: FrameType, kind: str, _: object) -> None:
        name = _module(frame)
        if kind != "call" or not name:
            return
        callers = list(_callers(frame))
        entered_from = next((module for module in map(_module, callers) if module), "")
        is_turn = any(item.f_code.co_name in TURNS for item in callers)
        if entered_from != name and [name] != self.stays[-1:] and not is_turn:
            self.stays.append(name)


def _module(frame: FrameType) -> str:
    """The module of a frame, if it is one that a walk counts; empty otherwise."""
    name = str(frame.f_globals.get("__name__", "")).removeprefix(PACKAGE)
    return name if name.startswith(ROOMS) and name.removeprefix(ROOMS[0]) not in UNCOUNTED else ""


def _callers(frame: FrameType) -> Iterator[FrameType]:
    while (caller := frame.f_back) is not None:
        frame = caller
        yield caller
