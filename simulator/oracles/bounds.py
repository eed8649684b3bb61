"""Bounds: under any messages, an honest member's memory holds no more than constants and the membership allow."""

from fedchain.chain.genesis import Genesis
from fedchain.chain.state import genesis_state
from fedchain.network.downloads import DOWNLOADS_MAX
from fedchain.network.sync import OWED_MAX
from fedchain.node.core.following.finals_ahead import AHEAD_MAX
from fedchain.node.core.following.joining import WAITING_MAX
from fedchain.node.core.ledger import CANDIDATES_OF_MINER_MAX, WINDOW
from fedchain.node.core.membership.change_pool import OPEN_MAX
from fedchain.node.core.voting.ballot import ATTEMPTS_AHEAD, ATTEMPTS_BEHIND
from fedchain.node.core.voting.sessions import HEIGHTS_APART, KEPT_MAX
from fedchain.node.core.voting.voting import EARLY_MAX
from fedchain.simulator.engine.peer import SimulatedPeer
from fedchain.simulator.oracles.agreement import Fail

SLOTS_MAX = 2 * (ATTEMPTS_AHEAD + ATTEMPTS_BEHIND + 1)
"""Number of kinds and attempts of one height whose votes are kept."""


class Bounds:
    """Measures the pools of honest peers' nodes."""

    def __init__(self, genesis: Genesis, fail: Fail, members: int = 0) -> None:
        self._genesis, self._fail = genesis, fail
        members = members or len(genesis_state(genesis).roster)
        phases = len(genesis.phases) + len(genesis.setup)
        candidates = members * (CANDIDATES_OF_MINER_MAX + 1)
        posts = (2 + genesis.late_rounds) * phases * members  # of this round, the next one, and those before
        self._max = {
            "candidates": candidates,
            "ballots": SLOTS_MAX,
            "votes": 2 * members * SLOTS_MAX,
            "early votes": EARLY_MAX * members,
            "posts": posts,
            "posts under way": posts,
            "posts without payloads": posts,
            # needed by the window and open posts, and counted by candidates but announced to nobody else
            "contents": (WINDOW + 1) * (members + 1) + 2 * posts + candidates * (1 + members),
            "downloads": DOWNLOADS_MAX,
            "crimes": members,
            "changes": (OPEN_MAX + 1) * members,
            "useless posts": posts,
            "sources": members,
            "joinings": WAITING_MAX,
            "blocks ahead": AHEAD_MAX * members,
            "blocks asked for": OWED_MAX * members,
            "sessions": KEPT_MAX * (2 * HEIGHTS_APART + 1) * members,
        }

    def check(self, peer: SimulatedPeer) -> None:
        """Check the sizes of a running peer's pools."""
        assert peer.node is not None, "only a running peer has a memory"
        for name, size in peer.node.sizes():
            if size > self._max[name]:
                self._fail(f"bounds: peer {peer.number} holds {size} {name}, at most {self._max[name]} are allowed")
