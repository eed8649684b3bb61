"""The English of docstrings, comments and pages: sentences begin with their subject, not with a clause in its place."""

import io
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path

from tests.support.paths import ROOT

WORDS = re.compile(r"\b(?:Who|Whose|Whoever|Whom|Whatever|Of|What)\b")

CLAUSE_FIRST = re.compile(
    rf"(?:^|(?<=[.!?:])\s+|\n\s*\n\s*|^\s*[-*|>]\s*)({WORDS.pattern})(?![^.!?]*\?)",
    re.MULTILINE,
)
"""The beginning of a sentence that is no question, and whose first word opens a clause: "Who posts twice …"."""

SENTENCES_MAX = 5
"""Such sentences in the whole project; their number only falls. There were 1,117."""

FOLDERS = ("chain", "crypto", "docs", "learning", "network", "node", "simulator", "src/fedchain", "tests")


def texts_of(path: Path) -> Iterator[str]:
    """Docstrings, comments and strings of a module, or a page without the code on it."""
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".md":
        yield re.sub(r"```.*?```", "", text, flags=re.DOTALL)
        return
    if not WORDS.search(text):  # to read all modules word by word takes seconds
        return
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT:
            yield token.string.lstrip("# ")
        elif token.type == tokenize.STRING:
            yield re.sub(r"^[rfbu]*(\"\"\"|'''|\"|')", "", token.string)


def found_in(path: Path) -> list[str]:
    """The sentences of a file that begin with a clause."""
    return [
        text[match.start(1) :].splitlines()[0][:80] for text in texts_of(path) for match in CLAUSE_FIRST.finditer(text)
    ]


def test_sentences_begin_with_their_subject() -> None:
    paths = {
        path.resolve() for folder in FOLDERS for kind in ("py", "md") for path in (ROOT / folder).glob(f"**/*.{kind}")
    }
    paths |= {ROOT / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md")}
    paths.discard(Path(__file__).resolve())  # it shows what it looks for
    assert len(paths) > 800
    found = [f"{path.relative_to(ROOT)}: {sentence}" for path in sorted(paths) for sentence in found_in(path)]
    assert len(found) <= SENTENCES_MAX, "\n".join(found)


def test_a_clause_in_front_would_be_noticed(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(
        "Who posts twice is convicted. What a node holds is bounded.\n\nWhat is a round? A round ends.\n", "utf-8"
    )
    assert found_in(page) == [
        "Who posts twice is convicted. What a node holds is bounded.",
        "What a node holds is bounded.",
    ]
    module = tmp_path / "module.py"
    module.write_text(
        '"""Whose turn it is."""\n# Of two posts the first counts.\nNAME = "What became of it"\n', "utf-8"
    )
    assert len(found_in(module)) == 3
