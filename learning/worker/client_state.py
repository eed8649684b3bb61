"""A client as it is between two contributions, in a file: its model, what its method remembers, its privacy ledger."""

from pathlib import Path

import msgpack

from fedchain.crypto.hashing import HASH_SIZE, sha256
from fedchain.learning.privacy.ledger import read_entry, write_entry
from fedchain.learning.worker.learner import Learner


def save_client(learner: Learner, client: int, path: Path) -> None:
    """Write a client down; the file is there whole or not at all."""
    ledger = [write_entry(entry) for entry in learner.ledger(client).entries()]
    data = msgpack.packb([learner.checkpoint(client), ledger])
    temporary = path.with_name(f"{path.name}.part")
    with temporary.open("wb") as file:
        file.write(sha256(data))
        file.write(data)
    temporary.replace(path)


def restore_client(learner: Learner, client: int, path: Path) -> None:
    """Put a client, which has done nothing yet, back to what it was."""
    checkpoint, ledger = msgpack.unpackb(path.read_bytes()[HASH_SIZE:])
    learner.restore(client, checkpoint)
    learner.ledger(client).adopt([read_entry(entry) for entry in ledger])


def is_saved(path: Path) -> bool:
    """Whether a file holds what was written there: after a failure of power it may not."""
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return False
    return data[:HASH_SIZE] == sha256(data[HASH_SIZE:])
