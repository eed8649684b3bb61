"""Entry point of the ``fedchain`` command: Ctrl-C ends it at once, even while modules are still being imported."""

import faulthandler
import os
import signal
from contextlib import suppress
from types import FrameType

from fedchain.cli.common.exit_codes import EXIT_INTERRUPTED


def end_when_interrupted() -> None:
    """Let Ctrl-C end this process with one line, until the command sets its own handler.

    A process that ignores Ctrl-C keeps ignoring it.
    """
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, end)


def main() -> None:
    """Run the ``fedchain`` command. A signal that ends it at once, such as of a mapped file cut short, says where."""
    faulthandler.enable(2)
    end_when_interrupted()
    from fedchain.cli.main import main as run

    run()


def end(number: int, frame: FrameType | None) -> None:
    """End this process with one line: a handler for signals that nothing waits for."""
    with suppress(OSError):  # the terminal may be gone
        os.write(2, b"fedchain: interrupted\n")
    os._exit(EXIT_INTERRUPTED)
