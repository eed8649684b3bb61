"""Runs of simulations and test networks, and nodes, running or not, as rows of a list.

A run or node that cannot be read says so in its own row, and hides none of the others.
"""

import json
import os
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import mean
from typing import Any

from fedchain.chain.exceptions import ChainError
from fedchain.chain.explorer.explorer import Explorer
from fedchain.chain.membership.succession import amended_end
from fedchain.chain.storage.database import modified_s
from fedchain.chain.storage.sqlite import Store
from fedchain.files.layout import (
    METRICS_FILE,
    RESULT_FILE,
    SCENARIO_FILE,
    TIMELINE_FILE,
    open_found,
    read_found,
    read_metrics,
)
from fedchain.files.places import Place, chain_folder, places_in
from fedchain.files.tables import read_toml
from fedchain.node.operating.status import look_for_node

TIMELINE_END = 64 * 2**10
"""Bytes at the end of a node's timeline in which its newest accuracy is looked for."""


@dataclass(frozen=True, slots=True)
class Row:
    """One run or node."""

    folder: str
    kind: str
    """simulation, testnet or node."""
    state: str
    """running, stopped, open (interrupted, or still going on), finished, broken (a promise did not hold), or why it
    cannot be read or, of a node that is there, asked."""
    modified_s: float
    """Time of the last change, in Unix seconds."""
    method: str = ""
    data: str = ""
    peers: int = 0
    """Members of the federation."""
    rounds: int = 0
    """Number of closed rounds."""
    of: int = 0
    """Number of rounds that were asked for; 0 if there is no end."""
    accuracy: float | None = None
    """Fraction that a node's own model gets right, as it measured last; of a run, the mean of all nodes or peers."""
    chain_id: str = ""
    height: int | None = None
    """Blocks of the chain; None of a simulation."""
    pid: int | None = None
    """Process id of a node; None if it does not run."""
    address: str = ""
    """A running node's."""
    connected: int | None = None
    """Members to which a running node is connected."""
    waiting_for: str = ""
    """The thing that a running node waits for."""


def find_rows(folder: Path) -> list[Row]:
    """Runs in a folder and below, the newest first; then nodes that belong to none, by name."""
    rows = map(_read, places_in(folder))
    return sorted(rows, key=lambda row: 0.0 if row.kind == "node" else -row.modified_s)


def _read(place: Place) -> Row:
    try:
        if place.kind == "simulation":
            return _read_simulation(place.folder)
        nodes = [_read_node(node) for node in place.nodes]
        return nodes[0] if place.kind == "node" else _joined(place.folder, nodes)
    except (OSError, ValueError, OverflowError, TypeError, AttributeError, RecursionError, ChainError) as error:
        reason = " ".join(str(error).split()) or type(error).__name__
        return Row(str(place.folder), place.kind, f"cannot be read: {reason}", place.folder.stat().st_mtime)


def _read_simulation(folder: Path) -> Row:
    scenario = read_toml(folder / SCENARIO_FILE, ValueError)
    rows = list(read_metrics(folder))
    ending = folder / RESULT_FILE
    result = json.loads(read_found(ending).decode()) if ending.exists() else None
    files = [path for name in (RESULT_FILE, METRICS_FILE, SCENARIO_FILE) if (path := folder / name).exists()]
    closed, asked = int(rows[-1].get("round", 0)) if rows else 0, int(scenario.get("rounds", 0))
    ends = [
        (int(change.get("round", 0)), int(change.get("begin", 0)), int(change["values"]["rounds"]))
        for change in scenario.get("changes", ())
        if "rounds" in change.get("values", {})
    ]
    if ends:
        asked = amended_end(asked, ends) if result is None else closed  # it moves once a block counts an amendment
    return Row(
        folder=str(folder),
        kind="simulation",
        state="open" if result is None else "broken" if result.get("violations") else "finished",
        modified_s=max(path.stat().st_mtime for path in files),
        method=str(scenario.get("method", "")),
        data=str(scenario.get("task") or scenario.get("dataset", "")),
        peers=int(scenario.get("peers", 0)),
        rounds=closed,
        of=asked,
        accuracy=_accuracy_in(rows[-1]) if rows else None,
    )


def _accuracy_in(row: Mapping[str, Any]) -> float | None:
    """The accuracy of a round; None if it was not measured. Raises ValueError for what is none."""
    accuracy = row.get("taa")
    if accuracy is None or (isinstance(accuracy, int | float) and 0 <= accuracy <= 1):
        return accuracy
    raise ValueError(f"taa is {accuracy!s:.40}, it must be from 0 to 1")


def _read_node(folder: Path) -> Row:
    """State of a node: its chain, and its own answer if it runs."""
    chain = chain_folder(folder)
    with Store.open(chain, read_only=True) as store:
        genesis, state = store.genesis, Explorer(store).state
    learning = {name: json.loads(text) for name, text in genesis.learning}
    status, trouble = look_for_node(folder)
    now = status or {}
    accuracy = now.get("accuracy")
    return Row(
        folder=str(folder),
        kind="node",
        state="running" if now else trouble or ("finished" if state.finished else "stopped"),
        modified_s=modified_s(chain),
        method=str(learning.get("method", "")),
        data=str(learning.get("dataset", "")),
        peers=len(state.roster.reachable),
        rounds=max(0, state.round - 1),  # a round counts with its last phase
        of=state.rules.rounds,
        accuracy=_newest_accuracy(folder) if accuracy is None else accuracy,
        chain_id=genesis.chain_id.hex(),
        height=state.height,
        pid=now.get("pid"),
        address=now.get("address", ""),
        connected=len(now["peers"]) if now else None,
        waiting_for=now.get("waiting_for", ""),
    )


def _joined(network: Path, nodes: list[Row]) -> Row:
    """The row of a test network: as far as the first of its nodes is."""
    first = max(nodes, key=lambda node: node.height or 0)
    running = sum(node.state == "running" for node in nodes)
    accuracies = [node.accuracy for node in nodes if node.accuracy is not None]
    return replace(
        first,
        folder=str(network),
        kind="testnet",
        state="running" if running else "open" if first.state == "stopped" else first.state,
        modified_s=max(node.modified_s for node in nodes),
        accuracy=mean(accuracies) if accuracies else None,
        pid=None,
        address="",
        connected=None,
        waiting_for="",
    )


def _newest_accuracy(node: Path) -> float | None:
    """A node's newest accuracy on its own test set, from the end of its timeline; None if it has measured none."""
    with suppress(FileNotFoundError), open_found(node / TIMELINE_FILE) as file:
        file.seek(max(0, os.fstat(file.fileno()).st_size - TIMELINE_END))
        for line in reversed(file.read(TIMELINE_END).splitlines()):
            with suppress(ValueError, TypeError, KeyError, RecursionError):  # half a line, or one without training
                accuracy = json.loads(line)["training"]["accuracy"]
                if isinstance(accuracy, float) and 0.0 <= accuracy <= 1.0:
                    return accuracy
    return None
