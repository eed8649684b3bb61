"""Log lines as JSON objects, for programs that collect them: what a message names stands in fields of its own."""

import json
import logging
import re
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

from fedchain.node.operating.member_numbers import Member

PLACE = re.compile(r"(?:(\w+)=)?%(?:%|[-+ #0]*[\d.]*[a-zA-Z])")
"""A place of a message's pattern that an argument fills, and the name before it, if there is one."""

RESERVED = frozenset({"time", "level", "logger", "message", "error"})
"""Fields that every line may have."""


class JsonFormatter(logging.Formatter):
    """Writes ``{"time": …, "level": …, "logger": …, "message": …}`` and, for ``height=%d``, also ``"height": …``."""

    def format(self, record: logging.LogRecord) -> str:
        """One line; the time is in UTC."""
        time = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        line: dict[str, Any] = {"time": time.replace("+00:00", "Z"), "level": record.levelname.lower()}
        line |= {"logger": record.name, "message": record.getMessage()}
        line |= dict(_named_arguments(record))
        if record.exc_info:
            line["error"] = self.formatException(record.exc_info)
        return json.dumps(line, ensure_ascii=False)


def _named_arguments(record: logging.LogRecord) -> Iterator[tuple[str, Any]]:
    """Arguments whose place in the pattern follows a name; what is no number stays as it would be printed."""
    if not isinstance(record.args, tuple):
        return
    places = [place for place in PLACE.finditer(str(record.msg)) if not place[0].endswith("%%")]
    for place, value in zip(places, record.args, strict=False):
        if not place[1] or place[1] in RESERVED:
            continue
        if isinstance(value, Member):
            yield place[1], str.__str__(value)
            yield f"{place[1]}_number", value.number
        else:
            yield place[1], value if type(value) in (bool, int, float) else str(value)
