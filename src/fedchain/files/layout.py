"""What the files of a simulated run, of a test network and of a node are called, and where they lie."""

import json
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

RUNS_FOLDER = Path("runs")
"""Of the current folder: where runs go that are told no other place."""

CHAIN_FOLDER = "chain"
"""Of a node, or of a run, which keeps its first peer's: the store."""

TRAINING_FILE = "training.msgpack"
"""Of a node: its model as the last contribution left it."""

TIMELINE_FILE = "timeline.jsonl"
"""Of a node: what it saw of each block before it was final."""

SOCKET = "status.sock"
"""Of a node that runs: where it answers."""

KEY_FILE, LOG_FILE = "key.pem", "node.log"
"""Of a node in a test network: its key, and what it printed."""

GENESIS_FILE = "genesis.fedchain"
"""Of a test network, beside its nodes' folders."""

SCENARIO_FILE, METRICS_FILE, RESULT_FILE = "scenario.toml", "metrics.jsonl", "result.json"
"""Of a run: what is run; one JSON object for each round; what came of it, once it is finished."""

RECORD_FOLDER, MODELS_FOLDER = "record", "models"
"""Of a run: what was computed, until it is finished; the members' final models, if it was asked to keep them."""

_NODE = "node-"


def node_folder(network: Path, number: int) -> Path:
    """Where a node of a test network keeps what is its own."""
    return network / f"{_NODE}{number}"


def node_folders(network: Path) -> list[Path]:
    """The nodes' folders of a test network, in the order of their numbers; [] if it is none."""
    numbers = [path.name.removeprefix(_NODE) for path in network.glob(f"{_NODE}*") if (path / CHAIN_FOLDER).is_dir()]
    return [node_folder(network, number) for number in sorted(int(text) for text in numbers if text.isdecimal())]


def read_metrics(folder: Path, size_max: int = -1) -> Iterator[dict[str, Any]]:
    """What a run measured, a table for each round that was closed; lines that are none are passed over.

    Args:
        folder: of the run.
        size_max: bytes of the file that are read; -1: all.

    Raises OSError if the file cannot be read. A run that closed no round has none, and no rows.
    """
    with suppress(FileNotFoundError), (folder / METRICS_FILE).open("rb") as file:
        for line in file.read(size_max).splitlines():
            try:
                row: Any = json.loads(line)
            except (ValueError, RecursionError):
                continue
            if isinstance(row, dict):
                yield row


def free_folder(name: str) -> Path:
    """The first of ``runs/NAME``, ``runs/NAME-2``, … that does not exist."""
    path, count = RUNS_FOLDER / name, 1
    while path.exists():
        count += 1
        path = RUNS_FOLDER / f"{name}-{count}"
    return path
