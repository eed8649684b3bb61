"""Disturbances of a scenario: faults, wrong clocks, and peers that do not follow the protocol."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Literal

from fedchain.files.effects import Needs
from fedchain.files.tables import Range

FaultKind = Literal["crash", "kill", "restart", "partition", "heal", "slow"]

Time = Annotated[float, Range(0, 1e9)]
"""Virtual seconds since the run began."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """Something that goes wrong, or right again, at a given time."""

    at_s: Time
    """Time of the fault, in virtual seconds."""
    kind: FaultKind
    """crash, kill, restart, slow (of ``peers``); partition (``peers`` against the others); heal.

    A crash comes between two events. A kill comes between two effects of one event: after a write and before a send.
    """
    peers: tuple[int, ...] = ()
    """Peer numbers, from 0."""
    factor: Annotated[float, Range(0.001, 1e6), Needs("kind", ("slow",))] = 1.0
    """For slow: factor by which the peers' training and mining take longer; 1 ends it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Clock:
    """Wall clocks that are wrong. Errors from several tables add up for a peer; timeouts use another clock."""

    peers: tuple[int, ...]
    """Peer numbers, from 0."""
    offset_s: Annotated[float, Range(-1e8, 1e8)] = 0.0
    """Seconds by which the clocks are ahead; negative if they are behind."""
    drift: Annotated[float, Range(-1, 1e3)] = 0.0
    """Seconds that they gain in each virtual second."""
    at_s: Time = 0.0
    """Time from which the clocks are wrong, in virtual seconds; later than 0 the clocks jump."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Traitors:
    """Peers that do not follow the protocol. All traitors of a scenario know each other's keys."""

    behaviour: str
    """Their behaviour: one of those in ``fedchain.simulator.adversaries``."""
    peers: tuple[int, ...]
    """Peer numbers, from 0."""
    parameters: Mapping[str, float] = field(default_factory=dict)
    """Parameters of the behaviour, by name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberChange:
    """Members come, go, are away and back, or have another key; or parameters have other values."""

    round: Annotated[int, Range(1, 1_000_000)]
    """Round in which it is proposed; counted in this round, it holds from the second one after it on, another key from
    the next height on."""
    kind: Literal["join", "leave", "remove", "back", "rekey", "recover", "away", "amend"]
    """join, leave, remove, back, rekey, recover, away or amend. All members approve where approval is needed."""
    peers: tuple[int, ...] = ()
    """Peer numbers, from 0. Those that join have the numbers after the founders', in the order in which they join."""
    reason: str = ""
    """Name of a newcomer, or reason of what others approve of, for people."""
    values: Mapping[str, int | float] = field(default_factory=dict)
    """For amend: other values, by name, of the founding document's parameters, or of the method's hyper-parameters that
    may change."""
    begin: Annotated[int, Range(0, 1_000_000), Needs("kind", ("amend",))] = 0
    """For amend: round from which on they hold; 0: the second one after it is counted."""


@dataclass(frozen=True, slots=True)
class Trouble:
    """A time for which something was wrong with some peers, for pictures and pages."""

    kind: str
    """down, cut (off from the others), slow, clock or lying."""
    peers: tuple[int, ...]
    """Peer numbers, ascending."""
    begin_s: float
    """When it began, in virtual seconds."""
    end_s: float | None
    """When it ended, in the same unit; None if it never did."""
    detail: str = ""
    """The factor of slow peers, the error of clocks, the behaviour of liars."""


def troubles(faults: Sequence[Fault], clocks: Sequence[Clock], adversaries: Sequence[Traitors]) -> tuple[Trouble, ...]:
    """The times for which something was wrong, in the order in which they began; peers that share one are together."""
    going: dict[str, dict[int, tuple[float, str]]] = {kind: {} for kind in ("lying", "down", "slow", "cut")}
    found = list[tuple[float, float | None, str, str, int]]()

    def end(kind: str, peers: Sequence[int], at_s: float | None) -> None:
        for peer in peers:
            if peer in going[kind]:
                begin_s, detail = going[kind].pop(peer)
                found.append((begin_s, at_s, kind, detail, peer))

    def begin(kind: str, peers: Sequence[int], at_s: float, detail: str = "") -> None:
        for peer in peers:
            going[kind].setdefault(peer, (at_s, detail))

    for row in adversaries:
        settings = ", ".join(f"{name} {value:g}" for name, value in sorted(row.parameters.items()))
        begin("lying", row.peers, 0.0, f"{row.behaviour} ({settings})" if settings else row.behaviour)
    for fault in sorted(faults, key=lambda fault: fault.at_s):
        match fault.kind:
            case "crash" | "kill":
                begin("down", fault.peers, fault.at_s)
            case "restart":
                begin("down", fault.peers, fault.at_s)  # one that was up is down for a moment
                end("down", fault.peers, fault.at_s)
            case "slow":
                end("slow", fault.peers, fault.at_s)
                if fault.factor != 1:
                    begin("slow", fault.peers, fault.at_s, f"×{fault.factor:g}")
            case _:  # a partition replaces the one before
                end("cut", [*going["cut"]], fault.at_s)
                begin("cut", fault.peers if fault.kind == "partition" else (), fault.at_s)
    for kind, peers in going.items():
        end(kind, [*peers], None)
    found += [(clock.at_s, None, "clock", _error(clock), peer) for clock in clocks for peer in clock.peers]
    together = dict[tuple[float, float | None, str, str], list[int]]()
    for begin_s, end_s, kind, detail, peer in found:
        together.setdefault((begin_s, end_s, kind, detail), []).append(peer)
    made = (
        Trouble(kind, tuple(sorted(peers)), begin_s, end_s, detail)
        for (begin_s, end_s, kind, detail), peers in together.items()
    )
    return tuple(sorted(made, key=lambda item: (item.begin_s, item.kind, item.peers)))


def _error(clock: Clock) -> str:
    drift = [f"gains {clock.drift:+g} s each second"] if clock.drift else []
    return ", ".join([f"{clock.offset_s:+g} s", *drift] if clock.offset_s or not drift else drift)
