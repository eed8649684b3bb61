"""``links.csv`` of a simulated run: what each member sent to each other, and how long it was on its way."""

import re
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from fedchain.files.layout import LINKS_FILE, open_found

COLUMNS = ("sender", "receiver", "sent_bytes", "arrivals", "delay_ms")

NO_LINKS = np.empty((0, len(COLUMNS)), np.int64)


@dataclass(frozen=True, slots=True)
class Link:
    """One direction between two members."""

    sender: int
    """Number of the member that sent, from 0."""
    receiver: int
    """Number of the other one."""
    sent_bytes: int
    """Bytes of messages, those that were lost included."""
    arrivals: int
    """Messages that were not lost on their way."""
    delay_ms: int
    """Time that those were on their way, all together, in milliseconds; waits for the sender's bandwidth included."""


def links_text(links: Iterable[Link]) -> str:
    """The content of the file: a line for each direction that was used."""
    rows = (f"{item.sender},{item.receiver},{item.sent_bytes},{item.arrivals},{item.delay_ms}" for item in links)
    return "\n".join([",".join(COLUMNS), *rows]) + "\n"


def read_links(folder: Path, size_max: int = -1) -> tuple[NDArray[np.int64], int]:
    """The links of a run in ``folder``, a row for each and its fields as columns, and the number of damaged lines.

    At most ``size_max`` bytes are read; -1: all. Raises OSError if the file cannot be read. A run that is not finished
    has none, nor one of very many members.
    """
    with suppress(FileNotFoundError), open_found(folder / LINKS_FILE) as file:
        data = file.read(size_max)
        lines = re.findall(rb"^\d{1,15}(?:,\d{1,15}){4}$", data, re.MULTILINE)
        values = np.array([*map(int, b",".join(lines).split(b","))] if lines else [], np.int64)
        count = sum(1 for line in data.split(b"\n")[1:] if line)
        return values.reshape(-1, len(COLUMNS)), max(0, count - len(lines))
    return NO_LINKS, 0
