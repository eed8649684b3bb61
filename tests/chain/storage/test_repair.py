"""The repair of a chain that was damaged: what is dropped, and what is set aside."""

import os
import shutil
import sqlite3
from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest

from fedchain.chain.exceptions import DiskRefused, NotFound, StoreCorrupt, StoreError, StoreMismatch
from fedchain.chain.storage.content_files import content_path
from fedchain.chain.storage.database import DATABASE, PAGE_SIZE
from fedchain.chain.storage.repair import FAULTS_MAX, Repair, describe_repair, repair
from fedchain.chain.storage.sqlite import Store
from fedchain.chain.storage.store import Candidate, Final, Record
from fedchain.chain.vote import VoteKind
from fedchain.crypto.hashing import sha256
from tests.support.chain.builders import ChainBuilder, payload, post
from tests.support.chain.contents import LARGE, contents
from tests.support.chain.stored import GENESIS, OWN, ask, execute

BLOCKS = 12
SMALL = b"small"


@pytest.fixture(scope="module")
def chain() -> ChainBuilder:
    builder = ChainBuilder(GENESIS)
    builder.extend_many(BLOCKS + 1)
    return builder


def records_of(chain: ChainBuilder) -> list[Record]:
    blocks = sorted(chain.blocks.values(), key=lambda block: block.header.height)
    open_block = blocks.pop()
    votes = [
        chain.vote(OWN, block, kind=kind, attempt=attempt)
        for block in blocks
        for attempt in range(3)
        for kind in (VoteKind.PREVOTE, VoteKind.PRECOMMIT)
    ]
    posts = [post(chain.key(OWN), GENESIS, number, payload(number)) for number in range(BLOCKS, 0, -1)]
    candidates = [Candidate(open_block, False), Candidate(blocks[2], True)]
    return [*map(chain.final, blocks), *candidates, *votes, *posts]


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory, chain: ChainBuilder) -> Path:
    """A closed store whose tables have inner pages."""
    folder = tmp_path_factory.mktemp("written") / "chain"
    with Store.create(folder, GENESIS) as store:
        for record in records_of(chain):
            store.append([record])
        store.append([contents(SMALL), contents(LARGE)])
    return folder


@pytest.fixture
def folder(written: Path, tmp_path: Path) -> Path:
    """A copy of it."""
    return shutil.copytree(written, tmp_path / "chain")


def held(folder: Path) -> list[object]:
    """All that a storage answers, and what lies in its tables."""
    with Store.open(folder, GENESIS) as store:
        answers = [
            store.head(),
            store.base(),
            *(store.final(height) for height in range(1, BLOCKS + 1)),
            *store.candidates(),
            *(vote for height in range(1, BLOCKS + 1) for vote in store.votes(height)),
            *store.posts(0),
            store.content(sha256(SMALL)),
            store.content(sha256(LARGE)),
        ]
    return [*answers, *ask(folder, "SELECT hash FROM candidates"), *ask(folder, "SELECT height FROM states")]


def destroy(folder: Path, *numbers: int) -> None:
    with (folder / DATABASE).open("r+b") as file:
        for number in numbers:
            file.seek((number - 1) * PAGE_SIZE)
            file.write(b"\xff" * PAGE_SIZE)


def pages_of_kind(folder: Path, *kinds: int) -> list[int]:
    data = (folder / DATABASE).read_bytes()
    return [place // PAGE_SIZE + 1 for place in range(PAGE_SIZE, len(data), PAGE_SIZE) if data[place] in kinds]


# --- nothing, or some of it


def test_a_sound_folder_is_left_as_it_is(folder: Path) -> None:
    before = held(folder), (folder / DATABASE).read_bytes()
    found = repair(folder)
    assert found == Repair(folder, ())
    assert describe_repair(found) == f"{folder}: nothing is damaged, nothing was changed"
    assert (held(folder), (folder / DATABASE).read_bytes()) == before
    assert not list(folder.parent.glob("*damaged*"))


def test_what_is_damaged_is_dropped_and_the_rest_stays(folder: Path, chain: ChainBuilder) -> None:
    before = held(folder)
    execute(folder, "UPDATE finals SET round = 7 WHERE height = 3")
    execute(folder, "UPDATE posts SET data = 7 WHERE round = 2")
    execute(folder, "UPDATE contents SET data = x'00' WHERE data IS NOT NULL")
    content_path(folder, sha256(LARGE)).write_bytes(bytes(len(LARGE)))
    gap = "block 3 is missing: the chain is kept from height 4 on, the rest is fetched again"
    found = repair(folder)
    assert (len(found.faults), found.done, found.set_aside_as) == (4, (gap,), None)
    assert describe_repair(found).splitlines() == [
        f"{folder}: 4 faults found",
        *(f"  {fault}" for fault in found.faults),
        gap,
        "what is damaged was dropped, all else is kept; start the node, it fetches what is missing",
    ]
    assert repair(folder).faults == ()
    assert not content_path(folder, sha256(LARGE)).exists()
    with Store.open(folder) as store:
        assert (store.base(), len(list(store.posts(0))), len(list(store.votes(3)))) == (4, BLOCKS - 1, 6)
        own = post(chain.key(OWN), GENESIS, 2, payload(2))
        missing = next(final for final in map(chain.final, chain.blocks.values()) if final.block.header.height == 3)
        store.append([missing, own, contents(SMALL), contents(LARGE)])
        assert store.base() == 1
    assert sorted(map(repr, held(folder))) == sorted(map(repr, before))


def test_a_head_that_cannot_be_saved_is_cut_back(folder: Path, chain: ChainBuilder) -> None:
    execute(folder, "DELETE FROM states")
    execute(folder, "UPDATE finals SET round = 7 WHERE height = 9")
    assert repair(folder).set_aside_as is None
    with Store.open(folder, read_only=True) as store:
        assert (store.height(), store.base()) == (8, 1)


def test_many_faults_are_counted(folder: Path) -> None:
    execute(folder, "UPDATE votes SET checksum = zeroblob(32)")
    found = repair(folder)
    assert len(found.faults) == 6 * BLOCKS
    assert f"  and {6 * BLOCKS - FAULTS_MAX} more" in describe_repair(found).splitlines()
    assert sum(line.startswith("  votes row") for line in describe_repair(found).splitlines()) == FAULTS_MAX
    assert repair(folder).faults == ()


# --- all of it


@pytest.mark.parametrize("kinds", [(), (0x02, 0x0A), (0x05,)], ids=["schema", "indexes", "inner pages"])
def test_a_chain_whose_database_is_broken_is_set_aside(folder: Path, chain: ChainBuilder, kinds: tuple[int]) -> None:
    destroy(folder, *(pages_of_kind(folder, *kinds) if kinds else [1]))
    damaged = (folder / DATABASE).read_bytes()
    found = repair(folder)
    aside = folder.with_name("chain.damaged-1")
    assert (found.set_aside_as, (aside / DATABASE).read_bytes()) == (aside, damaged)
    assert not folder.exists()
    assert describe_repair(found).splitlines()[-2:] == [
        f"the chain is set aside as {aside}; start the node, it joins from the network",
        "delete what is set aside when the node has caught up",
    ]
    newest = max(map(chain.final, chain.blocks.values()), key=lambda final: final.block.header.height)
    with Store.create(folder, GENESIS) as store:
        store.append([newest])
        assert (store.height(), store.base()) == (BLOCKS + 1, BLOCKS + 1)


@pytest.mark.parametrize(("is_link", "kind"), [(True, "a link"), (False, "a disk of its own")])
def test_a_link_and_a_disk_of_its_own_stay_where_they_are(
    folder: Path, is_link: bool, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The link was renamed, and the next chain came to lie on the disk that its operator had kept it from."""
    destroy(folder, 1)
    place = folder
    if is_link:
        (place := folder.with_name("linked")).symlink_to(folder)
    else:
        monkeypatch.setattr(Path, "is_mount", lambda path: path == place)
    with pytest.raises(StoreCorrupt, match=rf"not a database; {place} is {kind}, and is not set aside: move away what"):
        repair(place)
    assert sorted(path.name for path in folder.parent.iterdir()) == sorted({"chain", place.name})
    for path in folder.iterdir():  # as it says
        path.unlink() if path.is_file() else shutil.rmtree(path)
    Store.create(place, GENESIS).close()
    assert (place / DATABASE).exists()
    assert place.is_symlink() is is_link


@pytest.mark.parametrize("statement", ["DELETE FROM genesis", "DROP TABLE votes", "DROP INDEX outline"])
def test_a_table_that_is_gone_breaks_all(folder: Path, statement: str) -> None:
    execute(folder, statement)
    found = repair(folder)
    assert found.set_aside_as is not None
    assert "run: fedchain" not in describe_repair(found)


def test_each_has_a_name_of_its_own(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    names = []
    for place in (folder, Path("chain"), Path()):
        shutil.copytree(folder, copy := folder.parent / "copy")
        destroy(folder, 1)
        monkeypatch.chdir(folder if place == Path() else folder.parent)
        aside = repair(place).set_aside_as
        assert aside is not None
        assert (aside / DATABASE).exists()
        names.append(aside.name)
        copy.rename(folder)
    assert names == ["chain.damaged-1", "chain.damaged-2", "chain.damaged-3"]


@pytest.mark.long
def test_whatever_byte_is_flipped_a_chain_is_sound_or_set_aside(folder: Path, tmp_path: Path) -> None:
    original, expected, rng = (folder / DATABASE).read_bytes(), held(folder), Random(1)
    dropped = aside = 0
    for number in range(60):
        place = tmp_path / f"flipped-{number}"
        shutil.copytree(folder, place)
        damaged = bytearray(original)
        damaged[rng.randrange(len(original))] ^= 0xFF
        (place / DATABASE).write_bytes(damaged)
        if repair(place).set_aside_as is not None:
            aside += 1
            continue
        found = held(place)
        dropped += len(found) < len(expected)
        assert repair(place).faults == ()
        records = [item for item in found if not isinstance(item, int) and item is not None]
        finals = [(item.block, item.certificate) for item in records if isinstance(item, Final)]
        assert all(item in expected for item in (*finals, *records) if not isinstance(item, Final))
        assert len(records) >= len(expected) - 10
    assert dropped > 0
    assert aside > 0


# --- refusals


def test_another_version_is_not_repaired(folder: Path) -> None:
    execute(folder, "PRAGMA user_version = 1")
    with pytest.raises(StoreMismatch, match="version 1"):
        repair(folder)
    assert folder.exists()


def test_a_running_node_is_not_repaired(folder: Path) -> None:
    with Store.open(folder), pytest.raises(StoreError, match="in use by another process"):
        repair(folder)


def test_a_disk_that_refuses_is_no_damage(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*arguments: object) -> None:
        raise sqlite3.OperationalError("disk I/O error")

    monkeypatch.setattr("fedchain.chain.storage.repair.damaged_rows", refuse)
    with pytest.raises(DiskRefused, match="disk I/O error"):
        repair(folder)
    assert folder.exists()


def test_a_folder_without_a_chain_is_not_found(tmp_path: Path) -> None:
    with pytest.raises(NotFound, match="holds no chain"):
        repair(tmp_path)


@pytest.mark.parametrize("make", [os.mkfifo, Path.mkdir])
def test_something_else_in_the_database_s_place_is_told_at_once_and_set_aside(
    folder: Path, make: Callable[[Path], None]
) -> None:
    (folder / DATABASE).unlink()
    make(folder / DATABASE)
    with pytest.raises(StoreCorrupt, match="is no file; run: fedchain node repair"):
        Store.open(folder, read_only=True)
    assert repair(folder).set_aside_as is not None
