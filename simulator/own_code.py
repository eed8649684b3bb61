"""A user's own files that a run depends on beside its scenario, which names them: code, and weights to begin with."""

import dis
import inspect
from collections.abc import Iterator, Sequence
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
    names, and the plain values that it names or has been given. Code that was typed into a shell has these alone.
    """
    seen, found = set[Any](), list[str]()
    while isinstance(made, partial | MethodType):
        if isinstance(made, partial):
            found += _plain(partial.__name__, [*enumerate(made.args), *made.keywords.items()])
        made = made.func if isinstance(made, partial) else made.__self__
    waiting: list[Any] = [made if isinstance(made, FunctionType | type) else type(made)]
    module = waiting[0].__module__
    while waiting:
        one = waiting.pop()
        if not isinstance(one, FunctionType | type) or one in seen or one.__module__ != module:
            continue
        seen.add(one)
        if isinstance(one, type):
            waiting += one.__mro__
            named = [(name, value) for name, value in vars(one).items() if not name.startswith("__")]
            waiting += [part for value in vars(one).values() for part in _parts(value)]
        else:
            with suppress(OSError, TypeError):
                found.append(inspect.getsource(one))
            named = [*_named_in(one)]
            waiting += [part for value in (one, *dict(named).values()) for part in _parts(value)]
        found += _plain(one.__qualname__, named)
    return "".join(sorted(found)).encode()


def _parts(value: object) -> list[object]:
    """A value, and the functions that it is made of: those of a property, or one that was wrapped."""
    if not (callable(value) or isinstance(value, property | cached_property | classmethod | staticmethod)):
        return []
    names = ("__wrapped__", "__func__", "func", "fget", "fset", "fdel")
    return [value, *(getattr(value, name, None) for name in names)]


def _plain(owner: str, named: Sequence[tuple[object, object]]) -> list[str]:
    """Those of some values by name that are the same wherever they are printed."""
    return [f"{owner}.{name} = {value!r}" for name, value in named if _is_plain(value)]


def _is_plain(value: object) -> bool:
    return all(map(_is_plain, value)) if isinstance(value, tuple) else isinstance(value, bool | int | float | str)


def _named_in(function: FunctionType) -> Iterator[tuple[str, object]]:
    """All that a function's code names, has in its closure or as a default, by name; not what it sets itself."""
    codes, loaded, stored = [function.__code__], set[str](), set[str]()
    while codes:
        code = codes.pop()
        for step in dis.get_instructions(code):
            if step.opname in ("LOAD_GLOBAL", "LOAD_NAME", "LOAD_FROM_DICT_OR_GLOBALS"):
                loaded.add(step.argval)
            elif step.opname in ("STORE_GLOBAL", "STORE_DEREF"):
                stored.add(step.argval)
        codes += [part for part in code.co_consts if isinstance(part, CodeType)]
    yield from ((name, function.__globals__[name]) for name in loaded - stored if name in function.__globals__)
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        if name not in stored and cell != CellType():
            yield name, cell.cell_contents
    yield from ((f"default {place}", value) for place, value in enumerate(function.__defaults__ or ()))
    yield from ((f"default {name}", value) for name, value in (function.__kwdefaults__ or {}).items())
