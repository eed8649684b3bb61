"""Bans as they are kept on disk: the members that may not connect, why, since when and until when, in calendar time.

An operator reads this file, and edits it while no node runs; a newer or older version may have written it.
"""

import json
import math
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedchain.crypto.address import address, public_key_from_address
from fedchain.crypto.durable import write_file
from fedchain.crypto.exceptions import InvalidAddress
from fedchain.crypto.keys import PublicKey
from fedchain.files.layout import BAN_FILE, read_found
from fedchain.wording import printable

BAN_FILE_SIZE_MAX = 2**20
"""Bytes of a ban list that is read; a larger one was not written by us."""

REASON_SIZE_MAX = 200
"""Characters of a reason."""


@dataclass(frozen=True, slots=True)
class Ban:
    """Why a member may not connect, and for how long."""

    peer: PublicKey
    """Public key of the member, 32 bytes."""
    reason: str
    """The last thing that it was blamed for, in printable characters; empty where an older version did not say."""
    since_s: float
    """Unix seconds."""
    until_s: float
    """Unix seconds."""


def shown_reason(text: str) -> str:
    """A reason as it may be shown: peers have a say in it."""
    return printable(text[:REASON_SIZE_MAX], "?")


def read_bans(folder: Path) -> tuple[Ban, ...]:
    """The bans kept in ``folder``, by address. A damaged list bans nobody, and a damaged entry only itself."""
    path = folder / BAN_FILE
    try:
        if path.stat().st_size > BAN_FILE_SIZE_MAX:
            return ()
        entries = json.loads(read_found(path).decode())
    except (OSError, ValueError, RecursionError):
        return ()
    if not isinstance(entries, dict):
        return ()
    bans = (_read(name, entry) for name, entry in sorted(entries.items()))
    return tuple(ban for ban in bans if ban is not None)


def write_bans(folder: Path, bans: Iterable[Ban]) -> None:
    """Keep ``bans``, and no others. Raises OSError."""
    entries = {
        address(ban.peer): {"why": ban.reason, "since": round(ban.since_s, 3), "until": round(ban.until_s, 3)}
        for ban in bans
    }
    write_file(folder / BAN_FILE, json.dumps(entries, indent=1, sort_keys=True).encode())


def _read(name: str, entry: Any) -> Ban | None:
    """One entry; at first it was nothing but the time until which the ban holds."""
    if not isinstance(entry, dict):
        entry = {"until": entry}
    try:
        peer = public_key_from_address(name)
        until_s, since_s = float(entry["until"]), float(entry.get("since", 0.0))
    except (InvalidAddress, KeyError, TypeError, ValueError, OverflowError):
        return None
    if not (math.isfinite(until_s) and math.isfinite(since_s)):
        return None
    return Ban(peer, shown_reason(str(entry.get("why", ""))), since_s, until_s)
