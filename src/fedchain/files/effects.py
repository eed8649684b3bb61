"""Settings that have an effect beside certain others alone. A field's type says beside which; stated elsewhere, it
would do nothing, and nobody would say so.
"""

import inspect
import typing
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from functools import cache
from types import MappingProxyType
from typing import Any

OFF = (False, 0, "", "none")
"""Values that switch a setting off."""


@dataclass(frozen=True, slots=True)
class Needs:
    """The setting beside which another one has an effect, in that one's type: ``Annotated[float, Needs("noise")]``.

    A class that declares the field anew keeps it, unless it says something else.
    """

    name: str
    """Name of a field or property of the same record, or of one beside it; where none has it, nothing is asked."""

    values: tuple[bool | int | float | str, ...] = ()
    """Its values beside which there is an effect; empty: all that do not switch it off."""

    why: str = ""
    """The reason for which there is no effect, where the values do not say it."""

    def is_met(self, value: object) -> bool:
        """Whether the other setting has an effect beside this value."""
        return value in self.values if self.values else value not in OFF

    def explain(self, value: object) -> str:
        """The reason for which there is no effect beside this value."""
        if self.why:
            return self.why
        if not self.values:
            return f"it needs {self.name}, which is {value}"
        return f"it is of {self.name} {' or '.join(map(str, self.values))}, not of {value}"


def validate_effects(record: Any, beside: Sequence[object], refuse: Callable[[str], Exception]) -> None:
    """Raise the error that ``refuse`` makes of one line, for the first setting that would do nothing.

    A setting at its default is nobody's statement.

    Args:
        record: the dataclass with the settings.
        beside: further records that have what a setting needs.
        refuse: makes the error.
    """
    defaults = {item.name: item.default for item in fields(record)}
    for name, needed in _needs_of(record.__class__).items():
        value = getattr(record, name)
        if value == defaults[name]:
            continue
        for need in needed:
            found = next((place for place in (record, *beside) if hasattr(place, need.name)), None)
            if found is not None and not need.is_met(other := getattr(found, need.name)):
                raise refuse(f"{name} is {value}, which has no effect: {need.explain(other)}")


@cache
def _needs_of(kind: type) -> Mapping[str, tuple[Needs, ...]]:
    """Needs of the fields that have any, as the nearest class states them."""
    found: dict[str, tuple[Needs, ...]] = {}
    for parent in filter(is_dataclass, reversed(kind.__mro__)):
        for name, annotation in inspect.get_annotations(parent).items():
            if isinstance(annotation, str) and "Annotated[" in annotation:
                annotation = typing.get_type_hints(parent, include_extras=True)[name]
            extras: tuple[Any, ...] = getattr(annotation, "__metadata__", ())
            if needed := tuple(extra for extra in extras if isinstance(extra, Needs)):
                found[name] = needed
    return MappingProxyType(found)
