"""Stored chains as the pages read them: opened, lost, damaged, back again."""

import os
import sqlite3
from contextlib import closing
from pathlib import Path
from shutil import rmtree

import pytest
from starlette.testclient import TestClient

from fedchain.chain.exceptions import ChainError, NotFound
from fedchain.chain.storage.sqlite import Store
from fedchain.crypto.address import address
from fedchain.files.layout import TIMELINE_FILE
from fedchain.node.founding.task import rules_of
from fedchain.node.shell.timeline import SeenBlock, SeenPost, TimelineFile, TrainingResult
from fedchain.web.chains import open_chains
from fedchain.web.figures.network import pairs_of
from fedchain.web.open_round import open_round
from fedchain.web.pages.rounds import parts_of
from fedchain.web.places import find_places
from tests.support.chain.builders import ChainBuilder, keys
from tests.support.chain.changes import joining, living
from tests.support.chain.explored import FakeRules, write
from tests.support.web.builders import append, write_run
from tests.support.web.pages import chain as chain
from tests.support.web.pages import client as client
from tests.support.web.pages import run as run
from tests.support.web.site import HOME, site


def test_a_page_waits_for_few_blocks_of_a_large_federation(
    tmp_path: Path, chain: ChainBuilder, monkeypatch: pytest.MonkeyPatch
) -> None:
    members = len(chain.genesis.members)
    monkeypatch.setattr("fedchain.web.chains.READ_AT_ONCE", 2 * members + 1)
    (shown,) = site(write_run(tmp_path / "run", chain)).chains.values()
    with shown.reading() as reading:
        assert (reading.columns.height, reading.is_complete) == (2, False)
    assert not shown.read_on()
    assert shown.read_on()
    with shown.reading() as reading:
        assert (reading.columns.height, reading.is_complete) == (5, True)


def test_pages_change_once_with_a_block_and_while_a_long_chain_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A page that has just read a block shows it, and need not be fetched once more."""
    monkeypatch.setattr("fedchain.web.chains.READ_AT_ONCE", 8)
    growing = living(4)
    growing.extend_many(6)
    folder = write_run(tmp_path / "run", growing)
    (shown,) = site(folder, rules=lambda _: FakeRules()).chains.values()
    seen = [shown.look()]
    while True:
        with shown.reading() as reading:
            is_complete = reading.is_complete
        if is_complete:
            break
        seen.append(shown.look())
    assert len({*seen}) == len(seen) == 3
    assert shown.look() == seen[-1]
    for _ in range(2):
        append(folder, growing, growing.extend())
        seen.append(shown.look())
        with shown.reading() as reading:
            assert reading.is_complete
        assert shown.look() == seen[-1]
    assert len({*seen}) == len(seen)


def test_a_store_that_disappears_or_is_damaged_is_said_so_and_comes_back(tmp_path: Path, chain: ChainBuilder) -> None:
    folder = write_run(tmp_path / "run", chain)
    client = TestClient(site(folder).app, base_url=HOME)
    assert client.get("/run/blocks").status_code == 200
    kept = tmp_path / "kept"
    folder.rename(kept)
    for path in ("/run/block/1", "/api/v1/run/status", "/run/members?again"):
        gone = client.get(path)
        assert gone.status_code == 404
        assert f"{folder} is gone, or holds no chain any more" in gone.text
    kept.rename(folder)
    assert client.get("/run/block/1?again").status_code == 200
    (folder / "chain" / "chain.sqlite").unlink()
    (folder / "chain" / "chain.sqlite").write_bytes(b"no database" * 500)
    damaged = client.get("/run/block/2?again")
    assert damaged.status_code == 503
    assert "file is not a database" in damaged.text
    rmtree(folder)


def test_a_store_that_was_damaged_when_it_was_opened_is_shown_once_a_good_one_takes_its_place(
    tmp_path: Path, chain: ChainBuilder
) -> None:
    folder = write_run(tmp_path / "run", chain)
    path, kept = folder / "chain" / "chain.sqlite", tmp_path / "kept"
    client = TestClient(site(folder).app, base_url=HOME)
    kept.write_bytes(path.read_bytes())
    bad = tmp_path / "bad"
    bad.write_bytes(path.read_bytes())
    with closing(sqlite3.connect(bad)) as connection, connection:
        connection.execute("UPDATE states SET checksum = x'00'")
    bad.replace(path)
    assert client.get("/run/blocks").status_code == 503
    kept.replace(path)
    assert client.get("/run/blocks").status_code == 200


def test_a_chain_on_a_read_only_disk_is_shown_as_it_grows_from_the_start_of_its_node_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    chain = living(4)
    chain.extend()
    folder = write_run(tmp_path / "run", chain)
    monkeypatch.setattr(os, "access", lambda path, mode: mode != os.W_OK)
    client = TestClient(site(folder).app, base_url=HOME)

    def height() -> int:
        found = int(client.get("/api/v1/run/status").json()["height"])
        codes = [client.get(f"/run/block/{number}?{found}").status_code for number in (found, found + 1)]
        assert codes == [200, 404]
        return found

    def grow(store: Store) -> None:
        chain.extend()
        store.append([chain.final(chain.blocks[chain.tip])])

    assert height() == 1
    with Store.open(folder / "chain") as store:
        grow(store)
        assert height() == 2
        grow(store)
        assert height() == 3
    assert height() == 3
    with Store.open(folder / "chain") as store:
        grow(store)
    assert height() == 4


def test_another_chain_in_the_folder_is_not_shown_under_the_name_of_the_one_before(
    tmp_path: Path, chain: ChainBuilder
) -> None:
    folder = write_run(tmp_path / "run", chain)
    client = TestClient(site(folder).app, base_url=HOME)
    assert client.get("/run/block/1").status_code == 200
    folder.rename(tmp_path / "kept")
    other = living(4)
    other.extend()
    write_run(folder, other)
    for path in ("/run/block/1?again", "/api/v1/run/status", "/run/members?again"):
        found = client.get(path)
        assert found.status_code == 503
        assert f"holds chain {other.genesis.chain_id.hex()}" in found.text
    rmtree(folder)
    (tmp_path / "kept").rename(folder)
    assert client.get("/run/block/1?back").status_code == 200


def test_what_is_no_chain_is_refused_in_a_line(tmp_path: Path) -> None:
    with pytest.raises(NotFound, match="nowhere is not a folder"):
        find_places([tmp_path / "nowhere"])
    with pytest.raises(NotFound, match=r"holds no chain: there is no chain\.sqlite in it"):
        find_places([tmp_path])
    (tmp_path / "chain.sqlite").write_bytes(b"x" * 5000)
    with pytest.raises(ChainError, match="not a database"):
        open_chains(find_places([tmp_path]), rules_of)


def test_a_post_that_was_altered_is_named_and_damage_that_a_page_met_is_on_the_overview(
    tmp_path: Path, chain: ChainBuilder
) -> None:
    folder = write_run(tmp_path / "run", chain)
    post = chain.blocks[chain.tip].transactions[0]
    with sqlite3.connect(folder / "chain" / "chain.sqlite") as connection:
        connection.execute("UPDATE contents SET data = zeroblob(size) WHERE hash = ?", (post.payload_hash,))
    connection.close()
    shown = site(folder)
    client = TestClient(shown.app, base_url=HOME)
    page = client.post("/run/block/5/recompute").text
    verdict = page.partition('id="recompute"')[2].partition("</section>")[0]
    assert post.payload_hash.hex() in verdict
    assert verdict.count("was altered") == 1
    home = client.get("/run/").text
    assert "not checked here: run <code>fedchain explorer verify</code>" in home
    assert "A page met damage" not in home
    version = shown.chains["run"].look()
    (folder / "chain" / "chain.sqlite").write_bytes(b"no database" * 500)
    assert client.get("/run/block/2?again").status_code == 503
    assert shown.chains["run"].look() != version
    assert any("not a database" in text or "malformed" in text for text in shown.chains["run"].troubles)


def test_a_newcomer_is_a_member_of_all_pages(tmp_path: Path) -> None:
    """It may post, its node's connections are shown, and what nodes saw of its posts is no damage."""
    living_chain = living(5)
    living_chain.extend(changes=[joining(living_chain, 5)])
    living_chain.extend_many(2)
    folder = write_run(tmp_path / "run", living_chain)
    block = living_chain.blocks[living_chain.tip]
    writer = TimelineFile(folder / TIMELINE_FILE)
    posts = (SeenPost(5, 7, "too late"),)
    writer.add(SeenBlock(3, block.hash.hex(), None, 9, (), TrainingResult(3, 0.5, None), posts=posts))
    newcomer = address(keys(6)[5].public_key)
    (shown,) = site(folder, rules=lambda _: FakeRules()).chains.values()
    shown.look()
    (holder,) = shown.holders
    assert (len(shown.head.roster), holder.measured.rounds[3].values) == (6, {"taa": 0.5})
    assert [item.posts for item in holder.seen.blocks(3, 3)] == [posts]
    link = {"bytes_out": 5, "bytes_in": 7, "round_trip_ms": 1.0}
    holder.status = {"address": newcomer, "links": {address(living_chain.genesis.members[0]): link}}
    assert [(pair.one, pair.other) for pair in pairs_of(shown).first()] == [(0, 5)]
    with shown.reading() as reading:
        assert newcomer in [item.member for item in open_round(shown, reading).contributors]
        parts = parts_of(shown, reading, {5: {}}, 3)[5]
    assert [(part.state, part.reason) for part in parts][-1:] == [("posted", "block 3 counts its post")]


def test_of_faults_that_pages_met_the_last_ones_are_told_and_each_once(run: Path) -> None:
    (shown,) = site(run).chains.values()
    for number in (0, *range(10), 9, 5):
        shown.note_trouble(f"fault {number}")
    assert shown.troubles == tuple(f"fault {number}" for number in range(2, 10))


def test_of_folders_with_one_head_the_one_with_more_blocks_is_read(tmp_path: Path, chain: ChainBuilder) -> None:
    for number, base in ((0, 3), (1, 1), (2, 4)):
        with Store.create(tmp_path / "net" / f"node-{number}" / "chain", chain.genesis) as store:
            write(store, chain, base=base)
    (shown,) = site(tmp_path / "net").chains.values()
    with shown.reading() as reading:
        assert (reading.holder.place.label, reading.explorer.held) == ("node-1", range(1, 6))
