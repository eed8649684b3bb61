"""Kinds of folders, and the chains in them; no chain is opened."""

from pathlib import Path

import pytest

from fedchain.crypto.durable import set_aside_damaged
from fedchain.files.layout import CHAIN_FOLDER, DATABASE, GENESIS_FILE, SCENARIO_FILE
from fedchain.files.places import chain_folder, chains_in, node_folder, node_folders, place_at, places_in, scenario_file


def made(folder: Path, *names: str) -> Path:
    """Empty files in a folder."""
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).touch()
    return folder


CHAIN = f"{CHAIN_FOLDER}/{DATABASE}"


@pytest.mark.parametrize(
    ("names", "kind", "nodes"),
    [
        ((SCENARIO_FILE,), "simulation", ["."]),
        ((SCENARIO_FILE, CHAIN), "simulation", ["."]),
        ((CHAIN,), "node", ["."]),
        ((DATABASE,), "node", ["."]),
        ((GENESIS_FILE, f"node-10/{CHAIN}", f"node-9/{CHAIN}", f"other/{CHAIN}"), "testnet", ["node-9", "node-10"]),
        ((GENESIS_FILE,), None, []),
        ((f"node-0/{CHAIN}",), None, []),
        ((f"{CHAIN_FOLDER}/other",), None, []),
    ],
)
def test_the_kind_of_a_folder(tmp_path: Path, names: tuple[str, ...], kind: str | None, nodes: list[str]) -> None:
    place = place_at(made(tmp_path, *names))
    assert (None if place is None else place.kind) == kind
    assert ([] if place is None else list(place.nodes)) == [tmp_path / name for name in nodes]


def test_what_is_hidden_linked_or_too_deep_is_not_looked_at(tmp_path: Path) -> None:
    for name in (".hidden", "a/b/c/d/e", "a/b/c/d"):
        made(tmp_path / name, SCENARIO_FILE)
    (tmp_path / "link").symlink_to(tmp_path / ".hidden")
    assert [place.folder for place in places_in(tmp_path)] == [tmp_path / "a/b/c/d"]


def test_nodes_of_a_network_are_listed_if_it_is_the_named_folder(tmp_path: Path) -> None:
    network = made(tmp_path / "net", GENESIS_FILE, f"node-0/{CHAIN}", f"carol/{CHAIN}")
    assert [place.folder.name for place in places_in(tmp_path)] == ["net", "carol"]
    assert [place.folder.name for place in places_in(network)] == ["net", "carol", "node-0"]


def test_the_chains_in_a_folder_are_its_own_or_those_beside_each_other(tmp_path: Path) -> None:
    for name in ("node-10", "node-9", "run"):
        made(tmp_path / name, CHAIN)
    made(tmp_path / "deep" / "run", CHAIN)
    assert chains_in(tmp_path) == [tmp_path / name for name in ("node-9", "node-10", "run")]
    assert node_folders(tmp_path) == [node_folder(tmp_path, number) for number in (9, 10)]
    assert node_folders(tmp_path / "none") == []
    (run,) = chains_in(tmp_path / "run")
    assert (run, chain_folder(run), chain_folder(run / CHAIN_FOLDER)) == (tmp_path / "run", *[run / CHAIN_FOLDER] * 2)


def test_a_chain_that_was_set_aside_is_no_node_unless_it_is_named(tmp_path: Path) -> None:
    """It was listed as one, and so was the advice to have it repaired again."""
    node = made(tmp_path / "node", CHAIN)
    aside = set_aside_damaged(node / CHAIN_FOLDER)
    assert (list(places_in(tmp_path)), chains_in(node)) == ([], [])
    assert chains_in(aside) == [aside]
    made(node, CHAIN)
    assert [place.folder for place in places_in(tmp_path)] == [node]


def test_a_simulation_is_known_by_its_scenario_from_its_chain_too(tmp_path: Path) -> None:
    run, node = made(tmp_path / "run", SCENARIO_FILE, CHAIN), made(tmp_path / "node", CHAIN)
    found = [scenario_file(folder) for folder in (run, run / CHAIN_FOLDER, node, node / CHAIN_FOLDER)]
    assert found == [run / SCENARIO_FILE] * 2 + [None] * 2
