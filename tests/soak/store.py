"""A store whose writer is killed, and whose log is torn: ``python -m tests.soak store [--kills 200] [--seed 1]``.

*Killed*: a process appends a chain with votes, posts and contents of all sizes and acknowledges each append. It is
killed at a random moment, often while it makes or opens the store; then the folder is opened again. All that was
acknowledged must be there and intact, and every append must be there whole or not at all.

*Torn*: a kill leaves the system's page cache alone, so it says nothing about bytes that never reached the disk. Here
what SQLite's log holds after a commit, which had synced all before it, is cut off, zeroed, overwritten or lost sector
by sector, as after a power cut; everything up to that commit must be there.
"""

import argparse
import shutil
import subprocess
import sys
import time
from pathlib import Path
from random import Random
from struct import unpack_from

from fedchain.chain.exceptions import NotFound
from fedchain.chain.post import Post
from fedchain.chain.storage.contents import ROW_SIZE_MAX
from fedchain.chain.storage.sqlite import Store
from fedchain.chain.storage.store import Candidate, Contents, Final, Record
from fedchain.chain.vote import Vote
from fedchain.crypto.hashing import sha256
from fedchain.files.layout import DATABASE
from tests.soak._figures import Figures, campaign
from tests.support.chain.builders import ChainBuilder, genesis

GENESIS = genesis(3)
OWN = GENESIS.members[0]
KILLS_PER_STORE = 10
"""After so many kills a new store is begun, so that the whole of it can be read after each kill."""

LIVE_S, OPEN_S = 0.5, 0.05
"""A writer lives up to this long after it began to append, or, one time in four, after it began to open the store."""

TORN_APPENDS, TORN_CASES = 40, 200
"""Appends to the store whose log is torn (fewer than SQLite folds into its database), and ways to tear it."""

WAL_HEADER_SIZE, FRAME_HEADER_SIZE, SECTOR_SIZE = 32, 24, 512


class Appends:
    """Content of each append: the final block of its height, own statements, two contents. Always the same bytes."""

    def __init__(self) -> None:
        self._chain = ChainBuilder(GENESIS)
        self._made: list[list[Record]] = []

    def __getitem__(self, number: int) -> list[Record]:
        while len(self._made) <= number:
            self._made.append(self._make(len(self._made)))
        return self._made[number]

    def _make(self, number: int) -> list[Record]:
        block = self._chain.extend()
        small = b"small %d" % number
        large = Random(number).randbytes(ROW_SIZE_MAX + number % 3 * 40_000)  # a row as large as may be, or a file
        contents = Contents({sha256(data): data for data in (small, large)})
        (post,) = (post for post in block.transactions if post.sender == OWN)
        return [contents, Candidate(block, True), self._chain.vote(OWN, block), self._chain.final(block), post]


def write(folder: Path) -> None:
    """Go on appending where the store ends, and acknowledge each append once it has returned, until killed."""
    print("open", flush=True)
    try:
        store = Store.open(folder, GENESIS)
    except NotFound:
        store = Store.create(folder, GENESIS)
    with store:
        number, appends = height_of(store), Appends()
        records = appends[number]
        print("begin", flush=True)
        while True:
            store.append(records)
            number += 1
            print(number, flush=True)
            records = appends[number]


def height_of(store: Store) -> int:
    """How many appends are there, by the head."""
    head = store.head()
    return 0 if head is None else head.block.header.height


def read(folder: Path, appends: Appends) -> int:
    """How many appends are there. Each of them must be there as it was, and nothing of the next one."""
    with Store.open(folder, GENESIS) as store:
        count = height_of(store)
        assert store.base() == 1, f"the base is {store.base()}"
        for number in range(count):
            assert_whole(store, number + 1, appends[number], is_head=number + 1 == count)
        assert not list(store.votes(count + 1)), "half of an append"
        assert len(list(store.posts(0))) == len(list(store.own_candidates())) == count, "half of an append"
        for record in appends[count]:
            if isinstance(record, Contents):
                assert all(store.content(item) is None for item in record.by_hash), "half of an append"
        return count


def assert_whole(store: Store, height: int, records: list[Record], *, is_head: bool) -> None:
    """All that was appended for a height is there."""
    for record in records:
        match record:
            case Contents(by_hash):
                for item, data in by_hash.items():
                    assert store.content(item) == data, f"content of {len(data)} bytes"
            case Final():
                assert store.final(height) == (record.block, record.certificate), f"the block at height {height}"
                assert not is_head or store.head() == record, f"the state before height {height}"
            case Vote():
                assert list(store.votes(height)) == [record], f"the vote at height {height}"
            case Post():
                assert next(store.posts(height)) == record, f"the post of round {height}"


def kill_once(folder: Path, rng: Random) -> int | None:
    """Kill a writer at a random moment; the number of the last append that it acknowledged, None: of none."""
    command = [sys.executable, "-m", "tests.soak.store", "--write", str(folder)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as writer:
        assert writer.stdout is not None
        assert writer.stdout.readline() == "open\n"
        if rng.random() < 0.25:
            time.sleep(rng.uniform(0.0, OPEN_S))
        else:
            assert writer.stdout.readline() == "begin\n"
            time.sleep(rng.uniform(0.0, LIVE_S))
        writer.kill()
        acknowledged = [line for line in writer.stdout.read().splitlines(keepends=True) if line[:-1].isdecimal()]
    whole = [int(line) for line in acknowledged if line.endswith("\n")]
    return whole[-1] if whole else None


def killed(figures: Figures, folder: Path, kills: int, rng: Random) -> None:
    """The first half."""
    appends, acknowledged, lost, unacknowledged, early = Appends(), 0, 0, 0, 0
    before = 0
    for number in range(kills):
        place = folder / f"store-{number // KILLS_PER_STORE}"
        if number % KILLS_PER_STORE == 0:
            shutil.rmtree(folder / f"store-{number // KILLS_PER_STORE - 1}", ignore_errors=True)
            before = 0
        last = kill_once(place, rng)
        early += last is None
        try:
            held = read(place, appends)
        except NotFound:  # killed before there was a store
            held = 0
        promised = before if last is None else last
        acknowledged += promised - before
        lost += max(0, promised - held)
        unacknowledged += max(0, held - promised)
        before = held
    figures.show(f"{kills} kills, {early} of them before the first append")
    figures.require(acknowledged > kills, f"{acknowledged} appends acknowledged")
    figures.show(f"{unacknowledged} appends were whole and not acknowledged yet")
    figures.require(lost == 0, f"{lost} acknowledged appends lost")


def commit_ends(log: bytes) -> list[int]:
    """Where each commit of SQLite's log ends, in bytes from its start."""
    (page_size,) = unpack_from(">I", log, 8)
    salts, ends = log[16:24], []
    for start in range(WAL_HEADER_SIZE, len(log), FRAME_HEADER_SIZE + page_size):
        _, database_pages = unpack_from(">II", log, start)
        if log[start + 8 : start + 16] == salts and database_pages:
            ends.append(start + FRAME_HEADER_SIZE + page_size)
    return ends


def tear(log: bytes, synced: int, rng: Random) -> bytes:
    """``log`` after a power cut: the first ``synced`` bytes are sure, the others may never have been written."""
    cut = rng.randrange(synced, len(log) + 1)
    match rng.randrange(4):
        case 0:
            return log[:cut]
        case 1:
            return log[:cut] + bytes(len(log) - cut)
        case 2:
            return log[:cut] + rng.randbytes(len(log) - cut)
    torn = bytearray(log)
    for start in range(-(-synced // SECTOR_SIZE) * SECTOR_SIZE, len(log), SECTOR_SIZE):
        if rng.random() < 0.3:
            torn[start : start + SECTOR_SIZE] = bytes(len(torn[start : start + SECTOR_SIZE]))
    return bytes(torn)


def torn(figures: Figures, folder: Path, rng: Random) -> None:
    """The second half."""
    appends, original = Appends(), folder / "original"
    with Store.create(folder / "written", GENESIS) as store:
        for number in range(TORN_APPENDS):
            store.append(appends[number])
        shutil.copytree(store.folder, original)  # closing would fold the log into the database
    name = f"{DATABASE}-wal"
    log = (original / name).read_bytes()
    ends = [WAL_HEADER_SIZE, *commit_ends(log)]
    assert len(ends) == TORN_APPENDS + 1, f"{len(ends) - 1} commits in the log, {TORN_APPENDS} appends"
    lost = sure = 0
    for case in range(TORN_CASES):
        synced = rng.randrange(TORN_APPENDS + 1)
        place = folder / f"torn-{case}"
        shutil.copytree(original, place)
        (place / name).write_bytes(tear(log, ends[synced], rng))
        (place / f"{DATABASE}-shm").unlink(missing_ok=True)  # lives in memory, and a power cut ends it
        (place / "contents" / "incoming").write_bytes(rng.randbytes(rng.randrange(100_000)))
        sure += synced
        lost += max(0, synced - read(place, appends))
        shutil.rmtree(place)
    figures.show(f"{TORN_CASES} torn logs")
    figures.require(lost == 0, f"{lost} of {sure} synced appends lost")


def main() -> None:
    """Kill, tear and judge."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=200, help="how often the writer is killed")
    parser.add_argument("--seed", type=int, default=1, help="of when it is killed and how the log is torn")
    parser.add_argument("--write", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.write is not None:
        write(options.write)
    with campaign("store") as (figures, folder):
        killed(figures, folder, options.kills, Random(options.seed))
        torn(figures, folder, Random(options.seed))


if __name__ == "__main__":
    main()
