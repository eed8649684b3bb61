"""A federation in one process: nodes, a fake clock, and a queue that delivers what they say in a seeded order."""

import heapq
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from random import Random

from fedchain.chain.block import Block
from fedchain.chain.exceptions import Refused
from fedchain.chain.genesis import Genesis
from fedchain.chain.knowledge import Occasion, Rules
from fedchain.chain.post import Post
from fedchain.chain.proof_of_work import search_nonce
from fedchain.chain.storage.store import Candidate, MemoryStore, Record
from fedchain.chain.vote import Vote
from fedchain.crypto.hashing import Hash, sha256
from fedchain.crypto.keys import PrivateKey, PublicKey
from fedchain.learning.exceptions import PartMissing
from fedchain.network.messages import (
    CandidateMessage,
    Message,
    PostMessage,
    VoteMessage,
    decode_message,
    encode_message,
)
from fedchain.network.session import SESSION_SIZE
from fedchain.node.core.checks import Checks
from fedchain.node.core.effects import Blame, Contribute, Effect, Mine, Persist, Publish, Refuse, Send, Wake
from fedchain.node.core.events import Computed, Contributed, Event, MessageReceived, Mined, Moment, PeersConnected, Tick
from fedchain.node.core.following.light_joining import Waypoint
from fedchain.node.core.jobs import Job, KeepPart
from fedchain.node.core.node import Node
from fedchain.node.core.notices import Notice
from fedchain.node.core.parts import Conduct
from fedchain.node.core.reception import TICK_MS
from fedchain.node.core.voting.journal import Journal
from fedchain.node.shell.parts import run_part
from fedchain.node.shell.verbs import Verbs
from tests.support.chain.builders import CREATED_MS, SumRules, keys, payload

TRAINING_MS = 1_000
DELAY_MAX_MS = 100
MINING_MAX_MS = 2_000

Payloads = Callable[[int, Contribute], bytes]
"""Payload with which a peer (by number) answers a ``Contribute`` effect."""

Spoken = type[PostMessage] | type[CandidateMessage] | type[VoteMessage]


def small_payload(number: int, effect: Contribute) -> bytes:
    """A payload for ``SumRules`` that names peer, round and phase."""
    return payload(number + 1, effect.round, effect.phase)


class BlobRules(Rules):
    """Payloads are bytes of any size but none; knowledge is a hash over all that was posted so far."""

    def check(self, occasion: Occasion, sender: PublicKey, knowledge: bytes, payload: bytes) -> None:
        if not payload:
            raise ValueError(f"{occasion.phase} takes no empty payload")

    def is_slow_to_check(self, phase: str) -> bool:
        return False

    def aggregate(self, occasion: Occasion, knowledge: bytes, posts: Sequence[tuple[PublicKey, bytes]]) -> bytes:
        return sha256(knowledge + occasion.phase.encode() + b"".join(sender + sha256(data) for sender, data in posts))


class SmallBlobRules(BlobRules):
    """Payloads have a hundred bytes at most."""

    def payload_size_max(self, phase: str) -> int:
        return 100

    def check(self, occasion: Occasion, sender: PublicKey, knowledge: bytes, payload: bytes) -> None:
        super().check(occasion, sender, knowledge, payload)
        if len(payload) > self.payload_size_max(occasion.phase):
            raise ValueError(f"{len(payload)} bytes")


class HeldParts(dict[Hash, bytes]):
    """Parts in memory, as a node looks for them."""

    def has(self, part_hash: Hash) -> bool:
        return part_hash in self

    def read_range(self, part_hash: Hash, start: int, size: int) -> bytes | None:
        return self[part_hash][start : start + size] if part_hash in self else None

    def read(self, part_hash: Hash) -> bytes:
        if part_hash not in self:
            raise PartMissing(f"part {part_hash.hex()} is not here")
        return self[part_hash]

    def write(self, part_hash: Hash, data: bytes) -> None:
        self[part_hash] = data


class Peer:
    """A node with its storage and journal, and everything that happened to it."""

    def __init__(
        self,
        number: int,
        key: PrivateKey,
        genesis: Genesis,
        rules: Rules,
        *,
        replays: bool = False,
        wait_for: int = 0,
        neighbours: int | None = None,
    ) -> None:
        self.number, self.key, self.genesis, self.rules, self.replays = number, key, genesis, rules, replays
        self.wait_for, self.neighbours = wait_for, neighbours
        self.store = MemoryStore()
        self.waypoint: Waypoint | None = None
        self.journal = Journal()
        self.parts = HeldParts()
        self.log: list[tuple[Event, Moment]] = []
        self.effects: list[Effect] = []
        self.notices: list[Notice] = []
        self.clock_offset_ms = 0
        self.life = self.starts = 0
        self.up = True
        self.stopped = ""
        self._waiting = deque[Event]()
        self._verbs = Verbs(
            store=self._store,
            retain=lambda needed: self.store.retain(needed),
            keep_parts=self._keep_parts,
            publish=_leave,
            send=_leave,
            train=_leave,
            mine=_leave,
            compute=self._compute,
            wake=_leave,
            blame=_leave,
            tell=self.notices.append,
            stop=self._stop,
        )
        self.node = self.new_node()

    def new_node(self) -> Node:
        """A node as it starts from what is stored."""
        checks, self.starts = Checks(self.genesis, self.rules), self.starts + 1
        return Node(
            self.genesis,
            self.key,
            checks,
            self.store,
            self.journal,
            conduct=Conduct(
                parts=self.parts,
                replays=self.replays,
                wait_for=self.wait_for,
                neighbours=self.neighbours,
                waypoint=self.waypoint,
            ),
            session=sha256(b"start %d of peer %d" % (self.starts, self.number))[:SESSION_SIZE],
        )

    def handle(self, event: Event, now_ms: int) -> list[Effect]:
        """Feed the node, store what it asks to store, and do its jobs at once."""
        moment = Moment(now_ms - CREATED_MS, now_ms + self.clock_offset_ms)
        effects = list[Effect]()
        self._waiting.append(event)
        while self._waiting:
            happened = self._waiting.popleft()
            self.log.append((happened, moment))
            for effect in self.node.handle(happened, moment):
                self.carry_out(effect)
                effects.append(effect)
        self.effects += effects
        return effects

    def carry_out(self, effect: Effect) -> None:
        """Do what concerns this peer alone; the federation carries messages, and trains and mines."""
        self._verbs.carry_out(effect)

    def _store(self, records: Sequence[Record], journal: Journal | None) -> None:
        self.store.append(records)
        self.journal = journal or self.journal

    def _compute(self, job: Job) -> None:
        checks = Checks(self.genesis, self.rules)
        result = run_part(checks, self.parts, job) if isinstance(job, KeepPart) else checks.run(job)
        self._waiting.append(Computed(job, result))

    def _keep_parts(self, needed: frozenset[Hash]) -> None:
        for part_hash in self.parts.keys() - needed:
            del self.parts[part_hash]

    def _stop(self, reason: str) -> None:
        self.up, self.stopped = False, reason

    def receive(self, peer: PublicKey, message: Message, now_ms: int) -> list[Effect]:
        """Feed a message."""
        return self.handle(MessageReceived(peer, message), now_ms)

    def published(self, kind: Spoken) -> list[Message]:
        """Messages that this peer published, in order."""
        return [
            effect.message
            for effect in self.effects
            if isinstance(effect, Publish) and isinstance(effect.message, kind)
        ]

    def posts(self) -> list[Post]:
        """The posts among them."""
        return [message.post for message in self.published(PostMessage) if isinstance(message, PostMessage)]

    def refusals(self) -> list[Refused]:
        """Everything that this peer did not take."""
        return [effect.error for effect in self.effects if isinstance(effect, Refuse | Blame)]


def _leave(*_: object) -> None:
    """The federation does it, or nobody."""


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
        self.training_ms: dict[int, int] = {}
        self._draw = Random(seed)
        self._miners = None if miners is None else set(miners)
        self._queue: list[tuple[int, int, Callable[[], None]]] = []
        self._sequence = 0
        count = len(genesis.members) if count is None else count
        self.peers = [Peer(number, key, genesis, rules or SumRules()) for number, key in enumerate(keys(count))]
        for number in silent:
            self.peers[number].up = False
        for peer in self.peers:
            if peer.up:
                self.start(peer)

    @property
    def running(self) -> list[Peer]:
        """Peers that are up."""
        return [peer for peer in self.peers if peer.up]

    def add_twin(self, number: int, store: MemoryStore, journal: Journal) -> Peer:
        """Run a second node with the key of a peer; it begins with this store and journal."""
        original = self.peers[number]
        twin = Peer(len(self.peers), original.key, self.genesis, original.rules)
        twin.store, twin.journal = store, journal
        twin.node = twin.new_node()
        self.peers.append(twin)
        self.start(twin)
        return twin

    def start(self, peer: Peer) -> None:
        """Connect a peer to all others, both ways, and begin its ticks."""
        for other in self.peers:
            if other.key != peer.key and other.up:
                self.feed(peer, PeersConnected((other.key.public_key,)))
                self.feed(other, PeersConnected((peer.key.public_key,)))
        self.later(self._draw.randrange(TICK_MS), partial(self._tick, peer, peer.life))

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
                    for other in self.peers:
                        if other.key.public_key == receiver:
                            self._carry(peer, other, message)
                case Contribute():
                    data = self.payloads(peer.number, effect)
                    done = Contributed(effect.round, effect.phase, data)
                    took_ms = self.training_ms.get(peer.number, TRAINING_MS)
                    self.later(took_ms, partial(self._if_alive, peer, peer.life, done))
                case Mine(header) if self._miners is None or peer.number in self._miners:
                    sealed = search_nonce(self.genesis.proof_function, header, 0, 1_000_000)
                    assert sealed is not None, "tests use easy targets"
                    delay = self._draw.randrange(50, MINING_MAX_MS)
                    self.later(delay, partial(self._if_alive, peer, peer.life, Mined(sealed)))
                case Wake(at_ms):
                    delay = max(0, at_ms - (self.now_ms - CREATED_MS))
                    self.later(delay, partial(self._if_alive, peer, peer.life, Tick()))
                case _:
                    pass  # the peer did it

    def run(self, until: Callable[[], bool], limit_s: int = 120) -> None:
        """Let time pass until ``until`` holds."""
        limit_ms = self.now_ms + 1_000 * limit_s
        while not until():
            heights = [peer.node.head.height for peer in self.running]
            assert self._queue[0][0] <= limit_ms, f"after {limit_s} s heights are {heights}"
            self.step()

    def step(self) -> bool:
        """Let the next thing happen; False: nothing will."""
        if not self._queue:
            return False
        time_ms, _, action = heapq.heappop(self._queue)
        self.now_ms = max(self.now_ms, time_ms)
        action()
        return True

    def run_for(self, seconds: int) -> None:
        """Let time pass."""
        end_ms = self.now_ms + 1_000 * seconds
        self.run(lambda: self._queue[0][0] > end_ms, seconds + 1)

    def run_to_height(self, height: int, limit_s: int = 120) -> None:
        """Let time pass until every running peer is at ``height`` or above."""
        self.run(lambda: all(peer.node.head.height >= height for peer in self.running), limit_s)

    def blocks(self) -> list[Block]:
        """The chain of the first running peer."""
        ledger = self.running[0].node.ledger
        found = (ledger.final(height) for height in range(1, ledger.head.height + 1))
        return [item[0] for item in found if item is not None]

    def _carry(self, sender: Peer, receiver: Peer, message: Message) -> None:
        self.sent.append((sender.number, receiver.number, message))
        delay = self._draw.randrange(1, DELAY_MAX_MS)
        if self._draw.random() < self.loss or self.drop(sender.number, receiver.number, message):
            return
        relay = sender  # what a node's twin says reaches it by way of others
        if sender.key == receiver.key:
            relay = next((other for other in self.running if other.key != receiver.key), sender)
        arrived = MessageReceived(relay.key.public_key, decode_message(encode_message(message)))
        self.later(delay, partial(self._if_alive, receiver, receiver.life, arrived))

    def _if_alive(self, peer: Peer, life: int, event: Event) -> None:
        if peer.up and peer.life == life:
            self.feed(peer, event)

    def _tick(self, peer: Peer, life: int) -> None:
        if peer.up and peer.life == life:
            self.feed(peer, Tick())
            self.later(TICK_MS, partial(self._tick, peer, life))

    def later(self, delay_ms: int, action: Callable[[], None]) -> None:
        """Let something happen after a while."""
        self._sequence += 1
        heapq.heappush(self._queue, (self.now_ms + delay_ms, self._sequence, action))


def check_agreement(federation: Federation) -> None:
    """The running peers have one block at each height that several of them finalized."""
    ledgers = [peer.node.ledger for peer in federation.running]
    for height in range(1, max(ledger.head.height for ledger in ledgers) + 1):
        hashes = {found[0].hash for ledger in ledgers if (found := ledger.final(height)) is not None}
        assert len(hashes) <= 1, f"height {height} has {len(hashes)} blocks"


def check_promises(peer: Peer) -> None:
    """Check that a peer persisted its own statements before it sent them, and never made two where one is allowed."""
    stored: set[Post | Vote | Block] = set()
    slots: dict[tuple[int, ...], Post | Vote] = {}
    for effect in peer.effects:
        match effect:
            case Persist(records):
                stored.update(item for item in records if isinstance(item, Post | Vote))
                stored.update(item.block for item in records if isinstance(item, Candidate))
            case Publish(PostMessage(said)):
                assert said in stored, "a post was published before it was stored"
                assert slots.setdefault((said.round, said.phase), said) == said, "two posts for one phase"
            case Publish(VoteMessage(vote)):
                assert vote in stored, "a vote was published before it was stored"
                assert slots.setdefault(vote.slot, vote) == vote, f"two votes in {vote.slot}"
            case Publish(CandidateMessage(block)):
                assert block in stored, "a block was published before it was stored"
            case _:
                pass
