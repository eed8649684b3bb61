"""The law of scale, fitted to some runs, held against others, and extrapolated: ``docs/scale.md``."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from statistics import mean
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich.table import Table

from tests.bench.processes import Cost, measure, warning
from tests.bench.scale import SCALE
from tests.support.simulator.scale import (
    CONTENT_SIZE,
    Shape,
    arrivals_of_round,
    bytes_of_round,
    bytes_of_run,
    quorum,
    walls,
)

ROUNDS = 3

Terms = Callable[[Shape], list[float]]
"""The numbers that a round's CPU is a sum of, each with a constant of its own."""


@dataclass(frozen=True, slots=True)
class Setting:
    """A run that is measured."""

    scenario: dict[str, Any]
    payload: int = CONTENT_SIZE
    is_fitted: bool = False
    """Whether constants of CPU are fitted to it; otherwise they are held against it. Those of bytes are in the law."""

    def text(self) -> str:
        """Its scenario in short."""
        values = self.scenario
        parts = [f"n {values['peers']:,}"]
        parts += [f"m {values['contributors_per_round']}"] if "contributors_per_round" in values else []
        parts += [f"c {values['committee_size']}"] if "committee_size" in values else []
        parts += [f"d ≥ {values['degree']}"] if "degree" in values else []
        parts += [f"p {self.payload:,}"] if self.payload != CONTENT_SIZE else []
        return ", ".join(parts)


SHARED = (
    Setting({"peers": 20}, is_fitted=True),
    Setting({"peers": 50}),
    Setting({"peers": 100}, is_fitted=True),
    Setting({"peers": 200}),
    Setting({"peers": 400}, is_fitted=True),
    Setting({"peers": 1_000}),
    Setting({"peers": 300, "contributors_per_round": 30, "committee_size": 10}),
    Setting({"peers": 100, "committee_size": 100}, is_fitted=True),
    Setting({"peers": 40, "degree": 5}, is_fitted=True),
    Setting({"peers": 100, "degree": 6}),
    Setting({"peers": 100}, payload=4_000),
    Setting({"peers": 30}, payload=600_000),
)
"""Each check done once for all peers."""

OWN = (
    Setting({"peers": 20}, is_fitted=True),
    Setting({"peers": 40}),
    Setting({"peers": 80}, is_fitted=True),
    Setting({"peers": 120, "contributors_per_round": 30, "committee_size": 10}),
    Setting({"peers": 150}),
)
"""Every peer verifies by itself, as a node does."""

MEMBERS = 10_000, 100_000, 1_000_000
DEGREE = 6.0
NEAR = 1_000
"""Bytes of a payload in the extrapolation."""


@dataclass(frozen=True, slots=True)
class Found:
    """A measured run."""

    setting: Setting
    cost: Cost
    shape: Shape

    @property
    def bytes_law(self) -> float:
        """Bytes that the law predicts for the run."""
        return sum(bytes_of_run(self.shape, ROUNDS, self.cost.printed["virtual_s"]).values())

    @property
    def bytes_sent(self) -> int:
        """Bytes that it sent."""
        return sum(self.cost.printed["sent"].values())

    @property
    def cpu_s(self) -> float:
        """CPU seconds of a round after the first."""
        return float(mean(self.cost.printed["cpu_s"]))


def bench_scale_law(*, quick: bool) -> list[Table | str]:
    """Measure, fit, compare, extrapolate."""
    shared, own = (
        [_measured(item, shares_checks=kind is SHARED) for item in kind if not quick or item.scenario["peers"] <= 100]
        for kind in (SHARED, OWN)
    )
    of_shared, of_own = fit(shared, terms), fit(own, own_terms)
    tables: list[Table | str] = [
        _compared("checks shared by all peers", shared, terms, of_shared),
        _constants(("a peer's round", "a post", "another message", "a dropped copy"), of_shared),
        _compared("every peer verifies by itself", own, own_terms, of_own),
        _constants(("a peer's round", "a message"), of_own),
        _memory(shared),
        _sockets(quick=quick),
        _extrapolated(shared, of_shared, of_own),
        _walls(),
    ]
    return [*tables, *(text for text in [warning([item.cost for item in shared + own])] if text)]


def fit(runs: Sequence[Found], of: Terms) -> NDArray[np.float64]:
    """CPU seconds of each of the terms that a round's CPU is a sum of.

    They are the non-negative ones with the least squares of relative errors over the runs to fit.
    """
    fitted = [run for run in runs if run.setting.is_fitted]
    rows = np.array([of(run.shape) for run in fitted])
    costs = np.array([run.cpu_s for run in fitted])
    kept = [place for place in range(rows.shape[1]) if rows[:, place].any()]
    while True:
        found = np.zeros(rows.shape[1])
        found[kept] = np.linalg.lstsq(rows[:, kept] / costs[:, None], np.ones(len(costs)), rcond=None)[0]
        if (found >= 0).all():
            return found
        kept.remove(int(found.argmin()))


def terms(shape: Shape) -> list[float]:
    """Rounds of peers, handled posts, other handled messages, and dropped copies, where peers share checks."""
    return [float(shape.members), *arrivals_of_round(shape)]


def own_terms(shape: Shape) -> list[float]:
    """Rounds of peers and handled messages where each peer verifies, as a post costs what other messages do there."""
    posts, others, _ = arrivals_of_round(shape)
    return [float(shape.members), posts + others]


def predicted_cpu_s(shape: Shape, of: Terms, constants: NDArray[np.float64]) -> float:
    """CPU seconds of a round."""
    return float(np.dot(of(shape), constants))


def off_percent(predicted: float, measured: float) -> str:
    """How far a prediction is off, as text."""
    return f"{100 * (predicted / measured - 1):+.1f}"


def _measured(setting: Setting, *, shares_checks: bool) -> Found:
    scenario = SCALE | {"rounds": ROUNDS, "committee_size": min(32, setting.scenario["peers"])} | setting.scenario
    cost = measure("traffic", scenario, setting.payload, shares_checks)
    return Found(setting, cost, Shape(**cost.printed["shape"]))


def _compared(title: str, runs: Sequence[Found], of: Terms, constants: NDArray[np.float64]) -> Table:
    heads = "run", "", "MB", "law", "off %", "CPU of a round (s)", "law", "off %", "first block after (s)"
    table = Table(*heads, title=title, box=None)
    for run in runs:
        cpu_s = predicted_cpu_s(run.shape, of, constants)
        table.add_row(
            run.setting.text(),
            "CPU fitted" if run.setting.is_fitted else "CPU held out",
            f"{run.bytes_sent / 1e6:,.2f}",
            f"{run.bytes_law / 1e6:,.2f}",
            off_percent(run.bytes_law, run.bytes_sent),
            f"{run.cpu_s:.3f}",
            f"{cpu_s:.3f}",
            off_percent(cpu_s, run.cpu_s),
            f"{run.cost.printed['began_s']:.0f}",
        )
    return table


def _constants(names: Sequence[str], constants: NDArray[np.float64]) -> str:
    return ", ".join(f"{name} {1e6 * value:,.1f} µs" for name, value in zip(names, constants, strict=True))


def memory_of(runs: Sequence[Found]) -> NDArray[np.float64]:
    """MiB of a simulation: for itself, for each peer, and for each pair of them, where all post."""
    chosen = [run for run in runs if set(run.setting.scenario) == {"peers"} and run.setting.payload == CONTENT_SIZE]
    sizes = np.array([run.shape.members for run in chosen], float)
    rows = np.stack([np.ones(len(sizes)), sizes, sizes**2], axis=1)
    found: NDArray[np.float64] = np.linalg.lstsq(rows, [1024 * run.cost.rss_gib for run in chosen], rcond=None)[0]
    return found


def _memory(runs: Sequence[Found]) -> str:
    base, peer, pair = memory_of(runs)
    return f"memory: {base:.0f} MiB, {peer:.3f} MiB a peer, {1024 * pair:.2f} KiB for each pair of peers"


def _sockets(*, quick: bool) -> Table:
    scenario = {"peers": 5, "rounds": 3 if quick else 10}
    found = measure("sockets", scenario).printed
    table = Table("5 node processes on loopback, of a round", "measured", "law", "off %", box=None)
    for name, (measured, law) in found.items():
        table.add_row(name, f"{measured:,.3f}", f"{law:,.3f}" if law else "", off_percent(law, measured) if law else "")
    return table


def _extrapolated(runs: Sequence[Found], shared: NDArray[np.float64], own: NDArray[np.float64]) -> Table:
    """A member and a simulation of very many members."""
    heads = "members", "post", "MB a member", "CPU a member (s)", "CPU simulated (s)", "GiB simulated"
    table = Table(*heads, title=f"a round, extrapolated: p {NEAR:,}, c 32, d {DEGREE:.0f}, 5 s", box=None)
    base, peer, pair = memory_of(runs)
    state_s = measure("roster", SCALE | {"peers": 10_000, "contributors_per_round": 100}).printed["state_s"] / 10_000
    for count in MEMBERS:
        for posting in (count, 100):
            meshed = Shape(members=count, contributors=posting, committee=32, payload=NEAR, degree=DEGREE)
            linked = replace(meshed, degree=0.0)
            size = sum(bytes_of_round(meshed, 5.0).values()) / count
            dropped_s = arrivals_of_round(meshed)[-1] * shared[-1]
            member_s = (predicted_cpu_s(meshed, own_terms, own) + dropped_s) / count + state_s * count
            simulated = ["", ""]  # of drawn members the others would sleep
            if posting == count:
                memory_gib = (base + peer * count + pair * count**2) / 1024
                simulated = [f"{predicted_cpu_s(linked, terms, shared):,.0f}", f"{memory_gib:,.1f}"]
            table.add_row(f"{count:,}", f"{posting:,}", f"{size / 1e6:,.2f}", f"{member_s:,.2f}", *simulated)
    return table


def _walls() -> Table:
    table = Table("limit", "members", title=f"what breaks first ({quorum(32)} of 32 decide)", box=None)
    for name, count in sorted(walls().items(), key=lambda item: item[1]):
        table.add_row(name, f"{count:,}")
    return table
