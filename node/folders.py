"""Contents of folders: runs of simulations and test networks, and data folders of nodes, running or not.

A run or node that cannot be read says so in its own row, and hides none of the others.
"""

import json
import os
import tomllib
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from statistics import mean

from fedchain.chain.exceptions import ChainError, InvalidGenesis
from fedchain.chain.genesis import Genesis
from fedchain.chain.storage.database import modified_s
from fedchain.chain.storage.sqlite import Store
from fedchain.files.layout import (
    CHAIN_FOLDER,
    GENESIS_FILE,
    METRICS_FILE,
    RESULT_FILE,
    SCENARIO_FILE,
    SOCKET,
    TIMELINE_FILE,
    TRAINING_FILE,
    in_order,
    node_folders,
    read_metrics,
)
from fedchain.network.data_folder import ADDRESS_FILE
from fedchain.node.operating.status import FINISHED, ask_status

DEPTH_MAX = 4
"""Levels of folders that are searched below the named one."""

OF_NODES = (SOCKET, ADDRESS_FILE, TRAINING_FILE)
"""Files beside a chain that mark a node's data folder; a simulation has a chain, too."""

TIMELINE_END = 64 * 2**10
"""Bytes at the end of a node's timeline in which its newest accuracy is looked for."""


@dataclass(frozen=True, slots=True)
class RunRow:
    """One run folder."""

    folder: str
    kind: str
    """simulation or testnet."""
    method: str
    data: str
    peers: int
    rounds: int
    """Number of closed rounds."""
    of: int
    """Number of rounds that were asked for; 0 if there is no end."""
    accuracy: float | None
    """Fraction that the peers' models get right after the last round; None for a test network, whose logs have it."""
    state: str
    """finished, open (interrupted, or still going on), broken (a promise did not hold) or why it cannot be read."""
    modified_s: float
    """Time of the last change, in Unix seconds."""


@dataclass(frozen=True, slots=True)
class NodeRow:
    """One node's data folder."""

    folder: str
    state: str
    """running, stopped, or why it cannot be read."""
    pid: int | None
    """Process id; None if the node does not run."""
    chain_id: str
    address: str
    """Its address; empty if it does not run."""
    height: int
    round: int
    """The open round; the last one if the federation is finished."""
    peers: int | None
    """Number of connected members; None if it does not run."""
    waiting_for: str
    """The thing that it waits for, if it runs; if it has stopped, whether its federation is finished."""


def find_runs(folder: Path) -> list[RunRow]:
    """Runs in a folder and below, newest first."""
    found = [row for place in _folders(folder) if (row := _read_run(place)) is not None]
    return sorted(found, key=lambda row: row.modified_s, reverse=True)


def find_nodes(folder: Path) -> list[NodeRow]:
    """Nodes' data folders in a folder and below, by name."""
    return [_read_node(place) for place in _folders(folder) if _is_node(place)]


def _folders(folder: Path) -> Iterator[Path]:
    """The folder and those below, except hidden ones, links, and folders that may not be read."""
    base = len(folder.parts)
    for root, names, _ in os.walk(folder):
        yield Path(root)
        deep = len(Path(root).parts) - base >= DEPTH_MAX
        seen = (name for name in names if not name.startswith(".") and name != CHAIN_FOLDER)
        names[:] = [] if deep else sorted(seen, key=in_order)


# runs


def _read_run(place: Path) -> RunRow | None:
    """The run in a folder; None if it holds no run."""
    if (place / SCENARIO_FILE).is_file():
        return _read_simulation(place)
    if (place / GENESIS_FILE).is_file() and node_folders(place):
        return _read_testnet(place)
    return None


def _read_simulation(place: Path) -> RunRow:
    try:
        scenario = tomllib.loads((place / SCENARIO_FILE).read_text(encoding="utf-8"))
        rows = list(read_metrics(place))
        ending = place / RESULT_FILE
        result = json.loads(ending.read_text(encoding="utf-8")) if ending.exists() else None
        state = "open" if result is None else "broken" if result.get("violations") else "finished"
        return RunRow(
            folder=str(place),
            kind="simulation",
            method=str(scenario.get("method", "")),
            data=str(scenario.get("task") or scenario.get("dataset", "")),
            peers=int(scenario.get("peers", 0)),
            rounds=int(rows[-1].get("round", 0)) if rows else 0,
            of=int(scenario.get("rounds", 0)),
            accuracy=rows[-1].get("taa") if rows else None,
            state=state,
            modified_s=_modified_s(place, (RESULT_FILE, METRICS_FILE, SCENARIO_FILE)),
        )
    except (OSError, ValueError, TypeError, AttributeError, RecursionError) as error:
        return _unreadable(place, "simulation", error)


def _read_testnet(place: Path) -> RunRow:
    try:
        genesis = Genesis.decode((place / GENESIS_FILE).read_bytes())
        learning = {name: json.loads(text) for name, text in genesis.learning}
        chains = [node / CHAIN_FOLDER for node in node_folders(place)]
        accuracies = [found for node in node_folders(place) if (found := _newest_accuracy(node)) is not None]
        ends = [_head_of(chain) for chain in chains]
        rounds = max((closed for _, closed in ends), default=0)
        return RunRow(
            folder=str(place),
            kind="testnet",
            method=str(learning.get("method", "")),
            data=str(learning.get("dataset", "")),
            peers=len(genesis.members),
            rounds=rounds,
            of=genesis.rounds,
            accuracy=mean(accuracies) if accuracies else None,
            state="finished" if genesis.rounds and rounds >= genesis.rounds else "open",
            modified_s=max(map(modified_s, chains)),
        )
    except (OSError, ValueError, ChainError, AttributeError) as error:
        return _unreadable(place, "testnet", error)


def _newest_accuracy(node: Path) -> float | None:
    """A node's newest accuracy on its own test set, from the end of its timeline; None if it has measured none."""
    with suppress(FileNotFoundError), (node / TIMELINE_FILE).open("rb") as file:
        file.seek(max(0, os.fstat(file.fileno()).st_size - TIMELINE_END))
        for line in reversed(file.read(TIMELINE_END).splitlines()):
            with suppress(ValueError, TypeError, KeyError, RecursionError):  # half a line, or one without training
                accuracy = json.loads(line)["training"]["accuracy"]
                if isinstance(accuracy, float) and 0.0 <= accuracy <= 1.0:
                    return accuracy
    return None


def _head_of(chain: Path) -> tuple[int, int]:
    """Height of a stored chain, and the round that its last block closed; a round counts with its last phase."""
    with Store.open(chain, read_only=True) as store:
        head, genesis = store.head(), store.genesis
    if head is None:
        return 0, 0
    header = head.block.header
    is_last = header.phase + 1 == len(genesis.phases_of(header.round))
    return header.height, header.round if is_last else header.round - 1


def _unreadable(place: Path, kind: str, error: Exception) -> RunRow:
    reason = " ".join(str(error).split()) or type(error).__name__
    return RunRow(str(place), kind, "", "", 0, 0, 0, None, f"cannot be read: {reason}", place.stat().st_mtime)


def _modified_s(place: Path, names: tuple[str, ...]) -> float:
    return max((place / name).stat().st_mtime for name in names if (place / name).exists())


# nodes


def _is_node(place: Path) -> bool:
    return (place / CHAIN_FOLDER).is_dir() and any((place / name).exists() for name in OF_NODES)


def _read_node(place: Path) -> NodeRow:
    """State of a node: from its own answer if it runs, otherwise from its chain."""
    if now := ask_status(place):
        return NodeRow(
            folder=str(place),
            state="running",
            pid=now.get("pid"),
            chain_id=now["chain_id"],
            address=now["address"],
            height=now["height"],
            round=now["round"],
            peers=len(now["peers"]),
            waiting_for=now["waiting_for"],
        )
    try:
        with Store.open(place / CHAIN_FOLDER, read_only=True) as store:
            chain_id, rounds = store.genesis.chain_id.hex(), store.genesis.rounds
        height, closed = _head_of(place / CHAIN_FOLDER)
    except (ChainError, InvalidGenesis, OSError) as error:
        reason = " ".join(str(error).split())
        return NodeRow(str(place), f"cannot be read: {reason}", None, "", "", 0, 0, None, "")
    is_finished = 0 < rounds <= closed
    return NodeRow(
        folder=str(place),
        state="stopped",
        pid=None,
        chain_id=chain_id,
        address="",
        height=height,
        round=rounds if is_finished else closed + 1,
        peers=None,
        waiting_for=FINISHED if is_finished else "",
    )


def short_address(text: str) -> str:
    """The end of an address, by which people recognize it."""
    return f"…{text[-8:]}" if text else "-"
