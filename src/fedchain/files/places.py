"""Kinds of folders (run, node, test network), and the chains in them. Nothing is opened for it."""

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from fedchain.files.layout import ASIDE, CHAIN_FOLDER, DATABASE, GENESIS_FILE, SCENARIO_FILE

DEPTH_MAX = 4
"""Levels of folders that are searched below the named one."""

Kind = Literal["simulation", "testnet", "node"]
"""A node is whatever holds a chain that no simulation made, whether or not a process runs there."""


@dataclass(frozen=True, slots=True)
class Place:
    """A folder of a known kind."""

    folder: Path
    kind: Kind
    nodes: tuple[Path, ...]
    """Folders that hold its chains: those of a test network's nodes, otherwise the folder itself."""


def place_at(folder: Path) -> Place | None:
    """The place that a folder is; None if it is none of this program's."""
    if (folder / SCENARIO_FILE).is_file():
        return Place(folder, "simulation", (folder,))
    if holds_chain(folder):
        return Place(folder, "node", (folder,))
    if (folder / GENESIS_FILE).is_file() and (nodes := node_folders(folder)):
        return Place(folder, "testnet", tuple(nodes))
    return None


def places_in(folder: Path) -> Iterator[Place]:
    """The places in a folder and below, by name.

    Hidden folders, links, folders that may not be read, and nodes of a test network below are left out: it stands for
    them. So are chains that were set aside.
    """
    base = len(folder.parts)
    for root, names, _ in os.walk(folder):
        path = Path(root)
        place = place_at(path)
        if place is not None:
            yield place
        hidden = [CHAIN_FOLDER, *(node.name for node in place.nodes if path != folder)] if place else [CHAIN_FOLDER]
        within = [name for name in names if not name.startswith((".", CHAIN_FOLDER + ASIDE)) and name not in hidden]
        names[:] = sorted(within, key=_in_order) if len(path.parts) - base < DEPTH_MAX else []


def chains_in(folder: Path) -> list[Path]:
    """The folder itself if it holds a chain; otherwise the folders in it that hold one each, by name.

    A chain that was set aside is none of them: another one takes its place, or will.
    """
    if holds_chain(folder):
        return [folder]
    there = (path for path in folder.iterdir() if not path.name.startswith(CHAIN_FOLDER + ASIDE))
    found = [path for path in there if path.is_dir() and holds_chain(path)]
    return sorted(found, key=lambda path: _in_order(path.name))


def node_folders(network: Path) -> list[Path]:
    """The nodes' folders of a test network, in the order of their numbers; [] if ``network`` is no test network."""
    return [path for path in chains_in(network) if re.fullmatch(r"node-\d+", path.name)] if network.is_dir() else []


def node_folder(network: Path, number: int) -> Path:
    """Folder of a node of a test network."""
    return network / f"node-{number}"


def chain_folder(folder: Path) -> Path:
    """The chain's folder within a run's or a node's; ``folder`` itself if that is the chain's."""
    inner = folder / CHAIN_FOLDER
    return inner if inner.is_dir() and not (folder / DATABASE).exists() else folder


def scenario_file(folder: Path) -> Path | None:
    """The scenario of a run's folder, or of the folder of its chain; None if no simulation made the chain."""
    path = folder.resolve()
    places = (folder, path.parent) if path.name == CHAIN_FOLDER else (folder,)
    return next((place / SCENARIO_FILE for place in places if (place / SCENARIO_FILE).is_file()), None)


def holds_chain(folder: Path) -> bool:
    """Whether a chain is stored in a run's or a node's folder, or in the folder of the chain itself."""
    return (chain_folder(folder) / DATABASE).exists()


def _in_order(name: str) -> list[Any]:
    """Sort key by which ``node-10`` comes after ``node-9``."""
    return [int(part) if place % 2 else part for place, part in enumerate(re.split(r"(\d+)", name))]
