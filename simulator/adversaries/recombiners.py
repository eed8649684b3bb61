"""An adversary that recombines: it hands out any well-formed message that can be put together from others' parts."""

import random
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, TypeVar

from fedchain.chain.block import Block
from fedchain.chain.certificate import certify
from fedchain.chain.state import votes_required
from fedchain.chain.vote import NIL, Vote, VoteKind
from fedchain.network.messages import (
    CertificateMessage,
    Chunk,
    EvidenceMessage,
    FinalMessage,
    GetContent,
    GetFinal,
    GetPayloads,
    Message,
    Status,
    VoteMessage,
)
from fedchain.node.core.effects import Effect, Publish, Send
from fedchain.node.core.events import Event, MessageReceived
from fedchain.simulator.adversaries.adversary import Adversary, Parameter
from fedchain.simulator.adversaries.hoard import KEPT_HEIGHTS, Hoard, Slot
from fedchain.simulator.adversaries.recombination import NothingToChoose, Recombination
from fedchain.simulator.engine.peer import SimulatedPeer

VICTIM_S = 3.0
"""Virtual seconds for which one member gets most of the messages."""

OPEN_HEIGHT = 0.7
"""Probability that objects of the open height are preferred."""

KNOWN_SHAPES = 0.4
"""Probability that a message of a shape known to be dangerous is tried."""

FALSE_ANSWERS = 0.3
"""Share of requests for blocks and contents that are answered with something else."""

T = TypeVar("T")


class Recombiner(Adversary):
    """Keeps all that crosses the wire, together with its coalition, and hands out messages made from it.

    Otherwise it follows the protocol, except for its votes and some of its answers. It shows its votes to members of
    its choice.
    """

    PARAMETERS: ClassVar[Mapping[str, Parameter]] = {"per_s": Parameter(6, 0, 1_000)}

    def begin(self, peer: SimulatedPeer) -> None:
        """Find or make the coalition's hoard, which outlives its members' crashes."""
        super().begin(peer)
        shared = self.coalition.shared
        if "hoard" not in shared:
            shared["hoard"] = Hoard(self.genesis, self.coalition.keys)
        self._hoard: Hoard = shared["hoard"]
        self._choice = _Leaning(self.draw)
        self._recombination = Recombination(self._hoard, self._choice)
        self._noted_height = -1
        self._victim, self._victim_until_s = 0, 0.0

    def listen(self, event: Event) -> Sequence[Event]:
        """Keep everything, answer some requests with something else, and use a vote that completes a quorum."""
        if not isinstance(event, MessageReceived):
            return (event,)
        self._hoard.note(event.message)
        peer, seats = event.peer, self.node.head.roster.seats  # under a next key it has none yet
        match event.message:
            case GetFinal() | GetContent() | GetPayloads() if peer in seats and self.draw.random() < FALSE_ANSWERS:
                self._answer(seats[peer], event.message)
                return ()
            case VoteMessage(vote) if vote.height == self.height and vote.block_hash != NIL:
                self._complete_for(vote)
                if self.draw.random() < 1 / len(self.node.head.roster):
                    self._try(self._final_of_prevotes)
            case _:
                pass
        return (event,)

    def _complete_for(self, vote: Vote) -> None:
        """Show the voter alone a certificate, if its vote and the coalition's complete a quorum."""
        slot = vote.kind, vote.height, vote.attempt, vote.block_hash
        number, votes = self.node.head.roster.seats.get(vote.voter), self._hoard.votes_of(slot)
        required = votes_required(self.genesis, self.node.head.roster.electors)
        if number is not None and number in self.coalition.honest and len(votes) >= required:
            certificate = certify(votes)
            if vote.kind is VoteKind.PREVOTE:
                self.send((number,), CertificateMessage(certificate))
            else:
                self._try(lambda: FinalMessage(self._block_of(slot), certificate), number)

    def say(self, effect: Effect) -> Sequence[Effect]:
        """Send about half of the votes to some members only, no evidence, and not every status."""
        match effect:
            case Publish(message) | Send(_, message):
                self._hoard.note(message)
            case _:
                pass
        match effect:
            case Publish(VoteMessage() as message) if self.draw.random() < 0.5:
                honest = self.coalition.honest
                self.send(self.draw.sample(honest, self.draw.randrange(len(honest))), message)
                return ()
            case Publish(EvidenceMessage()):
                return ()
            case Send(_, Status()) if self.draw.random() < FALSE_ANSWERS:
                return ()
            case _:
                return super().say(effect)

    def act(self) -> None:
        """Schedule the messages of the coming second."""
        self._note_head()
        if self.coalition.loop.time() >= self._victim_until_s:
            self._victim = self.draw.choice(self.coalition.honest)
            self._victim_until_s = self.coalition.loop.time() + VICTIM_S
        for _ in range(int(self.parameters["per_s"])):
            self.after(self.draw.random(), self._hand_out)

    def _note_head(self) -> None:
        if self.node.head.height != self._noted_height:
            self._noted_height = self._choice.height = self.node.head.height
            self._choice.height += 1
            self._hoard.forget_before(self.height - KEPT_HEIGHTS)
            self._hoard.keep_content(self.node.head.encode())
            if (knowledge := self.node.knowledge()) is not None:
                self._hoard.keep_content(knowledge)

    def _hand_out(self) -> None:
        self._note_head()
        shapes: tuple[Callable[[], Message], ...] = (
            self._final_of_prevotes,
            self._decision,
            self._lock_one,
            self._own_vote,
            self._claim,
        )
        recipes = shapes if self.draw.random() < KNOWN_SHAPES else self._recombination.recipes()
        self._try(self.draw.choice(recipes))

    def _try(self, recipe: Callable[[], Message], number: int | None = None) -> None:
        """Hand out a recipe's message to one member. The member is drawn, mostly the victim, unless it is given."""
        try:
            message = recipe()
        except NothingToChoose:
            return
        if number is None:
            number = self._victim if self.draw.random() < 0.8 else self.draw.choice(self.coalition.honest)
        self.send((number,), message)

    def _answer(self, number: int, question: GetFinal | GetContent | GetPayloads) -> None:
        """Answer with another object of the class that was asked for."""
        recombination = self._recombination
        recipes: dict[type, Callable[[], Message]] = {
            GetFinal: recombination.final,
            GetContent: recombination.chunk,
            GetPayloads: recombination.payloads,
        }
        try:
            message = recipes[type(question)]()
        except NothingToChoose:
            return
        if isinstance(question, GetContent) and isinstance(message, Chunk):
            message = Chunk(question.content_hash, question.offset, message.data)
        self.send((number,), message)

    # shapes

    def _final_of_prevotes(self) -> FinalMessage:
        """Prevotes of a quorum, some of which nobody else sees, as if they were a decision."""
        slot = self._complete(VoteKind.PREVOTE)
        return FinalMessage(self._block_of(slot), certify(self._hoard.votes_of(slot)))

    def _decision(self) -> FinalMessage:
        """A final block that others may not know of yet."""
        slot = self._complete(VoteKind.PRECOMMIT)
        return FinalMessage(self._block_of(slot), certify(self._hoard.votes_of(slot)))

    def _lock_one(self) -> CertificateMessage:
        """Prevotes of a quorum, some of which nobody else sees: a lock."""
        return CertificateMessage(certify(self._hoard.votes_of(self._complete(VoteKind.PREVOTE))))

    def _own_vote(self) -> VoteMessage:
        """A vote of a member of the coalition, regardless of its other votes."""
        blocks = [*self._hoard.hashes(self.height), NIL]
        attempt = max(0, self.node.voting.agreement.attempt + self.draw.choice((-1, 0, 0, 0, 1)))
        slot = self.draw.choice([*VoteKind]), self.height, attempt, self.draw.choice(blocks)
        heard = self._hoard.votes.get(slot, {})
        return VoteMessage(self._hoard.own_vote(self.draw.choice(self._hoard.keys), slot, list(heard.values())))

    def _claim(self) -> Status:
        """A status with a height that nobody has reached, or one that is long past."""
        height = self.draw.choice((0, self.height + 1, self.height + 20, 10**12))
        return Status(height, self.draw.randbytes(32), b"", (), (), None)

    def _complete(self, kind: VoteKind) -> Slot:
        """A slot of the open height with votes of a quorum, ours included."""
        required = votes_required(self.genesis, self.node.head.roster.electors)
        found = [slot for slot in self._hoard.slots() if slot[:2] == (kind, self.height) and slot[3] != NIL]
        complete = [slot for slot in found if len(self._hoard.votes_of(slot)) >= required]
        if not complete:
            raise NothingToChoose("no quorum is complete")
        return self.draw.choice(complete)

    def _block_of(self, slot: Slot) -> Block:
        found = [block for block in self._hoard.blocks.values() if block.hash == slot[3]]
        if not found:
            raise NothingToChoose("nobody has shown this block")
        return found[0]


class _Leaning:
    """Chooses at random, with a preference for objects of one height."""

    def __init__(self, draw: random.Random) -> None:
        self._draw = draw
        self.height = 0

    def pick(self, options: Sequence[T]) -> T:
        if self._draw.random() < OPEN_HEIGHT:
            preferred = [item for item in options if _height_of(item) == self.height]
            options = preferred or options
        return self._draw.choice(options)


def _height_of(item: Any) -> int | None:
    """Height of an object; None if it has none."""
    match item:
        case Block():
            return item.header.height
        case Vote():
            return item.height
        case (VoteKind(), int(height), int(), bytes()):
            return height
        case _:
            return None
