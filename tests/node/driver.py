"""A federation in one process: nodes, a fake clock, and a queue that delivers what they say in a seeded order."""

import heapq
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from random import Random

from fedchain.chain.block import Block
from fedchain.chain.exceptions import Refused
from fedchain.chain.genesis import Genesis
from fedchain.chain.knowledge import Rules
from fedchain.chain.proof_of_work import search_nonce
from fedchain.chain.storage.store import Candidate, Final, MemoryStore
from fedchain.chain.transaction import Transaction
from fedchain.chain.vote import Vote
from fedchain.crypto.hashing import sha256
from fedchain.crypto.keys import PrivateKey, PublicKey
from fedchain.network.messages import (
    BlockMessage,
    Message,
    PostMessage,
    VoteMessage,
    decode_message,
    encode_message,
)
from fedchain.node.core.checks import Verification
from fedchain.node.core.effects import Blame, Contribute, Effect, Mine, Persist, Publish, Refuse, Retain, Send
from fedchain.node.core.events import Contributed, Event, MessageReceived, Mined, PeerConnected, Tick
from fedchain.node.core.node import Node
from tests.chain.builders import CREATED_MS, SumRules, keys, payload

TRAINING_MS = 1_000
TICK_MS = 1_000
DELAY_MAX_MS = 100
MINING_MAX_MS = 2_000

Payloads = Callable[[int, Contribute], bytes]
"""What a peer (by number) answers to a ``Contribute`` effect."""


def small_payload(number: int, effect: Contribute) -> bytes:
    """A payload for ``SumRules`` that names peer, round and phase."""
    return payload(number + 1, effect.round, effect.phase)


class BlobRules:
    """Payloads are bytes of any size but none; knowledge is a hash over all that was posted so far."""

    def check(self, phase: str, payload: bytes) -> None:
        if not payload:
            raise ValueError(f"{phase} takes no empty payload")

    def aggregate(
        self, phase: str, round_number: int, knowledge: bytes, posts: Sequence[tuple[PublicKey, bytes]]
    ) -> bytes:
        return sha256(knowledge + phase.encode() + b"".join(sender + sha256(data) for sender, data in posts))


class Peer:
    """A node with its storage, and everything that happened to it."""

    def __init__(self, number: int, key: PrivateKey, genesis: Genesis, rules: Rules) -> None:
        self.number, self.key, self.genesis, self.rules = number, key, genesis, rules
        self.store = MemoryStore()
        self.log: list[tuple[Event, int]] = []
        self.effects: list[Effect] = []
        self.life = 0
        self.up = True
        self.node = self.new_node()

    def new_node(self) -> Node:
        """A node as it starts from what is stored."""
        return Node(
            self.genesis,
            self.key,
            Verification(self.genesis, self.rules),
            list(self.store.records()),
            self.store.content,
            self.store.content_part,
        )

    def handle(self, event: Event, now_ms: int) -> list[Effect]:
        """Feed the node, and store what it asks to store."""
        effects = self.node.handle(event, now_ms)
        self.log.append((event, now_ms))
        self.effects += effects
        for effect in effects:
            if isinstance(effect, Persist):
                self.store.append(effect.records)
            elif isinstance(effect, Retain):
                self.store.retain(effect.needed)
        return effects

    def receive(self, peer: PublicKey, message: Message, now_ms: int) -> list[Effect]:
        """Feed a message."""
        return self.handle(MessageReceived(peer, message), now_ms)

    def published(self, kind: type[PostMessage] | type[BlockMessage] | type[VoteMessage]) -> list[Message]:
        """What this peer told everyone, in order."""
        return [
            effect.message
            for effect in self.effects
            if isinstance(effect, Publish) and isinstance(effect.message, kind)
        ]

    def posts(self) -> list[Transaction]:
        """The posts among them."""
        return [message.transaction for message in self.published(PostMessage) if isinstance(message, PostMessage)]

    def refusals(self) -> list[Refused]:
        """Everything that this peer did not take."""
        return [effect.error for effect in self.effects if isinstance(effect, Refuse | Blame)]


class Federation:
    """Peers that talk. Every delay is drawn from one seed; a message may be lost.

    Args:
        genesis: the rules; peers have ``keys(count)``.
        seed: of delays and losses.
        count: how many peers run; those above the members are strangers.
        loss: probability that a message is lost.
        silent: peers that are down from the start.
        rules: the learning method.
        payloads: what peers contribute.
        miners: peers that mine; None: all.
    """

    def __init__(
        self,
        genesis: Genesis,
        seed: int = 0,
        *,
        count: int | None = None,
        loss: float = 0.0,
        silent: Iterable[int] = (),
        rules: Rules | None = None,
        payloads: Payloads = small_payload,
        miners: Iterable[int] | None = None,
    ) -> None:
        self.genesis, self.loss, self.payloads = genesis, loss, payloads
        self.now_ms = CREATED_MS
        self.sent: list[tuple[int, int, Message]] = []
        self.drop: Callable[[int, int, Message], bool] = lambda sender, receiver, message: False
        self._draw = Random(seed)
        self._miners = None if miners is None else set(miners)
        self._queue: list[tuple[int, int, Callable[[], None]]] = []
        self._sequence = 0
        count = len(genesis.members) if count is None else count
        self.peers = [Peer(number, key, genesis, rules or SumRules()) for number, key in enumerate(keys(count))]
        self._number = {peer.key.public_key: peer.number for peer in self.peers}
        for number in silent:
            self.peers[number].up = False
        for peer in self.peers:
            if peer.up:
                self.start(peer)

    @property
    def running(self) -> list[Peer]:
        return [peer for peer in self.peers if peer.up]

    def start(self, peer: Peer) -> None:
        """Connect a peer to all others, both ways, and begin its ticks."""
        for other in self.peers:
            if other is not peer and other.up:
                self.feed(peer, PeerConnected(other.key.public_key))
                self.feed(other, PeerConnected(peer.key.public_key))
        self._later(self._draw.randrange(TICK_MS), partial(self._tick, peer, peer.life))

    def crash(self, number: int) -> None:
        """Stop a peer; what was in flight to it is lost."""
        self.peers[number].up = False
        self.peers[number].life += 1

    def restart(self, number: int) -> None:
        """Bring a peer back with what it had stored."""
        peer = self.peers[number]
        peer.up, peer.node = True, peer.new_node()
        peer.log.clear()
        self.start(peer)

    def feed(self, peer: Peer, event: Event) -> None:
        """Let something happen to a peer now, and carry out what follows."""
        for effect in peer.handle(event, self.now_ms):
            match effect:
                case Publish(message):
                    for other in self.peers:
                        if other is not peer:
                            self._carry(peer, other, message)
                case Send(receiver, message):
                    self._carry(peer, self.peers[self._number[receiver]], message)
                case Contribute():
                    data = self.payloads(peer.number, effect)
                    done = Contributed(effect.round, effect.phase, data)
                    self._later(TRAINING_MS, partial(self._if_alive, peer, peer.life, done))
                case Mine(header) if self._miners is None or peer.number in self._miners:
                    sealed = search_nonce(self.genesis.proof_function, header, 0, 1_000_000)
                    assert sealed is not None, "tests use easy targets"
                    mined = Mined(sealed)
                    delay = self._draw.randrange(50, MINING_MAX_MS)
                    self._later(delay, partial(self._if_alive, peer, peer.life, mined))

    def run(self, until: Callable[[], bool], limit_s: int = 120) -> None:
        """Let time pass until ``until`` holds."""
        limit_ms = self.now_ms + 1_000 * limit_s
        while not until():
            heights = [peer.node.head.height for peer in self.running]
            assert self._queue[0][0] <= limit_ms, f"after {limit_s} s heights are {heights}"
            time_ms, _, action = heapq.heappop(self._queue)
            self.now_ms = max(self.now_ms, time_ms)
            action()

    def run_for(self, seconds: int) -> None:
        """Let time pass."""
        end_ms = self.now_ms + 1_000 * seconds
        self.run(lambda: self._queue[0][0] > end_ms, seconds + 1)

    def run_to_height(self, height: int, limit_s: int = 120) -> None:
        """Let time pass until every running peer is at ``height`` or above."""
        self.run(lambda: all(peer.node.head.height >= height for peer in self.running), limit_s)

    def blocks(self) -> list[Block]:
        """The chain of the first running peer."""
        tree = self.running[0].node.tree
        hashes = [tree.canonical(height) for height in range(1, tree.head.height + 1)]
        return [block for item in hashes if item is not None and (block := tree.block(item)) is not None]

    def _carry(self, sender: Peer, receiver: Peer, message: Message) -> None:
        self.sent.append((sender.number, receiver.number, message))
        delay = self._draw.randrange(1, DELAY_MAX_MS)
        if self._draw.random() < self.loss or self.drop(sender.number, receiver.number, message):
            return
        arrived = MessageReceived(sender.key.public_key, decode_message(encode_message(message)))
        self._later(delay, partial(self._if_alive, receiver, receiver.life, arrived))

    def _if_alive(self, peer: Peer, life: int, event: Event) -> None:
        if peer.up and peer.life == life:
            self.feed(peer, event)

    def _tick(self, peer: Peer, life: int) -> None:
        if peer.up and peer.life == life:
            self.feed(peer, Tick())
            self._later(TICK_MS, partial(self._tick, peer, life))

    def _later(self, delay_ms: int, action: Callable[[], None]) -> None:
        self._sequence += 1
        heapq.heappush(self._queue, (self.now_ms + delay_ms, self._sequence, action))


def check_agreement(federation: Federation) -> None:
    """Below the newest height that all have, the running peers have one chain and one knowledge per height."""
    trees = [peer.node.tree for peer in federation.running]
    settled = min(tree.head.height for tree in trees) - federation.genesis.reorg_depth_max
    for height in range(settled + 1):
        hashes = [tree.canonical(height) for tree in trees]
        assert len(set(hashes)) == 1, f"height {height} has {len(set(hashes))} blocks"


def check_promises(peer: Peer) -> None:
    """What a peer says in its own name was persisted before, and it never says two things about one phase."""
    stored: set[Transaction | Vote | Block] = set()
    posts: dict[tuple[int, int], Transaction] = {}
    for effect in peer.effects:
        if isinstance(effect, Persist):
            stored.update(item for item in effect.records if isinstance(item, (Transaction, Vote, Block)))
        elif isinstance(effect, Publish):
            match effect.message:
                case PostMessage(said):
                    assert said in stored, "a post was published before it was stored"
                    first = posts.setdefault((said.round, said.phase), said)
                    assert first == said, "two posts for one phase"
                case VoteMessage(vote):
                    assert vote in stored, "a vote was published before it was stored"
                case BlockMessage(block):
                    assert block in stored, "a block was published before it was stored"
