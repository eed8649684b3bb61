"""Installing needs no compiler: libp2p comes by itself, and everything it needs, and no more, is in our own list."""

import re
import tomllib
from importlib.metadata import requires
from pathlib import Path

from fedchain.__main__ import COMMANDS
from fedchain.network.libp2p.unused import UNUSED
from fedchain.node.preflight import LIBP2P_VERSION

ROOT = Path(__file__).resolve().parent.parent

NEVER_IMPORTED = {"exceptiongroup", "grpcio", "lru-dict", "mypy-protobuf", "rpcudp", "types-requests"}
"""What libp2p asks for and does not import on the way to what is used of it, or needs on older Pythons alone."""


def names(requirements: list[str]) -> set[str]:
    """Of the packages in a list of requirements, without those of extras."""
    found = [re.match(r"[\w.-]+", line) for line in requirements if "extra ==" not in line]
    return {name[0].lower().replace("_", "-") for name in found if name is not None}


def project() -> dict[str, object]:
    found: dict[str, object] = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    return found


def ours() -> set[str]:
    dependencies = project()["dependencies"]
    assert isinstance(dependencies, list)
    return names(dependencies)


def test_what_libp2p_asks_for_is_ours_or_is_not_needed() -> None:
    asked = names(requires("libp2p") or [])
    assert len(asked) > 20
    assert asked - ours() == {*UNUSED, *NEVER_IMPORTED}


def test_nothing_of_ours_brings_libp2p_s_own_list() -> None:
    assert not ours() & {"libp2p", *UNUSED}
    extras = project()["optional-dependencies"]
    assert isinstance(extras, dict)
    assert extras["libp2p"] == [f"libp2p=={LIBP2P_VERSION}"]


def test_the_page_on_a_package_index_needs_nothing_beside_it() -> None:
    readme = project()["readme"]
    assert isinstance(readme, str)
    text = (ROOT / readme).read_text(encoding="utf-8")
    targets = re.findall(r"\]\(([^)\s]+)\)|<img[^>]+src=\"([^\"]+)\"", text)
    assert [target for pair in targets for target in pair if target and not target.startswith("https://")] == []
    commands = re.findall(r"^\$ fedchain (\w+)", text, re.MULTILINE)
    assert {*commands} <= COMMANDS.keys()
    assert len(commands) > 3
    assert f"libp2p=={LIBP2P_VERSION}" in text


def test_the_metadata_say_what_it_is_and_link_to_the_papers() -> None:
    found = project()
    classifiers, links = found["classifiers"], found["urls"]
    assert isinstance(classifiers, list)
    assert isinstance(links, dict)
    for topic in ("Development Status", "Intended Audience", "Operating System", "Programming Language", "Topic"):
        assert any(line.startswith(f"{topic} :: ") for line in classifiers), topic
    assert not any(line.startswith("License ::") for line in classifiers), "the licence is an expression"
    for method, link in links.items():
        number = link.removeprefix("https://arxiv.org/abs/")
        source = (ROOT / "learning" / "methods" / f"{method.lower()}.py").read_text(encoding="utf-8")
        assert f"arXiv:{number}" in source, method


def test_every_version_is_pinned_and_nothing_is_that_is_not_installed() -> None:
    pinned = names(
        [line for line in (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines() if line[0] != "#"]
    )
    assert ours() | {"libp2p"} <= pinned
    assert not pinned & {*UNUSED, *NEVER_IMPORTED}
