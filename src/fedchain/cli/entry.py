"""Entry point of the ``fedchain`` command: Ctrl-C ends it at once, even while modules are still being imported."""

import faulthandler
import os
import signal
import sys
from contextlib import suppress
from types import FrameType

from fedchain.cli.common.exit_codes import EXIT_INTERRUPTED


def end_when_interrupted() -> None:
    """Let Ctrl-C end this process with one line, until the command sets its own handler.

    A process that ignores Ctrl-C keeps ignoring it.
    """
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, end)


def open_closed_streams() -> None:
    """Let standard streams that were closed before this process began lead nowhere.

    The next file that is opened would take the stream's number, and would be written what libraries and processes below
    print there.
    """
    for number, (name, mode) in enumerate((("stdin", "r"), ("stdout", "w"), ("stderr", "w"))):
        if getattr(sys, name) is None:
            found = os.open(os.devnull, os.O_RDWR)
            setattr(sys, name, os.fdopen(found, mode, encoding="utf-8", errors="backslashreplace"))
            if found == number:
                os.set_inheritable(number, True)


def main() -> None:
    """Run the ``fedchain`` command. A signal that ends it at once, such as of a mapped file cut short, says where."""
    open_closed_streams()
    faulthandler.enable(2)
    end_when_interrupted()
    from fedchain.cli.main import main as run

    run()


def end(number: int, frame: FrameType | None) -> None:
    """End this process with one line: a handler for signals that nothing waits for."""
    with suppress(OSError):  # the terminal may be gone
        os.write(2, b"fedchain: interrupted\n")
    os._exit(EXIT_INTERRUPTED)
