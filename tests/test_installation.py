"""Installing needs no compiler: libp2p comes by itself, and everything it needs, and no more, is in our own list."""

import os
import re
import subprocess
import sys
import tomllib
from importlib.metadata import requires
from importlib.resources import files
from pathlib import Path

import pytest

from fedchain.cli.main import COMMANDS
from fedchain.network.libp2p.unused import UNUSED
from fedchain.node.operating.preflight import LIBP2P_VERSION
from tests.support.oldest import oldest_versions
from tests.support.paths import ROOT

NEVER_IMPORTED = {"exceptiongroup", "grpcio", "lru-dict", "mypy-protobuf", "rpcudp", "types-requests"}
"""Requirements of libp2p that are not imported by the parts in use, or are needed on older Pythons alone."""


def names(requirements: list[str]) -> set[str]:
    """Names of the packages in a list of requirements, without those of extras."""
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


def test_the_oldest_protobuf_that_is_let_in_loads_libp2p_s_messages() -> None:
    folder = files("libp2p")
    assert isinstance(folder, Path)
    texts = [path.read_text(encoding="utf-8") for path in folder.rglob("*_pb2.py")]
    made_for = [match[1] for text in texts if (match := re.search(r"Protobuf Python Version: ([\d.]+)", text))]
    assert len(made_for) > 10
    assert max(map(_numbers, made_for)) <= _numbers(oldest_versions()["protobuf"])


def _numbers(version: str) -> list[int]:
    return [int(part) for part in version.split(".")]


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


STAND_IN = """#!/bin/sh
if [ "$1 $2" = "-m venv" ]; then mkdir -p "$3/bin" && cp "$0" "$3/bin/python"; exit; fi
echo "$@" >> "$SEEN"
case "$*" in *--index-url*torch) exit "$TORCH_STATUS";; esac
"""
"""A Python that makes copies of itself, writes down what it is asked for, and does nothing else."""


def installed(folder: Path, *settings: str, torch_status: int = 0) -> list[str]:
    """Arguments of pip under ``make install``, in order; torch's own index answers with this exit code."""
    python, seen = folder / "python", folder / "seen"
    python.write_text(STAND_IN, encoding="utf-8")
    python.chmod(0o755)
    seen.unlink(missing_ok=True)
    places = [f"PYTHON={python}", f"VENV={folder / 'environment'}", *settings]
    environment = os.environ | {"SEEN": str(seen), "TORCH_STATUS": str(torch_status)}
    environment.pop("TORCH_INDEX", None)
    subprocess.run(["make", "-B", "install", *places], cwd=ROOT, env=environment, capture_output=True, check=True)
    words = [line.split() for line in seen.read_text(encoding="utf-8").splitlines()]
    assert all("constraints.txt" in line for line in words if "pip" in line)
    return [" ".join(line[line.index("constraints.txt") + 1 :]) for line in words if "pip" in line]


PIP = "--upgrade pip"
REST = ["--editable .[dev]", "--no-deps libp2p"]


def test_torch_comes_before_the_rest_and_without_what_graphics_cards_need(tmp_path: Path) -> None:
    pip, torch, *rest = installed(tmp_path)
    assert pip == PIP
    assert torch.endswith("--index-url https://download.pytorch.org/whl/cpu torch")
    assert "--no-deps" in torch, "its index is asked for nothing else"
    assert rest == REST


def test_where_its_index_cannot_be_reached_torch_comes_with_the_rest_after_one_short_wait(tmp_path: Path) -> None:
    _, torch, *rest = installed(tmp_path, torch_status=1)
    assert "--retries 1 --timeout 10" in torch
    assert rest == REST


def test_another_torch_is_one_variable_away(tmp_path: Path) -> None:
    assert installed(tmp_path, "TORCH_INDEX=") == [PIP, *REST]
    assert installed(tmp_path, "TORCH_INDEX=https://example.org/gpu")[1].endswith("https://example.org/gpu torch")


USED = """
import sys
from pathlib import Path
import fedchain.network.libp2p.network, fedchain.node.shell.run
from fedchain.cli.main import app
app(["simulate", "--peers", "2", "--rounds", "1", "--out", sys.argv[1]], standalone_mode=False)
specs = [module.__spec__ for module in list(sys.modules.values()) if getattr(module, "__spec__", None) is not None]
kept = {spec.origin: spec.cached for spec in specs if spec.cached and spec.origin.startswith(sys.prefix)}
print("kept", len(kept), *(origin for origin, cached in kept.items() if not Path(cached).exists()))
"""
"""Counts the files that simulations and nodes import of other libraries, and lists those that are not compiled."""


@pytest.mark.slow
@pytest.mark.skipif(not Path(sys.prefix, ".installed").exists(), reason="the environment is not one of make install")
def test_make_install_compiles_what_commands_import(tmp_path: Path) -> None:
    environment = os.environ | {"PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run(
        [sys.executable, "-c", USED, tmp_path / "run"], env=environment, capture_output=True, text=True, check=True
    )
    _, count, *missing = done.stdout.splitlines()[-1].split()
    assert int(count) > 1_000
    assert missing == []
