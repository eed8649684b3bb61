"""The habits of the house: what a reader may rely on in every folder."""

import ast
import re
import tomllib
from pathlib import Path

import pytest

from tests.support.paths import FOLDERS, PRODUCT, ROOT

METHODS = sorted(path for path in (ROOT / "learning" / "methods").glob("*.py") if path.name != "__init__.py")

CITATION = re.compile(r"arXiv:\s*\d{4}\.\d{4,5}|\b10\.\d{4,9}/\S+|\b(?:19|20)\d{2}\b")
"""An arXiv number, a DOI, or the year of a conference or journal."""

LEFT_OVER = re.compile(r"\b(?:TODO|FIXME|XXX)\b")

UNPICKLERS = {"pickle", "cPickle", "_pickle", "dill", "cloudpickle", "joblib", "shelve", "marshal"}
"""Modules that run code that came in as data."""

SUSPICIOUS = re.compile(rf"{'|'.join(UNPICKLERS)}|\bload\b|allow_pickle")
"""Words without which a module unpickles nothing."""


def _name(path: Path) -> str:
    return str(path.relative_to(ROOT))


DATA = {"fedchain.web.static", "fedchain.web.templates"}
"""Folders of files without code, which setuptools takes for packages."""


def _docstring(path: Path) -> str:
    return ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""


def _packages_on_disk() -> set[str]:
    """Every folder with an ``__init__.py`` that belongs to the product, by the name that it is installed under."""
    found = {"fedchain"}
    for folder in FOLDERS:
        for init in (ROOT / folder).glob("**/__init__.py"):
            found.add(".".join(("fedchain", *init.parent.relative_to(ROOT).parts)))
    return found | _packages_in_src()


def _packages_in_src() -> set[str]:
    """Packages that lie where they are installed: what Python programs use, above all the folders."""
    package = ROOT / "src" / "fedchain"
    rooms = [init.parent.relative_to(package) for init in package.glob("*/**/__init__.py")]
    return {".".join(("fedchain", *room.parts)) for room in rooms if room.parts[0] not in FOLDERS}


def test_every_package_is_installed() -> None:
    with (ROOT / "pyproject.toml").open("rb") as file:
        setuptools = tomllib.load(file)["tool"]["setuptools"]
    assert set(setuptools["packages"]) == _packages_on_disk() | DATA
    assert setuptools["package-data"].keys() >= DATA
    folders = {name: folder for name, folder in setuptools["package-dir"].items() if name != "fedchain"}
    assert folders == {name: name.removeprefix("fedchain.").replace(".", "/") for name in folders}
    assert {"fedchain", *folders, *_packages_in_src(), *DATA} == set(setuptools["packages"])


@pytest.mark.parametrize("folder", FOLDERS)
def test_folders_without_an_init_hold_no_code(folder: str) -> None:
    holding_code = {path.parent for path in (ROOT / folder).glob("**/*.py")}
    assert holding_code
    assert all((path / "__init__.py").is_file() for path in holding_code)


def test_the_links_beside_the_package_are_relative_and_lead_to_the_folders() -> None:
    package = ROOT / "src" / "fedchain"
    links = {path.name: path.readlink() for path in package.iterdir() if path.is_symlink()}
    assert links == {folder: Path("..", "..", folder) for folder in FOLDERS}
    assert all((package / folder).resolve() == ROOT / folder for folder in FOLDERS)


def test_every_module_opens_with_a_sentence_on_what_it_is_for() -> None:
    opening = {_name(path): _docstring(path).split("\n\n")[0] for path in PRODUCT}
    assert opening
    assert {name: first for name, first in opening.items() if not first.endswith((".", "?", ":", "!"))} == {}


def test_every_method_opens_with_its_citation() -> None:
    assert METHODS
    assert [_name(path) for path in METHODS if not CITATION.search(_docstring(path))] == []


def test_nothing_is_left_to_do() -> None:
    assert [_name(path) for path in PRODUCT if LEFT_OVER.search(path.read_text(encoding="utf-8"))] == []


def test_nothing_is_unpickled() -> None:
    found = {_name(path): _unpicklers(path.read_text(encoding="utf-8")) for path in PRODUCT}
    assert {name: unpicklers for name, unpicklers in found.items() if unpicklers} == {}


def _unpicklers(source: str) -> list[str]:
    """Names in ``source`` that would run code that came in as data."""
    found = list[str]()
    if not SUSPICIOUS.search(source):
        return found
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            found += [alias.name for alias in node.names if alias.name.split(".")[0] in UNPICKLERS]
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            found += [node.module] if node.module.split(".")[0] in UNPICKLERS else []
            found += [f"torch.{alias.name}" for alias in node.names if (node.module, alias.name) == ("torch", "load")]
        elif isinstance(node, ast.Attribute) and node.attr == "load" and ast.unparse(node) == "torch.load":
            found.append("torch.load")
        elif isinstance(node, ast.keyword) and node.arg == "allow_pickle" and ast.unparse(node.value) != "False":
            found.append("allow_pickle")
    return found


@pytest.mark.parametrize(
    "source",
    [
        "import pickle",
        "import os, pickle as p",
        "def f():\n    from pickle import loads",
        "from torch import load",
        "model = torch.load(path)",
        "numpy.load(file, allow_pickle=True)",
    ],
)
def test_an_unpickler_would_be_noticed(source: str) -> None:
    assert _unpicklers(source)


def test_speaking_of_unpicklers_is_allowed() -> None:
    assert _unpicklers('"""torch.load and pickle are not used."""\nnumpy.load(file, allow_pickle=False)') == []


@pytest.mark.parametrize(
    ("text", "cited"),
    [
        ("Source: arXiv:1602.05629", True),
        ("doi 10.1109/TMC.2024.3460185", True),
        ("McMahan et al. (AISTATS 2017)", True),
        ("McMahan et al., AISTATS 2017.", True),
        ("65536 bytes, 20170 lines", False),
        ("no source", False),
    ],
)
def test_citations_are_recognized(text: str, cited: bool) -> None:
    assert bool(CITATION.search(text)) == cited


def test_each_short_path_names_a_test_that_is_there() -> None:
    """A row whose test has gone says something that nothing holds."""
    page = ROOT / "docs/decisions/0031-what-a-short-path-may-leave-out.md"
    rows = [line for line in page.read_text().splitlines() if line.startswith("| ") and not line.startswith("| place")]
    assert len(rows) > 40
    code = " ".join(path.read_text(encoding="utf-8") for path in PRODUCT)
    for row in rows:
        places = [place for place in re.findall(r"`([^`]+)`", row.split("|")[1]) if not place.endswith("/")]
        assert all(re.search(rf"\b{word}\b", code) for place in places for word in re.findall(r"\w+", place)), row
        named = re.findall(r"`([\w/]*test_\w+\.py)`", row.rsplit("|", 2)[1])
        assert named, row
        for name in named:
            is_there = (ROOT / name).is_file() if "/" in name else any(ROOT.glob(f"tests/node/**/{name}"))
            assert is_there, f"{name} is not there: {row}"
