"""CIFAR's Python files, read without running them.

They are pickles, and a pickle is a program: what it says to import is imported, what it says to call is called. This
reads the handful of instructions that the published files consist of as data. It imports nothing, and the only thing
that it ever builds, besides dictionaries, lists, tuples, numbers and texts, is an array of bytes.

Python's unpickler with a list of allowed names would be shorter but bounds nothing: nine bytes make it allocate
gigabytes (``LONG_BINPUT``), and files that were unpacked by hand have no published checksum.
"""

import pickletools
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedchain.learning.exceptions import DatasetError

_VALUES = frozenset(
    {
        *("BININT", "BININT1", "BININT2", "LONG1"),
        *("BINSTRING", "SHORT_BINSTRING", "BINBYTES", "SHORT_BINBYTES", "BINUNICODE", "SHORT_BINUNICODE"),
    }
)
"""Instructions that put their argument on the stack."""

_CONSTANTS = {"NONE": None, "NEWTRUE": True, "NEWFALSE": False, "EMPTY_TUPLE": ()}

_PUTS = frozenset(("BINPUT", "LONG_BINPUT"))

_GETS = frozenset(("BINGET", "LONG_BINGET"))

_ARRAY_NAMES = ("numpy.core.multiarray _reconstruct", "numpy._core.multiarray _reconstruct")

_BYTE = ("u1", "|u1", "uint8")
"""How numpy has written the type of a byte."""

_MARK = object()


class _Pending:
    """An array or its type, until its description has been read."""

    def __init__(self, kind: str, arguments: Any) -> None:
        self.kind = kind
        self.arguments = arguments
        self.state: Any = ()


def read_batch_file(path: Path, content: bytes) -> dict[str, Any]:
    """Return the dictionary in the file. Raises `DatasetError` if it holds, or asks for, anything else."""
    try:
        found = _plain(_run(content))
    except (ValueError, KeyError, IndexError, TypeError, AttributeError, RecursionError) as error:
        raise DatasetError(f"{path} is no file of images that can be read safely: {error}") from None
    if not isinstance(found, dict):
        raise DatasetError(f"{path} must hold a dictionary, not {type(found).__name__}")
    return found


def _run(content: bytes) -> Any:
    """Follow the instructions, and return what is left when they stop."""
    stack: list[Any] = []
    memory: dict[int, Any] = {}
    for instruction, argument, _ in pickletools.genops(content):
        name, place = instruction.name, argument if isinstance(argument, int) else 0
        if name in _VALUES:
            stack.append(argument)
        elif name in _CONSTANTS:
            stack.append(_CONSTANTS[name])
        elif name in _PUTS:
            memory[place] = stack[-1]
        elif name in _GETS:
            stack.append(memory[place])
        elif name == "MARK":
            stack.append(_MARK)
        elif name == "GLOBAL":
            stack.append(argument)  # the name of something to import; it stays a name
        elif name == "STOP":
            return stack.pop()
        elif name != "PROTO":
            _apply(name, stack)
    raise ValueError("it has no end")


def _apply(name: str, stack: list[Any]) -> None:
    """Carry out an instruction that combines what is on the stack."""
    if name in ("EMPTY_DICT", "EMPTY_LIST"):
        stack.append({} if name == "EMPTY_DICT" else [])
    elif name in ("TUPLE1", "TUPLE2", "TUPLE3"):
        size = int(name[-1])
        stack[-size:] = [tuple(stack[-size:])]
    elif name == "TUPLE":
        stack.append(tuple(_pop_to_mark(stack)))
    elif name == "APPENDS":
        items = _pop_to_mark(stack)
        _expect(stack[-1], list).extend(items)
    elif name == "APPEND":
        item = stack.pop()
        _expect(stack[-1], list).append(item)
    elif name == "SETITEMS":
        items = _pop_to_mark(stack)
        _expect(stack[-1], dict).update(zip(items[::2], items[1::2], strict=True))
    elif name == "SETITEM":
        value, key = stack.pop(), stack.pop()
        _expect(stack[-1], dict)[key] = value
    elif name == "REDUCE":
        arguments, function = stack.pop(), stack.pop()
        stack.append(_construct(function, arguments))
    elif name == "BUILD":
        state = stack.pop()
        _expect(stack[-1], _Pending).state = state
    else:
        raise ValueError(f"instruction {name} is not one that image files need")


def _construct(function: Any, arguments: Any) -> Any:
    """Stand in for a call: of numpy's array or type, or of the way in which Python 3 writes bytes for Python 2."""
    if function in _ARRAY_NAMES:
        return _Pending("array", arguments)
    if function == "numpy dtype":
        return _Pending("type", arguments)
    if function == "_codecs encode":
        text, encoding = arguments
        if encoding != "latin1":
            raise ValueError(f"encoding {encoding!r} is not latin1")
        return _expect(text, str).encode("latin1")
    raise ValueError(f"it asks for {function!r}")


def _plain(value: Any) -> Any:
    """Finish what was pending, in a dictionary's values; keys become text."""
    if isinstance(value, _Pending):
        return _build_array(value)
    if isinstance(value, dict):
        return {key.decode("latin1") if isinstance(key, bytes) else key: _plain(item) for key, item in value.items()}
    return value


def _build_array(pending: _Pending) -> NDArray[np.uint8]:
    """Build the array that its state describes: version, shape, type, whether by columns, and the bytes."""
    _, shape, kind, by_columns, data = pending.state
    if not isinstance(kind, _Pending) or kind.kind != "type" or kind.arguments[0] not in _BYTE:
        raise ValueError("an array is not of bytes")
    content = data.encode("latin1") if isinstance(data, str) else _expect(data, bytes)
    array = np.frombuffer(content, dtype=np.uint8)
    return array.reshape(_expect(shape, tuple), order="F" if by_columns else "C")


def _pop_to_mark(stack: list[Any]) -> list[Any]:
    place = len(stack) - 1
    while stack[place] is not _MARK:
        place -= 1
        if place < 0:
            raise ValueError("a mark is missing")
    items = stack[place + 1 :]
    del stack[place:]
    return items


def _expect(value: Any, kind: type) -> Any:
    if not isinstance(value, kind):
        raise ValueError(f"{kind.__name__} expected, found {type(value).__name__}")
    return value
