"""Folders are found, named and shown once."""

from pathlib import Path

import pytest
from starlette.testclient import TestClient

from fedchain.node.founding.task import rules_of
from fedchain.web.chains import open_chains
from fedchain.web.places import find_places, slugs
from tests.support.chain.builders import ChainBuilder
from tests.support.web.builders import write_run
from tests.support.web.pages import chain as chain
from tests.support.web.pages import client as client
from tests.support.web.pages import run as run
from tests.support.web.site import HOME, site


def test_a_folder_of_runs_and_a_test_network_are_found(tmp_path: Path, chain: ChainBuilder) -> None:
    for name in ("runs/one", "runs/two", "net/node-0", "net/node-1", "net/node-10"):
        write_run(tmp_path / name, chain)
    places = find_places([tmp_path / "runs", tmp_path / "net"])
    assert [(place.label, place.group) for place in places] == [
        *(("one", "one"), ("two", "two")),
        *(("node-0", "net"), ("node-1", "net"), ("node-10", "net")),
    ]
    chains = open_chains(places, rules_of)
    assert [(found.key, len(found.holders)) for found in chains] == [("one", 1), ("two", 1), ("net", 3)]
    shown = TestClient(site(tmp_path / "net").app, base_url=HOME).get("/net/").text
    assert "All 3 folders stand at height 5." in shown


@pytest.mark.parametrize("given", [("e", "e/chain"), ("e/chain", "e"), ("other/e", "e/chain", "e"), ("all", "e")])
def test_a_store_that_is_given_twice_is_shown_once_with_what_lies_beside_it(
    tmp_path: Path, chain: ChainBuilder, given: tuple[str, ...]
) -> None:
    write_run(tmp_path / "e", chain)
    for name in ("other", "all"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "e").symlink_to(tmp_path / "e")
    (place,) = find_places([tmp_path / name for name in given])
    assert place.folder.resolve() == tmp_path / "e"


def test_folders_of_one_name_are_told_apart_by_the_path_to_them(tmp_path: Path, chain: ChainBuilder) -> None:
    accuracies = {"b/data": 0.1, "c/data": 0.2, "d/c/data": 0.3, "e/data": 0.4}
    b, c, d, e = (write_run(tmp_path / name, chain, (0.0, accuracy)) for name, accuracy in accuracies.items())
    shown = site(b, c, d, e / "chain")
    titles = [found.title for found in shown.chains.values()]
    assert titles == ["b/data", f"{tmp_path.name}/c/data", "d/c/data", "e/data"]
    assert list(shown.chains) == slugs(titles)
    client = TestClient(shown.app, base_url=HOME)
    front, compared = client.get("/").text, client.get("/compare").text
    for key, title in zip(shown.chains, titles, strict=True):
        assert f'<a href="/{key}/">{title}</a>' in front
    for title, accuracy in zip(titles[:3], ("10.0", "20.0", "30.0"), strict=True):
        assert f"{title} <b>{accuracy} %</b>" in compared


def test_names_in_addresses_are_short_and_differ() -> None:
    assert slugs(["Run 1", "run-1", "../x", "…", "api"]) == ["run-1", "run-1-2", "x", "chain", "api-chain"]
    assert slugs(["compare", "static", "run 1", "run 1", "run 1"]) == [
        *("compare-chain", "static-chain", "run-1", "run-1-2", "run-1-3")
    ]
    assert [len(name) for name in slugs(["a" * 99, "b" * 40])] == [40, 40]


def test_chains_whose_folders_have_the_name_of_a_page_have_pages_of_their_own(
    tmp_path: Path, chain: ChainBuilder
) -> None:
    for name in ("compare", "static"):
        write_run(tmp_path / name, chain)
    client = TestClient(site(tmp_path / "compare", tmp_path / "static").app, base_url=HOME)
    for key in ("compare-chain", "static-chain"):
        assert client.get(f"/{key}/").status_code == 200
