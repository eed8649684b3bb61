"""A client's state between two contributions, in a file: its model, its method's memory, its privacy ledger."""

from pathlib import Path

import msgpack

from fedchain.crypto.hashing import HASH_SIZE, sha256
from fedchain.files.spool import unfinished, write_file_of
from fedchain.learning.privacy.ledger import read_entry, write_entry
from fedchain.learning.worker.learner import Learner


def save_client(learner: Learner, client: int, path: Path) -> None:
    """Write a client's state to a file, atomically."""
    ledger = [write_entry(entry) for entry in learner.ledger(client).entries()]
    data = msgpack.packb([learner.checkpoint(client), ledger])
    with unfinished(path) as other:
        write_file_of([sha256(data), data], other)


def restore_client(learner: Learner, client: int, path: Path) -> None:
    """Restore the saved state of a client that has done nothing yet."""
    checkpoint, ledger = msgpack.unpackb(path.read_bytes()[HASH_SIZE:])
    learner.restore(client, checkpoint)
    learner.ledger(client).adopt([read_entry(entry) for entry in ledger])


def is_saved(path: Path) -> bool:
    """Whether a file holds exactly the bytes that were written: after a power failure it may not."""
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return False
    return data[:HASH_SIZE] == sha256(data[HASH_SIZE:])
