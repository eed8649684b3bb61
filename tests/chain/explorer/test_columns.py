from pathlib import Path

import pytest

from fedchain.chain.explorer.columns import Columns
from fedchain.chain.explorer.explorer import Explorer
from fedchain.chain.explorer.views import BlockSummary
from fedchain.chain.membership.change import sign_rekey
from fedchain.chain.storage.sqlite import Store
from fedchain.crypto.address import address
from tests.support.chain.builders import ChainBuilder, genesis, keys
from tests.support.chain.changes import joining, living
from tests.support.chain.explored import finals, write

GENESIS = genesis(4)


@pytest.fixture
def chain() -> ChainBuilder:
    """Five rounds; in the third the last member did not post, and a vote came late and from a fast clock."""
    builder = ChainBuilder(GENESIS)
    builder.extend_many(2)
    builder.extend(posts=builder.posts(members=GENESIS.members[:3]))
    clocks = {key.public_key: GENESIS.created_ms + 90_000 + 7 * place for place, key in enumerate(keys(4))}
    builder.extend(miner=keys(4)[3], certificate=builder.certificate(builder.tip, GENESIS.members, clock_ms=clocks))
    builder.extend()
    return builder


def summaries(columns: Columns) -> tuple[BlockSummary, ...]:
    return tuple(columns.summary(line) for line in columns.lines())[::-1]


def read(columns: Columns, store: Store) -> Explorer:
    """Read all that is in the store."""
    explorer = Explorer(store)
    assert columns.read(store, store.base(), explorer.status().height)
    return explorer


def test_the_lines_say_what_the_explorer_says(tmp_path: Path, chain: ChainBuilder) -> None:
    columns = Columns(GENESIS)
    with Store.create(tmp_path, GENESIS) as store:
        write(store, chain)
        explorer = read(columns, store)
        assert summaries(columns) == explorer.blocks(10)
        assert summaries(columns)[2].time_ms == GENESIS.created_ms + 90_007
        voters = [voter.member for record in finals(chain) for voter in explorer.block(record.block.hash.hex()).voters]
        for member in GENESIS.members:
            posts = [post for record in finals(chain) for post in record.block.transactions if post.sender == member]
            counts = columns.count(member)
            assert (counts.posts, counts.last_round) == (len(posts), posts[-1].round)
            assert counts.payload_bytes == sum(post.payload_size for post in posts)
            assert counts.blocks_mined == sum(record.block.header.miner == member for record in finals(chain))
            assert counts.votes == voters.count(address(member))


def test_new_blocks_are_added_and_what_the_next_block_says_of_the_head_is_taken(
    tmp_path: Path, chain: ChainBuilder
) -> None:
    columns, records = Columns(GENESIS), finals(chain)
    with Store.create(tmp_path, GENESIS) as store:
        for record in records:
            store.append([record])
            assert summaries(columns) == () or columns.height == record.block.header.height - 1
            assert summaries(read_columns(columns, store)) == Explorer(store).blocks(10)
        hashes = [post.hash.hex() for record in records for post in record.block.transactions]
        assert [columns.heights_of_post(item) for item in (hashes[0], hashes[-1])] == [[1], [5]]
        assert columns.heights_of_post("0" * 64) == []


def read_columns(columns: Columns, store: Store) -> Columns:
    read(columns, store)
    return columns


def test_a_long_chain_is_read_in_parts(tmp_path: Path, chain: ChainBuilder) -> None:
    columns = Columns(GENESIS)
    with Store.create(tmp_path, GENESIS) as store:
        write(store, chain)
        parts = [columns.read(store, 1, 5, 2) for _ in range(3)]
        assert parts == [False, False, True]
        assert summaries(columns) == Explorer(store).blocks(10)


def test_a_chain_that_begins_lower_or_was_cut_back_is_read_again(tmp_path: Path, chain: ChainBuilder) -> None:
    columns = Columns(GENESIS)
    with Store.create(tmp_path / "late", GENESIS) as store:
        write(store, chain, base=4)
        read(columns, store)
        assert [line.height for line in columns.lines()] == [4, 5]
        assert summaries(columns) == Explorer(store).blocks(10)
        store.append(finals(chain)[1:3])
        read(columns, store)
        assert [line.height for line in columns.lines()] == [2, 3, 4, 5]
        assert summaries(columns) == Explorer(store).blocks(10)
    other = ChainBuilder(GENESIS)
    other.extend_many(6, payload_of=3)
    with Store.create(tmp_path / "other", GENESIS) as store:
        write(store, other)
        read(columns, store)
        assert summaries(columns) == Explorer(store).blocks(10)


def test_lines_between_two_heights(tmp_path: Path, chain: ChainBuilder) -> None:
    columns = Columns(GENESIS)
    with Store.create(tmp_path, GENESIS) as store:
        write(store, chain)
        read(columns, store)
    assert [line.height for line in columns.lines(2, 4)] == [2, 3, 4]
    assert [line.height for line in columns.lines(6)] == []


def test_a_newcomer_with_a_key_that_another_member_had_once_has_counts_of_its_own(tmp_path: Path) -> None:
    chain = living()
    first, second = keys(11)[9:]
    rekey = sign_rekey(chain.key(GENESIS.members[0]), first, chain.genesis.chain_id, sequence=0, until=20)
    chain.extend(changes=[rekey])
    chain.extend_many(2)
    chain.extend(changes=[sign_rekey(first, second, chain.genesis.chain_id, sequence=1, until=20)])
    chain.extend_many(2)
    chain.extend(changes=[joining(chain, 9)])
    chain.extend_many(3)
    columns = Columns(chain.genesis)
    with Store.create(tmp_path, chain.genesis) as store:
        for record in finals(chain):  # each block is the newest one once
            store.append([record])
            read(columns, store)
    assert (columns.count(first.public_key).posts, columns.count(second.public_key).posts) == (2, 10)
    assert sorted([*columns.lines()][-1].senders) == [*range(6)]
