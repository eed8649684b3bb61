"""A store keeps what the blocks of its retention window need: enough for others to replay them, and no more."""

from collections import Counter

import pytest

from fedchain.chain.block import Block
from fedchain.chain.certificate import Certificate
from fedchain.chain.storage.store import MemoryStore
from fedchain.crypto.hashing import Hash
from fedchain.node.core.contents.retention import Window, contents_in_order, contents_of
from fedchain.node.core.contents.sweeping import next_sweep
from fedchain.node.core.voting.twins import LISTENING_MS
from tests.support.chain.builders import ChainBuilder, genesis
from tests.support.node.driver import Federation
from tests.support.node.stage import Stage

WINDOW, ROUNDS, LATE = 16, 40, 3


@pytest.mark.long
def test_a_newcomer_replays_the_whole_window_of_a_federation_that_has_ended() -> None:
    """The window is larger than what peers have in memory. All that its oldest block stands on has to be there, too."""
    federation = Federation(genesis(4, retention_blocks=WINDOW, rounds=ROUNDS), silent=[LATE])
    federation.run_to_height(ROUNDS, 90 + 60 * ROUNDS)
    late = federation.peers[LATE]
    late.replays = True
    federation.restart(LATE)
    federation.run(lambda: late.node.head.finished and late.node.knowledge() is not None, 120)
    assert late.node.knowledge() == federation.peers[0].node.knowledge()


def test_a_sweep_keeps_the_payload_of_a_post_that_is_promised_for_the_phase_it_opens() -> None:
    """A store that lost its newest block, or came from a backup, is behind what its member has posted since."""
    stage = Stage(genesis(4, retention_blocks=WINDOW))
    blocks = stage.accept(2 * WINDOW)
    (said,) = [post for post in stage.victim.posts() if post.round == 2 * WINDOW + 1]
    behind = MemoryStore(contents=stage.victim.store._contents)
    behind.append([stage.chain.final(block) for block in blocks[:-1]])
    stage.victim.store = behind
    stage.restart()
    stage.final(blocks[-1])
    assert stage.node.head.height == 2 * WINDOW, "a height at which the store is swept"
    before = len(stage.victim.posts())
    stage.restart()
    stage.wait(LISTENING_MS / 1_000)
    assert stage.victim.posts()[before:] == [said], "it is said again, since its payload is there"


@pytest.mark.parametrize("height", [2 * WINDOW, 2 * WINDOW + 2])
def test_a_sweep_keeps_the_window_and_what_its_oldest_block_stands_on(height: int) -> None:
    stage = Stage(genesis(4, retention_blocks=WINDOW))
    blocks = stage.accept(height)
    store: MemoryStore = stage.victim.store

    def kept(*contents: Hash) -> list[bool]:
        return [store.content(item) is not None for item in contents]

    oldest, before, forgotten = blocks[-WINDOW], blocks[-WINDOW - 1], blocks[-WINDOW - 2]
    assert all(kept(oldest.header.knowledge_root, *(post.payload_hash for post in oldest.transactions)))
    assert kept(before.header.knowledge_root) == [True], "the oldest block adds to it"
    assert not any(kept(forgotten.header.knowledge_root, *(post.payload_hash for post in forgotten.transactions)))


def test_contents_are_in_the_order_in_which_they_are_preferred() -> None:
    chain = ChainBuilder(genesis(4))
    first, second, third = chain.extend_many(3)
    own = [(block.header.knowledge_root, *block.payload_hashes) for block in (first, second, third)]
    assert contents_in_order([first, second, third]) == tuple(dict.fromkeys((*own[2], *own[1], *own[0])))
    assert contents_in_order([second]) == tuple(dict.fromkeys(own[1]))
    assert contents_in_order([third, first]) == tuple(dict.fromkeys((*own[0], *own[2])))


def test_a_sweep_reads_no_block_that_its_node_saw_final(monkeypatch: pytest.MonkeyPatch) -> None:
    """A thousand blocks take a second or more, and the node answers nobody meanwhile."""
    stage, read = Stage(genesis(4, retention_blocks=WINDOW)), list[int]()
    final, store = MemoryStore.final, stage.victim.store

    def count(self: MemoryStore, height: int) -> tuple[Block, Certificate] | None:
        read.extend([height] if self is store else [])
        return final(self, height)

    monkeypatch.setattr(MemoryStore, "final", count)
    stage.accept(2 * WINDOW)
    assert read == []


class Chain:
    """Final blocks by height, and how often each is asked for."""

    def __init__(self, count: int) -> None:
        self.asked = Counter[int]()
        builder = ChainBuilder(genesis(4))
        self.blocks = dict(enumerate(builder.extend_many(count), start=1))
        self.missing = set[int]()
        self._certificate = builder.certificate(self.blocks[1].hash)

    def final(self, height: int) -> tuple[Block, Certificate] | None:
        self.asked[height] += 1
        return None if height in self.missing else (self.blocks[height], self._certificate)

    def contents(self, places: range) -> set[Hash]:
        return contents_of(self.blocks[place] for place in places if place not in self.missing)


def test_blocks_of_before_a_restart_are_read_a_few_at_each_head() -> None:
    chain, places = Chain(40), range(8, 41)
    window = Window(chain.final)
    for height in range(31, 41):
        before = chain.asked.total()
        window.follow(places, height)
        assert chain.asked.total() - before <= 5
    assert window.contents() == chain.contents(places)
    assert set(chain.asked.values()) == {1}, "no block is read twice"


def test_a_node_that_runs_reads_each_block_once_whatever_is_swept() -> None:
    chain, swept = Chain(40), 0
    window = Window(chain.final)
    for height in range(1, 41):
        places = range(max(1, (sweep := next_sweep(height, WINDOW)) - WINDOW), sweep + 1)
        window.follow(places, height)
        if height == sweep:
            swept += 1
            assert window.contents() == chain.contents(places)
    assert swept == 12
    assert set(chain.asked.values()) == {1}


def test_blocks_that_come_late_are_kept_as_well() -> None:
    chain, places = Chain(20), range(4, 21)
    chain.missing = {5, 6}
    window = Window(chain.final)
    for height in range(12, 21):
        window.follow(places, height)
    chain.missing = {6}
    assert window.contents() == chain.contents(places)


@pytest.mark.parametrize(
    ("height", "retention", "sweep"), [(1, 16, 18), (17, 16, 18), (18, 16, 18), (19, 16, 20), (3, 1, 3)]
)
def test_a_store_is_swept_eight_times_while_a_window_passes(height: int, retention: int, sweep: int) -> None:
    assert next_sweep(height, retention) == sweep
