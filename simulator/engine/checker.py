"""The checker: what must hold in every simulation, whatever goes wrong in it.

* agreement: no two peers differ below the reorg limit, and at the end they have one head;
* validity: every block that a peer keeps re-verifies, from genesis on and without any of the nodes' caches, at the
  moment when the first peer keeps it, because its payloads may be dropped later;
* nothing lost: what a peer stored or promised is still there, and no peer ever posted twice for one phase; what the
  retention window covers is held by somebody;
* same knowledge: at every height, everywhere.
"""

from collections.abc import Sequence

from fedchain.chain.fork_choice import BlockTree

from fedchain.chain.block import Block
from fedchain.chain.exceptions import ChainError
from fedchain.chain.genesis import Genesis
from fedchain.chain.knowledge import EMPTY_ROOT, Rules, recompute
from fedchain.chain.state import State, apply_block, genesis_state
from fedchain.chain.transaction import PostKey, Transaction
from fedchain.chain.validation import validate_knowledge, validate_on, validate_sealed
from fedchain.crypto.hashing import Hash
from fedchain.crypto.keys import is_valid_signature
from fedchain.network.messages import PostMessage
from fedchain.node.core.effects import Effect, Persist, Publish
from fedchain.node.core.retention import contents_of_last
from fedchain.simulator.engine.peer import SimulatedPeer


class Checker:
    """Watches peers while they run and looks at them when they are done; ``violations`` says what did not hold."""

    def __init__(self, genesis: Genesis, rules: Rules) -> None:
        self.violations: list[str] = []
        self._genesis = genesis
        self._rules = rules
        self._settled: list[tuple[Hash, Hash]] = []  # (block, knowledge) by height, deep enough never to change
        self._posts: dict[PostKey, Hash] = {}
        start = genesis_state(genesis)
        self._verified: dict[Hash, State] = {start.block_hash: start}  # states after the blocks that re-verified

    def on_effects(self, peer: SimulatedPeer, effects: Sequence[Effect]) -> None:
        """What a peer keeps re-verifies, and none signs two posts for one phase, not even after a crash."""
        for effect in effects:
            if isinstance(effect, Persist):
                for record in effect.records:
                    if isinstance(record, Block) and record.hash not in self._verified:
                        self._verify(peer, record)
            if isinstance(effect, Publish) and isinstance(effect.message, PostMessage):
                post = effect.message.transaction
                if self._posts.setdefault(post.key, post.hash) != post.hash:
                    self._fail(f"peer {peer.number} posted twice in round {post.round}, phase {post.phase}")

    def on_head(self, peer: SimulatedPeer) -> None:
        """Blocks below the reorg limit are the same everywhere."""
        tree = peer.tree
        assert tree is not None, "only a running peer's head moves"
        for height in range(len(self._settled), tree.head.height - self._genesis.reorg_depth_max):
            state = tree.state(tree.canonical(height) or b"")
            assert state is not None, "the canonical chain has a block at every height"
            self._settled.append((state.block_hash, state.knowledge_root))
        height = min(len(self._settled) - 1, tree.head.height - self._genesis.reorg_depth_max)
        if height >= 0 and tree.canonical(height) != self._settled[height][0]:
            self._fail(f"peer {peer.number} has another block at height {height}, below the reorg limit")

    def check_end(self, peers: Sequence[SimulatedPeer]) -> None:
        """One head, one knowledge per height, everything valid and nothing lost, among the running ``peers``."""
        trees = [(peer, tree) for peer in peers if (tree := peer.tree) is not None]
        heads = {tree.head.block_hash for _, tree in trees}
        if len(heads) != 1:
            self._fail(f"{len(trees)} running peers have {len(heads)} different heads")
        for peer, tree in trees:
            self._check_stored(peer)
            for height in range(min(tree.head.height, trees[0][1].head.height) + 1):
                ours, first = tree.canonical(height), trees[0][1].canonical(height)
                if ours != first:
                    self._fail(f"peers {trees[0][0].number} and {peer.number} differ at height {height}")
                    break
        if trees:
            self._check_verified(trees[0][1])
            self._check_retained([peer for peer, _ in trees], trees[0][1])

    def _check_stored(self, peer: SimulatedPeer) -> None:
        """The canonical chain with all its contents is in the peer's storage, and so is every post it promised."""
        tree = peer.tree
        assert tree is not None, "only running peers are checked"
        stored = list(peer.storage.records())
        blocks = {record.hash for record in stored if isinstance(record, Block)}
        posts = {record.hash for record in stored if isinstance(record, Transaction)}
        for height in range(1, tree.head.height + 1):
            if tree.canonical(height) not in blocks:
                self._fail(f"peer {peer.number} lost the block at height {height}")
        for key, post_hash in self._posts.items():
            if key[2] == peer.public_key and post_hash not in posts:
                self._fail(f"peer {peer.number} lost its own post of round {key[0]}, phase {key[1]}")

    def _check_retained(self, peers: Sequence[SimulatedPeer], tree: BlockTree) -> None:
        """A newcomer could fetch every content of the retention window from somebody."""
        window = self._genesis.retention_blocks or tree.head.height
        for content_hash in contents_of_last(tree, window) - {EMPTY_ROOT}:
            if all(peer.storage.content(content_hash) is None for peer in peers):
                self._fail(f"content {content_hash.hex()} of the last {window} blocks is held by nobody")

    def _check_verified(self, tree: BlockTree) -> None:
        for height in range(1, tree.head.height + 1):
            if tree.canonical(height) not in self._verified:
                self._fail(f"the block at height {height} was kept by nobody, or is not valid")

    def _verify(self, peer: SimulatedPeer, block: Block) -> None:
        """Apply every rule to a block that ``peer`` is about to keep, with the contents that the peer holds now."""
        assert peer.node is not None, "only a running peer has effects"
        genesis, header = self._genesis, block.header
        parent = self._verified.get(header.parent_hash)
        if parent is None:
            self._fail(f"height {header.height} follows a block that did not verify")
            return
        grandparent = None if parent.height == 0 else self._verified[parent.parent_hash]
        try:
            validate_sealed(genesis, block, is_valid_signature)
            validate_on(genesis, grandparent, parent, block, header.timestamp_ms)
            knowledge = recompute(genesis, self._rules, parent, block.transactions, peer.node.content)
            validate_knowledge(header, knowledge)
        except ChainError as error:
            self._fail(f"height {header.height} does not re-verify: {error}")
            return
        self._verified[block.hash] = apply_block(genesis, parent, block)

    def _fail(self, violation: str) -> None:
        if violation not in self.violations:
            self.violations.append(violation)
