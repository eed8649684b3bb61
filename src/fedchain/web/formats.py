"""How pages write values: times, sizes, hashes and members."""

from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from math import isinf
from typing import Any

from markupsafe import Markup, escape

from fedchain.chain.explorer.plain import numbers_of
from fedchain.chain.explorer.units import DATE_MS_MAX, LONG_MS, duration, signed, size
from fedchain.chain.genesis import Genesis
from fedchain.wording import printable

HASH_SHORT, ADDRESS_SHORT = 10, 8
"""Digits of a hash, and letters at the end of an address, in lists."""


def filters() -> dict[str, Callable[..., Any]]:
    """Functions that templates call by name."""
    return {
        "duration": lambda time_ms: "–" if time_ms is None else duration(time_ms),
        "size": lambda count: "–" if count is None else size(count),
        "percent": lambda value: "–" if value is None else f"{100 * value:.1f} %",
        "milliseconds": lambda value: "–" if value is None else f"{value:,.{1 if value >= 10 else 2}f} ms",
        "number": lambda value: "–" if value is None else f"{value:,}",
        "text": lambda value: printable(str(value)),
        "said": said,
        "hash": hash_text,
        "offset": offset,
        "end": lambda value: "" if isinf(value) else f"{value:.0f}",
        "yes": lambda value: "yes" if value else "no",
    }


def hash_text(value: bytes | str | None, *, full: bool = False) -> Markup | str:
    """A hash, abbreviated with its full text as the title, or ``full`` if there is room."""
    if value is None:
        return "–"
    text = value.hex() if isinstance(value, bytes) else value
    if full:
        return Markup('<code class="hash">{}</code>').format(text)
    # Not by Markup.format, which takes ten times as long: a page of a large federation has hundreds of hashes.
    return Markup(f'<code class="hash" title="{escape(text)}">{escape(text[:HASH_SHORT])}…</code>')


def said(value: object) -> str:
    """The value of a setting in words: yes and no for the two of a switch, none for nothing."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    return "none" if value is None or value == "" else str(value)


def offset(time_ms: int | None) -> str:
    """By how much a clock is ahead."""
    if time_ms is None:
        return "–"
    if abs(time_ms) < LONG_MS:
        return f"{time_ms / 1000:+.3f} s"
    return signed(time_ms)


class Names:
    """Members and times of one chain, as its pages write them.

    Args:
        genesis: the founding document.
        root: the first part of the addresses of the chain's pages.
        is_report: whether everything is on one page, so that links lead to places on it.
        is_virtual: whether the chain's times are a simulation's: then they count from the founding and are not dates.
        numbers: number of each member by its address; those of the founders unless given.
    """

    def __init__(
        self,
        genesis: Genesis,
        root: str,
        *,
        is_report: bool = False,
        is_virtual: bool = False,
        numbers: Mapping[str, int] | None = None,
    ) -> None:
        self._genesis, self._is_virtual = genesis, is_virtual
        self._root, self._is_report = root, is_report
        self._numbers = numbers_of(genesis) if numbers is None else numbers

    def link(self, path: str) -> str:
        """Address of a page of the chain."""
        if not self._is_report:
            return f"/{self._root}/{path}"
        kind, _, name = path.partition("/")
        if kind in ("block", "member") and name.isdecimal():
            return f"#{kind}-{name}"
        return "#genesis-title" if kind == "genesis" else "#blocks"

    def number(self, name: str) -> int | None:
        """Place of the member with this address; None for a stranger."""
        return self._numbers.get(name)

    def member(self, name: str) -> Markup:
        """A member by its number and the end of its address, as a link to its page."""
        number = self._numbers.get(name)
        if number is None:  # the readers of a part have names
            return escape(printable(name))
        # Neither an address of a member nor the place of a page has a letter to escape.
        place, end = self.link(f"member/{number}"), name[-ADDRESS_SHORT:]
        return Markup(f'<a class="member" href="{place}" title="{name}"><b>{number}</b> <code>…{end}</code></a>')

    def ordered(self, names: Iterable[str]) -> list[str]:
        """Addresses in the order of the members' numbers; strangers come first."""
        return sorted(names, key=lambda name: self._numbers.get(name, -1))

    def when(self, time_ms: int | None) -> str:
        """A moment: its date if the chain's times are dates, or else the time since the founding."""
        if time_ms is None:
            return "–"
        since = signed(time_ms - self._genesis.created_ms)
        if self._is_virtual or time_ms > DATE_MS_MAX:
            return since
        date = datetime.fromtimestamp(time_ms / 1000, UTC)
        return f"{date:%Y-%m-%d %H:%M:%S} UTC"

    def age(self, time_ms: int | None) -> Markup:
        """A place where the browser writes how long ago a moment is; empty if the chain's times are no dates."""
        if time_ms is None or self._is_report or self._is_virtual or time_ms > DATE_MS_MAX:
            return Markup()
        return Markup(' <small class="age" data-since="{}"></small>').format(time_ms)

    def since(self, time_ms: int | None) -> str:
        """The time since the founding."""
        return "–" if time_ms is None else signed(time_ms - self._genesis.created_ms)
