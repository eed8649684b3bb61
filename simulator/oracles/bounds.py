"""Bounds: whatever is sent to an honest member, its memory holds no more than constants and the membership allow."""

from collections.abc import Iterator

from fedchain.chain.genesis import Genesis
from fedchain.network.downloads import DOWNLOADS_MAX
from fedchain.network.sync import OWED_MAX
from fedchain.node.core.following.finals_ahead import AHEAD_MAX
from fedchain.node.core.following.joining import WAITING_MAX
from fedchain.node.core.ledger import CANDIDATES_OF_MINER_MAX, WINDOW
from fedchain.node.core.node import Node
from fedchain.node.core.voting.ballot import ATTEMPTS_AHEAD, ATTEMPTS_BEHIND
from fedchain.node.core.voting.sessions import HEIGHTS_APART, KEPT_MAX
from fedchain.node.core.voting.voting import EARLY_MAX
from fedchain.simulator.engine.peer import SimulatedPeer
from fedchain.simulator.oracles.agreement import Fail

SLOTS_MAX = 2 * (ATTEMPTS_AHEAD + ATTEMPTS_BEHIND + 1)
"""Kinds and attempts of one height whose votes are kept."""


class Bounds:
    """Measures the pools of honest peers' nodes, which it knows from within."""

    def __init__(self, genesis: Genesis, fail: Fail) -> None:
        self._genesis, self._fail = genesis, fail
        members, phases = len(genesis.members), len(genesis.phases) + len(genesis.setup)
        candidates = members * (CANDIDATES_OF_MINER_MAX + 1)
        posts = 2 * phases * members
        self._max = {
            "candidates": candidates,
            "ballots": SLOTS_MAX,
            "votes": 2 * members * SLOTS_MAX,
            "early votes": EARLY_MAX * members,
            "posts": posts,
            "posts under way": posts,
            # what the window and open posts need, and what candidates count that nobody else was told of
            "contents": (WINDOW + 1) * (members + 1) + 2 * posts + candidates * (1 + members),
            "downloads": DOWNLOADS_MAX,
            "crimes": members,
            "useless posts": posts,
            "sources": members,
            "joinings": WAITING_MAX,
            "blocks ahead": AHEAD_MAX * members,
            "blocks asked for": OWED_MAX * members,
            "sessions": KEPT_MAX * (2 * HEIGHTS_APART + 1) * members,
        }

    def check(self, peer: SimulatedPeer) -> None:
        """Look into a running peer's node."""
        assert peer.node is not None, "only a running peer has a memory"
        for name, size in _sizes(peer.node):
            if size > self._max[name]:
                self._fail(f"bounds: peer {peer.number} holds {size} {name}, at most {self._max[name]} are allowed")


def _sizes(node: Node) -> Iterator[tuple[str, int]]:
    context, voting, posts = node._context, node._voting, node._posts
    wanted = len(node._blocks.wanted)
    ballots = voting.agreement.ballots._ballots.values()
    yield "candidates", max(0, len(context.ledger.entries) - wanted)
    yield "ballots", len(ballots)
    yield "votes", sum(len(ballot.first) + len(ballot.second) for ballot in ballots)
    yield "early votes", sum(map(len, voting._early.values()))
    yield "posts", len(context.mempool)
    yield "posts under way", len(posts._checking) + len(posts._early) + len(context.contents._waiting)
    yield "contents", len(context.contents._held)
    yield "downloads", len(context.contents.downloads)
    yield "crimes", len(context.evidence)
    yield "useless posts", len(context.useless)
    yield "sources", context.catch_up.heard()
    yield "sessions", node._sessions.kept()
    yield "joinings", len(node._catching_up._joining._waiting)
    yield "blocks ahead", sum(map(len, node._catching_up._ahead._kept.values()))
    yield "blocks asked for", sum(len(source.owed) for source in context.catch_up._sources.values())
