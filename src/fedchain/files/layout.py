"""Names and places of the files of a simulated run, of a test network and of a node."""

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, BinaryIO

from fedchain.files.json_text import from_json

RUNS_FOLDER = Path("runs")
"""In the current folder: the runs that name no other place."""

CHAIN_FOLDER = "chain"
"""In the folder of a node, or of a run, which keeps its first peer's: the store."""

ASIDE = ".damaged-"
"""Between the name of something damaged and a number: how it is called once it is set aside."""

DATABASE = "chain.sqlite"
"""In the folder of a chain: its records."""

TRAINING_FILE = "training.msgpack"
"""In a node's folder: its model as the last contribution left it."""

TRAINING_SPOOL = "training"
"""In a node's folder: what its training process puts together of large posts and models."""

TIMELINE_FILE = "timeline.jsonl"
"""In a node's folder: the events that it saw of each block before it was final."""

SOCKET = "status.sock"
"""In the folder of a running node: the socket on which it answers."""

ADDRESS_FILE, BAN_FILE = "addresses.json", "bans.json"
"""In a node's folder: the addresses at which members were reached; the banned members."""

INVITATION_FILE, INVITATIONS_FILE, SETTINGS_FILE = "invitation", "invitations.json", "node.toml"
"""In a node's folder: the invitation on which it came; those that it handed out; the settings that a newcomer began
with."""

KEY_FILE, LOG_FILE, START_FILE = "key.pem", "node.log", "start.sh"
"""In the folder of a test network's node: its key, its output, and the script that starts it again."""

GENESIS_FILE = "genesis.fedchain"
"""In a test network's folder, beside its nodes' folders: the genesis document."""

SCENARIO_FILE, METRICS_FILE, RESULT_FILE = "scenario.toml", "metrics.jsonl", "result.json"
"""In a run's folder: its scenario; one JSON object for each round; its result, once it is finished."""

MEMBERS_FILE = "members.csv"
"""In a finished run's folder: the accuracy of each member in each round."""

LINKS_FILE = "links.csv"
"""In a finished run's folder: the bytes and delays between its members, unless they are very many."""

RECORD_FOLDER, MODELS_FOLDER = "record", "models"
"""In a run's folder: the record of computed answers, until it is finished; the final models, if they are kept."""

EXPERIMENT_FILE, RESULTS_FOLDER = "experiment.toml", "results"
"""In a comparison's folder: the comparison as an experiment; in an experiment's folder: a file for each finished run,
and the records of those that were interrupted."""


def read_metrics(folder: Path, size_max: int = -1) -> Iterator[dict[str, Any]]:
    """The measurements of a run, a table for each closed round; lines that are not JSON objects are skipped.

    Args:
        folder: the run's folder.
        size_max: bytes of the file that are read; -1: all.

    Raises OSError if the file cannot be read. A run that closed no round has no file, and no rows.
    """
    with suppress(FileNotFoundError), open_found(folder / METRICS_FILE) as file:
        for line in file.read(size_max).splitlines():
            try:
                row: Any = from_json(line)
            except (ValueError, RecursionError):
                continue
            if isinstance(row, dict):
                yield row


NO_FILE = "a pipe or a device, and no file"
"""The fault of a path where a file is to be read."""


def is_device(path: Path) -> bool:
    """Whether a path leads to a pipe, which keeps its reader waiting, or to a device, which may have no end."""
    return path.exists() and not path.is_file() and not path.is_dir()


def is_file_name(name: str) -> bool:
    """Whether a name is that of a file or folder in another one, and leads nowhere else."""
    return name not in ("", ".", "..") and not {"/", "\0"} & {*name}


def open_found(path: Path) -> BinaryIO:
    """Open a file of a folder that somebody else may have written; a pipe or a device is none.

    Raises OSError: FileNotFoundError if there is none.
    """
    if is_device(path):
        raise FileNotFoundError(f"{path} is a {'pipe' if path.is_fifo() else 'device'}")
    return path.open("rb")


def read_found(path: Path) -> bytes:
    """The bytes of such a file. Raises OSError as :func:`open_found` does."""
    with open_found(path) as file:
        return file.read()


def free_folder(name: str) -> Path:
    """The first of ``runs/NAME``, ``runs/NAME-2``, … that does not exist."""
    path, count = RUNS_FOLDER / name, 1
    while path.exists():
        count += 1
        path = RUNS_FOLDER / f"{name}-{count}"
    return path
