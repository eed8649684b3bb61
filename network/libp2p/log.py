"""Log lines about peers. A peer decides how often something happens, so each kind of line has a limit."""

import logging
import time

LINES_PER_MINUTE = 6
"""Lines of one kind."""

logger = logging.getLogger("fedchain.network")


class LimitedLog:
    """Logs at most ``LINES_PER_MINUTE`` lines of each kind, and says how many were left out.

    Kinds are named in the program, never by a peer, so there are few.
    """

    def __init__(self) -> None:
        self._minute: dict[str, int] = {}
        self._count: dict[str, int] = {}

    def debug(self, kind: str, text: str, *args: object) -> None:
        """For those who search a fault."""
        self._log(logging.DEBUG, kind, text, args)

    def info(self, kind: str, text: str, *args: object) -> None:
        """What happened."""
        self._log(logging.INFO, kind, text, args)

    def warning(self, kind: str, text: str, *args: object) -> None:
        """What should not have happened."""
        self._log(logging.WARNING, kind, text, args)

    def exception(self, kind: str, text: str, *args: object) -> None:
        """A fault of ours, with its traceback."""
        self._log(logging.ERROR, kind, text, args, with_traceback=True)

    def _log(self, level: int, kind: str, text: str, args: tuple[object, ...], *, with_traceback: bool = False) -> None:
        if not logger.isEnabledFor(level):
            return
        minute = int(time.monotonic() // 60)
        if self._minute.get(kind) != minute:
            left_out = self._count.get(kind, 0) - LINES_PER_MINUTE
            if left_out > 0:
                logger.log(level, "%d more lines like the following were left out", left_out)
            self._minute[kind], self._count[kind] = minute, 0
        self._count[kind] += 1
        if self._count[kind] <= LINES_PER_MINUTE:
            logger.log(level, text, *args, exc_info=with_traceback)


log = LimitedLog()


def quieten_library() -> None:
    """Silence libp2p's own lines: it writes them, tracebacks included, as often as a peer likes."""
    logging.getLogger("libp2p").setLevel(logging.CRITICAL)
    root = logging.getLogger()  # parts of libp2p log to the root logger itself
    if _from_library not in root.filters:
        root.addFilter(_from_library)


def _from_library(record: logging.LogRecord) -> bool:
    return "/libp2p/" not in record.pathname
