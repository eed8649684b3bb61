"""A run in the browser while it runs: the explorer, in a process of its own, on a port that is free."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import typer

from fedchain.learning.registry import is_file_path


@contextmanager
def shown_in_browser(folder: Path, method: str) -> Iterator[None]:
    """Show a run's folder in the browser while the block runs and, if it ends well, until Ctrl-C.

    Args:
        folder: folder of the run, whose chain need not have begun.
        method: the run's learning method; a file is named to the explorer, too.
    """
    # -P: the explorer imports no module from the current folder.
    command = [sys.executable, "-P", "-m", "fedchain", "explorer", "serve", str(folder), "--port", "0"]
    if is_file_path(method):
        command += ["--method", method]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            address = process.stdout.readline().partition("  ")[0]
            if address:  # otherwise it has said why not
                typer.echo(f"shown at {address}")
                _open_browser(address)
            yield
            if address:
                typer.echo(f"shown until Ctrl-C at {address}")
                with suppress(KeyboardInterrupt):
                    process.wait()
        finally:
            process.terminate()


def _open_browser(address: str) -> None:
    """Open the default browser in a session of its own, without the terminal: a text browser would wait there."""
    nowhere = subprocess.DEVNULL
    subprocess.Popen(
        [sys.executable, "-P", "-m", "webbrowser", address],
        stdin=nowhere,
        stdout=nowhere,
        stderr=nowhere,
        start_new_session=True,
    )
