"""Who lacks blocks gets them from the fork on, oldest first."""

from functools import cache
from itertools import pairwise

import pytest
from fedchain.chain.fork_choice import BlockTree
from hypothesis import given
from hypothesis import strategies as st

from fedchain.chain.block import Block
from fedchain.crypto.hashing import Hash, sha256
from fedchain.network import sync
from fedchain.network.messages import BLOCKS_MAX, LOCATOR_MAX, GetBlocks
from fedchain.network.sync import blocks_towards, from_bitmap, locator, to_bitmap
from tests.chain.builders import ChainBuilder, genesis

LONG = 1_088
TRUNK = 20


@cache
def _chains() -> tuple[ChainBuilder, tuple[Block, ...], tuple[Block, ...]]:
    """Two branches of a one-member federation that part at height ``TRUNK``."""
    builder = ChainBuilder(genesis(1))
    long = builder.extend_many(LONG)
    short = builder.extend_many(40, long[TRUNK - 1].hash, payload_of=50)
    return builder, tuple(long), (*long[:TRUNK], *short)


def _tree(blocks: tuple[Block, ...], *, accepted: bool = True) -> BlockTree:
    builder, _, _ = _chains()
    tree = BlockTree(builder.genesis)
    for block in blocks:
        tree.add_block(block)
    if accepted and blocks:
        for vote in builder.votes(blocks[-1].hash):
            tree.add_vote(vote)
    return tree


# --- locators


def test_a_locator_of_a_new_peer_is_the_root() -> None:
    tree = _tree(())
    assert locator(tree) == (tree.root,)


@pytest.mark.parametrize("height", [1, 2, 9, 10, 11, 12, 13, 40, 300])
def test_a_locator_has_ten_in_a_row_and_then_doubles(height: int) -> None:
    _, long, _ = _chains()
    tree = _tree(long[:height])
    heights = [state.height for item in locator(tree) if (state := tree.state(item)) is not None]
    assert heights[0] == height
    assert heights[-1] == 0
    steps = [above - below for above, below in pairwise(heights)]
    assert steps[:10] == [1] * min(10, height)
    for number, step in enumerate(steps[10:-1]):
        assert step == 2 ** (number + 1)
    assert all(step > 0 for step in steps)


def test_a_locator_is_bounded() -> None:
    _, long, _ = _chains()
    tree = _tree(long)
    assert len(locator(tree)) == 11 + 9 + 1 <= LOCATOR_MAX
    assert len(set(locator(tree))) == len(locator(tree))


def test_a_locator_never_gets_longer_than_a_message_allows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sync, "LOCATOR_MAX", 8)
    _, long, _ = _chains()
    tree = _tree(long[:50])
    hashes = locator(tree)
    assert len(hashes) == 8
    assert hashes[-1] == tree.root


# --- blocks


def test_a_long_chain_comes_in_batches_from_the_start() -> None:
    _, long, _ = _chains()
    source, asker = _tree(long), BlockTree(_chains()[0].genesis)
    batches = 0
    while asker.head.block_hash != long[-2].hash:
        batch = blocks_towards(source, GetBlocks(locator(asker), long[-1].hash))
        assert [block.header.height for block in batch] == [
            height + 1 for height in range(batches * BLOCKS_MAX, (batches + 1) * BLOCKS_MAX)
        ]
        for block in batch:
            asker.add_block(block)
        for vote in source.votes(batch[-1].hash).values():
            asker.add_vote(vote)
        batches += 1
        if batches == LONG // BLOCKS_MAX:
            break
    assert batches == LONG // BLOCKS_MAX
    assert asker.head.block_hash == long[-1].hash
    assert blocks_towards(source, GetBlocks(locator(asker), long[-1].hash)) == []


def test_who_is_on_a_fork_gets_blocks_from_near_the_fork() -> None:
    _, long, fork = _chains()
    source, asker = _tree(long), _tree(fork)
    batch = blocks_towards(source, GetBlocks(locator(asker), long[-1].hash))
    assert len(batch) == BLOCKS_MAX
    first = batch[0].header.height
    assert first <= TRUNK + 1, "the asker would not know the first block's parent"
    assert batch[0].header.parent_hash in asker
    assert batch[-1].header.height > TRUNK, "the asker would not get on"
    for before, after in pairwise(batch):
        assert after.header.parent_hash == before.hash


def test_blocks_of_a_fork_are_served_too() -> None:
    _, long, fork = _chains()
    source = _tree(long)
    for block in fork[TRUNK:]:
        source.add_block(block)
    assert source.head.block_hash == long[-1].hash
    known = tuple(block.hash for block in long[TRUNK - 3 : TRUNK])
    assert blocks_towards(source, GetBlocks(known, fork[-1].hash)) == list(fork[TRUNK : TRUNK + BLOCKS_MAX])
    # From the trunk into the fork within one batch.
    early = (long[TRUNK - 6].hash, source.root)
    assert blocks_towards(source, GetBlocks(early, fork[-1].hash)) == list(fork[TRUNK - 5 : TRUNK + 11])
    # From inside the fork.
    inside = (fork[TRUNK + 4].hash, long[3].hash)
    assert blocks_towards(source, GetBlocks(inside, fork[TRUNK + 7].hash)) == list(fork[TRUNK + 5 : TRUNK + 8])


def test_what_the_asker_knows_above_the_stop_does_not_matter() -> None:
    _, long, _ = _chains()
    source = _tree(long)
    assert blocks_towards(source, GetBlocks((long[30].hash, long[3].hash), long[9].hash)) == list(long[4:10])


def test_an_unknown_stop_and_an_unknown_locator() -> None:
    _, long, _ = _chains()
    source = _tree(long)
    assert blocks_towards(source, GetBlocks(locator(source), sha256(b"elsewhere"))) == []
    assert blocks_towards(source, GetBlocks((sha256(b"elsewhere"),), long[3].hash)) == list(long[:4])
    assert blocks_towards(source, GetBlocks((), source.root)) == []


class _CountingTree(BlockTree):
    looked = 0

    def state(self, block_hash: Hash):  # type: ignore[no-untyped-def]
        self.looked += 1
        return super().state(block_hash)


def test_serving_a_batch_does_not_walk_the_whole_chain() -> None:
    builder, long, _ = _chains()
    tree = _CountingTree(builder.genesis)
    for block in long:
        tree.add_block(block)
    tree.looked = 0
    assert len(blocks_towards(tree, GetBlocks((), long[-2].hash))) == BLOCKS_MAX
    assert tree.looked < 2 * LOCATOR_MAX, f"{tree.looked} states looked at for {BLOCKS_MAX} blocks"


# --- bitmaps


@given(st.sets(st.integers(0, 99)))
def test_a_bitmap_marks_what_was_marked(places: set[int]) -> None:
    bitmap = to_bitmap(places, 100)
    assert len(bitmap) == 13
    assert list(from_bitmap(bitmap, 100)) == sorted(places)


@given(st.binary(max_size=40), st.integers(0, 100))
def test_any_bytes_are_a_bitmap(bitmap: bytes, size: int) -> None:
    places = list(from_bitmap(bitmap, size))
    assert all(0 <= place < size for place in places)
    assert places == sorted(set(places))


def test_the_first_member_is_the_lowest_bit() -> None:
    assert to_bitmap([0, 9], 10) == b"\x01\x02"


def test_a_huge_bitmap_is_not_looked_at_beyond_the_members() -> None:
    assert list(from_bitmap(b"\xff" * 2**20, 3)) == [0, 1, 2]
