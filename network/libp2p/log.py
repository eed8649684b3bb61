"""Log lines about peers. A peer decides how often something happens, so each kind of line has a limit."""

import logging
import time

from fedchain.wording import printable

LINES_PER_MINUTE = 6
"""Lines of one kind."""

LINE_SIZE_MAX = 1_000
"""Characters of a line: the words of an error may hold all that a peer said."""

LEFT_OUT = "%d more lines like the following were left out"

log = logging.getLogger("fedchain.network")


class Limit(logging.Filter):
    """Lets at most ``LINES_PER_MINUTE`` lines of each kind pass, and says how many were left out. Those that pass are
    short, and steer no terminal.

    A kind is a message before its arguments are filled in: the program writes it, never a peer, so there are few.
    """

    def __init__(self) -> None:
        super().__init__()
        self._minute: dict[str, int] = {}
        self._count: dict[str, int] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        """See :class:`logging.Filter`."""
        kind, minute = record.msg, int(time.monotonic() // 60)
        if kind == LEFT_OUT:
            return True
        if self._minute.get(kind) != minute:
            left_out = self._count.get(kind, 0) - LINES_PER_MINUTE
            if left_out > 0:
                logging.getLogger(record.name).log(record.levelno, LEFT_OUT, left_out)
            self._minute[kind], self._count[kind] = minute, 0
        self._count[kind] += 1
        if self._count[kind] > LINES_PER_MINUTE:
            return False
        if (shown := _shown(text := record.getMessage())) != text:
            record.msg, record.args = "%s", (shown,)
        return True


def _shown(text: str) -> str:
    """A line as it may be shown: peers have a say in it."""
    return printable(text[:LINE_SIZE_MAX]) + "…" * (len(text) > LINE_SIZE_MAX)


log.addFilter(Limit())


def quieten_library() -> None:
    """Silence libp2p's own lines: it writes them, tracebacks included, as often as a peer likes.

    So does trio ten times a second where the process, or the machine, has no open files left for a connection.
    """
    logging.getLogger("libp2p").setLevel(logging.CRITICAL)
    root = logging.getLogger()  # parts of libp2p log to the root logger itself
    if _from_library not in root.filters:
        root.addFilter(_from_library)
    loop = logging.getLogger("trio.serve_listeners")
    if _of_arrivals not in loop.filters:
        loop.addFilter(_of_arrivals)


def _from_library(record: logging.LogRecord) -> bool:
    return "/libp2p/" not in record.pathname


def _of_arrivals(record: logging.LogRecord) -> bool:
    error = record.exc_info[1] if record.exc_info else None
    log.error("connections cannot be taken: %s", error.strerror if isinstance(error, OSError) else record.getMessage())
    return False
