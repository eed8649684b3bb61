"""A store keeps what the blocks of its retention window need: enough for others to replay them, and no more."""

import pytest

from fedchain.chain.storage.store import MemoryStore
from fedchain.crypto.hashing import Hash
from fedchain.node.core.contents.retention import contents_in_order
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
