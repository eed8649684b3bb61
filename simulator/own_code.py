"""A user's own files that a run depends on beside its scenario, which names them: code, and weights to begin with."""

import dis
import inspect
from collections.abc import Iterator, Sequence
from contextlib import suppress
from functools import cached_property, partial
from importlib.util import find_spec
from pathlib import Path
from types import CellType, CodeType, FunctionType, MethodType

from fedchain.crypto.hashing import sha256
from fedchain.learning.exceptions import ConfigurationError
from fedchain.learning.registry import is_file_path, load_method, running_script
from fedchain.learning.task.choice import TaskFunction
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


def hashes_of_typed(scenario: Scenario, task: TaskFunction | None) -> dict[str, str]:
    """The SHA-256 of that part of a run's own code that is in no file, in hexadecimal, by its kind: task or method.

    `task` is the function itself, which counts if the scenario cannot name it.
    """
    codes = {
        "task": b"" if task is None or scenario.task else typed_source(task),
        "method": _source(scenario.method) if scenario.method.startswith("__main__:") else b"",
    }
    return {kind: sha256(code).hex() for kind, code in codes.items() if code}


def hashes_of_result(scenario: Scenario, task: TaskFunction | None) -> dict[str, str]:
    """The SHA-256 of own code and files whose change makes a result that of something else, in hexadecimal, by name.

    The script that runs is none of them: it is edited for the sake of what it does with results.
    """
    found: dict[str, str] = {}
    with suppress(OSError, ConfigurationError):  # a file that is gone is no other one
        found = hashes_of_own(scenario)
    files = {name: Path(name.rpartition(":")[0]).resolve() for name in found}
    own = {name: value for name, value in found.items() if files[name] != running_script()}
    return own | hashes_of_typed(scenario, task)


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
    if found is None or found.origin is None:
        return None
    read = getattr(found.loader, "get_data", None)  # out of an archive, too
    return Path(found.origin).read_bytes() if read is None else bytes(read(found.origin))


def typed_source(made: object) -> bytes:
    """The code of a function, class or instance that no file is named for, such as a notebook's: equal if it is equal.

    It is made of the source of that function or class and of all of its module that it names, and of the plain values
    that these name or have been given. Code that was typed into a shell has no source, so its values alone count.
    """
    begun, texts = _unwrapped(made)
    waiting, seen = list[object]([begun]), set[object]()
    while waiting:
        one = waiting.pop()
        if not isinstance(one, FunctionType | type) or one in seen or one.__module__ != begun.__module__:
            continue
        seen.add(one)
        if isinstance(one, type):
            named = [(name, value) for name, value in vars(one).items() if not name.startswith("__")]
            leading = [*one.__mro__, *vars(one).values()]
        else:
            named = [*_named_in(one)]
            leading = [one, *dict(named).values()]
            with suppress(OSError, TypeError):  # typed into a shell
                texts.append(inspect.getsource(one))
        texts += _assignments(one.__qualname__, named)
        waiting += [part for value in leading for part in _parts(value)]
    return "".join(sorted(texts)).encode()


def _unwrapped(made: object) -> tuple[FunctionType | type, list[str]]:
    """The function or class behind partial functions, methods and instances, and the plain values that these hold."""
    texts = list[str]()
    while True:
        match made:
            case partial():
                texts += _assignments("partial", [*enumerate(made.args), *made.keywords.items()])
                made = made.func
            case MethodType():
                made = made.__self__
            case FunctionType() | type():
                return made, texts
            case _:
                kind = type(made)
                return kind, [*texts, *_assignments(kind.__qualname__, _attributes(made))]


def _attributes(instance: object) -> list[tuple[object, object]]:
    """An instance's attributes by name, but for those that methods set later on, as a counter."""
    functions = [part for kind in type(instance).__mro__ for value in vars(kind).values() for part in _parts(value)]
    later = [part for part in functions if isinstance(part, FunctionType) and part.__name__ != "__init__"]
    changing = {step.argval for part in later for step in _steps(part) if step.opname == "STORE_ATTR"}
    slots = [name for kind in type(instance).__mro__ for name in vars(kind).get("__slots__", ())]
    names = {*getattr(instance, "__dict__", ()), *slots} - changing
    return [(name, getattr(instance, name, None)) for name in sorted(names)]


def _parts(value: object) -> list[object]:
    """A value, and the functions that it is made of: those of a property, or one that was wrapped."""
    if not (callable(value) or isinstance(value, property | cached_property | classmethod | staticmethod)):
        return []
    names = ("__wrapped__", "__func__", "func", "fget", "fset", "fdel")
    return [value, *(getattr(value, name, None) for name in names)]


def _assignments(owner: str, named: Sequence[tuple[object, object]]) -> list[str]:
    """Write the plain ones of some values by name as lines that would assign them."""
    return [f"{owner}.{name} = {value!r}" for name, value in named if _is_plain(value)]


def _is_plain(value: object) -> bool:
    """Whether a value is printed as what it is, always in the same way, and never changes."""
    return all(map(_is_plain, value)) if isinstance(value, tuple) else isinstance(value, bool | int | float | str)


def _named_in(function: FunctionType) -> Iterator[tuple[str, object]]:
    """All that a function's code names, has in its closure or as a default, by name; not what it sets itself."""
    loaded, stored = set[str](), set[str]()
    for step in _steps(function):
        if step.opname in ("LOAD_GLOBAL", "LOAD_NAME", "LOAD_FROM_DICT_OR_GLOBALS"):
            loaded.add(step.argval)
        elif step.opname in ("STORE_GLOBAL", "STORE_DEREF"):
            stored.add(step.argval)
    yield from ((name, function.__globals__[name]) for name in loaded - stored if name in function.__globals__)
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        if name not in stored and cell != CellType():
            yield name, cell.cell_contents
    yield from ((f"default {place}", value) for place, value in enumerate(function.__defaults__ or ()))
    yield from ((f"default {name}", value) for name, value in (function.__kwdefaults__ or {}).items())


def _steps(function: FunctionType) -> Iterator[dis.Instruction]:
    """The instructions of a function's code, and of all functions in it."""
    codes = [function.__code__]
    while codes:
        code = codes.pop()
        yield from dis.get_instructions(code)
        codes += [part for part in code.co_consts if isinstance(part, CodeType)]
