"""Adversaries that send too much: unsolicited junk, replayed messages, and claims of blocks that they lack."""

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import ClassVar

from fedchain.chain.block import Block, sign_block
from fedchain.chain.certificate import certify
from fedchain.chain.post import Post
from fedchain.chain.vote import VoteKind
from fedchain.crypto.keys import SIGNATURE_SIZE
from fedchain.network.messages import (
    Chunk,
    FinalMessage,
    GetCandidate,
    GetContent,
    GetFinal,
    GetPosts,
    GetVotes,
    Message,
    PostMessage,
    SessionMessage,
    Status,
    VoteMessage,
)
from fedchain.network.session import SESSION_SIZE, sign_session
from fedchain.node.core.effects import Effect, Send
from fedchain.node.core.events import Event, MessageReceived
from fedchain.simulator.adversaries.adversary import Adversary, Parameter
from fedchain.simulator.engine.peer import SimulatedPeer

REMEMBERED = 2_000
"""Number of messages that a replaying flooder keeps."""


class JunkFlooder(Adversary):
    """Sends votes and posts with false signatures, unsolicited chunks, false statuses, and requests."""

    PARAMETERS: ClassVar[Mapping[str, Parameter]] = {"per_s": Parameter(20, 0, 10_000)}

    def act(self) -> None:
        """Send ``per_s`` junk messages to every honest member."""
        for _ in range(int(self.parameters["per_s"])):
            self.send(self.coalition.honest, self._junk())

    def _junk(self) -> Message:
        draw, everyone = self.draw, b"\xff" * (len(self.node.head.roster) // 8 + 1)
        anything, height = draw.randbytes(32), self.height + draw.randrange(3)
        author = self.member(draw.randrange(len(self.node.head.roster)))
        kind, attempt = draw.choice(list(VoteKind)), draw.randrange(2**20)
        vote = self.vote(self.key, kind, attempt, anything, height=height)
        chain_id, number = self.genesis.chain_id, anything[:SESSION_SIZE]
        session = sign_session(self.key, chain_id, number, height=height, sequence=attempt)
        choices: list[Message] = [
            VoteMessage(vote),
            VoteMessage(replace(vote, voter=author)),
            VoteMessage(replace(vote, voter=anything)),
            PostMessage(Post(self.phase[0], 0, author, anything, 12, bytes(SIGNATURE_SIZE)), None),
            PostMessage(Post(self.phase[0] + 1, 0, author, anything, 12, bytes(SIGNATURE_SIZE)), b"x" * 12),
            Chunk(anything, 0, anything),
            SessionMessage(replace(session, member=author)),
            SessionMessage(session),
            Status(height + draw.randrange(2**30), anything, everyone, (anything,), (), (attempt, anything)),
            GetFinal(draw.randrange(self.height + 1), 16),
            GetPosts(*self.phase, everyone),
            GetVotes(self.height, kind, max(0, self.node.voting.agreement.attempt), everyone),
            GetContent(self.node.head.knowledge_root, 0),
            GetCandidate(anything),
        ]
        return draw.choice(choices)


class ReplayFlooder(Adversary):
    """Sends messages that it received again, to everybody, up to the rate that a neighbour's budget allows."""

    PARAMETERS: ClassVar[Mapping[str, Parameter]] = {"per_s": Parameter(50, 0, 10_000)}

    def listen(self, event: Event) -> Sequence[Event]:
        """Remember every message that arrives."""
        if isinstance(event, MessageReceived):
            self._heard.append(event.message)
        return (event,)

    def act(self) -> None:
        """Replay ``per_s`` messages to every honest member."""
        if self._heard:
            for message in self.draw.choices(self._heard, k=int(self.parameters["per_s"])):
                self.send(self.coalition.honest, message)

    def begin(self, peer: SimulatedPeer) -> None:
        """Begin with an empty memory: it does not survive a crash."""
        super().begin(peer)
        self._heard: deque[Message] = deque(maxlen=REMEMBERED)


class CatchUpHog(Adversary):
    """Claims a chain that is far ahead, and answers a peer that asks for it with an old block and forged ones.

    The forged ones stand at or above the height that was asked for, and only the coalition has signed them.
    """

    PARAMETERS: ClassVar[Mapping[str, Parameter]] = {
        "ahead": Parameter(1_000, 1, 2**40),
        "per_s": Parameter(1, 0, 10_000),
        "forged": Parameter(8, 0, 1_000),
    }

    def say(self, effect: Effect) -> Sequence[Effect]:
        """Replace every status with a false claim."""
        match effect:
            case Send(peer, Status() as status):
                return (Send(peer, self._claim(status)),)
            case _:
                return super().say(effect)

    def listen(self, event: Event) -> Sequence[Event]:
        """Answer requests for blocks with the oldest block and forged ones."""
        match event:
            case MessageReceived(peer, GetFinal(height, count)):
                if (found := self.node.ledger.final(1)) is not None:
                    self.peer.carry_out(Send(peer, FinalMessage(*found)))
                    for _ in range(int(self.parameters["forged"]) if count == 1 else 0):
                        self.peer.carry_out(Send(peer, self._forge(height + self.draw.randrange(100), found[0])))
                return ()
            case _:
                return (event,)

    def act(self) -> None:
        """Send the claim to every honest member."""
        for _ in range(int(self.parameters["per_s"])):
            empty = bytes(len(self.node.head.roster) // 8 + 1)
            self.send(self.coalition.honest, self._claim(Status(self.height, b"", empty, (), (), None)))

    def _forge(self, height: int, block: Block) -> FinalMessage:
        """A block of the given height over a state that does not exist."""
        header = replace(block.header, height=height, state_root=self.draw.randbytes(32), miner=self.key.public_key)
        forged = sign_block(
            self.key, self.genesis.chain_id, header, block.transactions, block.certificate, block.evidence
        )
        votes = (self.vote(key, VoteKind.PRECOMMIT, 0, forged.hash, height=height) for key in self.coalition.keys)
        return FinalMessage(forged, certify(votes))

    def _claim(self, status: Status) -> Status:
        height = status.height + int(self.parameters["ahead"])
        return Status(height, self.draw.randbytes(32), status.posts, (), (), None)
