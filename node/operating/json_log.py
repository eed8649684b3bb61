"""Log lines as JSON objects, for programs that collect them: values that a message names are fields of their own.

A message names a value in the form ``%(height)d``; its one argument holds the values by name.
"""

import logging
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from fedchain.files.json_text import to_json


class JsonFormatter(logging.Formatter):
    """Writes ``{"time": …, "level": …, "logger": …, "message": …}``, the named values, and ``"error": …``."""

    def format(self, record: logging.LogRecord) -> str:
        """One line; the time is in UTC, and a value that is not a number is written as text."""
        time = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        line: dict[str, Any] = {"time": time.replace("+00:00", "Z"), "level": record.levelname.lower()}
        line |= {"logger": record.name, "message": record.getMessage()}
        if isinstance(record.args, Mapping):
            for name, value in record.args.items():
                line.setdefault(name, value if type(value) in (bool, int, float) else str(value))
        if record.exc_info:
            line["error"] = self.formatException(record.exc_info)
        return to_json(line, ensure_ascii=False)
