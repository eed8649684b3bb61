"""The places of chains: run folders, node folders, and folders that hold several of them."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from fedchain.chain.exceptions import NotFound
from fedchain.files.layout import DATABASE
from fedchain.files.places import chain_folder, chains_in, holds_chain, node_folders

PLACES_MAX = 256
"""Most folders with a chain that are shown together; each keeps a file open."""


@dataclass(frozen=True, slots=True)
class Place:
    """A folder with a chain."""

    label: str
    """Its name on pages: that of the given folder, or of the folder found in it."""
    group: str
    """Name of the folder that it belongs to: the test network's, or the run's."""
    folder: Path
    """The run's or the node's folder: measurements and the status socket are here."""

    @property
    def chain(self) -> Path:
        """The folder of the chain itself."""
        return chain_folder(self.folder)


class NoChainYet(NotFound):
    """A folder that holds no chain may hold one as soon as a run or a node has begun."""


def find_places(folders: Iterable[Path]) -> tuple[Place, ...]:
    """The chains in ``folders``: a run's, a node's, or all in a test network or a folder of runs.

    A store that is reached through several folders is listed once.

    Raises NotFound: not a folder, or too many chains; NoChainYet if there is no chain in one.
    """
    found = dict[Path, Place]()
    for folder in folders:
        if not folder.exists():
            raise NoChainYet(f"{folder} is not a folder; a run or a node that begins makes it")
        if not folder.is_dir():
            raise NotFound(f"{folder} is not a folder")
        places = _places_in(folder)
        if not places:
            raise NoChainYet(
                f"{folder} holds no chain: there is no {DATABASE} in it, in {folder / 'chain'} or one below; "
                "it is there when the run or the node has begun"
            )
        for place in places:
            known = found.setdefault(place.chain.resolve(), place)
            if known.folder == known.chain:  # the folder around it has measurements and the socket, too
                found[place.chain.resolve()] = place
    if len(found) > PLACES_MAX:
        raise NotFound(f"{len(found)} chains found, at most {PLACES_MAX} are shown together")
    return tuple(found.values())


def begins(folders: Iterable[Path]) -> bool:
    """Whether a node of a test network in one of the folders has yet to begin its chain."""
    nodes = (node for folder in folders for node in folder.glob("node-*") if node.is_dir())
    return any(not holds_chain(node) for node in nodes)


def _places_in(folder: Path) -> list[Place]:
    name = folder.resolve().name or "chain"
    chains = chains_in(folder)
    if chains == [folder]:
        own = folder.resolve().parent.name if name == "chain" else name
        return [Place(own or name, own or name, folder)]
    is_network = bool(node_folders(folder))
    return [Place(item.name, name if is_network else item.name, item) for item in chains]


def distinct_titles(folders: Sequence[Path]) -> list[str]:
    """The name of each folder, with as much of its path as distinguishes it from others of that name."""
    made = list[str]()
    for folder in folders:
        others = [other for other in folders if other.name == folder.name and other != folder]
        depths = range(1, len(folder.parts))
        ends = (folder.parts[-depth:] for depth in depths)
        end = next((end for end in ends if all(other.parts[-len(end) :] != end for other in others)), folder.parts)
        made.append(str(Path(*end)))
    return made


def slugs(names: Iterable[str]) -> list[str]:
    """Short names for the addresses of pages; no two are the same."""
    made = list[str]()
    for name in names:
        base = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")[:40] or "chain"
        base = f"{base}-chain" if base in RESERVED else base
        slug, count = base, 1
        while slug in made:
            count += 1
            slug = f"{base}-{count}"
        made.append(slug)
    return made


RESERVED = frozenset({"api", "compare", "static"})
"""First parts of addresses that belong to no chain."""
