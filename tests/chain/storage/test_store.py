"""The conformance suite of storages, which the one in memory and the one on disk pass."""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import pytest

from fedchain.chain.block import Block
from fedchain.chain.certificate import Certificate
from fedchain.chain.light.light_block import LightBlock
from fedchain.chain.post import Post
from fedchain.chain.storage.contents import ROW_SIZE_MAX
from fedchain.chain.storage.sqlite import Store
from fedchain.chain.storage.store import Candidate, Final, MemoryStore, Record, Storage
from fedchain.chain.vote import Vote, VoteKind
from fedchain.crypto.hashing import Hash, sha256
from fedchain.files.spool import InMemory, Spools
from tests.support.campaigns import some
from tests.support.chain.builders import ChainBuilder, genesis, payload, post
from tests.support.chain.changes import living
from tests.support.chain.contents import LARGE, contents
from tests.support.chain.light import light

GENESIS = genesis(4)
OWN = GENESIS.members[0]


def finals(chain: ChainBuilder, count: int) -> list[Final]:
    return [chain.final(block) for block in chain.extend_many(count)]


@pytest.fixture
def chain() -> ChainBuilder:
    return ChainBuilder(GENESIS)


@pytest.fixture(params=["memory", "disk", "disk reopened before every call"])
def storage(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Storage]:
    if request.param == "memory":
        yield MemoryStore()
    elif request.param == "disk":
        with Store.create(tmp_path / "chain", GENESIS) as store:
            yield store
    else:
        yield Reopening(tmp_path / "chain")


class Reopening:
    """A storage whose process dies politely after every call."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        Store.create(folder, GENESIS).close()

    @property
    def spools(self) -> Spools:
        return InMemory

    def append(self, records: Sequence[Record]) -> None:
        with Store.open(self.folder, GENESIS) as store:
            store.append(records)

    def head(self) -> Final | None:
        with Store.open(self.folder, GENESIS) as store:
            return store.head()

    def base(self) -> int:
        with Store.open(self.folder, GENESIS) as store:
            return store.base()

    def final(self, height: int) -> tuple[Block, Certificate] | None:
        with Store.open(self.folder, GENESIS) as store:
            return store.final(height)

    def light_below(self, height: int) -> LightBlock | None:
        with Store.open(self.folder, GENESIS) as store:
            return store.light_below(height)

    def light_above(self, height: int) -> LightBlock | None:
        with Store.open(self.folder, GENESIS) as store:
            return store.light_above(height)

    def candidates(self) -> Iterator[Block]:
        with Store.open(self.folder, GENESIS) as store:
            return store.candidates()

    def votes(self, height: int) -> Iterator[Vote]:
        with Store.open(self.folder, GENESIS) as store:
            return store.votes(height)

    def posts(self, round_number: int) -> Iterator[Post]:
        with Store.open(self.folder, GENESIS) as store:
            return store.posts(round_number)

    def content(self, content_hash: bytes) -> bytes | None:
        with Store.open(self.folder, GENESIS) as store:
            return store.content(content_hash)

    def holds_content(self, content_hash: Hash) -> bool:
        with Store.open(self.folder, GENESIS) as store:
            return store.holds_content(content_hash)

    def content_part(self, content_hash: bytes, start: int, size: int) -> bytes | None:
        with Store.open(self.folder, GENESIS) as store:
            return store.content_part(content_hash, start, size)

    def retain(self, needed: Collection[bytes]) -> None:
        with Store.open(self.folder, GENESIS) as store:
            store.retain(needed)

    def size_bytes(self) -> int:
        with Store.open(self.folder, GENESIS) as store:
            return store.size_bytes()


def test_an_empty_storage_holds_nothing(storage: Storage) -> None:
    assert (storage.head(), storage.base(), storage.final(0), storage.final(1)) == (None, 1, None, None)
    assert [*storage.candidates(), *storage.votes(1), *storage.posts(0)] == []
    assert storage.content(sha256(b"")) is None
    assert storage.content_part(sha256(b""), 0, 1) is None


# --- final blocks


def test_the_head_is_the_highest_final_block_with_the_state_before_it(storage: Storage, chain: ChainBuilder) -> None:
    records = finals(chain, 3)
    for record in records:
        storage.append([record])
        assert storage.head() == record
    assert storage.base() == 1


def test_final_blocks_are_found_by_their_height(storage: Storage, chain: ChainBuilder) -> None:
    records = finals(chain, 4)
    storage.append(records)
    for record in records:
        assert storage.final(record.block.header.height) == (record.block, record.certificate)
    assert storage.final(5) is None
    assert storage.head() == records[-1]


def test_a_height_keeps_its_first_certificate(storage: Storage, chain: ChainBuilder) -> None:
    first, second = finals(chain, 2)
    storage.append([first, second])
    for record in (first, second):
        other = chain.certificate(record.block, GENESIS.members[1:])
        storage.append([replace(record, certificate=other)])
        assert storage.final(record.block.header.height) == (record.block, record.certificate)
    assert storage.head() == second


def test_who_joins_late_has_a_higher_base(storage: Storage, chain: ChainBuilder) -> None:
    records = finals(chain, 6)
    storage.append([records[3]])
    assert (storage.base(), storage.head()) == (4, records[3])
    storage.append(records[4:])
    assert (storage.base(), storage.head(), storage.final(3)) == (4, records[5], None)


def test_the_base_goes_down_as_older_blocks_are_fetched(storage: Storage, chain: ChainBuilder) -> None:
    records = finals(chain, 6)
    older = [replace(record, state=b"") for record in records[:4]]
    storage.append(records[4:])
    storage.append([older[3]])
    assert storage.base() == 4
    storage.append(older[:2])
    assert storage.base() == 4, "3 is missing between them"
    storage.append([older[2]])
    assert (storage.base(), storage.head()) == (1, records[5])
    assert [storage.final(height) for height in range(1, 7)] == [(item.block, item.certificate) for item in records]


def test_a_gap_below_a_new_head_raises_the_base_until_it_is_filled(storage: Storage, chain: ChainBuilder) -> None:
    records = finals(chain, 5)
    storage.append(records[:2])
    storage.append([records[4]])
    assert (storage.base(), storage.head()) == (5, records[4])
    assert storage.final(1) == (records[0].block, records[0].certificate)
    storage.append([replace(record, state=b"") for record in reversed(records[2:4])])
    assert storage.base() == 1


# --- candidates


def test_candidates_are_open_until_their_height_is_final(storage: Storage, chain: ChainBuilder) -> None:
    first = chain.extend()
    rivals = [chain.extend(first.header.parent_hash, payload_of=number) for number in (5, 6)]
    storage.append([Candidate(first, False), Candidate(rivals[0], True)])
    storage.append([Candidate(rivals[1], False)])
    assert list(storage.candidates()) == [first, *rivals]
    storage.append([chain.final(first)])
    assert list(storage.candidates()) == []


def test_candidates_above_a_new_head_stay(storage: Storage, chain: ChainBuilder) -> None:
    first, second = chain.extend_many(2)
    storage.append([Candidate(second, False), Candidate(first, False), chain.final(first)])
    assert list(storage.candidates()) == [second]
    storage.append([chain.final(second), Candidate(first, False), Candidate(second, True)])
    assert list(storage.candidates()) == []


# --- own statements


def test_own_votes_come_in_the_order_in_which_they_were_signed(storage: Storage, chain: ChainBuilder) -> None:
    block = chain.extend()
    votes = [
        chain.vote(OWN, block, kind=kind, attempt=attempt)
        for attempt in (0, 1)
        for kind in (VoteKind.PREVOTE, VoteKind.PRECOMMIT)
    ]
    later = chain.vote(OWN, chain.extend())
    storage.append([votes[3], votes[0], later])
    storage.append([votes[2], votes[1]])
    assert list(storage.votes(1)) == votes
    assert list(storage.votes(2)) == [later]


def test_own_posts_are_found_from_their_round_on(storage: Storage, chain: ChainBuilder) -> None:
    key = chain.key(OWN)
    posts = [post(key, GENESIS, number, payload(number)) for number in (1, 2, 3)]
    storage.append(posts)
    assert list(storage.posts(0)) == posts
    assert list(storage.posts(2)) == posts[1:]
    assert list(storage.posts(4)) == []


def test_a_phase_keeps_its_first_post(storage: Storage, chain: ChainBuilder) -> None:
    first, second = (post(chain.key(OWN), GENESIS, 1, payload(number)) for number in (1, 2))
    storage.append([first])
    storage.append([second])
    assert list(storage.posts(1)) == [first]


def test_own_statements_are_kept_for_ever(storage: Storage, chain: ChainBuilder) -> None:
    blocks = chain.extend_many(3)
    votes = [chain.vote(OWN, block) for block in blocks]
    storage.append([*votes, *blocks[0].transactions, *(chain.final(block) for block in blocks)])
    storage.retain(())
    assert [vote for height in (1, 2, 3) for vote in storage.votes(height)] == votes
    assert list(storage.posts(1)) == list(blocks[0].transactions)


def test_appending_known_records_changes_nothing(storage: Storage, chain: ChainBuilder) -> None:
    final, open_block = chain.final(chain.extend()), chain.extend()
    vote = chain.vote(OWN, open_block)
    records: list[Record] = [final, Candidate(open_block, True), vote, contents(b"small"), contents(LARGE)]
    records += open_block.transactions
    for _ in range(2):
        storage.append([*records, *records])
        assert (storage.head(), list(storage.candidates()), list(storage.votes(2))) == (final, [open_block], [vote])
        assert list(storage.posts(2)) == list(open_block.transactions)
        assert (storage.content(sha256(b"small")), storage.content(sha256(LARGE))) == (b"small", LARGE)


# --- contents


@pytest.mark.parametrize("size", [0, 1, ROW_SIZE_MAX, ROW_SIZE_MAX + 1])
def test_content_of_any_size_comes_back(storage: Storage, size: int) -> None:
    data = b"x" * size
    assert storage.content(sha256(data)) is None
    storage.append([contents(data)])
    assert storage.content(sha256(data)) == data


@pytest.mark.parametrize("kind", ["memory", "disk"])
def test_light_blocks_are_found_by_the_nearest_height_and_a_damaged_one_is_not_held(tmp_path: Path, kind: str) -> None:
    chain = living(4)
    blocks = chain.extend_many(9)
    lights = {height: light(chain, blocks[height - 1].hash) for height in (2, 5, 9)}
    storage: Storage = MemoryStore() if kind == "memory" else Store.create(tmp_path / "chain", chain.genesis)
    storage.append([*lights.values(), lights[5].alone()])  # the first one stays
    assert [storage.light_below(height) for height in (1, 2, 4, 5, 99)] == [None, *(lights[k] for k in (2, 2, 5, 9))]
    assert storage.light_below(2**64) == lights[9]
    assert storage.light_above(2**64) is None
    assert [storage.light_above(height) for height in (0, 2, 8, 9)] == [*(lights[k] for k in (2, 5, 9)), None]
    if isinstance(storage, Store):
        assert list(storage.damage()) == []
        storage._writer.execute("UPDATE lights SET data = ? WHERE height = 5", (lights[9].encode(),))
        assert storage.light_below(5) is None
        assert any("lights row with height 5" in fault for fault in storage.damage())
        storage.close()


def test_a_content_is_read_in_parts(storage: Storage) -> None:
    storage.append([contents(b"small"), contents(LARGE)])
    for _ in range(2):  # the first part of a file checks it whole
        assert storage.content_part(sha256(LARGE), 3, 5) == LARGE[3:8]
    assert storage.content_part(sha256(LARGE), len(LARGE) - 2, 100) == LARGE[-2:]
    assert storage.content_part(sha256(b"small"), 1, 3) == b"mal"
    assert storage.content_part(sha256(b"other"), 0, 3) is None
    storage.retain(set())
    assert storage.content_part(sha256(LARGE), 3, 5) is None


def test_what_is_not_needed_is_dropped_and_the_rest_stays(storage: Storage, chain: ChainBuilder) -> None:
    final = chain.final(chain.extend())
    storage.append([final, contents(b"small"), contents(b"needed"), contents(LARGE), contents(LARGE + b"2")])
    storage.retain({sha256(b"needed"), sha256(LARGE + b"2"), sha256(b"not here")})
    assert storage.content(sha256(b"small")) is None
    assert storage.content(sha256(LARGE)) is None
    assert storage.content(sha256(b"needed")) == b"needed"
    assert storage.content(sha256(LARGE + b"2")) == LARGE + b"2"
    assert storage.head() == final
    storage.append([contents(LARGE)])
    assert storage.content(sha256(LARGE)) == LARGE, "what was dropped can be stored again"


def test_the_size_is_about_that_of_what_is_kept(storage: Storage) -> None:
    before = storage.size_bytes()
    storage.append([contents(LARGE), contents(b"x" * 50_000)])
    grown = storage.size_bytes() - before
    assert len(LARGE) + 45_000 <= grown <= 2 * (len(LARGE) + 50_000)
    storage.retain(())
    assert storage.size_bytes() <= before + grown - len(LARGE)


# --- one storage like the other


def answers(storage: Storage, contents: Sequence[bytes]) -> list[object]:
    """All that a storage says."""
    heights = range(STEPS + 2)
    return [
        storage.head(),
        storage.base(),
        *(storage.final(height) for height in heights),
        list(storage.candidates()),
        *(list(storage.votes(height)) for height in heights),
        *(list(storage.posts(height)) for height in heights),
        *(storage.content(sha256(data)) for data in contents),
        *(storage.content_part(sha256(data), 1, 3) for data in contents),
    ]


STEPS = 12
"""Heights of the chain of which random records are appended."""


@pytest.mark.long
@pytest.mark.parametrize("seed", some(range(12), first=4))
def test_the_disk_says_what_the_memory_says(tmp_path: Path, seed: int) -> None:
    rng, chain = Random(seed), ChainBuilder(GENESIS)
    blocks = chain.extend_many(STEPS)
    rivals = [chain.extend(block.header.parent_hash, payload_of=50) for block in blocks]
    data = [b"a", b"bb", LARGE, LARGE + b"2"]
    memory = MemoryStore()
    disk = Store.create(tmp_path / "chain", GENESIS)

    def any_record() -> Record:
        block = rng.choice(blocks)
        match rng.randrange(6):
            case 0 | 1:
                return chain.final(block)
            case 2:
                return Candidate(rng.choice((block, rng.choice(rivals))), rng.random() < 0.5)
            case 3:
                return chain.vote(OWN, block, kind=rng.choice(list(VoteKind)), attempt=rng.randrange(3))
            case 4:
                return post(chain.key(OWN), GENESIS, rng.randint(1, STEPS), payload(rng.randrange(2)))
            case _:
                return contents(rng.choice(data))

    for _ in range(25):
        if rng.random() < 0.2:
            needed = {sha256(item) for item in data if rng.random() < 0.5}
            memory.retain(needed)
            disk.retain(needed)
        else:
            records = [any_record() for _ in range(rng.randint(1, 3))]
            memory.append(records)
            disk.append(records)
        if rng.random() < 0.3:
            disk.close()
            disk = Store.open(tmp_path / "chain", GENESIS)
        assert answers(disk, data) == answers(memory, data)
    disk.close()


# --- many storages in one process


def test_storages_with_one_pool_hold_one_copy_of_what_is_equal(chain: ChainBuilder) -> None:
    pool: dict[bytes, Any] = {}
    one, other = MemoryStore(pool), MemoryStore(pool)
    final = chain.final(chain.extend())
    copy = replace(final, block=Block.from_record(final.block.to_record()))
    assert copy.block is not final.block
    one.append([final])
    other.append([copy])
    assert [store.final(1)[0] is final.block for store in (one, other)] == [True, True]  # type: ignore[index]


def test_a_block_with_another_signature_is_not_taken_from_the_pool(chain: ChainBuilder) -> None:
    pool: dict[bytes, Any] = {}
    one, other = MemoryStore(pool), MemoryStore(pool)
    final = chain.final(chain.extend())
    forged = replace(final, block=replace(final.block, signature=bytes(64)))
    one.append([final])
    other.append([forged])
    assert other.final(1) == (forged.block, forged.certificate)
