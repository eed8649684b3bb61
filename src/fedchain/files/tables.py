"""Tables of settings, made into dataclasses. Errors in them are reported in one line, with their place."""

import re
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from functools import cache
from pathlib import Path
from types import NoneType
from typing import Annotated, Any, Literal, TypeVar, get_args, get_origin

from fedchain.wording import nearest_name

Table = TypeVar("Table")

FILE_SIZE_MAX = 2**22
"""Most bytes of a file of settings; each member of ten thousand may have some hundred."""

INTEGER_BITS = 64
"""Most bits of an integer; TOML guarantees no more."""


@dataclass(frozen=True, slots=True)
class Range:
    """The values that a number may have, as part of a field's type: ``Annotated[int, Range(1, 64)]``."""

    low: float
    high: float

    def __str__(self) -> str:
        low, high = (f"{int(value) if value == int(value) else value:,}" for value in (self.low, self.high))
        return f"between {low} and {high}"


def read_toml(path: Path, refuse: Callable[[str], Exception]) -> dict[str, Any]:
    """Read a TOML file; raises the error that ``refuse`` makes of one clear line."""
    try:
        with path.open("rb") as file:
            data = file.read(FILE_SIZE_MAX + 1)
    except OSError as error:
        raise refuse(f"{path} cannot be read: {error.strerror}") from None
    if len(data) > FILE_SIZE_MAX:
        raise refuse(f"{path} is no file of settings: it has more than {FILE_SIZE_MAX:,} bytes")
    try:
        return tomllib.loads(data.decode())
    except (ValueError, RecursionError) as error:  # beside TOML's own: no UTF-8, endless digits, endless brackets
        raise refuse(f"{path} is not TOML: {error}") from None


def build(kind: type[Table], table: Any, name: str, refuse: Callable[[str], Exception]) -> Table:
    """Build a dataclass from a table; a field with a default may be absent, an integer may stand for a float.

    Args:
        kind: the dataclass; its fields may be numbers, texts, truth values, arrays, tables and other such dataclasses.
            Numbers have the range, and texts are among the words, that their type says.
        table: its values by name.
        name: the table's name in messages.
        refuse: makes the error of one line.

    Raises:
        Exception: made by ``refuse``, for a key that is unknown or missing, or a value of the wrong type or range.
    """
    import msgspec  # imported only when a table is read

    validate(kind, table, name, refuse)
    try:
        return msgspec.convert(table, kind, strict=True)
    except msgspec.ValidationError as error:
        raise refuse(_explain(str(error), table, name)) from None


def validate(kind: type, table: Any, name: str, refuse: Callable[[str], Exception]) -> None:
    """Raise the error for a number out of its range, or a text that is not among the allowed ones.

    Args:
        kind: the dataclass.
        table: its values by name, or one of it.
        name, refuse: as for :func:`build`.
    """
    for place, text in _overlooked(kind, table, name):
        raise refuse(f"{place} {text}".strip())


def ranges_of(annotation: Any) -> list[Range]:
    """The ranges in the type of a field."""
    return [extra for extra in getattr(annotation, "__metadata__", ()) if isinstance(extra, Range)]


def type_of(annotation: Any) -> Any:
    """The type of a field, without its range."""
    return get_args(annotation)[0] if get_origin(annotation) is Annotated else annotation


def nearest(word: str, known: Iterable[str]) -> str:
    """A hint at the known word that looks most like ``word``."""
    names = list(known)
    meant = nearest_name(word, names)
    shown = ", ".join(name or "''" for name in names)
    return f"; did you mean {meant!r}?" if meant else f"; known are {shown}"


@dataclass(frozen=True, slots=True)
class _Expected:
    """The type of a field, as far as a table's values have to be held against it here."""

    inner: Any
    """Its first argument: the type of an array's items, or of a number with a range."""
    is_of_tables: bool
    ranges: tuple[Range, ...]
    allowed: tuple[Any, ...]
    """The words that it may be, if it is one of some."""
    allowed_inside: tuple[Any, ...]
    """Those that may be among its items."""


@cache
def _expected(kind: Any) -> Mapping[str, _Expected]:
    """The fields of a dataclass, which take longer to read than a table."""
    found = {}
    for item in fields(kind):
        (inner, *_) = get_args(item.type) or (None,)
        allowed, inside = (get_args(one) if get_origin(one) is Literal else () for one in (item.type, inner))
        found[item.name] = _Expected(inner, is_dataclass(inner), tuple(ranges_of(item.type)), allowed, inside)
    return found


def _overlooked(kind: Any, table: Any, name: str) -> Iterator[tuple[str, str]]:
    """Faults in a table and its inner tables that msgspec does not refuse, or not as clearly: unknown keys, integers of
    too many bits, numbers out of range, texts with NUL characters, outside UTF-8, and not among the allowed ones.
    """
    if is_dataclass(table):
        table = {item.name: getattr(table, item.name) for item in fields(table)}
    if not isinstance(table, Mapping):
        return
    known = _expected(kind)
    for key, value in table.items():
        if key not in known:
            yield name, f"has no key {key!r}{nearest(key, known)}"
            continue
        expected = known[key]
        if (bits := _bits(value)) > INTEGER_BITS:
            yield f"{name} {key}", f"holds an integer of {bits} bits, at most {INTEGER_BITS} are allowed"
        texts = [] if expected.is_of_tables else [*_texts(value)]  # a table's own are told with their place
        if any("\0" in text for text in texts):
            yield f"{name} {key}", "holds a NUL character"
        if not all(map(_is_utf8, texts)):
            yield f"{name} {key}", "holds what is no text in UTF-8"
        for limits in expected.ranges:
            if type(value) in (int, float) and not limits.low <= value <= limits.high:
                yield f"{name} {key}", f"is {value}, it must be {limits}"
        for allowed, words in ((expected.allowed, [value]), (expected.allowed_inside, value)):
            if allowed and isinstance(words, list | tuple):
                wrong = (word for word in words if isinstance(word, str) and word not in allowed)
                yield from ((f"{name} {key}", f"is {text!r}{nearest(text, allowed)}") for text in wrong)
        if expected.is_of_tables and isinstance(value, Sequence):
            for place, row in enumerate(value):
                yield from _overlooked(expected.inner, row, f"{name} {key}[{place}]")


def _bits(value: Any) -> int:
    """The length of the longest integer in a value."""
    if isinstance(value, Mapping):
        value = list(value.values())
    if isinstance(value, list | tuple):
        return max(map(_bits, value), default=0)
    return value.bit_length() if isinstance(value, int) else 0


def _texts(value: Any) -> Iterator[str]:
    """All texts in a value."""
    if isinstance(value, Mapping):
        yield from _texts([*value, *value.values()])
    elif isinstance(value, list | tuple):
        for item in value:
            yield from _texts(item)
    elif type(value) is str:
        yield value


def _is_utf8(text: str) -> bool:
    """Whether a file can hold it: a command's argument may be any bytes, those outside UTF-8 as lone surrogates."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _explain(error: str, table: Any, name: str) -> str:
    """Reword an error of msgspec, such as "Expected `int`, got `str` - at `$.faults[0].peers`", and add the value."""
    what, _, path = error.partition(" - at ")
    places = list(_places(name, table, re.findall(r"\.(\w+)|\[(\d+|\.\.\.)\]", path)))
    if missing := re.search(r"missing required field `(\w+)`", what):
        return f"{places[0][0]} lacks the key {missing[1]!r}"
    if path.startswith("`key`"):  # no file has such, as Python's tables may
        key = next(key for key in places[0][1] if not isinstance(key, str))
        return f"{places[0][0]} has the key {key!r}, it must be of type str"
    expected, got = re.findall(r"`(.*?)`", what)[0], re.findall(r"`(.*?)`", what)[-1]
    place, value = next((found for found in places if _type_name(found[1]) == got), places[0])
    wanted = {"array": "an array", "object": "a table"}.get(expected, f"of type {expected.replace(' | ', ', ')}")
    length = re.search(r" of length \d+", what)
    return f"{place} is {value!r}, it must be {wanted}{length[0].replace(' length', '') if length else ''}"


def _places(name: str, value: Any, steps: Sequence[tuple[str, str]]) -> Iterator[tuple[str, Any]]:
    """The places that a path leads to: the name of each, and its value.

    If a table's values are all of one type, msgspec does not report the key, and the path leads to several places.
    """
    if not steps:
        yield name, value
        return
    (key, index), *others = steps
    if index == "...":
        for each, item in value.items():
            yield from _places(f"{name} {each}", item, others)
    elif key:
        yield from _places(f"{name} {key}", value[key], others)
    elif int(index) < len(value):
        yield from _places(f"{name}[{index}]", value[int(index)], others)


def _type_name(value: Any) -> str:
    """The name that msgspec has for the type of a value."""
    kind, names = type(value), {list: "array", tuple: "array", dict: "object", NoneType: "null"}
    full = kind.__name__ if kind.__module__ in ("builtins", "datetime") else f"{kind.__module__}.{kind.__qualname__}"
    return names.get(kind, full)
