"""Adversaries that lie with votes: equivocating, agreeing with everybody, random, withholding, with stale locks."""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import ClassVar

from fedchain.chain.vote import NIL, Vote, VoteKind
from fedchain.crypto.hashing import Hash, sha256
from fedchain.network.messages import EvidenceMessage, VoteMessage
from fedchain.node.core.effects import Effect, Publish
from fedchain.node.core.events import Event, MessageReceived
from fedchain.simulator.adversaries.adversary import Adversary, Parameter


class DoubleVoter(Adversary):
    """Equivocates in every slot: sends one vote to half of the honest members and another to the rest."""

    def say(self, effect: Effect) -> Sequence[Effect]:
        """Send each half a vote of its own; pass no evidence on."""
        match effect:
            case Publish(VoteMessage(vote)):
                honest = list(self.coalition.honest)
                self.draw.shuffle(honest)
                half = len(honest) // 2
                self.send(honest[:half], VoteMessage(vote))
                self.send(honest[half:], VoteMessage(self._other(vote)))
                return ()
            case Publish(EvidenceMessage()):
                return ()
            case _:
                return super().say(effect)

    def _other(self, vote: Vote) -> Vote:
        others = [item for item in (*self.candidates(), NIL) if item != vote.block_hash] or [sha256(vote.block_hash)]
        return self.vote(self.key, vote.kind, vote.attempt, self.draw.choice(others), height=vote.height)


class YesVoter(Adversary):
    """Votes for every block that an honest member votes for, with all keys of the coalition.

    With more such voters than a federation tolerates, each side of a partition believes that it decides alone.
    """

    def listen(self, event: Event) -> Sequence[Event]:
        """Answer each vote for a block with the coalition's votes for the same block, to its voter alone."""
        match event:
            case MessageReceived(peer, VoteMessage(vote)) if vote.voter == peer and vote.block_hash != NIL:
                number = self.node.head.roster.seats.get(peer)
                if number is not None and number in self.coalition.honest and vote.height == self.height:
                    for key in self.coalition.keys:
                        for kind in VoteKind:
                            answer = self.vote(key, kind, vote.attempt, vote.block_hash)
                            self.send((number,), VoteMessage(answer))
            case _:
                pass
        return (event,)

    def say(self, effect: Effect) -> Sequence[Effect]:
        """Withhold its own votes and all evidence."""
        match effect:
            case Publish(VoteMessage()) | Publish(EvidenceMessage()):
                return ()
            case _:
                return super().say(effect)


class RandomVoter(Adversary):
    """Votes at random: any kind and attempt, for blocks that exist or not, each vote to some members."""

    def say(self, effect: Effect) -> Sequence[Effect]:
        """Send several random votes in place of a vote that was due."""
        if isinstance(effect, Publish) and isinstance(effect.message, VoteMessage):
            self._vote_at_random(effect.message.vote.attempt)
            return ()
        return super().say(effect)

    def act(self) -> None:
        """Send more once a second, without a reason."""
        self._vote_at_random(max(0, self.node.voting.agreement.attempt))

    def _vote_at_random(self, attempt: int) -> None:
        draw, honest = self.draw, self.coalition.honest
        choices = [NIL, sha256(draw.randbytes(4)), *self.candidates(), *self.candidates()]
        for _ in range(4):
            kind = draw.choice(list(VoteKind))
            near = max(0, attempt + draw.choice((-1, 0, 0, 0, 1, 2)))
            vote = self.vote(self.key, kind, near, draw.choice(choices))
            self.send(draw.sample(honest, draw.randint(1, len(honest))), VoteMessage(vote))


class VoteWithholder(Adversary):
    """Shows each of its votes to one member alone, so the others cannot count it."""

    def say(self, effect: Effect) -> Sequence[Effect]:
        """Send the vote to one honest member."""
        if isinstance(effect, Publish) and isinstance(effect.message, VoteMessage):
            self.send((self.draw.choice(self.coalition.honest),), effect.message)
            return ()
        return super().say(effect)


class StaleLockVoter(Adversary):
    """Votes for the first block that it saw at a height, in every attempt and kind, and for no better one.

    It keeps repeating its precommits of earlier attempts, as if the others had decided then.
    """

    def say(self, effect: Effect) -> Sequence[Effect]:
        """Vote for the same block every time."""
        if isinstance(effect, Publish) and isinstance(effect.message, VoteMessage):
            vote = effect.message.vote
            if vote.height not in self._first:
                self._first = {vote.height: next(iter(self.node.ledger.entries), vote.block_hash)}
            first = self._first[vote.height]
            return (Publish(VoteMessage(self.vote(self.key, vote.kind, vote.attempt, first, height=vote.height))),)
        return super().say(effect)

    def act(self) -> None:
        """Precommit the block once more, in an old attempt."""
        first, attempt = self._first.get(self.height), self.node.voting.agreement.attempt
        if first is not None and attempt > 0:
            old = self.vote(self.key, VoteKind.PRECOMMIT, self.draw.randrange(attempt), first)
            self.peer.carry_out(Publish(VoteMessage(old)))

    _first: Mapping[int, Hash] = MappingProxyType({})
    """The block by height."""


class ClockLiar(Adversary):
    """Puts a clock that is wrong by ``offset_s`` into its precommits. (Backdater, postdater)"""

    PARAMETERS: ClassVar[Mapping[str, Parameter]] = {"offset_s": Parameter(-3600.0, -1e9, 1e9)}

    def say(self, effect: Effect) -> Sequence[Effect]:
        """Replace each precommit with one that has a wrong clock."""
        match effect:
            case Publish(VoteMessage(vote)) if vote.kind is VoteKind.PRECOMMIT and vote.block_hash != NIL:
                clock_ms = self.peer.clock_ms() + round(1000 * self.parameters["offset_s"])
                lie = self.vote(
                    self.key,
                    vote.kind,
                    vote.attempt,
                    vote.block_hash,
                    height=vote.height,
                    clock_ms=clock_ms,
                    mining_ms=vote.mining_ms,
                )
                return (Publish(VoteMessage(lie)),)
            case _:
                return super().say(effect)
