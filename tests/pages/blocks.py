"""The blocks of code of a page, and what the page's comments say of each.

A comment before a block is for the tests alone; readers do not see it::

    <!-- file: NAME -->      the block is what the page's folder has under this name from here on
    <!-- slow -->            this block and those after it run by `make tutorials` and not with the tests
    <!-- not run: WHY -->    nothing is run: commands and their options must exist, Python and TOML must parse
    <!-- before: COMMANDS --> typed before the block: what was done on other machines, or needs waiting for
    <!-- typed: A => B -->   A stands for something, and is typed as B; one line each
    <!-- needs: MODULE -->   the page is typed where Python has the module, or, as data:NAME, there is a data set
    <!-- quiet -->           what the commands print is not shown; they must succeed

A ``console`` block has commands behind ``$``, the lines that a trailing backslash continues, and what they print.
"""

import importlib.util
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from markdown_it import MarkdownIt
from markdown_it.token import Token

from fedchain.learning.datasets.load import load_dataset
from fedchain.learning.exceptions import DatasetError
from tests.support.paths import DOCS, ROOT

PAGES = (ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted(DOCS.glob("**/*.md")))
"""All pages, the README first."""

_COMMENT = re.compile(r"<!-- (file|slow|not run|before|typed|quiet|needs)(?::\s(.*?))?\s-->", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Command:
    """A command as a reader types it, and what the page says that it prints."""

    text: str
    """One or more lines."""

    printed: str
    """Standard output and error, without trailing blanks; ``...`` stands for anything."""

    first: int
    """Line of the page on which what is printed begins, from 0."""

    last: int
    """Line behind it."""


@dataclass(frozen=True, slots=True)
class Block:
    """A fenced block of code."""

    page: Path
    language: str
    text: str
    line: int
    """Line of the fence, from 0."""
    said: dict[str, str] = field(default_factory=dict)
    """Values of the comments before it: file, slow, not run, before, typed, quiet, needs."""

    @property
    def name(self) -> str:
        """Page and line, as an editor opens them."""
        shown = self.page.relative_to(ROOT) if self.page.is_relative_to(ROOT) else self.page
        return f"{shown}:{self.line + 1}"

    @property
    def typed_as(self) -> list[tuple[str, str]]:
        """Pairs of a text on the page and the text that is typed in its place."""
        lines = self.said.get("typed", "").splitlines()
        return [(shown.strip(), typed.strip()) for shown, _, typed in (line.partition("=>") for line in lines)]

    @property
    def commands(self) -> list[Command]:
        """The commands of a console block."""
        lines = self.text.splitlines()
        starts = [place for place, line in enumerate(lines) if line.startswith("$ ")]
        found = []
        for start, end in zip(starts, [*starts[1:], len(lines)], strict=True):
            behind = start + 1
            while lines[behind - 1].endswith("\\"):
                behind += 1
            typed = "\n".join([lines[start][2:], *lines[start + 1 : behind]])
            printed = "\n".join(line.rstrip() for line in lines[behind:end])
            found.append(Command(typed, printed, self.line + 1 + behind, self.line + 1 + end))
        return found


def blocks_of(page: Path) -> Iterator[Block]:
    """Read a page; a block knows what the comments since the last one say."""
    said: dict[str, str] = {}
    slow = False
    for token in _parsed(page.read_text(encoding="utf-8")):
        if token.type == "html_block":
            said |= {name: value or "" for name, value in _COMMENT.findall(token.content)}
        elif token.type in ("fence", "code_block"):
            assert token.map is not None
            slow = slow or "slow" in said
            known = said | {"slow": ""} if slow else said
            language = (token.info.split() or [""])[0] if token.type == "fence" else "indented"
            yield Block(page, language, token.content, token.map[0], known)
            said = {}


@cache
def _parsed(text: str) -> list[Token]:
    """The tests of pages read each of them several times."""
    return MarkdownIt("commonmark").parse(text)


def missing_for(page: Path) -> list[str]:
    """Return what a page needs that is not here: modules and data sets."""
    needed = [word for block in blocks_of(page) for word in block.said.get("needs", "").split()]
    return [word for word in needed if not _is_here(word)]


def _is_here(needed: str) -> bool:
    kind, _, name = needed.rpartition(":")
    if kind != "data":
        return importlib.util.find_spec(name) is not None
    try:
        load_dataset(name)
    except DatasetError:
        return False
    return True
