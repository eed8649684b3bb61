"""Nodes that share a key, or lost their memory, in a whole federation: what becomes of them, and of their owner."""

from copy import deepcopy
from dataclasses import dataclass
from functools import partial
from random import Random

from fedchain.chain.storage.store import MemoryStore
from fedchain.crypto.keys import PublicKey
from fedchain.network.messages import EvidenceMessage
from fedchain.node.core.effects import Contribute, Publish
from fedchain.node.core.events import MessageReceived
from fedchain.node.core.notices import Convicted, SessionHeard, TwinHeard
from fedchain.node.core.voting.journal import Journal
from tests.support.chain.builders import genesis, payload
from tests.support.node.driver import Federation, Peer, check_agreement

OWNER = 0
"""The peer whose key is used twice, or whose memory is lost."""

MEMORIES = ("journal and store", "journal", "store", "nothing", "old journal and store", "old journal")
"""Memories with which a node may be started again, or beside another one."""


@dataclass
class Outcome:
    """Fate of the nodes with the owner's key."""

    stopped: tuple[bool, ...]
    """Whether each of them ended itself."""
    accused: bool
    """Whether anybody holds evidence against the owner."""
    heard_after: int
    """Heights between the second node's start and the first alarm; -1: there was none."""
    stopped_after: int
    """Heights between the second node's start and the end of the last of the nodes; -1: not all of them ended."""
    height: int
    """Height that the others reached."""


def noisy_payload(number: int, effect: Contribute) -> bytes:
    """Two nodes with one key train differently."""
    return payload(number + 1, effect.round, effect.phase)


def federation(members: int, seed: int) -> Federation:
    """One that is quick, so that many heights pass in a test."""
    founding = genesis(members, target_mining_time_ms=400, phase_timeout_ms=4_000, vote_timeout_ms=400)
    running = Federation(founding, seed, payloads=noisy_payload)
    running.training_ms = dict.fromkeys(range(members + 1), 400)
    return running


def memory_of(peer: Peer, kind: str, old: Journal) -> tuple[MemoryStore, Journal]:
    """A copy of what a node remembers, as far as ``kind`` says."""
    store = deepcopy(peer.store) if "store" in kind else MemoryStore()
    journal = Journal()
    if "journal" in kind:
        journal = old if "old" in kind else peer.journal
    return store, journal


def restarted(members: int, seed: int, kind: str, heights: int = 8) -> Outcome:
    """The owner's only node crashes at any moment and comes back with a part of its memory."""
    draw, running = Random(seed), federation(members, seed)
    owner, old = _warm_up(running, draw)
    store, journal = memory_of(owner, kind, old)
    running.crash(OWNER)
    if members > 1:
        running.run_for(draw.randrange(3))
    owner.store, owner.journal = store, journal
    start = max(peer.node.head.height for peer in running.peers)
    running.restart(OWNER)
    return _watch(running, [owner], start, heights)


def doubled(members: int, seed: int, kind: str, heights: int = 12) -> Outcome:
    """A second node with the owner's key is started beside the first, at any moment."""
    draw, running = Random(seed), federation(members, seed)
    owner, old = _warm_up(running, draw)
    start = max(peer.node.head.height for peer in running.peers)
    twin = running.add_twin(OWNER, *memory_of(owner, kind, old))
    return _watch(running, [owner, twin], start, heights)


def copied(members: int, seed: int, *, loss: float = 0.0, heights: int = 6) -> Outcome:
    """The owner's machine is copied while its node is stopped, and both are started, at once or one after the other."""
    draw, running = Random(seed), federation(members, seed)
    owner, _ = _warm_up(running, draw)
    running.crash(OWNER)
    running.run_for(draw.randrange(4))
    running.loss = loss
    store, journal = deepcopy(owner.store), owner.journal
    start = max(peer.node.head.height for peer in running.running)
    running.restart(OWNER)
    running.run_for(draw.choice((0, 0, 1, 3, 8)))
    start = max(start, *(peer.node.head.height for peer in running.running))
    twin = running.add_twin(OWNER, store, journal)
    return _watch(running, [owner, twin], start, heights)


def restored(members: int, seed: int, *, heights: int = 8) -> Outcome:
    """The owner's machine comes back from a backup, alone, while a liar says again all that it has ever said."""
    draw, running = Random(seed), federation(members, seed)
    owner, _ = _warm_up(running, draw)
    for _ in range(3):  # so many sessions of the key have been
        running.crash(OWNER)
        running.run_for(draw.randrange(1, 3))
        running.restart(OWNER)
        running.run_for(draw.randrange(5, 9))
    running.crash(OWNER)
    start = max(peer.node.head.height for peer in running.running)
    running.restart(OWNER)
    said = [message for sender, _, message in running.sent if sender == OWNER]
    liar = running.peers[-1].key.public_key
    for message in dict.fromkeys(said):
        for peer in running.running:
            running.later(draw.randrange(8_000), partial(running.feed, peer, MessageReceived(liar, message)))
    return _watch(running, [owner], start, heights)


def _warm_up(running: Federation, draw: Random) -> tuple[Peer, Journal]:
    """Some heights and a part of another one; the owner's peer, and what its journal was a while ago."""
    owner = running.peers[OWNER]
    running.run_to_height(2)
    old = owner.journal
    running.run_to_height(4 + draw.randrange(2))
    for _ in range(draw.randrange(200)):
        running.step()
    return owner, old


def _watch(running: Federation, nodes: list[Peer], start: int, heights: int) -> Outcome:
    others = [peer for peer in running.peers if peer not in nodes]
    watched = others or nodes
    heard_after = stopped_after = -1
    end_ms = running.now_ms + 200_000
    while min(peer.node.head.height for peer in watched) < start + heights and running.now_ms < end_ms:
        if not running.step():
            break
        height = max(peer.node.head.height for peer in watched)
        notices = (notice for node in nodes for notice in node.notices)
        if heard_after < 0 and any(isinstance(notice, TwinHeard | SessionHeard) for notice in notices):
            heard_after = height - start
        if stopped_after < 0 and all(node.stopped for node in nodes):
            stopped_after = height - start
    check_agreement(running)
    key = nodes[0].key.public_key
    return Outcome(
        tuple(bool(node.stopped) for node in nodes),
        any(is_accused(peer, key) for peer in running.peers),
        heard_after,
        stopped_after,
        min(peer.node.head.height for peer in watched) - start,
    )


def is_accused(peer: Peer, member: PublicKey) -> bool:
    """Whether a peer holds, told or finalized evidence against a member."""
    told = [item.message for item in peer.effects if isinstance(item, Publish)]
    found = [message.evidence for message in told if isinstance(message, EvidenceMessage)]
    found += [notice.evidence for notice in peer.notices if isinstance(notice, Convicted)]
    return member in {evidence.culprit for evidence in [*found, *peer.node._parts.crimes.open.values()]}
