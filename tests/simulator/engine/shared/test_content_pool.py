"""One copy of each content on the machine, however many simulated peers hold it."""

import tempfile
import tracemalloc
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from fedchain.chain.knowledge import Occasion
from fedchain.crypto.hashing import Hash, sha256
from fedchain.crypto.keys import PublicKey
from fedchain.learning.executors.executor import Answer, Job, Question
from fedchain.learning.executors.inline import Done
from fedchain.node.core.parts import Conduct
from fedchain.simulator.engine.shared import content_pool
from fedchain.simulator.engine.shared.content_pool import LARGE_SIZE, ContentPool
from tests.support.simulator.trivial import (
    TrivialExecutor,
    TrivialRules,
    contribution,
    trivial_scenario,
    trivial_simulation,
)


def _large(first: int) -> bytes:
    return bytes([first]) * LARGE_SIZE


def _put(pool: ContentPool, first: int) -> Hash:
    """Put a content that nobody holds afterwards."""
    pool.intern(bytes([first]), _large(first))
    return bytes([first])


@pytest.fixture
def pool(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[ContentPool]:
    """A pool that looks at every large content who holds the others, and whose folder is made below a known one."""
    monkeypatch.setattr(content_pool, "SWEEP_SIZE", LARGE_SIZE - 1)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    pool = ContentPool()
    yield pool
    pool.close()


def test_equal_contents_of_many_peers_are_one_object_as_long_as_anybody_holds_it(pool: ContentPool) -> None:
    first, equal = _large(1), _large(1)
    assert pool.intern(b"\x01", first) is first
    for other in range(2, 20):
        _put(pool, other)
    assert pool.intern(b"\x01", equal) is first
    view = memoryview(first)
    del first
    _put(pool, 20)
    assert view.obj is pool.intern(b"\x01", equal), "who holds a view holds the content"
    view.release()
    _put(pool, 21)
    assert pool.intern(b"\x01", equal) is equal, "nobody held the other one"


def test_what_nobody_holds_is_dropped_at_the_next_large_content(pool: ContentPool) -> None:
    for number in range(1, 10):
        _put(pool, number)
    assert len(pool._contents) <= 2


def test_what_only_storages_keep_waits_in_a_file_until_the_last_of_them_drops_it(
    pool: ContentPool, tmp_path: Path
) -> None:
    one, other = pool.shelf(), pool.shelf()
    for shelf in (one, other):
        shelf[b"\x01"], shelf[b"small"] = _large(1), b"few bytes"
    _put(pool, 2)
    (folder,) = tmp_path.iterdir()
    (file,) = folder.iterdir()
    assert b"\x01" not in pool._contents
    assert file.read_bytes() == one[b"\x01"] == other[b"\x01"] == _large(1)
    assert one[b"\x01"] is other[b"\x01"]
    assert (list(one), len(one), b"\x02" in one) == ([b"small", b"\x01"], 2, False)
    del one[b"\x01"]
    assert file.exists()
    assert other[b"\x01"] == _large(1)
    del other[b"\x01"]
    assert not file.exists()
    with pytest.raises(KeyError):
        other[b"\x01"]
    pool.close()
    assert not folder.exists()


def test_what_many_storages_keep_together_is_one_batch_until_one_of_them_drops_a_part_of_it(pool: ContentPool) -> None:
    of_block = {b"one": b"1", b"two": b"2"}
    shelves = [pool.shelf() for _ in range(3)]
    for shelf in shelves:
        shelf.update({key: bytes(bytearray(data)) for key, data in of_block.items()})
        shelf.update({b"three": b"3", b"two": b"2"})
    first, second, third = shelves
    assert len({id(batch) for shelf in shelves for batch in shelf._batches}) == 2
    assert dict(first) == of_block | {b"three": b"3"}
    assert len(first) == 3
    del second[b"two"]
    assert dict(second) == {b"one": b"1", b"three": b"3"}
    with pytest.raises(KeyError):
        second[b"two"]
    assert b"two" not in second
    assert dict(first) == dict(third) == of_block | {b"three": b"3"}
    first[b"one"] = b"changed"
    assert (first[b"one"], third[b"one"]) == (b"changed", b"1"), "a storage may be damaged alone"
    shelves.clear()
    del first, second, third, shelf
    assert not pool._batches, "what no storage keeps is gone"


def test_contents_that_differ_are_never_one_batch(pool: ContentPool) -> None:
    right, wrong = pool.shelf(), pool.shelf()
    wrong.update({b"one": b"damaged"})
    right.update({b"one": b"1"})
    assert (right[b"one"], wrong[b"one"]) == (b"1", b"damaged")


def test_what_many_nodes_hold_together_is_one_object_unless_storages_keep_some_of_it_in_files(
    pool: ContentPool,
) -> None:
    hashes, contents = (b"one", b"two"), [b"1", b"2"]
    together = pool.together(hashes, contents)
    assert together == {b"one": b"1", b"two": b"2"}
    assert pool.together(hashes, iter([b"1", bytes(bytearray(b"2"))])) is together
    shelf = pool.shelf()
    shelf.update(together)
    assert shelf._batches == [together]
    shelf.update({b"large": _large(1), b"two": b"2"})
    assert shelf._batches == [together]
    _put(pool, 2)
    assert b"large" not in pool._contents, "the shelf alone keeps it"
    assert shelf[b"large"] == _large(1)


def test_a_part_is_a_view_of_the_one_copy_where_it_says_the_same(pool: ContentPool) -> None:
    whole = _large(1) + b"end"
    pool.intern(b"\x01", whole)
    part = pool.share(b"\x01", LARGE_SIZE, b"end")
    assert isinstance(part, memoryview)
    assert part.obj is whole
    assert part == b"end"
    for start, data in (
        (LARGE_SIZE, b"And"),
        (LARGE_SIZE - 1, b"end"),
        (LARGE_SIZE + 1, b"nd."),
        (2 * LARGE_SIZE, b"e"),
    ):
        assert pool.share(b"\x01", start, data) is data
    unknown = b"end"
    assert pool.share(b"\x02", 0, unknown) is unknown


@pytest.mark.long
@pytest.mark.parametrize("shared", [True, False])
def test_large_contents_do_not_multiply_with_the_peers(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, shared: bool
) -> None:
    """Six peers post, fetch, check, store and aggregate 2 MiB each: a round's posts are in memory once."""
    monkeypatch.setattr(content_pool, "SWEEP_SIZE", 2 * LARGE_SIZE)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr("fedchain.simulator.engine.peer.Conduct", partial(Conduct, recent_size_max=0))
    hashed = list[Hash]()

    def hashing(data: bytes) -> Hash:
        hashed.append(sha256(data))
        return hashed[-1]

    monkeypatch.setattr(content_pool, "sha256", hashing)
    peers, rounds, size = 6, 2, 2 * LARGE_SIZE
    small = len(contribution(0, 1, b"").payload)

    class LargeRules(TrivialRules):
        def check(self, occasion: Occasion, sender: PublicKey, knowledge: bytes, payload: bytes) -> None:
            super().check(occasion, sender, knowledge[:-size], payload[:small])

        def aggregate(self, occasion: Occasion, knowledge: bytes, posts: Sequence[tuple[PublicKey, bytes]]) -> bytes:
            parts = [(who, data[:small]) for who, data in posts]
            left = super().aggregate(occasion, knowledge[:-size], parts)
            return left + occasion.round.to_bytes(1) * size

    class LargeExecutor(TrivialExecutor):
        def ask(self, question: Question) -> Job[Answer]:
            made = contribution(question.client, question.round, question.knowledge)
            filling = sha256(made.payload) * (size // 32)
            return Done(replace(made, payload=made.payload + filling))

    scenario = trivial_scenario(peers=peers, rounds=rounds)
    simulation = trivial_simulation(
        scenario,
        rules=LargeRules(),
        executor=LargeExecutor(),
        founded={"payload_size_max": 2 * size},
        shares_checks=shared,
    )
    tracemalloc.start()
    outcome = simulation.run()
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert len(hashed) == len(set(hashed)) == (peers * rounds if shared else 0), "for all peers once, or by each"
    assert outcome.violations == []
    assert [row.posts for row in outcome.rows] == [peers] * rounds
    assert list(tmp_path.iterdir()) == []
    assert peak < 2.5 * peers * size, "each peer with a copy of its own holds as much of each round"


def test_a_content_is_known_by_its_hash_as_long_as_anybody_holds_it(pool: ContentPool) -> None:
    content, wrong = _large(1), _large(2)
    held = pool.intern(sha256(content), content)
    pool.intern(bytes(32), wrong)
    assert pool.known(sha256(content)) is held
    assert pool.known(bytes(32)) is None, "whoever put it there"
    assert pool.known(sha256(wrong)) is None
    del held, content
    for other in range(3, 6):
        _put(pool, other)
    assert pool.known(sha256(_large(1))) is None
    pool.intern(sha256(_large(1)), wrong)
    assert pool.known(sha256(_large(1))) is None, "what was hashed is gone"


def test_where_nothing_is_shared_each_peer_hashes() -> None:
    alone = ContentPool(hashes_once=False)
    content = _large(1)
    alone.intern(sha256(content), content)
    assert alone.known(sha256(content)) is None
