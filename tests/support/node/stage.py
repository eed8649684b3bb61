"""One node on a stage: the test holds all keys, builds the chain around it, and says anything in anyone's name."""

from collections.abc import Hashable, Iterable
from typing import Any, TypeVar

from fedchain.chain.block import Block
from fedchain.chain.certificate import Certificate
from fedchain.chain.genesis import Genesis
from fedchain.chain.knowledge import Rules
from fedchain.chain.post import Post
from fedchain.chain.proof_of_work import search_nonce
from fedchain.chain.state import votes_required
from fedchain.chain.vote import NIL, Vote, VoteKind, sign_vote
from fedchain.crypto.hashing import sha256
from fedchain.crypto.keys import PublicKey
from fedchain.network.bitmaps import to_bitmap
from fedchain.network.messages import (
    CandidateMessage,
    Chunk,
    FinalMessage,
    HeldVotes,
    Message,
    PostMessage,
    Status,
    VoteMessage,
)
from fedchain.node.core.effects import Blame, Contribute, Effect, Mine, Publish, Refuse, Send
from fedchain.node.core.events import Contributed, Event, MessageReceived, Mined, PeersConnected, Tick
from fedchain.node.core.node import Node
from tests.support.chain.builders import CREATED_MS, ChainBuilder, keys, payload
from tests.support.node.driver import Peer

PREVOTE, PRECOMMIT = VoteKind.PREVOTE, VoteKind.PRECOMMIT

M = TypeVar("M")


class Stage:
    """A node (``keys(…)[number]``), a builder of the chain around it, and a clock.

    Attributes:
        victim: the node under test with its storage.
        chain: builds valid blocks, posts and votes.
        now_ms: the time.
        contributes: whether the victim's trainer is done at once, with the payload that the builder has for it.
        others: the other members, by key.
    """

    def __init__(
        self,
        genesis: Genesis,
        number: int = 0,
        rules: Rules | None = None,
        *,
        is_heard: bool = True,
        replays: bool = False,
        contributes: bool = True,
        wait_for: int = 0,
        neighbours: int | None = None,
    ) -> None:
        self.genesis = genesis
        self.chain = ChainBuilder(genesis, rules)
        key = keys(number + 1)[number]
        self.victim = Peer(
            number, key, genesis, self.chain.rules, replays=replays, wait_for=wait_for, neighbours=neighbours
        )
        self.now_ms = CREATED_MS
        self.contributes = contributes
        self.others = [member for member in genesis.members if member != self.victim.key.public_key]
        self.handle(Tick())
        for other in self.others:
            self.handle(PeersConnected((other,)))
        if is_heard:
            self.hear()

    @property
    def node(self) -> Node:
        """The node under test."""
        return self.victim.node

    @property
    def me(self) -> PublicKey:
        """Its public key."""
        return self.victim.key.public_key

    @property
    def relay(self) -> PublicKey:
        """A neighbour that passes on what others wrote."""
        return self.others[-1] if self.others else keys(20)[19].public_key

    def handle(self, event: Event) -> list[Effect]:
        """Let something happen."""
        effects = self.victim.handle(event, self.now_ms)
        for asked in [item for item in effects if isinstance(item, Contribute) and self.contributes]:
            data = payload(self.genesis.index[self.me] + 1, asked.round, asked.phase, 7)
            effects += self.victim.handle(Contributed(asked.round, asked.phase, data), self.now_ms)
        return effects

    def tick(self, seconds: float = 0) -> list[Effect]:
        """Let time pass, and then tick."""
        self.now_ms += round(1_000 * seconds)
        return self.handle(Tick())

    def wait(self, seconds: float, step_s: float = 1.0) -> list[Effect]:
        """Let time pass in ticks."""
        effects: list[Effect] = []
        while seconds > 0:
            effects += self.tick(min(step_s, seconds))
            seconds -= step_s
        return effects

    def restart(self, *, is_heard: bool = True) -> None:
        """The process ends and another one begins, with the same store and journal."""
        self.victim.node = self.victim.new_node()
        self.handle(Tick())
        for other in self.others:
            self.handle(PeersConnected((other,)))
        if is_heard:
            self.hear()

    def contribute(self, number: int = 1, round_number: int = 1, phase: int = 0) -> list[Effect]:
        """Let the victim's trainer be done with the payload of a number."""
        return self.handle(Contributed(round_number, phase, payload(number)))

    def mine(self, effects: Iterable[Effect]) -> list[Effect]:
        """Let the victim's miner find what was asked for last."""
        header = [item for item in effects if isinstance(item, Mine)][-1].header
        sealed = search_nonce(self.genesis.proof_function, header, 0, 1_000_000)
        assert sealed is not None, "tests use easy targets"
        return self.handle(Mined(sealed))

    def adopt(self, block: Block) -> Block:
        """Let the builder go on from a block that the victim mined."""
        self.chain.contents.update(self.victim.store._contents)
        return self.chain.keep(block)

    # what the node receives

    def receive(self, message: Message, sender: PublicKey | None = None) -> list[Effect]:
        """A message, from the relay unless said otherwise."""
        return self.handle(MessageReceived(sender or self.relay, message))

    def hear(self) -> None:
        """All others say that they are where the node is."""
        for other in self.others:
            self.receive(self.status(), other)

    def status(self, **changes: Any) -> Status:
        """Status of a peer that is where the node is and holds nothing."""
        fields: dict[str, Any] = {
            "height": self.node.head.height,
            "head_hash": self.node.head.block_hash,
            "posts": b"",
            "candidates": (),
            "votes": (),
            "lock": None,
        }
        return Status(**(fields | changes))

    def post(self, *posts: Post) -> list[Effect]:
        """Posts with their payloads."""
        messages = [PostMessage(post, self.chain.contents[post.payload_hash]) for post in posts]
        return [effect for message in messages for effect in self.receive(message)]

    def others_posts(self) -> list[Post]:
        """Good posts of the open phase by all others that contribute to it."""
        return [item for item in self.chain.posts(self.node.head.block_hash) if item.sender != self.me]

    def candidate(self, block: Block, *, payloads: bool = True) -> list[Effect]:
        """A block for the open height, and the payloads that the node asks for."""
        effects = self.receive(CandidateMessage(block))
        for post in block.transactions if payloads else ():
            effects += self.receive(Chunk(post.payload_hash, 0, self.chain.contents[post.payload_hash]))
        return effects

    def vote(
        self,
        block: Block | bytes,
        voters: Iterable[PublicKey],
        kind: VoteKind = PREVOTE,
        attempt: int = 0,
        height: int | None = None,
    ) -> list[Effect]:
        """Votes of some members for a block, or for a hash."""
        effects: list[Effect] = []
        for voter in voters:
            effects += self.receive(VoteMessage(self.a_vote(voter, block, kind, attempt, height)))
        return effects

    def a_vote(
        self, voter: PublicKey, block: Block | bytes, kind: VoteKind, attempt: int = 0, height: int | None = None
    ) -> Vote:
        """A member's vote; it measures nothing but what has to be measured."""
        block_hash = block.hash if isinstance(block, Block) else block
        measures = kind is PRECOMMIT and block_hash != NIL
        return sign_vote(
            self.chain.key(voter),
            self.genesis.chain_id,
            (self.node.head.height + 1 if height is None else height, attempt, kind),
            block_hash,
            clock_ms=self.now_ms if measures else 0,
            mining_ms=self.genesis.target_mining_time_ms if measures else 0,
        )

    def block(self, without: Iterable[PublicKey] = (), **changes: Any) -> Block:
        """A block for the open height by the first of the others, without the posts of some."""
        parent = self.node.head.block_hash
        members = self.node.head.roster.contributors - {*without}
        settled = self.node.ledger.settled
        fields: dict[str, Any] = {
            "posts": self.chain.posts(parent, members=sorted(members)),
            "certificate": None if settled is None else self.certificate(settled.block),
            "miner": self.chain.key([*self.others, self.me][0]),
        }
        return self.chain.extend(parent, **(fields | changes))

    def certificate(self, block: Block, kind: VoteKind = PRECOMMIT, attempt: int = 0) -> Certificate:
        """Votes of a quorum without the victim, as long as the others are one."""
        electors = self.chain.states[block.header.parent_hash].roster.electors
        voters = [member for member in (*self.others, self.me) if member in electors]
        voters = voters[: votes_required(self.genesis, electors)]
        return self.chain.certificate(block, voters, kind=kind, attempt=attempt)

    def contradict(self) -> bytes:
        """Make a block final whose knowledge the node computes otherwise; returns that, to be sent in a chunk."""
        theirs = payload(1) * 2  # as many numbers as a sum
        self.chain.contents[sha256(theirs)] = theirs
        block = self.chain.keep(self.chain.remake(self.block(), knowledge_root=sha256(theirs)))
        self.candidate(block)
        self.final(block)
        return theirs

    def final(self, block: Block, sender: PublicKey | None = None) -> list[Effect]:
        """A final block with its certificate."""
        return self.receive(FinalMessage(block, self.certificate(block)), sender)

    def accept(self, count: int = 1) -> list[Block]:
        """Let blocks become final, one after the other, with all that they count."""
        blocks = []
        for _ in range(count):
            block = self.block()
            self.candidate(block)
            self.final(block)
            assert self.node.head.block_hash == block.hash
            blocks.append(block)
        self.hear()
        return blocks

    def holds(self, *members: PublicKey) -> bytes:
        """A bitmap of members."""
        return to_bitmap((self.genesis.index[member] for member in members), len(self.genesis.members))

    def held(self, kind: VoteKind, attempt: int, *voters: PublicKey) -> HeldVotes:
        """Entry of a status about votes."""
        return HeldVotes(kind, attempt, self.holds(*voters))

    def digest(self) -> Hashable:
        """Everything that the node holds: a refused message leaves it as it was."""
        context, agreement = self.node._context, self.node.voting.agreement
        slots = tuple(agreement.ballots.slots(agreement.attempt))
        return (
            context.head.block_hash,
            len(context.mempool),
            tuple(context.ledger.entries),
            tuple(self.node._parts.crimes.open),
            tuple((slot, tuple(agreement.ballots.ballot(*slot).tally.items())) for slot in slots),
            agreement.attempt,
            agreement.lock,
            context.journal,
            self.node._parts.sessions.kept(),
            tuple(context.contents._held),
            tuple(context.contents.downloads._downloads),
            tuple(context.contents._waiting),
        )


def published(effects: Iterable[Effect], kind: type[M]) -> list[M]:
    """Published messages of one kind."""
    return [item.message for item in effects if isinstance(item, Publish) and isinstance(item.message, kind)]


def sent(effects: Iterable[Effect], kind: type[M]) -> list[M]:
    """Messages of one kind sent to single peers."""
    return [item.message for item in effects if isinstance(item, Send) and isinstance(item.message, kind)]


def votes(effects: Iterable[Effect]) -> list[tuple[VoteKind, int, bytes]]:
    """Votes that were cast: kind, attempt and block."""
    return [(item.vote.kind, item.vote.attempt, item.vote.block_hash) for item in published(effects, VoteMessage)]


def refused(effects: Iterable[Effect]) -> list[str]:
    """Names of the errors for which a message was not taken, held against nobody or against who passed it on."""
    return [type(item.error).__name__ for item in effects if isinstance(item, Refuse)]


def blamed(effects: Iterable[Effect]) -> list[tuple[PublicKey, str]]:
    """Members that are blamed for statements that they signed, and the errors' names."""
    return [(item.member, type(item.error).__name__) for item in effects if isinstance(item, Blame)]


def asked_to_contribute(effects: Iterable[Effect]) -> list[tuple[int, int]]:
    """Round and phase of each contribution that the trainer was asked for."""
    return [(item.round, item.phase) for item in effects if isinstance(item, Contribute)]


def asked_to_mine(effects: Iterable[Effect]) -> list[Mine]:
    """Headers that the miner was given."""
    return [item for item in effects if isinstance(item, Mine)]
