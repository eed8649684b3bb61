"""The view of a test network: a table of its nodes or their logs, and a line when a node ends or comes back."""

import os
import shlex
import time
from collections.abc import Sequence
from pathlib import Path

from rich.live import Live
from rich.table import Table

from fedchain.files.layout import LOG_FILE, START_FILE
from fedchain.node.config import NodeConfigError
from fedchain.node.operating.console import percent
from fedchain.node.operating.local_node import LocalNode
from fedchain.node.operating.standing import standstill_text
from fedchain.terminal import Console, Fitted

LOOK_EVERY_S = 0.3
"""Time between two looks at the nodes."""


class Watch:
    """Shows the nodes of a test network.

    Args:
        nodes: the nodes, started.
        console: where they are shown.
        shows_logs: whether to show what the nodes log, instead of a table or the heights.
    """

    def __init__(self, nodes: Sequence[LocalNode], console: Console, *, shows_logs: bool = False) -> None:
        self._nodes, self._console, self._shows_logs = nodes, console, shows_logs
        self._height = 0
        self._ended = dict.fromkeys(range(len(nodes)), "")
        self._stands = ""
        self._read = dict.fromkeys(range(len(nodes)), 0)  # bytes of each log that were shown

    def until_finished(self, timeout_s: float) -> None:
        """Show the nodes until those that run have closed the last round and agree on the head.

        A node that ends after it has run is reported and may be started again by hand.

        Args:
            timeout_s: the longest time without a new block at any node.

        Raises:
            NodeConfigError: a node ended at its start, all nodes ended, or there was no new block for too long.
        """
        heights, deadline_s = list[int](), 0.0
        with Live(console=self._console, auto_refresh=False, transient=True) as live:
            while True:
                self.look()
                if self._console.is_terminal and not self._shows_logs:
                    live.update(status_table(self._nodes), refresh=True)
                running = [node for node in self._nodes if not node.ended]
                if not running:
                    raise NodeConfigError(f"all nodes have ended; node 0 {self._nodes[0].ended}")
                heads = {node.status.get("head") for node in running}
                if all(node.status.get("finished") for node in running) and len(heads) == 1:
                    return
                before, heights = heights, [node.status.get("height", 0) for node in self._nodes]
                if heights != before:
                    deadline_s = time.monotonic() + timeout_s
                elif time.monotonic() > deadline_s:
                    where = self._nodes[0].folder
                    raise NodeConfigError(f"no node has a new block since {timeout_s:.0f} s (timeout_s); see {where}")
                time.sleep(LOOK_EVERY_S)

    def look(self) -> None:
        """Ask the nodes, and say what has changed. Raises NodeConfigError if a node ended at its start."""
        for node in self._nodes:
            node.look()
            if node.ended and not node.status:
                raise NodeConfigError(f"node {node.number} {node.ended}")
            self._tell_end(node)
            if self._shows_logs:
                self._show_log(node)
        height = max(node.status.get("height", 0) for node in self._nodes)
        if height > self._height and not self._console.is_terminal and not self._shows_logs:
            self._console.print(f"height {height}")
        self._height = max(height, self._height)
        self._tell_standstill()

    def _tell_end(self, node: LocalNode) -> None:
        if node.ended == self._ended[node.number]:
            return
        self._ended[node.number] = node.ended
        if node.ended:
            self._console.print(f"node {node.number} {node.ended}; start it again with", soft_wrap=True)
            self._console.print(f"  {shlex.quote(str(node.folder / START_FILE))} &", soft_wrap=True)
        else:
            self._console.print(f"node {node.number} runs again")

    def _tell_standstill(self) -> None:
        """A line when the federation comes to a standstill, as all running nodes see it, and when it goes on."""
        running = [node.status for node in self._nodes if not node.ended and node.status]
        if not running:  # nobody can say
            return
        found = [status.get("stands") for status in running]
        if all(found) and self._height:
            text = f"stands still: {standstill_text(found[0] or {}, running[0]['numbers'])}"
        else:
            text = ""
        if text != self._stands:
            self._stands = text
            self._console.print(text or "goes on", soft_wrap=True)

    def _show_log(self, node: LocalNode) -> None:
        """Print the lines that a node has logged since the last look; none where its log was moved away meanwhile."""
        path: Path = node.folder / LOG_FILE
        try:
            with path.open("rb") as file:
                if os.fstat(file.fileno()).st_size < self._read[node.number]:  # it was emptied
                    self._read[node.number] = 0
                file.seek(self._read[node.number])
                new = file.read()
        except FileNotFoundError:
            return
        whole = new[: new.rfind(b"\n") + 1]
        self._read[node.number] += len(whole)
        for line in whole.decode("utf-8", errors="replace").splitlines():
            self._console.print(f"node {node.number:<3} {line}", soft_wrap=True)


def status_table(nodes: Sequence[LocalNode]) -> Fitted:
    """A table of the nodes' states that fits a terminal of 80 columns."""
    table = Table(header_style="bold")
    for name in ("node", "height", "round", "peers", "accuracy"):
        table.add_column(name, no_wrap=True, justify="right")
    table.add_column("head", no_wrap=True)
    table.add_column("waiting for")
    for node in nodes:
        now = node.status
        if not now:
            table.add_row(str(node.number), "-", "-", "-", "-", "-", "its start")
            continue
        waiting_for = now["waiting_for"]
        if now.get("stands"):
            waiting_for = standstill_text(now["stands"], now["numbers"])
        numbers = (node.number, now["height"], now["round"], len(now["peers"]), percent(now["accuracy"]))
        table.add_row(*map(str, numbers), now["head"][:12], node.ended or waiting_for)
    return Fitted(table, gap=1)
