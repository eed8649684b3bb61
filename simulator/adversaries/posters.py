"""Adversaries that lie with posts: equivocation, poison, rubbish, and payloads that nobody can fetch in time."""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import ClassVar

import msgpack
import numpy as np

from fedchain.chain.knowledge import occasion_of
from fedchain.crypto.hashing import Hash
from fedchain.network.messages import Chunk, EvidenceMessage, GetContent, PostMessage
from fedchain.node.core.effects import Effect, Publish, Send
from fedchain.node.core.events import Contributed, Event, MessageReceived
from fedchain.simulator.adversaries.adversary import Adversary, Parameter

TRIES = 200
"""Number of attempts to change a byte before a payload is left as it is."""


class PostEquivocator(Adversary):
    """Posts one payload to half of the honest members and another, equally valid one to the rest."""

    def say(self, effect: Effect) -> Sequence[Effect]:
        """Send each half its own post; pass no evidence on."""
        match effect:
            case Publish(PostMessage(post, _)) if post.sender == self.key.public_key:
                first = self.node.content(post.payload_hash)
                if first is None:
                    return (effect,)
                honest = list(self.coalition.honest)
                self.draw.shuffle(honest)
                half = len(honest) // 2
                self.post(first, honest[:half])
                self.post(self.vary(first), honest[half:])
                return ()
            case Publish(EvidenceMessage()):
                return ()
            case _:
                return super().say(effect)

    def vary(self, payload: bytes) -> bytes:
        """Another payload that the method accepts, one byte apart; the same one if none is found."""
        state = self.node.head
        for _ in range(TRIES):
            place, changed = self.draw.randrange(len(payload)), bytearray(payload)
            changed[place] ^= 1
            try:
                knowledge = self.node.knowledge() or b""
                self.coalition.rules.check(
                    occasion_of(self.genesis, state), self.key.public_key, knowledge, bytes(changed)
                )
            except ValueError:
                continue
            return bytes(changed)
        return payload


class PoisonPoster(Adversary):
    """Posts numbers of the given magnitude in place of its contribution."""

    PARAMETERS: ClassVar[Mapping[str, Parameter]] = {"magnitude": Parameter(1e20, 0, 1e38)}

    def listen(self, event: Event) -> Sequence[Event]:
        """Post around the node, which would refuse to post that."""
        if isinstance(event, Contributed) and (event.round, event.phase) == self.phase:
            self.post(_poison(event.payload, self.parameters["magnitude"]), None)
            return ()
        return (event,)


class InvalidPoster(Adversary):
    """Posts random bytes of the right size."""

    def listen(self, event: Event) -> Sequence[Event]:
        """Post around the node."""
        if isinstance(event, Contributed) and (event.round, event.phase) == self.phase:
            self.post(self.draw.randbytes(len(event.payload) + self.draw.randrange(2)), None)
            return ()
        return (event,)


class PayloadWithholder(Adversary):
    """Announces a payload and gives it to one honest member alone, and not always to that one."""

    def say(self, effect: Effect) -> Sequence[Effect]:
        """Send the post without its payload, and no chunks of it."""
        match effect:
            case Publish(PostMessage(post, _)) if post.sender == self.key.public_key:
                self._promised = post.payload_hash
                return (Publish(PostMessage(post, None)),)
            case Send(_, PostMessage(post, _)) if post.sender == self.key.public_key:
                return ()
            case Send(_, Chunk(content_hash, _, _)) if content_hash == self._promised:
                return ()
            case _:
                return super().say(effect)

    def listen(self, event: Event) -> Sequence[Event]:
        """Answer only the favourite, and only half of its requests."""
        match event:
            case MessageReceived(peer, GetContent(content_hash, offset)) if content_hash == self._promised:
                data = self.node.content(content_hash)
                is_favourite = self.node.head.roster.seats.get(peer) == self.coalition.honest[0]
                if data is not None and is_favourite and self.draw.random() < 0.5:
                    self.peer.carry_out(Send(peer, Chunk(content_hash, offset, data[offset:])))
                return ()
            case _:
                return (event,)

    _promised: Hash = b""


class SlowProvider(Adversary):
    """Announces a payload, and delays every chunk of any content that it is asked for."""

    PARAMETERS: ClassVar[Mapping[str, Parameter]] = {"delay_s": Parameter(1.85, 0, 3_600)}

    def say(self, effect: Effect) -> Sequence[Effect]:
        """Delay chunks; send the post without its payload."""
        match effect:
            case Publish(PostMessage(post, _)) if post.sender == self.key.public_key:
                return (Publish(PostMessage(post, None)),)
            case Send(_, Chunk()):
                self.after(self.parameters["delay_s"], partial(self.peer.carry_out, effect))
                return ()
            case _:
                return super().say(effect)


def _poison(payload: bytes, magnitude: float) -> bytes:
    """The payload with every float32 number replaced, if it is a document of tensors."""
    try:
        document = msgpack.unpackb(payload)
    except (ValueError, msgpack.UnpackException):
        return bytes(len(payload))
    for entry in document if isinstance(document, list) else ():
        if isinstance(entry, list) and len(entry) == 4 and entry[1] == "float32":
            count = len(entry[3]) // 4
            entry[3] = (np.resize(np.array([1.0, -1.0], "<f4"), count) * np.float32(magnitude)).tobytes()
    return bytes(msgpack.packb(document))
