"""The scenario of a simulated run on its pages: its settings, what went wrong, and the command that repeats it."""

import shlex
from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path

from fedchain.chain.explorer.columns import Line
from fedchain.chain.explorer.units import duration
from fedchain.files.places import scenario_file
from fedchain.files.tables import read_toml
from fedchain.simulator.disturbances import MemberChange, Trouble, troubles
from fedchain.simulator.scenario import Scenario, ScenarioError, field_help, scenario_from_dict
from fedchain.web.formats import said
from fedchain.wording import some_of

SIZE_MAX = 2**20
"""Most bytes of a scenario's file that is read."""

TIME_MAX_S = 1e9
"""Latest time of a fault that is shown, in virtual seconds; no scenario is valid with a later one."""

TROUBLES_MAX = 1_000
"""Most troubles that are shown, those that began first."""

ITEMS_MAX = 64
"""Most items of a setting that has several, such as changes of the members."""

TABLES = ("faults", "clocks", "adversaries", "hyperparameters")

STATES = {
    "down": ("down", "up again"),
    "cut": ("cut off from the others", "connected again"),
    "slow": ("slow", "no longer slow"),
    "clock": ("wrong by the clock", ""),
    "lying": ("not following the protocol", ""),
}
"""The state of peers while a trouble lasts, and their state after it."""


@dataclass(frozen=True, slots=True)
class Setting:
    """A field of the scenario, or a hyper-parameter."""

    name: str
    value: str
    help: str
    """Its meaning; empty for a hyper-parameter."""


@dataclass(frozen=True, slots=True)
class Moment:
    """The beginning or the end of a trouble."""

    at_ms: int
    """Virtual time, in milliseconds."""
    text: str
    """The event, with the peers' numbers."""
    peers: tuple[int, ...]
    """Numbers of the peers."""


@dataclass(frozen=True, slots=True)
class ScenarioView:
    """A scenario, as pages show it."""

    command: str
    """The command that repeats the run, for a shell."""
    changed: tuple[Setting, ...]
    """Settings that differ from the defaults."""
    others: tuple[Setting, ...]
    """Settings that do not."""
    troubles: tuple[Trouble, ...]
    """All that goes wrong in it, in the order of time, at most ``TROUBLES_MAX``."""
    left_out: int
    """Number of those that are not among them."""
    _by_peer: Mapping[int, Sequence[Trouble]]

    def of_peer(self, peer: int) -> Sequence[Trouble]:
        """The troubles of one peer."""
        return self._by_peer.get(peer, ())


def read_scenario(folder: Path) -> ScenarioView | None:
    """The scenario of a run's folder, or of the folder of its chain; None if no simulation made it.

    It is not validated: for that, code that it names would have to run. Raises ScenarioError if it cannot be read.
    """
    path = scenario_file(folder)
    if path is None:
        return None
    try:
        if path.stat().st_size > SIZE_MAX:
            raise ScenarioError(f"{path} has {path.stat().st_size:,} bytes, at most {SIZE_MAX:,} are read")
    except OSError as error:
        raise ScenarioError(f"{path} cannot be read: {error.strerror}") from None
    scenario = scenario_from_dict(read_toml(path, ScenarioError))
    for time_s in [fault.at_s for fault in scenario.faults] + [clock.at_s for clock in scenario.clocks]:
        if not 0 <= time_s <= TIME_MAX_S:
            raise ScenarioError(f"{path} has a fault at {time_s} s, it must be between 0 and {TIME_MAX_S:g}")
    default, texts = Scenario(), field_help(Scenario)
    changed, others = list[Setting](), list[Setting]()
    for item in fields(Scenario):
        value = getattr(scenario, item.name)
        if item.name not in TABLES and item.name != "name":
            of_kind = others if value == getattr(default, item.name) else changed
            of_kind.append(Setting(item.name, _plain(value), " ".join(texts[item.name].split())))
    changed += [Setting(name, _plain(value), "") for name, value in sorted(scenario.hyperparameters.items())]
    found = troubles(scenario.faults, scenario.clocks, scenario.adversaries)
    by_peer = dict[int, list[Trouble]]()
    for trouble in found[:TROUBLES_MAX]:
        for peer in trouble.peers:
            by_peer.setdefault(peer, []).append(trouble)
    return ScenarioView(
        command=f"fedchain simulate {shlex.quote(str(path))}",
        changed=tuple(changed),
        others=tuple(others),
        troubles=found[:TROUBLES_MAX],
        left_out=max(0, len(found) - TROUBLES_MAX),
        _by_peer=by_peer,
    )


def moments(found: Sequence[Trouble]) -> list[Moment]:
    """The beginnings and ends of troubles, in the order of time; peers that lie from the beginning have none."""
    made = list[Moment]()
    for item in found:
        who = peers_text(item.peers)
        if item.begin_s == item.end_s:
            made.append(Moment(round(1000 * item.begin_s), f"{who} restarted", item.peers))
            continue
        if item.kind != "lying" and (item.kind, item.begin_s) != ("clock", 0.0):
            made.append(Moment(round(1000 * item.begin_s), f"{who} {state_text(item)}", item.peers))
        if item.end_s is not None:
            made.append(Moment(round(1000 * item.end_s), f"{who} {STATES[item.kind][1]}", item.peers))
    return sorted(made, key=lambda moment: moment.at_ms)


def placed(found: Sequence[Trouble], lines: Sequence[Line], created_ms: int) -> Iterator[tuple[Line, Moment]]:
    """The moments of troubles, each with the block that was the next to become final; later ones are left out.

    Args:
        found: the troubles.
        lines: final blocks without a gap, oldest first.
        created_ms: time of the founding, at which virtual time begins.
    """
    line_at = _finder(lines, created_ms)
    for moment in moments(found):
        if (line := line_at(moment)) is not None:
            yield line, moment


def rows_of(
    found: Sequence[Trouble], lines: Sequence[Line], created_ms: int
) -> Iterator[tuple[str, str, str, Sequence[int]]]:
    """Troubles in words: the peers, what they were, how long, and the first and last round of that, as far as known."""
    line_at = _finder(lines, created_ms)
    for item in found:
        rounds = dict.fromkeys(line.round for line in map(line_at, moments([item])) if line is not None)
        yield peers_text(item.peers), state_text(item), span_text(item), [*rounds]


def _finder(lines: Sequence[Line], created_ms: int) -> Callable[[Moment], Line | None]:
    """A function that finds the block that was the next to become final at a moment; None if there is none."""
    times = [line.time_ms - created_ms for line in lines]

    def line_at(moment: Moment) -> Line | None:
        place = bisect_left(times, moment.at_ms)
        return lines[place] if place < len(lines) and (place > 0 or lines[0].height == 1) else None

    return line_at


def state_text(trouble: Trouble) -> str:
    """The state of its peers while a trouble lasts."""
    state = STATES[trouble.kind][0]
    return f"{state}: {trouble.detail}" if trouble.detail else state


def span_text(trouble: Trouble) -> str:
    """The time for which a trouble lasts."""
    begin, end = duration(round(1000 * trouble.begin_s)), trouble.end_s
    if trouble.begin_s == end:
        return f"restarted at {begin}"
    since = f"from {begin} on" if trouble.begin_s else "from the beginning"
    return since if end is None else f"{since.removesuffix(' on')} to {duration(round(1000 * end))}"


def peers_text(numbers: Sequence[int]) -> str:
    """Peer numbers for people: "peer 3", "peers 0 to 4, 7"."""
    runs = list[list[int]]()
    for number in numbers:
        if runs and number == runs[-1][-1] + 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    parts = [part for run in runs for part in ([f"{run[0]} to {run[-1]}"] if len(run) > 2 else map(str, run))]
    return f"{'peer' if len(numbers) == 1 else 'peers'} {some_of(parts)}"


def _plain(value: object) -> str:
    if isinstance(value, tuple):
        more = f"; and {len(value) - ITEMS_MAX} more" if len(value) > ITEMS_MAX else ""
        return "; ".join(map(_plain, value[:ITEMS_MAX])) + more or "none"
    if isinstance(value, MemberChange):
        return _change_text(value)
    return said(value)


def _change_text(change: MemberChange) -> str:
    """A change of the members for people: "round 3: join, peer 7", "round 8: amend rounds 14"."""
    who = f", {peers_text(change.peers)}" if change.peers else ""
    values = ",".join(f" {name} {value}" for name, value in change.values.items())
    since = f" from round {change.begin} on" if change.begin else ""
    why = f" ({change.reason})" if change.reason else ""
    return f"round {change.round}: {change.kind}{who}{values}{since}{why}"
