"""Adversaries that lie about parts, which posts list and some members read: they steal parts, or withhold them."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from random import Random

from fedchain.chain.knowledge import EVERYBODY
from fedchain.chain.post import Post
from fedchain.chain.state import phase_rule
from fedchain.crypto.hashing import Hash
from fedchain.crypto.keys import SIGNATURE_SIZE
from fedchain.network.messages import Chunk, GetContent, PostMessage
from fedchain.node.core.effects import Publish
from fedchain.node.core.events import Contributed, Event, MessageReceived
from fedchain.simulator.adversaries.adversary import Adversary, Coalition

ASKED_FOR = 8
"""Number of parts that a thief asks every member for each second."""


class PartThief(Adversary):
    """Signs posts with a part for others as their payload, and keeps asking everybody for such parts.

    A member that mistook such a part for a post's payload would fetch it, and give it to anybody.
    """

    def __init__(self, coalition: Coalition, draw: Random, parameters: Mapping[str, float]) -> None:
        super().__init__(coalition, draw, parameters)
        self.stolen = 0
        """Bytes of parts that it received."""
        self.signed = 0
        """Number of its own posts that have such a part as their payload."""
        self._parts: dict[Hash, int] = {}
        self._signed_in = (-1, -1)

    def listen(self, event: Event) -> Sequence[Event]:
        """Drop its own contribution, and count stolen parts without passing them to the node."""
        match event:
            case Contributed():
                return ()
            case MessageReceived(_, Chunk(content_hash, _, data)) if content_hash in self._parts:
                self.stolen += len(data)
                return ()
            case _:
                return (event,)

    def act(self) -> None:
        """Look for parts, sign for one, and ask for some."""
        listed = self._listed()
        if listed and self._signed_in != self.phase:
            self._signed_in = self.phase
            self.signed += 1
            self._sign(*self.draw.choice(sorted(listed.items())))
        self._parts |= listed
        for part_hash in self.draw.sample(sorted(self._parts), min(ASKED_FOR, len(self._parts))):
            self.send(self.coalition.honest, GetContent(part_hash, 0))

    def _listed(self) -> dict[Hash, int]:
        """Parts for other members that the posts of the open phase and the knowledge list: sizes by hash."""
        rules, head, place = self.coalition.rules, self.node.head, self.node.head.roster.seats[self.key.public_key]
        parts = [part for _, part, _ in rules.parts_known(self.node.knowledge() or b"")]
        for post in self.node.open_posts() if not head.finished else ():
            if (payload := self.node.content(post.payload_hash)) is not None:
                parts += rules.parts(phase_rule(self.genesis, head).name, payload)
        return {part_hash: size for part_hash, size, reader in parts if reader not in (EVERYBODY, place)}

    def _sign(self, part_hash: Hash, size: int) -> None:
        draft = Post(*self.phase, self.key.public_key, part_hash, size, bytes(SIGNATURE_SIZE))
        post = replace(draft, signature=self.key.sign(draft.signing_message(self.genesis.chain_id)))
        self.peer.carry_out(Publish(PostMessage(post, None)))


class PartClaimer(Adversary):
    """Posts lists of parts that nobody has, so their readers ask in vain."""

    def listen(self, event: Event) -> Sequence[Event]:
        """Post its contribution with another hash for each part."""
        if isinstance(event, Contributed) and (event.round, event.phase) == self.phase:
            self.post(self._invent(event.payload), None)
            return ()
        return (event,)

    def _invent(self, payload: bytes) -> bytes:
        name = phase_rule(self.genesis, self.node.head).name
        for part_hash, _, _ in self.coalition.rules.parts(name, payload):
            payload = payload.replace(part_hash, self.draw.randbytes(len(part_hash)))
        return payload
