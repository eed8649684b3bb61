"""The head depends on which blocks and votes there are, never on the order in which they came."""

from dataclasses import replace
from functools import cache
from random import Random

import pytest
from fedchain.chain.fork_choice import BlockTree, Reorg
from hypothesis import given, settings
from hypothesis import strategies as st

from fedchain.chain import fork_choice
from fedchain.chain.block import Block
from fedchain.chain.difficulty import bits_from_attempts
from fedchain.chain.exceptions import LimitReached
from fedchain.chain.vote import Vote
from fedchain.crypto.hashing import Hash
from tests.chain.builders import CREATED_MS, ChainBuilder, genesis, keys
from tests.chain.peer import Peer

KEYS = keys(4)
MEMBERS = tuple(key.public_key for key in KEYS)


class Courier:
    """Delivers blocks and votes in any order: what comes before its parent or its block is held back."""

    def __init__(self, tree: BlockTree) -> None:
        self.tree = tree
        self._waiting: dict[Hash, list[Block | Vote]] = {}

    def deliver(self, item: Block | Vote) -> None:
        needed = item.header.parent_hash if isinstance(item, Block) else item.block_hash
        if needed not in self.tree:
            self._waiting.setdefault(needed, []).append(item)
        elif isinstance(item, Vote):
            self.tree.add_vote(item)
        elif item.hash not in self.tree:
            self.tree.add_block(item)
            for waiting in self._waiting.pop(item.hash, []):
                self.deliver(waiting)


@cache
def _forest() -> tuple[ChainBuilder, tuple[Block | Vote, ...]]:
    """A trunk of two blocks with forks of different depth, work and support, and all votes for them."""
    builder = ChainBuilder(genesis(4, initial_bits=bits_from_attempts(8)))
    trunk = builder.extend_many(2)
    fork = trunk[-1].hash
    builder.extend_many(3, fork, payload_of=10)
    builder.extend_many(3, fork, payload_of=20)
    early = builder.extend(fork, payload_of=30, timestamp_ms=builder.states[fork].timestamp_ms + 1_001)
    builder.extend_many(2, early.hash, payload_of=30)
    tail = builder.extend_many(5, trunk[0].hash, payload_of=40)
    for number in range(3):
        builder.extend(fork, payload_of=50 + number)
    items: list[Block | Vote] = []
    for place, block in enumerate(builder.blocks.values()):
        items.append(block)
        # The last block of the longest chain lacks a vote; others have all of theirs, or just enough.
        items.extend(builder.votes(block.hash, MEMBERS[: 2 if block is tail[-1] else 3 + place % 2]))
    return builder, tuple(items)


def _best(builder: ChainBuilder, items: tuple[Block | Vote, ...]) -> Hash:
    """The head by the definition, without any order: most work among accepted blocks, then the lower hash."""
    voters: dict[Hash, set[bytes]] = {}
    for item in items:
        for vote in item.votes if isinstance(item, Block) else (item,):
            voters.setdefault(vote.block_hash, set()).add(vote.voter)
    accepted = [block_hash for block_hash in builder.blocks if len(voters.get(block_hash, ())) >= 3]
    return min(accepted, key=lambda block_hash: (-builder.states[block_hash].work, block_hash))


@settings(max_examples=150, deadline=None)
@given(st.randoms(use_true_random=False), st.integers(0, 10))
def test_any_order_gives_the_same_head(order: Random, twice: int) -> None:
    builder, items = _forest()
    shuffled = [*items, *items[:twice]]
    order.shuffle(shuffled)
    tree = BlockTree(builder.genesis)
    courier = Courier(tree)
    for item in shuffled:
        courier.deliver(item)
    assert len(tree) == len(builder.blocks)
    assert tree.head.block_hash == _best(builder, items)
    assert tree.head == builder.states[tree.head.block_hash]
    _check_canonical(tree)


def _check_canonical(tree: BlockTree) -> None:
    """The list of the canonical chain is the head's ancestry."""
    state = tree.head
    assert tree.canonical(state.height + 1) is None
    assert tree.canonical(-1) is None
    for height in range(state.height, -1, -1):
        assert tree.canonical(height) == state.block_hash
        assert tree.is_canonical(state)
        assert tree.is_accepted(state.block_hash)
        assert tree.fork_depth(state) == tree.head.height - height
        parent = tree.parent_state(state)
        state = state if parent is None else parent
    assert state.height == 0


@settings(max_examples=50, deadline=None)
@given(st.randoms(use_true_random=False))
def test_reorgs_lead_from_each_head_to_the_next(order: Random) -> None:
    builder, items = _forest()
    shuffled = [item for item in items if isinstance(item, Vote)]
    order.shuffle(shuffled)
    tree = BlockTree(builder.genesis)
    for item in items:
        if isinstance(item, Block):
            tree.add_block(item)
    chain = [tree.canonical(height) for height in range(tree.head.height + 1)]
    for vote in shuffled:
        head = tree.head
        reorg = tree.add_vote(vote)
        assert (reorg is None) == (tree.head is head)
        if reorg is not None:
            assert tuple(reversed(chain[len(chain) - len(reorg.rewound) :])) == reorg.rewound
            chain[len(chain) - len(reorg.rewound) :] = reorg.applied
            assert not set(reorg.rewound) & set(reorg.applied)
        assert chain == [tree.canonical(height) for height in range(tree.head.height + 1)]


def _tree_with(builder: ChainBuilder, *blocks: Block) -> BlockTree:
    tree = BlockTree(builder.genesis)
    for block in blocks:
        tree.add_block(block)
    return tree


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0), (1, 0, 2)])
def test_ties_go_to_the_lower_hash(order: tuple[int, ...]) -> None:
    builder = ChainBuilder(genesis(4))
    siblings = [builder.extend(builder.genesis.chain_id, payload_of=number) for number in range(3)]
    tree = _tree_with(builder, *siblings)
    for place in order:
        for vote in builder.votes(siblings[place].hash):
            tree.add_vote(vote)
    assert tree.head.block_hash == min(block.hash for block in siblings)


def test_more_work_wins_over_more_blocks() -> None:
    builder = ChainBuilder(genesis(4, initial_bits=bits_from_attempts(64)))
    root, start = builder.genesis.chain_id, builder.states[builder.genesis.chain_id].timestamp_ms
    slow, fast = [], []
    parent, when = root, start
    for _ in range(5):  # each takes very long, so that the next is easier
        when += 60_000
        parent = builder.extend(parent, timestamp_ms=when, payload_of=1).hash
        slow.append(builder.blocks[parent])
    parent, when = root, start
    for _ in range(4):
        when += 1_001
        parent = builder.extend(parent, timestamp_ms=when, payload_of=2).hash
        fast.append(builder.blocks[parent])
    assert builder.states[fast[-1].hash].work > builder.states[slow[-1].hash].work
    tree = _tree_with(builder, *slow, *fast)
    for block in (slow[-1], fast[-1]):
        for vote in builder.votes(block.hash):
            tree.add_vote(vote)
    assert tree.head.block_hash == fast[-1].hash


def test_a_block_becomes_head_with_its_last_required_vote() -> None:
    builder = ChainBuilder(genesis(4))
    block = builder.extend()
    tree = _tree_with(builder, block)
    one, two, three, four = builder.votes(block.hash)
    assert tree.add_vote(one) is None
    assert tree.add_vote(two) is None
    assert (tree.head.height, tree.is_accepted(block.hash)) == (0, False)
    assert tree.add_vote(three) == Reorg((), (block.hash,))
    assert (tree.head.block_hash, tree.is_accepted(block.hash)) == (block.hash, True)
    assert tree.add_vote(four) is None
    assert set(tree.votes(block.hash)) == set(MEMBERS)


def test_a_vote_that_comes_twice_counts_once() -> None:
    builder = ChainBuilder(genesis(4))
    block = builder.extend()
    tree = _tree_with(builder, block)
    one, two, *_ = builder.votes(block.hash)
    for vote in (one, two, one, two, one):
        tree.add_vote(vote)
    assert tree.head.height == 0
    assert tree.votes(block.hash) == {one.voter: one, two.voter: two}


def test_a_second_signature_of_a_voter_does_not_replace_its_first() -> None:
    builder = ChainBuilder(genesis(4))
    block = builder.extend()
    tree = _tree_with(builder, block)
    vote, *_ = builder.votes(block.hash)
    tree.add_vote(vote)
    assert tree.add_vote(replace(vote, signature=bytes(64))) is None
    assert tree.votes(block.hash)[vote.voter].signature == vote.signature


def test_votes_inside_a_block_count() -> None:
    builder = ChainBuilder(genesis(4))
    first, second = builder.extend_many(2)
    tree = _tree_with(builder, first)
    assert tree.add_block(second) == Reorg((), (first.hash,))
    assert tree.is_accepted(first.hash)
    assert not tree.is_accepted(second.hash)
    assert set(tree.votes(first.hash)) == set(MEMBERS)


def test_a_block_that_comes_twice_changes_nothing() -> None:
    builder = ChainBuilder(genesis(4))
    first, second = builder.extend_many(2)
    peer = Peer(builder.genesis, second.header.timestamp_ms)
    peer.tree.add_block(first)
    peer.tree.add_block(second)
    before = peer.snapshot()
    for block in (first, second):
        assert peer.tree.add_block(block) is None
        assert peer.snapshot() == before


def test_unaccepted_blocks_never_become_head_whatever_their_work() -> None:
    builder = ChainBuilder(genesis(4))
    (accepted,) = builder.extend_many(1)
    root = builder.genesis.chain_id
    others = [builder.extend(root, payload_of=number) for number in range(1, 30)]
    tree = _tree_with(builder, accepted, *others)
    for vote in builder.votes(accepted.hash):
        tree.add_vote(vote)
    for block in others:
        for vote in builder.votes(block.hash, MEMBERS[:2]):
            assert tree.add_vote(vote) is None
    assert tree.head.block_hash == accepted.hash


def test_a_miners_siblings_are_limited_and_its_oldest_goes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fork_choice, "SIBLINGS_MAX", 3)
    builder = ChainBuilder(genesis(4))
    root, start_ms = builder.genesis.chain_id, CREATED_MS + 5_000
    other = builder.extend(root, miner=KEYS[1], timestamp_ms=start_ms)
    own = [builder.extend(root, miner=KEYS[0], timestamp_ms=start_ms + age) for age in (3, 1, 2, 4)]
    peer = Peer(builder.genesis, start_ms)
    for block in (other, *own[:3]):
        peer.tree.add_block(block)
    peer.tree.add_block(own[3])
    assert own[1].hash not in peer.tree, "the oldest of the same miner makes room"
    assert {other.hash, own[0].hash, own[2].hash, own[3].hash} == set(peer.tree.children(root))
    before = peer.snapshot()
    with pytest.raises(
        LimitReached, match=r"^siblings: 3 newer unaccepted blocks of its miner on its parent, at most 3$"
    ):
        peer.tree.add_block(own[1])
    assert peer.snapshot() == before
    for vote in builder.votes(own[0].hash):  # an accepted block is no candidate, so there is room again
        peer.tree.add_vote(vote)
    peer.tree.add_block(own[1])
    assert own[1].hash in peer.tree


def test_candidates_are_limited_and_the_oldest_goes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fork_choice, "CANDIDATES_MAX", 4)
    builder = ChainBuilder(genesis(4))
    root = builder.genesis.chain_id
    blocks = [builder.extend(root, payload_of=number) for number in range(6)]
    tree = BlockTree(builder.genesis)
    for block in blocks[:4]:
        tree.add_block(block)
    tree.add_vote(builder.votes(blocks[0].hash)[0])
    for vote in builder.votes(blocks[1].hash):
        tree.add_vote(vote)
    for block in blocks[4:]:
        tree.add_block(block)
    assert blocks[0].hash not in tree
    assert tree.state(blocks[0].hash) is None
    assert tree.block(blocks[0].hash) is None
    assert tree.votes(blocks[0].hash) == {}
    assert tree.children(root) == tuple(block.hash for block in blocks[1:])
    assert tree.head.block_hash == blocks[1].hash  # accepted blocks are not candidates
    tree.add_block(blocks[0])  # it may come again
    assert blocks[0].hash in tree
    assert blocks[2].hash not in tree


def test_a_long_reorg_rewinds_the_knowledge_with_the_chain() -> None:
    length = 1_088
    builder = ChainBuilder(genesis(1))
    trunk = builder.extend()
    branches = [builder.extend_many(length, trunk.hash, payload_of=number) for number in (1, 2)]
    left, right = sorted(branches, key=lambda branch: branch[-1].hash)
    right.append(builder.extend(right[-1].hash, payload_of=3))
    tree = _tree_with(builder, trunk, *left)
    tree.add_vote(*builder.votes(left[-1].hash))
    assert tree.head == builder.states[left[-1].hash]
    assert tree.fork_depth(builder.states[trunk.hash]) == length

    # The other chain comes block by block with its votes. As heavy as the first one it still has the higher hash.
    for block in right:
        assert tree.add_block(block) is None
    assert tree.is_accepted(right[-2].hash)
    assert tree.head == builder.states[left[-1].hash]

    reorg = tree.add_vote(*builder.votes(right[-1].hash))
    assert reorg is not None
    assert reorg.rewound == tuple(block.hash for block in reversed(left))
    assert reorg.applied == tuple(block.hash for block in right)
    assert len(reorg.rewound) == length
    assert tree.head == builder.states[right[-1].hash]
    assert tree.head.knowledge_root == right[-1].header.knowledge_root != left[-1].header.knowledge_root
    assert tree.canonical(1) == trunk.hash
    assert tree.canonical(length + 2) == right[-1].hash
    assert tree.fork_depth(builder.states[left[-1].hash]) == length + 1
