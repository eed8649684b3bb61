"""Errors of a command line, in one line like all of this program's errors."""

import re
import sys
from collections.abc import Container

import typer


def usage_line(error: typer.TyperException, commands: Container[str]) -> str:
    """The error of a command line, in one line; a command that was called without words is answered with its help."""
    message = error.format_message()
    if message.startswith("Usage: "):
        return message
    text = " ".join(message.split()).rstrip(".")
    for pattern, words in _WORDS:
        text = pattern.sub(words, text)
    context = getattr(error, "ctx", None)
    begun = " ".join(["fedchain", *(word for word in sys.argv[1:2] if word in commands)])
    command = begun if context is None else context.command_path
    return f"fedchain: {text}{'' if text.endswith('?') else ';'} see {command} --help"


_WORDS = tuple(
    (re.compile(pattern), words)
    for pattern, words in (
        (r"^Invalid value for '([^']+)': (.*)$", r"\1: \2"),
        (r"^(\S+): ('.*'|\S+) is not a valid int.*$", r"\1 is \2, it must be a whole number"),
        (r"^(\S+): ('.*'|\S+) is not a valid float.*$", r"\1 is \2, it must be a number"),
        (r"^(\S+): (is empty)$", r"\1 \2"),
        (r"^(\S+): (\S+) is not in the range (\S+)<=x<=(\S+)$", r"\1 is \2, it must be between \3 and \4"),
        (r"^(\S+): (\S+) is not in the range x>=(\S+)$", r"\1 is \2, it must be at least \3"),
        (r"^Option '?([^' ]+)'? requires an argument$", r"\1 needs a value"),
        (r"^No such (option|command):? '?([^' ]+)'?", r"there is no \1 \2"),
        (r"\. Did you mean ", "; did you mean "),
        (r"^Missing (\S+ .*)$", r"\1 is missing"),
        (r"^Got unexpected extra argument\(?s?\)? \((.*)\)", r"nothing is known of \1"),
    )
)
"""Patterns of the library's messages, and the words that replace them, so that they read like all others."""
