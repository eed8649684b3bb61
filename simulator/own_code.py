"""A user's own files that a run depends on beside its scenario, which names them: code, and weights to begin with."""

import inspect
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path

from fedchain.crypto.hashing import sha256
from fedchain.learning.registry import is_file_path, load_method
from fedchain.simulator.scenario import Scenario


def hashes_of_own(scenario: Scenario) -> dict[str, str]:
    """The SHA-256 of each of a scenario's own files, in hexadecimal, by the scenario's name of it.

    They are the files of its method and its task, unless these are built in, and that of its weights. Raises
    `ConfigurationError` for weights that cannot be read, and OSError for code that is gone.
    """
    codes = {name: _source(name) for name in (scenario.task, scenario.method)}
    found = {name: sha256(code).hex() for name, code in codes.items() if code is not None}
    if scenario.weights:
        from fedchain.learning.models.weights import hash_file  # slow to import

        found[scenario.weights] = hash_file(Path(scenario.weights))
    return found


def _source(name: str) -> bytes | None:
    """The code behind 'FILE.py:name' or 'module:name'; None if the name is built in."""
    module_name, _, _ = name.rpartition(":")
    if not module_name:
        return None
    if is_file_path(name):
        return Path(module_name).read_bytes()
    if module_name == "__main__":  # a notebook's or a shell's: a script's class is named by its file
        with suppress(OSError, TypeError):  # code that was typed has no source
            return inspect.getsource(load_method(name)).encode()
        return None
    found = find_spec(module_name)
    return Path(found.origin).read_bytes() if found is not None and found.origin is not None else None
