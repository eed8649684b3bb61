"""``python -m fedchain.bytecode [MODULE …]``: compile the commands' imports, once, when the program is installed.

Python keeps the compiled form of a file beside it when it first imports it, unless ``PYTHONDONTWRITEBYTECODE`` is set,
as it is in most container images and on build machines, or the user may not write there. Without compiled files every
process compiles torch anew, which is most of the cost of a short command. The commands import a fifth of the fifteen
thousand files of an environment; these are compiled by being imported here. A short federation makes other libraries
import their late parts, such as those that draw a chart.
"""

import importlib
import io
import os
import pkgutil
import sys
from collections.abc import Iterable
from contextlib import redirect_stdout, suppress
from pathlib import Path
from tempfile import TemporaryDirectory

import fedchain
from fedchain.learning.exceptions import ConfigurationError


def main() -> None:
    """Import the named modules and all of this program, and use it; Python writes the compiled files on the way."""
    if sys.dont_write_bytecode:  # this process would not write, and has imported some files already
        environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
        os.execve(sys.executable, [sys.executable, "-m", "fedchain.bytecode", *sys.argv[1:]], environment)
    for name in sys.argv[1:]:
        importlib.import_module(name)
    import_program(found.name for found in pkgutil.walk_packages(fedchain.__path__, "fedchain."))
    run_briefly()


def import_program(names: Iterable[str]) -> None:
    """Import modules of this program, but for those of an extra that is not installed: these say what they need."""
    for name in names:
        with suppress(ConfigurationError):
            importlib.import_module(name)


def run_briefly() -> None:
    """Run a federation of two peers in a temporary folder, which also takes files that libraries keep for a user."""
    from fedchain.cli.main import app

    with TemporaryDirectory() as folder, redirect_stdout(io.StringIO()):
        os.environ["MPLCONFIGDIR"] = folder
        app(["simulate", "--peers", "2", "--rounds", "1", "--out", str(Path(folder, "run"))], standalone_mode=False)


if __name__ == "__main__":
    main()
