"""Names and places of the files of a simulated run, of a test network and of a node."""

import json
import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

RUNS_FOLDER = Path("runs")
"""In the current folder: the runs that name no other place."""

CHAIN_FOLDER = "chain"
"""In the folder of a node, or of a run, which keeps its first peer's: the store."""

TRAINING_FILE = "training.msgpack"
"""In a node's folder: its model as the last contribution left it."""

TIMELINE_FILE = "timeline.jsonl"
"""In a node's folder: the events that it saw of each block before it was final."""

SOCKET = "status.sock"
"""In the folder of a running node: the socket on which it answers."""

KEY_FILE, LOG_FILE, START_FILE = "key.pem", "node.log", "start.sh"
"""In the folder of a test network's node: its key, its output, and the script that starts it again."""

GENESIS_FILE = "genesis.fedchain"
"""In a test network's folder, beside its nodes' folders: the genesis document."""

SCENARIO_FILE, METRICS_FILE, RESULT_FILE = "scenario.toml", "metrics.jsonl", "result.json"
"""In a run's folder: its scenario; one JSON object for each round; its result, once it is finished."""

MEMBERS_FILE = "members.csv"
"""In a finished run's folder: the accuracy of each member in each round."""

RECORD_FOLDER, MODELS_FOLDER = "record", "models"
"""In a run's folder: the record of computed answers, until it is finished; the final models, if they are kept."""

_NODE = "node-"


def node_folder(network: Path, number: int) -> Path:
    """Folder of a node of a test network."""
    return network / f"{_NODE}{number}"


def node_folders(network: Path) -> list[Path]:
    """The nodes' folders of a test network, in the order of their numbers; [] if ``network`` is no test network."""
    numbers = [path.name.removeprefix(_NODE) for path in network.glob(f"{_NODE}*") if (path / CHAIN_FOLDER).is_dir()]
    return [node_folder(network, number) for number in sorted(int(text) for text in numbers if text.isdecimal())]


def in_order(name: str) -> tuple[Sequence[int], str]:
    """Sort key by which ``node-10`` comes after ``node-9``."""
    return [int(part) if part.isdecimal() else 0 for part in re.split(r"(\d+)", name)], name


def is_simulated(folder: Path) -> bool:
    """Whether a simulation made the chain in a run's folder, or in the folder of the chain itself."""
    path = folder.resolve()
    return any((place / SCENARIO_FILE).exists() for place in (path, path.parent if path.name == CHAIN_FOLDER else path))


def read_metrics(folder: Path, size_max: int = -1) -> Iterator[dict[str, Any]]:
    """The measurements of a run, a table for each closed round; lines that are not JSON objects are skipped.

    Args:
        folder: the run's folder.
        size_max: bytes of the file that are read; -1: all.

    Raises OSError if the file cannot be read. A run that closed no round has no file, and no rows.
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
