"""Posts that list parts, and a node that meets them on a stage."""

import struct
from collections.abc import Sequence

from fedchain.chain.block import Block
from fedchain.chain.genesis import AggregatorRule
from fedchain.chain.knowledge import AGGREGATOR, Occasion, Part, Rules
from fedchain.chain.post import Post
from fedchain.crypto.hashing import Hash, sha256
from fedchain.crypto.keys import PublicKey
from fedchain.network.messages import CHUNK_SIZE, Chunk, GetContent
from fedchain.node.core.effects import Effect
from tests.support.chain.builders import genesis, post
from tests.support.node.stage import Stage, sent

RECORD = struct.Struct(">32sIi")


GOOD, OTHER = b"good" * 100, b"good" + bytes(CHUNK_SIZE)


class PartRules(Rules):
    """A payload is a list of parts; knowledge lists those of all posts so far, with round and sender's place."""

    def __init__(self, members: Sequence[PublicKey]) -> None:
        self._members = list(members)

    def check(self, occasion: Occasion, sender: PublicKey, knowledge: bytes, payload: bytes) -> None:
        if len(payload) % RECORD.size:
            raise ValueError(f"{len(payload)} bytes found")

    def is_slow_to_check(self, phase: str) -> bool:
        return False

    def aggregate(self, occasion: Occasion, knowledge: bytes, posts: Sequence[tuple[PublicKey, bytes]]) -> bytes:
        rows = [
            bytes([occasion.round, self._members.index(sender)]) + payload[at : at + RECORD.size]
            for sender, payload in posts
            for at in range(0, len(payload), RECORD.size)
        ]
        return knowledge + b"".join(rows)

    def lists_parts(self, phase: str) -> bool:
        return True

    def parts(self, phase: str, payload: bytes) -> Sequence[Part]:
        return [RECORD.unpack_from(payload, at) for at in range(0, len(payload), RECORD.size)]

    def parts_known(self, knowledge: bytes) -> Sequence[tuple[int, Part, int]]:
        size = RECORD.size + 2
        rows = [knowledge[at : at + size] for at in range(0, len(knowledge), size)]
        return [(row[0], RECORD.unpack(row[2:]), row[1]) for row in rows]

    def check_part(self, phase: str, payload: bytes, part_hash: Hash, data: bytes) -> None:
        size = next(size for known, size, _ in self.parts(phase, payload) if known == part_hash)
        if not data.startswith(b"good") or len(data) != size:
            raise ValueError(f"{data[:4]!r} found")


def listing(*parts: tuple[bytes, int]) -> bytes:
    return b"".join(RECORD.pack(sha256(data), len(data), reader) for data, reader in parts)


def stage(number: int = 0, **values: object) -> Stage:
    document = genesis(4, aggregator=AggregatorRule.FIXED, **values)
    return Stage(document, number, PartRules(document.members), contributes=False)


def a_post(stage: Stage, *parts: tuple[bytes, int], author: int = 0, round_number: int = 1) -> tuple[Post, bytes]:
    payload = listing(*parts)
    return post(stage.chain.key(stage.others[author]), stage.genesis, round_number, payload), payload


def held(stage: Stage, item: Post) -> bool:
    return stage.node.holds(item)


def send(stage: Stage, data: bytes, sender: PublicKey | None = None) -> list[Effect]:
    """All chunks of a part, from its author."""
    effects: list[Effect] = []
    for start in range(0, len(data), CHUNK_SIZE):
        chunk = Chunk(sha256(data), start, data[start : start + CHUNK_SIZE])
        effects += stage.receive(chunk, sender or stage.others[0])
    return effects


class NewestRules(PartRules):
    """As its base, but the knowledge lists the parts of the newest posts alone."""

    def aggregate(self, occasion: Occasion, knowledge: bytes, posts: Sequence[tuple[PublicKey, bytes]]) -> bytes:
        return super().aggregate(occasion, b"", posts)


def part_of(member: int, height: int) -> bytes:
    return b"good %d %d" % (member, height)


def a_block(stage: Stage, reader: int = AGGREGATOR) -> Block:
    """A block for the open height that counts a post of each of the others, with a part of its own."""
    posts, state = [], stage.node.head
    for member in sorted(stage.others):
        payload = listing((part_of(stage.genesis.index[member], state.height + 1), reader))
        stage.chain.contents[sha256(payload)] = payload
        posts.append(post(stage.chain.key(member), stage.genesis, state.round, payload, phase=state.phase))
    return stage.block(posts=tuple(posts))


def asked(effects: Sequence[Effect]) -> list[Hash]:
    """Contents that single peers are asked for."""
    return [question.content_hash for question in sent(effects, GetContent)]
