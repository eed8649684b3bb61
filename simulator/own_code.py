"""A user's own files that a run depends on beside its scenario, which names them: code, and weights to begin with."""

import inspect
from contextlib import suppress
from functools import cached_property, partial
from importlib.util import find_spec
from pathlib import Path
from types import CellType, CodeType, FunctionType, MethodType
from typing import Any

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
        return typed_source(load_method(name)) or None
    found = find_spec(module_name)
    return Path(found.origin).read_bytes() if found is not None and found.origin is not None else None


def typed_source(made: object) -> bytes:
    """Source of a function or class that no file is named for, such as a notebook's, with those of its module that it
    names. Code that was typed into a shell has none, but for the values in its classes.
    """
    while isinstance(made, partial | MethodType):
        made = made.func if isinstance(made, partial) else made.__self__
    waiting: list[Any] = [made if isinstance(made, FunctionType | type) else type(made)]
    module, seen, found = waiting[0].__module__, set[Any](), list[str]()
    while waiting:
        one = waiting.pop()
        if not isinstance(one, FunctionType | type) or one in seen or one.__module__ != module:
            continue
        seen.add(one)
        if isinstance(one, type):
            waiting += one.__mro__
            for name, value in vars(one).items():
                waiting += _parts(value)
                if isinstance(value, bool | int | float | str) and not name.startswith("__"):
                    found.append(f"{one.__qualname__}.{name} = {value!r}")
        else:
            with suppress(OSError, TypeError):
                found.append(inspect.getsource(one))
            waiting += [part for value in (one, *_named_in(one)) for part in _parts(value)]
    return "".join(sorted(found)).encode()


def _parts(value: object) -> list[object]:
    """A value, and the functions that it is made of: those of a property, or one that was wrapped."""
    if not (callable(value) or isinstance(value, property | cached_property | classmethod | staticmethod)):
        return []
    names = ("__wrapped__", "__func__", "func", "fget", "fset", "fdel")
    return [value, *(getattr(value, name, None) for name in names)]


def _named_in(function: FunctionType) -> list[object]:
    """All that a function's code names, or has in its closure."""
    held: list[object] = [cell.cell_contents for cell in function.__closure__ or () if cell != CellType()]
    codes, names = [function.__code__], set[str]()
    while codes:
        code = codes.pop()
        names.update(code.co_names)
        codes += [part for part in code.co_consts if isinstance(part, CodeType)]
    return held + [function.__globals__.get(name) for name in names]
