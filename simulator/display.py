"""Output of a running simulation: a live panel on a terminal, a line per round elsewhere, and a table at the end."""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from rich.console import Console, Group
from rich.live import Live
from rich.panel import Panel
from rich.progress import BarColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.progress import Progress as Bar
from rich.table import Table
from rich.text import Text

from fedchain.simulator.engine.measurement import NEW_ROUNDS, RoundMetrics
from fedchain.simulator.engine.outcome import Outcome
from fedchain.simulator.engine.simulation import Progress
from fedchain.simulator.palette import title_of
from fedchain.simulator.scenario import Scenario
from fedchain.terminal import Facts, Fitted
from fedchain.wording import counted, shown_epsilon

LEGEND = {
    "TAA": "TAA: mean accuracy in % on the peers' own test sets",
    "TAL": "TAL: mean loss there",
    "test": "test set: accuracy in % on the whole test set",
    "aggr.": "aggr.: of the aggregated model",
    "new": f"new: of members that joined in the last {NEW_ROUNDS} rounds",
    "epsilon": "epsilon: the largest of the peers'",
    "sent": "sent: by one peer",
    "of:": "of: members that count, and the votes that decide",
    "late:": "late: posts of earlier rounds, and by how many rounds on average",
    "taken": "not taken: blocks that lost",
    "train": "times in virtual s",
}
"""Meaning of the words in the headings of a table of rounds."""


class Display:
    """Shows the progress of one simulation; its first ``known`` rounds were shown before."""

    def __init__(self, console: Console, scenario: Scenario, known: int = 0) -> None:
        self.closed = 0
        """The last round that was closed."""
        self._console, self._known = console, known
        self._scenario, self._members = scenario, scenario.members
        self._progress = Progress()
        self._bar = Bar(
            TextColumn("round {task.completed:.0f}/{task.total:.0f}"),
            BarColumn(),
            TimeElapsedColumn(),
            TextColumn("left"),
            TimeRemainingColumn(),
        )
        self._task = self._bar.add_task("rounds", total=scenario.last_round)

    @contextmanager
    def watch(self, progress: Progress) -> Iterator[None]:
        """Show ``progress`` while the block runs."""
        self._progress = progress
        if not self._console.is_terminal:
            yield
            return
        with Live(get_renderable=self._render, console=self._console, refresh_per_second=5, transient=True):
            yield

    def on_round(self, row: RoundMetrics) -> None:
        """A round was closed."""
        self.closed = row.round
        if row.round <= self._known:
            return
        self._bar.update(self._task, completed=row.round)
        if not self._console.is_terminal:
            self._console.print(
                f"round {row.round}/{self._scenario.last_round}  TAA {percent(row.taa)} %  TAL {number(row.tal)}  "
                f"height {row.height}  not taken {row.not_taken}  virtual {row.virtual_s:.1f} s",
                soft_wrap=True,
            )

    def _render(self) -> Panel:
        now, last = self._progress, self._progress.last
        facts = Table.grid(padding=(0, 2))
        facts.add_row("phase", Text(now.phase, style="bold"), "virtual time", f"{now.virtual_s:.0f} s")
        facts.add_row("head", f"{now.head or '-'}  at height {now.height}", "not taken", str(now.not_taken))
        facts.add_row(
            "accuracy (TAA)",
            Text(f"{percent(last.taa)} %" if last else "-", style="bold green"),
            "peers up",
            f"{now.peers_up}/{self._members}",
        )
        title = f"{self._scenario.method} on {self._scenario.dataset}, {counted(self._scenario.peers, 'peer')}"
        width = min(78, self._console.width)
        return Panel(Group(self._bar.get_renderable(), facts), title=title, border_style="blue", width=width)


def round_table(rows: Sequence[RoundMetrics], scenario: Scenario) -> Fitted:
    """One line per round; columns that were never measured are left out, as are their entries in the legend."""
    columns: list[tuple[str, Callable[[RoundMetrics], str]]] = [
        ("R", lambda row: str(row.round)),
        ("TAA", lambda row: percent(row.taa)),
        ("TAA\nnew", lambda row: percent(row.taa_new)),
        ("TAL", lambda row: f"{row.tal:.3f}" if row.tal is not None else "-"),
        ("TAA\naggr.", lambda row: percent(row.taa_received)),
        ("test\nset", lambda row: percent(row.test_accuracy)),
        ("test\naggr.", lambda row: percent(row.test_accuracy_received)),
        ("epsilon\nin all", lambda row: "-" if row.epsilon is None else shown_epsilon(row.epsilon)),
        ("sent\nkB", lambda row: f"{row.bytes_sent_per_peer / 1000:.0f}"),
        ("of:\nquorum", lambda row: f"{row.members}: {row.quorum}" if scenario.all_changes else "-"),
        ("posts", lambda row: str(row.posts)),
        ("late:\nage", lambda row: f"{row.late_posts}: {row.late_age:.1f}" if row.late_posts else "-"),
        ("blocks", lambda row: str(row.blocks)),
        ("not\ntaken", lambda row: str(row.not_taken)),
        ("train", lambda row: f"{row.training_s:.2f}"),
        ("mine", lambda row: f"{row.mining_s:.2f}"),
    ]
    shown = [(name, cell) for name, cell in columns if any(cell(row) != "-" for row in rows)]
    words = {word for name, _ in shown for word in name.split()}
    table = Table(
        title=title_of(scenario),
        caption="; ".join(text for word, text in LEGEND.items() if word in words),
        header_style="bold",
    )
    for name, _ in shown:
        table.add_column(name, justify="right", no_wrap=True)
    for row in rows:
        table.add_row(*(cell(row) for _, cell in shown))
    return Fitted(table)


def summary(outcome: Outcome, folder: str, started: float) -> Facts:
    """The facts that identify a run, and its folder; print them with ``crop=False``."""
    facts = {"tip": outcome.tip, "knowledge": outcome.knowledge_root, "trace": outcome.trace_hash}
    wall_s = time.perf_counter() - started
    facts["time"] = f"{outcome.virtual_s:.1f} virtual s in {wall_s:.1f} s, {outcome.events:,} events"
    if outcome.not_posted:
        facts["not posted"] = f"{len(outcome.not_posted)} times, the last: {outcome.not_posted[-1]}"
    if outcome.skipped:
        facts["skipped"] = f"{len(outcome.skipped)} times, the last: {outcome.skipped[-1]}"
    facts["checks"] = "all hold" if not outcome.violations else "; ".join(outcome.violations)
    facts["folder"] = folder
    return Facts(facts, {"checks": "bold red" if outcome.violations else "green"})


def percent(value: float | None) -> str:
    """An accuracy in percent."""
    return "-" if value is None else f"{100 * value:.2f}"


def number(value: float | None) -> str:
    """A loss as text."""
    return "-" if value is None else f"{value:.4f}"
