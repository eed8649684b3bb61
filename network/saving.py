"""Saving: how the small files are written that a network keeps beside the chain, such as its list of bans."""

import logging
from collections.abc import Callable

log = logging.getLogger("fedchain.network")

Write = Callable[[], object]
"""Writes a file, in any thread. Raises OSError."""

Save = Callable[[str, Write], object]
"""Has a file written, now or soon. A text names what is in it, for people; the later one of two for one name holds."""

REFUSED = "%s cannot be saved: %s"
"""Line of the log."""


def save_now(what: str, write: Write) -> None:
    """Write a file before anything else is done. A refusal of the disk is logged."""
    try:
        write()
    except OSError as error:
        log.warning(REFUSED, what, error)
