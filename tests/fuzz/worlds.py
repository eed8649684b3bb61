"""Worlds: federations with a chain, a node that begins somewhere in it, and the truth about everything it may ask."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from shutil import copytree
from typing import Any, cast

from fedchain.chain.block import Block
from fedchain.chain.genesis import AggregatorRule, Contributor, PhaseRule
from fedchain.chain.knowledge import AGGREGATOR
from fedchain.chain.storage.sqlite import Store
from fedchain.chain.storage.store import Contents, MemoryStore
from fedchain.chain.vote import VoteKind
from fedchain.crypto.hashing import sha256
from fedchain.crypto.keys import PrivateKey, PublicKey
from fedchain.network.bitmaps import from_bitmap
from fedchain.network.messages import (
    CandidateMessage,
    CertificateMessage,
    GetCandidate,
    GetCertificate,
    GetPosts,
    GetVotes,
    Message,
    PostMessage,
    VoteMessage,
)
from fedchain.network.session import SESSION_SIZE
from fedchain.node.core.checks import Checks
from fedchain.node.core.node import Node
from fedchain.node.core.parts import Conduct
from tests.support.chain.builders import ChainBuilder, genesis, keys, post
from tests.support.chain.changes import joining, living, own
from tests.support.chain.late import extend_with, late_chain, skip
from tests.support.node.crowd import Crowd
from tests.support.node.driver import Peer
from tests.support.node.parts import PartRules, listing, part_of
from tests.support.node.renewed import STRANGER, renewed
from tests.support.node.stage import Stage

BLOCKS = 12
"""Blocks of a chain, unless it is about something else."""


class Talker(Peer):
    """A node with a store on disk, which does whatever a node of the service does."""

    conduct = Conduct()

    def new_node(self) -> Node:
        """A node as it starts from what is stored."""
        self.starts += 1
        conduct = replace(self.conduct, parts=self.parts, replays=self.replays, backfills=True, refills=True)
        session = self.starts.to_bytes(SESSION_SIZE)
        checks = Checks(self.genesis, self.rules)
        return Node(self.genesis, self.key, checks, self.store, self.journal, conduct, session=session)


@dataclass(frozen=True)
class World:
    """A chain, and a node in it.

    Attributes:
        name: of the world.
        chain: has the keys of all.
        blocks: the chain that honest members have.
        held: how many of them the node begins with.
        me: the node's key.
        conduct: its shell's choices.
    """

    name: str
    chain: ChainBuilder
    blocks: tuple[Block, ...]
    held: int
    me: PrivateKey
    conduct: Conduct = field(default_factory=Conduct)

    @property
    def others(self) -> list[PublicKey]:
        """Active members at the head of the chain, in seat order, without the node."""
        roster = self.chain.states[self.blocks[-1].hash].roster
        return [key for key in roster.members if roster.is_active(key) and key != self.me.public_key]

    @property
    def liar(self) -> PrivateKey:
        """The key of the one member that lies."""
        return self.chain.key(self.others[0])

    @cache  # noqa: B019 - worlds live as long as the process
    def crowd(self) -> Crowd:
        """It answers as honest members do."""
        stage = Stage(self.chain.genesis, rules=self.chain.rules, is_heard=False)
        stage.chain = self.chain
        return Crowd(stage, self.blocks)

    def talker(self, folder: Path, template: Path) -> Talker:
        """A fresh node with its store in a folder, made after one that is built once."""
        place = template / self.name
        if not place.exists():
            with Store.create(place, self.chain.genesis, is_durable=False) as store:
                known = self.blocks[: self.held]
                needed = {item for block in known for item in (*block.payload_hashes, block.header.knowledge_root)}
                contents = Contents({item: self.chain.contents[item] for item in sorted(needed)})
                store.append([contents, *map(self.chain.final, known)])
        copytree(place, folder)
        talker = Talker(0, self.me, self.chain.genesis, self.chain.rules, replays=self.conduct.replays)
        talker.conduct = self.conduct
        talker.store = cast(MemoryStore, Store.open(folder, self.chain.genesis, is_durable=False))
        talker.node = talker.new_node()
        return talker

    def answers(self, question: Message) -> Iterator[Message]:
        """The truth."""
        chain = self.chain
        match question:
            case GetCandidate(block_hash):
                if block_hash in chain.blocks:
                    yield CandidateMessage(chain.blocks[block_hash])
            case GetPosts(round_number, phase, members):
                for block in self.blocks:
                    if (block.header.round, block.header.phase) == (round_number, phase):
                        yield from self._posts(block, members)
            case GetVotes(height, kind, attempt, members) if 0 < height <= len(self.blocks) and attempt < 2**32:
                block = self.blocks[height - 1]
                roster = chain.states[block.header.parent_hash].roster
                for place in from_bitmap(members, len(roster.members)):
                    if roster.members[place] in roster.electors and self._is_honest(roster.members[place]):
                        yield VoteMessage(chain.vote(roster.members[place], block, kind=kind, attempt=attempt))
            case GetCertificate(height, attempt) if 0 < height <= len(self.blocks) and attempt < 2**32:
                block = self.blocks[height - 1]
                yield CertificateMessage(chain.certificate(block, kind=VoteKind.PREVOTE, attempt=attempt))
            case _:
                yield from (message for _, message in self.crowd().answer(self.blocks, question))

    def _posts(self, block: Block, members: bytes) -> Iterator[PostMessage]:
        seats = self.chain.states[block.header.parent_hash].roster.seats
        marked = set(from_bitmap(members, len(seats)))
        for item in block.transactions:
            if seats[item.sender] in marked:
                yield PostMessage(item, self.chain.contents[item.payload_hash])

    def _is_honest(self, member: PublicKey) -> bool:
        return member not in (self.me.public_key, self.liar.public_key)


def _way_to(chain: ChainBuilder) -> tuple[Block, ...]:
    """The blocks from the first to the tip."""
    found, blocks = chain.tip, list[Block]()
    while found != chain.genesis.chain_id:
        blocks.append(chain.blocks[found])
        found = blocks[-1].header.parent_hash
    return tuple(reversed(blocks))


def _world(name: str, chain: ChainBuilder, held: int, number: int = 0, **conduct: Any) -> World:
    return World(name, chain, _way_to(chain), held, keys(number + 1)[number], Conduct(**conduct))


def _invited() -> World:
    """A stranger that has been told of a block by the member that invited it."""
    chain, blocks = renewed()
    return _world("invited", chain, 0, STRANGER, waypoint=(9, blocks[8].hash))


def _fixed(version: int) -> ChainBuilder:
    chain = ChainBuilder(genesis(4, version=version))
    chain.extend_many(BLOCKS)
    return chain


def _changing() -> ChainBuilder:
    """A member comes, another leaves."""
    chain = living(5)
    chain.extend_many(2)
    chain.extend(changes=[joining(chain, 5)])
    chain.extend_many(2)
    chain.extend(changes=[own(chain, 2)])
    chain.extend_many(5)
    return chain


def _late() -> ChainBuilder:
    """Two posts come late, and count."""
    chain = late_chain()
    for number in (3, 4):
        owed = skip(chain, number)
        extend_with(chain, owed)
    chain.extend_many(3)
    return chain


def _finished() -> ChainBuilder:
    chain = ChainBuilder(genesis(4, rounds=3))
    chain.extend_many(3)
    return chain


def _centralized() -> ChainBuilder:
    phases = PhaseRule("update", Contributor.PARTICIPANT), PhaseRule("global", Contributor.AGGREGATOR)
    document = genesis(5, phases=phases, aggregator=AggregatorRule.FIXED, centralized=True)
    chain = ChainBuilder(document)
    chain.extend_many(6)
    return chain


def _bulk() -> ChainBuilder:
    """Posts list parts, which the aggregator reads."""
    document = genesis(4, aggregator=AggregatorRule.FIXED)
    chain = ChainBuilder(document, PartRules(document.members))
    for _ in range(5):
        state, posts = chain.state, []
        for member in sorted(state.roster.contributors):
            data = part_of(document.index[member], state.height + 1)
            content = listing((data, AGGREGATOR))
            chain.contents |= {sha256(content): content, sha256(data): data}
            posts.append(post(chain.key(member), document, state.round, content, phase=state.phase))
        chain.extend(posts=tuple(posts))
    return chain


WORLDS: Sequence[Callable[[], World]] = (
    lambda: _world("follows", _fixed(2), 3),
    lambda: _world("joins", _fixed(2), 0),
    lambda: _world("replays", _fixed(2), 0, replays=True),
    lambda: _world("version 3", _fixed(3), 3),
    lambda: _world("joins by light", renewed()[0], 0, STRANGER),
    _invited,
    lambda: _world("changes", _changing(), 2),
    lambda: _world("changes, from afar", _changing(), 0),
    lambda: _world("late posts", _late(), 2),
    lambda: _world("late posts, replayed", _late(), 0, replays=True),
    lambda: _world("finished", _finished(), 3),
    lambda: _world("nearly finished", _finished(), 2),
    lambda: _world("centralized", _centralized(), 1),
    lambda: _world("bulk", _bulk(), 2),
    lambda: _world("bulk, from afar", _bulk(), 0),
    lambda: _world("at the head", _fixed(2), BLOCKS),
)


@cache
def world(number: int) -> World:
    """One of the worlds."""
    return WORLDS[number % len(WORLDS)]()
