"""Running a node in this process, as ``fedchain node start`` and ``fedchain node join`` do."""

import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from fedchain.cli.common.command import Complaints
from fedchain.cli.entry import end
from fedchain.cli.keys import unlock_key
from fedchain.node.config import NodeConfig


def run(settings: NodeConfig, complaints: Complaints, *, verbose: bool) -> None:
    """Run a node until it ends, or Ctrl-C. Raises what can be mended before anything slow is imported."""
    from fedchain.node.operating.console import set_up_logging, show_service
    from fedchain.node.operating.preflight import check as check_start

    set_up_logging(verbose, settings.log_format)
    complaints.are_logged = settings.log_format == "json"
    check_start(settings)
    private_key, passphrase = unlock_key(Path(settings.key), passphrase_file=settings.passphrase_file)
    from fedchain.node.operating.service_manager import ServiceManager
    from fedchain.node.shell.run import Audience, run_node  # slow to import: errors were checked for before

    watch = show_service if sys.stdout is not None and sys.stdout.isatty() else None  # it may be closed
    manager = ServiceManager.from_environment()
    try:
        with _ending_at_once():
            while run_node(settings, private_key, Audience(watch, manager), passphrase=passphrase):
                private_key = type(private_key).load(Path(settings.key), passphrase)
    finally:
        manager.tell(STOPPING=1)  # before, systemd would kill what goes on with another key


@contextmanager
def _ending_at_once() -> Iterator[None]:
    """Let a signal end the process where the node does not wait for it yet, or not any more.

    An exception would come out of the middle of the event loop, which takes it for a fault of its own.
    """
    signals = signal.SIGINT, signal.SIGTERM, signal.SIGHUP
    taken = [number for number in signals if signal.getsignal(number) is signal.default_int_handler]
    for number in taken:
        signal.signal(number, end)
    try:
        yield
    finally:
        for number in taken:
            signal.signal(number, signal.default_int_handler)
