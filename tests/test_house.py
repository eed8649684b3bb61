"""The shape of the house: circles, private names, sizes of folders, signatures, and tests where one looks for them."""

import ast
from functools import cache
from pathlib import Path

from tests.support.paths import ROOT

FOLDERS = ("chain", "crypto", "learning", "network", "node", "simulator")
PRODUCT = sorted(
    path
    for folder in (*FOLDERS, "src/fedchain")
    for path in (ROOT / folder).glob("**/*.py")
    if folder != "src/fedchain" or path.parts[len(ROOT.parts) + 2] not in (*FOLDERS, "experiments")
)
TESTS = sorted((ROOT / "tests").glob("**/*.py"))

FILES_MAX = 20
"""Modules in a folder, but for methods, of which each is one idea."""

PARAMETERS_MAX = 7

LONG_SIGNATURES: dict[str, str] = {}
"""Functions with more parameters, each with its reason."""

MIRRORED_MIN = 0.4
"""Share of the modules that have a test of their name in the folder of tests that mirrors theirs; it only rises."""

FOREIGN_PRIVATE = {
    "_exit": "os._exit ends a process without the interpreter's last steps",
    "_replace": "of named tuples, where Python itself has it",
    "_make": "of named tuples, where Python itself has it",
}
"""Names with an underscore that libraries document."""


@cache
def tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def name_of(path: Path) -> str:
    return str(path.relative_to(ROOT))


def module_of(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    parts = parts[1:] if parts[0] == "src" else ("fedchain", *parts)
    return ".".join(part for part in parts if part != "__init__")
