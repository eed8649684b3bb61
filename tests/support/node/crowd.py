"""A crowd around one node: honest members answer it from a chain that is there, liars as a test has them; virtual time.

A seed draws which peer speaks first, how long each answer travels, and when each peer says where it is.
"""

import heapq
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial
from itertools import count
from random import Random
from typing import Any

from fedchain.chain.block import Block
from fedchain.chain.certificate import Certificate, certify
from fedchain.chain.light.light_block import LightBlock
from fedchain.chain.state import decode_state, genesis_state, votes_required
from fedchain.chain.vote import VoteKind, sign_vote
from fedchain.crypto.hashing import Hash, sha256
from fedchain.crypto.keys import PublicKey
from fedchain.network.messages import (
    CHUNK_SIZE,
    FINALS_MAX,
    Chunk,
    FinalMessage,
    GetContent,
    GetFinal,
    GetLight,
    GetPayloads,
    LightMessage,
    Message,
    Payloads,
    Status,
)
from fedchain.node.core.effects import Blame, Effect, Refuse, Send
from fedchain.node.core.events import Tick
from fedchain.node.core.reception import TICK_MS
from tests.support.chain.builders import ChainBuilder
from tests.support.chain.light import light
from tests.support.node.stage import Stage

DELAY_MS = 10, 60
"""How long a message travels."""

Answers = Iterable[tuple[int, Message]]
"""Milliseconds until a message leaves, and the message."""

Behaviour = Callable[[Message], Answers]
"""The answers of a peer to a message."""


class Crowd:
    """A node under test among members that tell where they are once a second, and answer questions.

    Args:
        stage: the node, connected to nobody who spoke yet.
        blocks: the chain that honest members have, from height 1 on.
        seed: of all delays.
    """

    def __init__(self, stage: Stage, blocks: Sequence[Block], seed: int = 0) -> None:
        self.stage, self.blocks, self.draw = stage, blocks, Random(seed)
        self.effects: list[Effect] = []
        self.asked: list[tuple[int, PublicKey, GetFinal]] = []
        self._behaviours: dict[PublicKey, Behaviour] = {}
        self._queue: list[tuple[int, int, Callable[[], list[Effect]]]] = []
        self._sequence = 0
        chain = stage.chain
        self.contents = {**chain.contents, **{state.root: state.encode() for state in chain.states.values()}}
        self._certificates: dict[Hash, Certificate] = {}
        self._lights: dict[Hash, LightBlock] = {}
        self._later(0, partial(self._tick, TICK_MS))

    # who is there

    def add_honest(self, *members: PublicKey, starts_ms: int = 0, height: int | None = None) -> None:
        """Members that have the chain up to a height, the whole of it unless given."""
        blocks = self.blocks[:height]
        head = blocks[-1].hash if blocks else self.stage.genesis.chain_id
        for member in members:
            self.add(member, partial(self.answer, blocks), lambda: (len(blocks), head), starts_ms)

    def add(
        self,
        member: PublicKey,
        behaviour: Behaviour,
        claim: Callable[[], tuple[int, Hash]],
        starts_ms: int = 0,
        every_ms: int = TICK_MS,
    ) -> None:
        """Somebody that says once a second that its head is where ``claim`` says, and answers as it likes."""
        self._behaviours[member] = behaviour
        self._later(starts_ms + self.draw.randrange(200), partial(self._say, member, claim, every_ms))

    def answer(self, blocks: Sequence[Block], message: Message) -> Answers:
        """The answer of an honest member that has these blocks."""
        match message:
            case GetFinal(height, count):
                for block in blocks[height - 1 : height - 1 + min(count, FINALS_MAX)] if height else ():
                    yield 0, self.final(block)
            case GetContent(content_hash, offset):
                yield 0, Chunk(content_hash, offset, self.contents.get(content_hash, b"")[offset : offset + CHUNK_SIZE])
            case GetLight(height):
                yield 0, LightMessage(height, self.light(blocks[height - 1]) if 0 < height <= len(blocks) else None)
            case GetPayloads(height) if height <= len(blocks):
                yield 0, Payloads(height, tuple(self.contents[p.payload_hash] for p in blocks[height - 1].transactions))
            case _:
                pass

    def final(self, block: Block) -> FinalMessage:
        """A block of the chain with its certificate."""
        if block.hash not in self._certificates:
            self._certificates[block.hash] = self.stage.chain.certificate(block)
        return FinalMessage(block, self._certificates[block.hash])

    def light(self, block: Block) -> LightBlock:
        """The light block of a block of the chain, where members change."""
        if block.hash not in self._lights:
            self._lights[block.hash] = light(self.stage.chain, block.hash)
        return self._lights[block.hash]

    # time

    def run(self, until: Callable[[], bool], seconds: float) -> float:
        """Let time pass until something holds, or ``seconds`` are over; how many it took."""
        begun_ms = self.stage.now_ms
        while not until() and self._queue[0][0] <= begun_ms + 1_000 * seconds:
            at_ms, _, action = heapq.heappop(self._queue)
            self.stage.now_ms = max(self.stage.now_ms, at_ms)
            self._carry(action())
        return (self.stage.now_ms - begun_ms) / 1_000

    def send(self, member: PublicKey, message: Message) -> None:
        """A member sends something now, whether or not it was asked."""
        self._later(self.draw.randrange(*DELAY_MS), partial(self.stage.receive, message, member))

    def is_at_head(self) -> bool:
        """Whether the node has the whole chain."""
        return self.stage.node.head.block_hash == self.blocks[-1].hash

    def refused(self) -> set[PublicKey]:
        """Peers with messages that were refused for ever, and members to blame for what they signed."""
        return {
            effect.peer if isinstance(effect, Refuse) else effect.member
            for effect in self.effects
            if isinstance(effect, Blame)
            or (isinstance(effect, Refuse) and type(effect.error).__name__.startswith("Invalid"))
        }

    def _carry(self, effects: list[Effect]) -> None:
        self.effects += effects
        for effect in effects:
            if isinstance(effect, Send):
                if isinstance(effect.message, GetFinal):
                    self.asked.append((self.stage.now_ms, effect.peer, effect.message))
                behaviour = self._behaviours.get(effect.peer)
                for delay_ms, answer in behaviour(effect.message) if behaviour else ():
                    travels_ms = self.draw.randrange(*DELAY_MS) + self.draw.randrange(*DELAY_MS)
                    self._later(delay_ms + travels_ms, partial(self.stage.receive, answer, effect.peer))

    def _say(self, member: PublicKey, claim: Callable[[], tuple[int, Hash]], every_ms: int) -> list[Effect]:
        self._later(every_ms, partial(self._say, member, claim, every_ms))
        height, head_hash = claim()
        return self.stage.receive(Status(height, head_hash, b"", (), (), None), member)

    def _tick(self, every_ms: int) -> list[Effect]:
        self._later(every_ms, partial(self._tick, every_ms))
        return self.stage.handle(Tick())

    def _later(self, delay_ms: int, action: Callable[[], list[Effect]]) -> None:
        self._sequence += 1
        heapq.heappush(self._queue, (self.stage.now_ms + delay_ms, self._sequence, action))


def invented_root(number: int) -> Hash:
    """A hash of nothing."""
    return sha256(b"nothing %d" % number)


def forge_head(builder: ChainBuilder, liars: Sequence[PublicKey], height: int) -> tuple[Block, Certificate, bytes]:
    """A head whose electors some liars chose, by trying parents: nothing in it is wrong but that it never was.

    Returns it with its certificate and the state before it, encoded.
    """
    genesis = builder.genesis
    for number in count():
        parent = sha256(b"parent %d" % number)
        fields: dict[str, Any] = {"block_hash": parent, "height": height - 1, "round": height - 1}
        before = replace(genesis_state(genesis), **fields, deciders=frozenset(liars))
        state = decode_state(genesis, before.encode())
        voters = sorted(state.roster.electors & {*liars})
        if len(voters) >= votes_required(genesis, state.roster.electors):
            break
    builder.states[parent] = state
    votes = (
        sign_vote(
            builder.key(liar), genesis.chain_id, (height - 1, 0, VoteKind.PRECOMMIT), parent, clock_ms=1, mining_ms=1
        )
        for liar in liars
    )
    block = builder.extend(parent, posts=(), certificate=certify(votes), miner=builder.key(liars[0]))
    return block, builder.certificate(block, voters), state.encode()
