"""The gate: who may connect, how much each peer may send, and when it has misbehaved too often.

Only members are let in, and a member that was banned stays out, also after a restart. There are as many records as
there are members, so nothing here grows.
"""

import json
import math
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

from fedchain.crypto.address import address, public_key_from_address
from fedchain.crypto.exceptions import InvalidAddress
from fedchain.crypto.keys import PublicKey
from fedchain.network.atomic_file import write_file
from fedchain.network.limits import BLAME_OVER_BUDGET, Limits, TokenBucket

BAN_FILE = "bans.json"
"""Name of the ban list in the data folder."""

BAN_FILE_SIZE_MAX = 2**20
"""Bytes of a ban list that is read; a larger one was not written by us."""


@dataclass(slots=True)
class _Conduct:
    """How one member has behaved."""

    messages: TokenBucket
    bytes: TokenBucket
    blame: float
    blamed_at_s: float


class Gate:
    """Knows members and bans, and keeps accounts.

    Args:
        members: public keys of all that may connect.
        limits: budgets, and how much blame is too much.
        folder: where the ban list is kept; None: bans end with the process.
    """

    def __init__(self, members: Collection[PublicKey], limits: Limits, folder: Path | None = None) -> None:
        self.members = frozenset(members)
        self._limits = limits
        self._path = folder / BAN_FILE if folder is not None else None
        self._conduct: dict[PublicKey, _Conduct] = {}
        self._banned_until_s = self._load()

    def admits(self, peer: PublicKey, now_s: float) -> bool:
        """Whether ``peer`` may connect at ``now_s`` (Unix seconds)."""
        return peer in self.members and now_s >= self._banned_until_s.get(peer, 0.0)

    def banned(self, now_s: float) -> list[PublicKey]:
        """Members that are banned now."""
        return sorted(peer for peer, until_s in self._banned_until_s.items() if now_s < until_s)

    def pays(self, peer: PublicKey, now_s: float) -> bool:
        """Take a message from the peer's budget; False: it has none left, and is blamed."""
        if self._of(peer, now_s).messages.spends(1.0, now_s):
            return True
        self.blame(peer, BLAME_OVER_BUDGET, now_s)
        return False

    def pause_s(self, peer: PublicKey, size: int, now_s: float) -> float:
        """Take ``size`` bytes from the peer's budget; how long to wait before more is read, in seconds."""
        return self._of(peer, now_s).bytes.borrow(size, now_s)

    def blame(self, peer: PublicKey, amount: float, now_s: float) -> bool:
        """Hold something against a peer; True: that was too much, and it is banned now."""
        conduct, limits = self._of(peer, now_s), self._limits
        forgiven = limits.blame_decay_per_s * max(0.0, now_s - conduct.blamed_at_s)
        conduct.blame = max(0.0, conduct.blame - forgiven) + amount
        conduct.blamed_at_s = now_s
        if conduct.blame < limits.blame_max:
            return False
        conduct.blame = 0.0
        self.ban(peer, now_s)
        return True

    def ban(self, peer: PublicKey, now_s: float) -> None:
        """Keep a member out for ``Limits.ban_s`` seconds."""
        if peer in self.members:
            self._banned_until_s[peer] = now_s + self._limits.ban_s
            self._save(now_s)

    def pardon(self, peer: PublicKey, now_s: float) -> None:
        """Lift a ban."""
        if self._banned_until_s.pop(peer, None) is not None:
            self._save(now_s)

    def _of(self, peer: PublicKey, now_s: float) -> _Conduct:
        conduct = self._conduct.get(peer)
        if conduct is None:
            limits = self._limits
            conduct = _Conduct(
                TokenBucket(limits.messages_per_s, limits.messages_burst, now_s),
                TokenBucket(limits.bytes_per_s, limits.bytes_burst, now_s),
                0.0,
                now_s,
            )
            if peer in self.members:
                self._conduct[peer] = conduct
        return conduct

    def _load(self) -> dict[PublicKey, float]:
        """The list as it was written; a damaged one is no reason not to start, and bans nobody."""
        if self._path is None or not self._path.exists() or self._path.stat().st_size > BAN_FILE_SIZE_MAX:
            return {}
        try:
            entries = json.loads(self._path.read_text(encoding="utf-8"))
            bans = {public_key_from_address(text): float(until_s) for text, until_s in entries.items()}
        except (OSError, ValueError, TypeError, AttributeError, RecursionError, InvalidAddress):
            return {}
        return {peer: until_s for peer, until_s in bans.items() if peer in self.members and math.isfinite(until_s)}

    def _save(self, now_s: float) -> None:
        if self._path is None:
            return
        entries = {address(peer): self._banned_until_s[peer] for peer in self.banned(now_s)}
        write_file(self._path, json.dumps(entries, indent=1))
