"""The full check of the chain of a node that is not running, and the repair of damage that it finds.

A damaged row is dropped: the node fetches its contents again. If the database itself is broken, the whole folder of the
chain is set aside, and the node joins by state, as if it had lost the folder. The node's own signatures are recorded in
its signing journal, which lies beside the key and is not touched.
"""

import os
import sqlite3
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from fedchain.chain.exceptions import NotFound, StoreCorrupt
from fedchain.chain.storage.content_files import content_path, take_lock
from fedchain.chain.storage.damage import DamagedRow, broken_head, broken_structure, damaged_rows
from fedchain.chain.storage.database import connect, disk_errors, read_genesis, repair_hint, transaction
from fedchain.chain.storage.recovery import recover
from fedchain.crypto.durable import set_aside_damaged
from fedchain.files.layout import DATABASE
from fedchain.wording import counted

FAULTS_MAX = 20
"""Faults that are listed at most; the others are counted."""


@dataclass(frozen=True, slots=True)
class Repair:
    """Findings and actions of a repair."""

    folder: Path
    """The chain's folder."""
    faults: tuple[str, ...]
    """The damage that was found; if it is empty, nothing was changed."""
    done: tuple[str, ...] = ()
    """The steps that closed or removed gaps in the chain."""
    set_aside_as: Path | None = None
    """The folder's new path; None if it is where it was."""


def repair(folder: Path) -> Repair:
    """Check the whole chain in ``folder``, the chain's own; drop damaged records, or set the folder aside.

    Raises:
        NotFound: no chain there.
        StoreMismatch: another version of the program wrote it.
        StoreCorrupt: the database is broken, and the folder stays where it is.
        StoreError: a node runs there, or the disk refuses.
    """
    with disk_errors(folder):
        if not (folder / DATABASE).exists():
            raise NotFound(f"{folder} holds no chain: there is no {DATABASE}")
        lock = take_lock(folder)
        try:
            faults, done = _mend(folder)
            if done is None:
                return Repair(folder, tuple(faults), set_aside_as=_set_aside(folder, faults[0]))
            return Repair(folder, tuple(faults), tuple(done))
        finally:
            os.close(lock)


def describe_repair(repair: Repair) -> str:
    """Description of a repair for its operator, of several lines."""
    if not repair.faults:
        return f"{repair.folder}: nothing is damaged, nothing was changed"
    lines = [f"{repair.folder}: {counted(len(repair.faults), 'fault')} found"]
    lines += [f"  {fault}" for fault in repair.faults[:FAULTS_MAX]]
    if len(repair.faults) > FAULTS_MAX:
        lines.append(f"  and {len(repair.faults) - FAULTS_MAX} more")
    lines += repair.done
    if repair.set_aside_as is None:
        lines.append("what is damaged was dropped, all else is kept; start the node, it fetches what is missing")
    else:
        lines.append(f"the chain is set aside as {repair.set_aside_as}; start the node, it joins from the network")
        lines.append("delete what is set aside when the node has caught up")
    return "\n".join(lines)


def _mend(folder: Path) -> tuple[list[str], list[str] | None]:
    """Drop damaged rows; return the faults, and the steps taken about gaps, None if the database itself is broken."""
    try:
        with disk_errors(folder), closing(connect(folder / DATABASE, read_only=False)) as connection:
            genesis = read_genesis(folder, connection, None)
            if broken := list(broken_structure(connection, genesis)):
                return broken, None
            head, rows = list(broken_head(connection, genesis)), list(damaged_rows(folder, connection, genesis))
            if not head and not rows:
                return [], []
            _drop(folder, connection, rows)
            return [*head, *(row.fault for row in rows)], recover(connection, genesis)
    except StoreCorrupt as error:
        return [str(error).removesuffix(f"; {repair_hint(folder)}")], None


def _drop(folder: Path, connection: sqlite3.Connection, rows: list[DamagedRow]) -> None:
    """Delete rows, and before them their files, as everywhere: a row without its file counts as not held."""
    for row in rows:
        if row.content_hash is not None:
            content_path(folder, row.content_hash).unlink(missing_ok=True)
    with transaction(connection):
        for row in rows:
            connection.execute(f"DELETE FROM {row.table} WHERE rowid = ?", (row.number,))


def _set_aside(folder: Path, fault: str) -> Path:
    """Rename the folder in one step, to a free name beside it; return the new path.

    A link or a disk of its own stays: the next chain would come to lie on another disk, which may be too small for it.
    """
    place = Path(os.path.abspath(folder))  # "." has no name
    if place.is_symlink() or place.is_mount():
        kind = "a link" if place.is_symlink() else "a disk of its own"
        remedy = "move away what is in it, and start the node, it joins from the network"
        raise StoreCorrupt(f"{fault}; {folder} is {kind}, and is not set aside: {remedy}")
    aside = set_aside_damaged(place)
    return folder.with_name(aside.name) if folder.name == place.name else aside
