"""Progress in the log: each new head, and large posts on their way."""

import logging
import time

from fedchain.chain.state import State
from fedchain.crypto.hashing import Hash
from fedchain.node.core.node import Node

log = logging.getLogger("fedchain.node")

PROGRESS_S = 10.0
"""Seconds between log lines on the progress of a large post that is fetched."""


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
