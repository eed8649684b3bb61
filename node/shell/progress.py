"""Progress in the log: each new head, standstills, a disk that hangs, whether this member counts, and large posts on
their way.
"""

import logging
import time
from collections.abc import Mapping

from fedchain.chain.membership.member import Member, Standing
from fedchain.chain.state import State
from fedchain.crypto.address import address
from fedchain.crypto.hashing import Hash
from fedchain.crypto.keys import PublicKey
from fedchain.node.core.node import Node
from fedchain.node.operating.standing import Standstill, plain_standstill, standstill_text
from fedchain.node.shell.activity import Activity

log = logging.getLogger("fedchain.node")

PROGRESS_S = 10.0
"""Seconds between log lines on the progress of a large post that is fetched."""

STANDSTILL_S = 30.0
"""Seconds for which a standstill lasts before it is logged; each start begins with one, until others are connected."""

HELD_S = 10.0
"""Seconds between two ticks from which on a node was held; a busy machine takes less."""


def log_head(head: State) -> None:
    """Log that the head has moved."""
    log.info(
        "head height=%(height)d hash=%(hash)s round=%(round)d posts=%(posts)d finished=%(finished)s",
        {
            "height": head.height,
            "hash": head.block_hash.hex()[:16],
            "round": head.rules.rounds if head.finished else head.round,
            "posts": head.posts,
            "finished": head.finished,
        },
    )


class Standstills:
    """Logs each standstill of some length once, and its end."""

    def __init__(self) -> None:
        self._is_told = False

    def log(self, found: Standstill | None, activity: Activity, seats: Mapping[PublicKey, int]) -> None:
        """``found`` is the standstill that ``activity`` was told of, if there is one; ``seats`` number the members."""
        if found is None and self._is_told:
            log.info("the federation goes on")
        elif found is not None and not self._is_told and activity.standing_s() >= STANDSTILL_S:
            plain = plain_standstill(found, activity.stands_since_ms or 0)
            numbers = {address(member): number for member, number in seats.items()}
            log.warning("the federation stands still: %s", standstill_text(plain, numbers))
        else:
            return
        self._is_told = found is not None


class Stalls:
    """Logs each write to the disk that takes long once, and its end; and how long the node itself was held.

    A disk that hangs can hold the loop, which reads from it: nothing is told meanwhile, and messages that waited make
    the node's own clock look wrong.
    """

    def __init__(self) -> None:
        self._told_s, self._looked_s = 0.0, time.monotonic()

    def log(self, activity: Activity) -> None:
        """Log the write that takes long, or that the one that was told of has ended; called at each tick."""
        held_s, self._looked_s = time.monotonic() - self._looked_s, time.monotonic()
        if held_s >= HELD_S:
            log.warning("this node was held for %.0f s: its disk did not answer, or the machine stood still", held_s)
        lasts_s = activity.slow_write_s()
        if self._told_s and lasts_s < self._told_s:
            log.info("the disk has finished the write")
            self._told_s = 0.0
        if lasts_s and not self._told_s:
            log.warning("the disk has not finished a write for %.0f s: nothing is sent until it has", lasts_s)
            self._told_s = lasts_s


class OwnStanding:
    """Logs when this member ceases to count, which its node may learn long after, and when it counts."""

    def __init__(self) -> None:
        self._known: Standing | None = None

    def log(self, record: Member | None) -> None:
        """``record`` is this member's at the head; None if it has none."""
        before, self._known = self._known, None if record is None else record.standing
        if self._known is before:
            return
        if self._known is Standing.AWAY:
            log.warning("this member is away, and counts no more, until its operator says: fedchain node back FOLDER")
        elif self._known is Standing.ACTIVE and before is not None:
            log.info("this member counts")


class Arrivals:
    """Logs how much has come of posts that take long, now and then."""

    def __init__(self) -> None:
        self._shown: dict[Hash, tuple[int, float]] = {}  # bytes when a post was logged last, and when

    def log(self, node: Node) -> None:
        """Log the posts of which more has come since they were logged."""
        shown, self._shown = self._shown, {}
        for post, arrived in node.arriving():
            before, since_s = shown.get(post.payload_hash, (0, time.monotonic()))
            if time.monotonic() - since_s >= PROGRESS_S and arrived != before:
                named = {
                    "round": post.round,
                    "peer": node.head.roster.seats.get(post.sender, -1),
                    "arrived": arrived,
                    "size": post.payload_size,
                }
                log.info("fetching round=%(round)d peer=%(peer)d bytes=%(arrived)d of=%(size)d", named)
                before, since_s = arrived, time.monotonic()
            self._shown[post.payload_hash] = before, since_s
