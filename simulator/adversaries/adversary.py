"""The base of all adversaries: a real node that follows the chain, the keys of the whole coalition, and no scruples.

An adversary stands between its node and its shell: it may replace the events that the node receives and the effects
that the node asks for. The base class follows the protocol; each behaviour overrides the part that it breaks.
"""

import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

from fedchain.chain.block import Block
from fedchain.chain.certificate import Certificate
from fedchain.chain.evidence import Statement
from fedchain.chain.genesis import Genesis
from fedchain.chain.knowledge import Rules
from fedchain.chain.post import sign_post
from fedchain.chain.vote import NIL, Vote, VoteKind, sign_vote
from fedchain.crypto.hashing import Hash
from fedchain.crypto.keys import PrivateKey, PublicKey
from fedchain.network.messages import Message, PostMessage, VoteMessage
from fedchain.node.core.effects import Effect, Publish, Send, Stop
from fedchain.node.core.events import Event, MessageReceived
from fedchain.node.core.node import Node
from fedchain.node.core.voting.twins import KeyGuard
from fedchain.simulator.engine.clock import VirtualTimeLoop
from fedchain.simulator.engine.peer import SimulatedPeer


@dataclass(frozen=True, slots=True)
class Coalition:
    """Knowledge that the adversaries of a federation share."""

    genesis: Genesis
    rules: Rules
    loop: VirtualTimeLoop
    keys: tuple[PrivateKey, ...]
    """The keys of all adversaries: each may sign in the name of any other."""
    honest: tuple[int, ...]
    """Numbers of the peers that follow the protocol."""
    shared: dict[str, Any] = field(default_factory=dict)
    """Objects that its members use together, by name."""


@dataclass(frozen=True, slots=True)
class Parameter:
    """A number that a scenario can set for a behaviour."""

    default: float
    low: float
    high: float
    """Largest value that is allowed."""


class Unguarded:
    """Stands in for the guard of a node's own key, which an adversary also signs with elsewhere."""

    @property
    def is_listening(self) -> bool:
        """False always."""
        return False

    def is_silent(self) -> bool:
        """False always."""
        return False

    def may_end(self) -> bool:
        """False always: there is no silence."""
        return False

    def advance(self) -> bool:
        """False always."""
        return False

    def hears(self, statement: Statement) -> None:
        """Do nothing: an adversary signs what it likes."""

    def reads(self, block: Block, certificate: Certificate) -> None:
        """Do nothing: an adversary signs what it likes."""


class Adversary:
    """Follows the protocol, except where a subclass overrides it.

    Args:
        coalition: the knowledge that it shares with the other adversaries.
        draw: its source of randomness.
        parameters: values of some of ``PARAMETERS``, within their bounds.
    """

    PARAMETERS: ClassVar[Mapping[str, Parameter]] = {}
    """Parameters that a scenario can set, by name."""

    def __init__(self, coalition: Coalition, draw: random.Random, parameters: Mapping[str, float]) -> None:
        self.coalition, self.draw = coalition, draw
        self.parameters = {name: parameters.get(name, item.default) for name, item in self.PARAMETERS.items()}
        self._peer: SimulatedPeer | None = None

    guard: KeyGuard = Unguarded()

    # what a behaviour may override

    def listen(self, event: Event) -> Sequence[Event]:
        """Events that the node receives in place of ``event``."""
        return (event,)

    def say(self, effect: Effect) -> Sequence[Effect]:
        """Effects that are carried out in place of ``effect``."""
        return () if isinstance(effect, Stop) else (effect,)

    def act(self) -> None:
        """Act on a tick: called once a second."""

    # what it can do

    def hear(self, event: Event) -> Sequence[Event]:
        """Events that reach the node: votes that others signed in its name do not."""
        message = event.message if isinstance(event, MessageReceived) else None
        if isinstance(message, VoteMessage) and message.vote.voter == self.key.public_key:
            return ()
        return self.listen(event)

    def begin(self, peer: SimulatedPeer) -> None:
        """The peer has started."""
        self._peer = peer

    @property
    def peer(self) -> SimulatedPeer:
        """The peer that behaves like this."""
        assert self._peer is not None, "an adversary acts once its peer has started"
        return self._peer

    @property
    def node(self) -> Node:
        """Its node, which must run."""
        assert self.peer.node is not None, "an adversary acts while its peer runs"
        return self.peer.node

    @property
    def key(self) -> PrivateKey:
        """Its own key."""
        return self.peer.key

    @property
    def genesis(self) -> Genesis:
        """The federation's founding document."""
        return self.coalition.genesis

    @property
    def height(self) -> int:
        """The open height."""
        return self.node.head.height + 1

    @property
    def is_running(self) -> bool:
        """Whether its peer is up."""
        return self._peer is not None and self._peer.node is not None

    def member(self, number: int) -> PublicKey:
        """The public key of a peer."""
        return self.node.head.roster.members[number]

    def send(self, numbers: Iterable[int], message: Message) -> None:
        """Send a message to some peers, and to nobody else; those that have not joined yet get none."""
        for number in numbers:
            if number != self.peer.number and number < len(self.node.head.roster):
                self.peer.carry_out(Send(self.member(number), message))

    def after(self, seconds: float, action: Callable[[], object]) -> None:
        """Do something later, if the peer runs then."""
        self.coalition.loop.call_later(seconds, self._do, action)

    def _do(self, action: Callable[[], object]) -> None:
        if self.is_running:
            action()

    @property
    def phase(self) -> tuple[int, int]:
        """(round, phase) that is open."""
        return self.node.head.round, self.node.head.phase

    def post(self, payload: bytes, numbers: Iterable[int] | None) -> None:
        """Post a payload for the open phase to some peers, or to all; it can be fetched by its hash."""
        post = sign_post(self.key, self.genesis.chain_id, *self.phase, payload)
        self.node.hold(payload)
        message = PostMessage(post, payload if len(payload) <= self.node.head.rules.inline_size_max else None)
        if numbers is None:
            self.peer.carry_out(Publish(message))
        else:
            self.send(numbers, message)

    def candidates(self) -> list[Hash]:
        """Blocks of the open height that it knows, in the order of their hashes."""
        return sorted(self.node.ledger.entries)

    def vote(
        self,
        key: PrivateKey,
        kind: VoteKind,
        attempt: int,
        block_hash: Hash,
        *,
        height: int | None = None,
        clock_ms: int | None = None,
        mining_ms: int | None = None,
    ) -> Vote:
        """Sign a vote with any key of the coalition; where an argument is None, use an honest member's value."""
        measures = kind is VoteKind.PRECOMMIT and block_hash != NIL
        return sign_vote(
            key,
            self.genesis.chain_id,
            (self.height if height is None else height, attempt, kind),
            block_hash,
            clock_ms=(self.peer.clock_ms() if clock_ms is None else max(0, clock_ms)) if measures else 0,
            mining_ms=(self.genesis.target_mining_time_ms if mining_ms is None else mining_ms) if measures else 0,
        )
