"""Adversaries that mislead peers that download or catch up: slow blocks, wrong bytes, low claims, invented finals."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import ClassVar

from fedchain.chain.block import Block
from fedchain.chain.certificate import Certificate
from fedchain.crypto.hashing import Hash
from fedchain.network.messages import Chunk, FinalMessage, Status
from fedchain.node.core.effects import Effect, Send
from fedchain.simulator.adversaries.adversary import Adversary, Parameter

CLAIM = 10**12
"""A height that nobody will ever reach."""

NEAR = 30
"""Number of heights from the open one that finals are invented for."""


class SlowBlocks(Adversary):
    """Answers a request for final blocks with a real one each ``every_s``: just fast enough not to be passed over."""

    PARAMETERS: ClassVar[Mapping[str, Parameter]] = {"every_s": Parameter(1.8, 0, 3_600)}

    def say(self, effect: Effect) -> Sequence[Effect]:
        """Delay final blocks so that they leave one by one."""
        if isinstance(effect, Send) and isinstance(effect.message, FinalMessage):
            now_s = self.coalition.loop.time()
            self._free_s = max(self._free_s, now_s) + self.parameters["every_s"]
            self.after(self._free_s - now_s, partial(self.peer.carry_out, effect))
            return ()
        return super().say(effect)

    _free_s = 0.0


class BackfillSpoiler(Adversary):
    """Hands out final blocks without their posts under correct headers, to peers that asked and to others.

    A peer that fetches older blocks links them by the hashes of their headers, and throws these away one by one.
    """

    PARAMETERS: ClassVar[Mapping[str, Parameter]] = {"per_s": Parameter(20, 0, 10_000)}

    def say(self, effect: Effect) -> Sequence[Effect]:
        """Strip the posts from every answer."""
        match effect:
            case Send(peer, FinalMessage(block, certificate)):
                return (Send(peer, FinalMessage(replace(block, transactions=()), certificate)),)
            case _:
                return super().say(effect)

    def act(self) -> None:
        """Send ``per_s`` old blocks that nobody asked for."""
        for _ in range(int(self.parameters["per_s"]) if self.height > 1 else 0):
            found = self.node.ledger.final(self.draw.randrange(1, self.height))
            if found is not None:
                block, certificate = found
                spoiled = FinalMessage(replace(block, transactions=()), certificate)
                self.send((self.draw.choice(self.coalition.honest),), spoiled)


class ContentForger(Adversary):
    """Answers every request for a content with other bytes of the right number."""

    def say(self, effect: Effect) -> Sequence[Effect]:
        """Replace the bytes of every chunk with random ones."""
        match effect:
            case Send(peer, Chunk(content_hash, offset, data)) if data:
                return (Send(peer, Chunk(content_hash, offset, self.draw.randbytes(len(data)))),)
            case _:
                return super().say(effect)


class LowClaimer(Adversary):
    """Claims to stand at genesis, so a peer that asks how far the others are gets a low number."""

    def say(self, effect: Effect) -> Sequence[Effect]:
        """Replace every status with that of the genesis."""
        match effect:
            case Send(peer, Status()):
                return (Send(peer, self._claim()),)
            case _:
                return super().say(effect)

    def act(self) -> None:
        """Send the claim to every honest member, before others answer."""
        self.send(self.coalition.honest, self._claim())

    def _claim(self) -> Status:
        return Status(0, self.genesis.chain_id, b"", (), (), None)


class FinalFlooder(Adversary):
    """Claims a height that nobody will ever reach, and hands out final blocks with invented states and payloads."""

    PARAMETERS: ClassVar[Mapping[str, Parameter]] = {"per_s": Parameter(30, 0, 10_000)}

    def say(self, effect: Effect) -> Sequence[Effect]:
        """Put the false height into every status."""
        match effect:
            case Send(peer, Status() as status):
                return (Send(peer, replace(status, height=CLAIM)),)
            case _:
                return super().say(effect)

    def act(self) -> None:
        """Send ``per_s`` invented finals, each to an honest member drawn at random."""
        settled = self.node.ledger.settled
        if settled is None:
            return
        for _ in range(int(self.parameters["per_s"])):
            height = self.draw.choice((CLAIM, self.height + self.draw.randrange(NEAR)))
            invented = self._invent(settled.block, settled.certificate, height)
            self.send((self.draw.choice(self.coalition.honest),), invented)

    def _invent(self, block: Block, certificate: Certificate, height: int) -> FinalMessage:
        header = replace(block.header, height=height, state_root=self._hash(), knowledge_root=self._hash())
        posts = tuple(replace(post, payload_hash=self._hash()) for post in block.transactions)
        return FinalMessage(replace(block, header=header, transactions=posts), certificate)

    def _hash(self) -> Hash:
        return self.draw.randbytes(32)
