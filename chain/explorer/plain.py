"""Answers of the explorer as plain values: what ``--json`` prints and what the web pages' interface sends."""

from dataclasses import fields, is_dataclass
from enum import Enum
from pathlib import Path
from typing import Any


def plain(value: Any) -> Any:
    """The answer as JSON has it: objects by field, hashes in hexadecimal."""
    if is_dataclass(value):
        return {item.name: plain(getattr(value, item.name)) for item in fields(value)}
    if isinstance(value, tuple | list):
        return [plain(item) for item in value]
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, Enum):
        return plain(value.value)
    return str(value) if isinstance(value, Path) else value
