"""The next phase: peers train for it as soon as the last contribution to the open one is computed.

The network tells a peer of the others' posts later, and of a candidate later still. The process that simulates all of
them knows before what a block that counts all posts will leave behind. Processes that train would wait meanwhile: in
real time, most of a round's messages come behind its last contribution.
"""

from collections.abc import Sequence

from fedchain.chain.applying import apply_block
from fedchain.chain.block import Block
from fedchain.chain.genesis import Genesis
from fedchain.chain.roster import by_key
from fedchain.chain.state import State
from fedchain.chain.transition import unsealed_header
from fedchain.crypto.keys import SIGNATURE_SIZE, PublicKey
from fedchain.learning.exceptions import LearningError
from fedchain.node.core.checks import Checks
from fedchain.node.core.jobs import CheckPost, Knowledge, Recompute
from fedchain.simulator.engine.peer import SimulatedPeer


class NextPhase:
    """Foresees what peers contribute next, once all have contributed. Another block than that wastes this training.

    It foresees nothing where rounds draw contributors, which takes the block's hash in version 2, nor where posts are
    slow to check: their phases use secrets, with which nobody trains ahead.

    Args:
        genesis: the federation's founding document.
        peers: all of them, by number; the list may still be filled.
        checks: those that the peers share, which need not recompute the knowledge once more; others if they share none.
    """

    def __init__(self, genesis: Genesis, peers: Sequence[SimulatedPeer], checks: Checks) -> None:
        self._genesis, self._peers, self._checks = genesis, peers, checks
        self._height = -1  # of the head whose phase is open
        self._made: dict[PublicKey, CheckPost] = {}  # posts to that phase, as their authors are about to check them

    def on_post(self, own: CheckPost) -> None:
        """A peer has made a post."""
        state, contributors = own.state, own.state.roster.contributors
        is_known = (
            state.height >= self._height
            and not state.rules.contributors_per_round
            and state.countable == len(contributors)
            and not self._checks.is_slow(own)
        )
        if not is_known:
            return
        if state.height > self._height:
            self._height, self._made = state.height, {}
        self._made[own.post.sender] = own
        if len(self._made) < len(contributors) or not contributors <= self._made.keys():
            return
        made, self._made = [self._made[member] for member in by_key(contributors)], {}  # posts may be large
        contents = {state.knowledge_root: own.knowledge} | {item.post.payload_hash: item.payload for item in made}
        try:
            known = self._checks.run(Recompute(state, tuple(item.post for item in made), contents))
        except (LearningError, OSError):  # peers meet it if they make such a block, which is not certain
            return
        if isinstance(known, Knowledge):
            self._foresee(self._after(state, made, known), known)

    def _after(self, state: State, made: Sequence[CheckPost], known: Knowledge) -> State:
        """The state after a block of these posts, as far as contributors depend on it."""
        body = tuple(item.post for item in made), None, (), ()
        header = unsealed_header(self._genesis, state, known.root, made[0].post.sender, body)
        return apply_block(self._genesis, state, Block(header, bytes(SIGNATURE_SIZE), *body))

    def _foresee(self, state: State, known: Knowledge) -> None:
        if state.finished:
            return
        for number in sorted(state.roster.seats[member] for member in state.roster.contributors):
            self._peers[number].foresee(state, known.data)
