"""A liar: one member with its key, which says true and wrong things, and answers as it likes. A seed draws which.

It says true messages with a few places changed, often to numbers at an edge, and signed anew wherever its
own signature is due: roots, proof of work and signatures are right, or wrong by chance.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from random import Random
from typing import Any

from fedchain.chain.block import Block, evidence_root, sign_block, transactions_root
from fedchain.chain.certificate import Certificate, certificate_root, certify
from fedchain.chain.encoding import encode
from fedchain.chain.evidence import Evidence, evidence_of
from fedchain.chain.exceptions import InvalidEncoding
from fedchain.chain.light.light_block import LightBlock
from fedchain.chain.membership.change import Change, ChangeKind, changes_root, sign_change
from fedchain.chain.post import Post
from fedchain.chain.proof_of_work import search_nonce
from fedchain.chain.state import State
from fedchain.chain.vote import Vote, VoteKind, sign_vote
from fedchain.crypto.hashing import sha256
from fedchain.network.messages import (
    CandidateMessage,
    CertificateMessage,
    ChangeMessage,
    Chunk,
    EvidenceMessage,
    FinalMessage,
    GetCandidate,
    GetCertificate,
    GetContent,
    GetFinal,
    GetLight,
    GetPayloads,
    GetPosts,
    GetVotes,
    HeldVotes,
    LightMessage,
    Message,
    Payloads,
    PostMessage,
    SessionMessage,
    Status,
    VoteMessage,
    decode_message,
    encode_message,
)
from fedchain.network.session import sign_session
from tests.fuzz.mutation import BOUNDARIES
from tests.fuzz.worlds import World

EDGES: tuple[int, ...] = (
    0,
    1,
    2**31,
    2**32,
    2**53,
    *(2**bits + off for bits in (62, 63) for off in (-1, 0, 1)),
    2**64 - 2,
    2**64 - 1,
)
"""Numbers at which something may break."""

TARGET_BITS_MAX = 0x20FFFFFF
"""Bits of targets of 32 bytes; others are no targets, and no nonce is searched for them."""

LONG = 3 * 2**20
"""Bytes of a field that is as long as a message allows, more or less."""


class Liar:
    """Says things in one world."""

    def __init__(self, world: World, rng: Random) -> None:
        self.world, self.key, self.chain = world, world.liar, world.chain
        self._chain_id = world.chain.genesis.chain_id
        self._own: dict[bytes, bytes] = {}
        self._favourite, self._theme = rng.choice(EDGES), rng.randrange(24)  # lies that agree lead further

    def say(self, head: State, rng: Random) -> Message:
        """Something near the node's head, unasked; again and again that it is where its favourite number says."""
        if rng.random() < 0.15:
            return Status(self._favourite, self.world.blocks[-1].hash, b"", (), (), None)
        return self._bend(self._truth(head, rng), rng, rng.choice((0, 1, 1, 1, 2, 3)))

    def answer(self, question: Message, head: State, rng: Random) -> Iterator[Message]:
        """Answers to a question: true, bent, invented for what was asked, or none."""
        mood = rng.random()
        if mood < 0.1:
            return
        if isinstance(question, GetFinal) and question.height == self._favourite and mood < 0.9:
            yield self._final(self.world.blocks[-1], question.height)
            return
        if isinstance(question, GetContent) and question.content_hash in self._own:
            data = self._own[question.content_hash]
            yield Chunk(question.content_hash, question.offset, data[question.offset : question.offset + 2**18])
            return
        true = list(self.world.answers(question)) or list(self._invented(question, rng))
        for message in true[:16]:
            yield message if mood < 0.45 else self._bend(message, rng, rng.choice((1, 1, 2)))
        if mood > 0.9:
            yield self.say(head, rng)

    def _invented(self, question: Message, rng: Random) -> Iterator[Message]:
        """Answers about what is not there."""
        block = self.world.blocks[-1]
        match question:
            case GetFinal(height):
                yield self._final(block, height)
            case GetLight(height, low, high):
                wanted = rng.choice((height, low + 1, max(high, 1) - 1, height))
                yield LightMessage(height, rng.choice((self._light(block, min(wanted, 2**64 - 1)), None)))
            case GetContent(content_hash, offset):
                yield Chunk(content_hash, offset, rng.choice((b"", b"x", bytes(2**18), self._some_content(rng))))
            case GetCandidate():
                yield CandidateMessage(self._seal(block))
            case GetVotes() | GetCertificate():
                kind = question.kind if isinstance(question, GetVotes) else VoteKind.PREVOTE
                vote = self._vote(question.height, question.attempt, kind, block.hash)
                yield rng.choice((VoteMessage(vote), CertificateMessage(certify([vote]))))
            case GetPosts(round_number, phase):
                post = replace(block.transactions[0], round=round_number, phase=phase) if block.transactions else None
                if post is not None:
                    yield PostMessage(self._sign_post(post), self._some_content(rng))
            case GetPayloads(height):
                yield Payloads(height, (self._some_content(rng),) * rng.choice((1, 3, 2_000)))
            case _:
                pass

    def _truth(self, head: State, rng: Random) -> Message:
        """A message that is right for the open height, or a question."""
        blocks = self.world.blocks
        place = min(max(0, head.height + rng.choice((-1, 0, 0, 0, 1, 2, 9))), len(blocks) - 1)
        block, parent = blocks[place], self.chain.states[blocks[place].header.parent_hash]
        height, digest = block.header.height, block.hash
        numbers = self._edge(rng), self._edge(rng), self._edge(rng)
        kind = rng.choice((VoteKind.PREVOTE, VoteKind.PRECOMMIT))
        bitmap = rng.choice((b"", b"\1", b"\xff", b"\xff" * 16, bytes(8_192)))
        match self._theme if rng.random() < 0.3 else rng.randrange(24):
            case 0 | 1 | 2 | 3:
                held = (HeldVotes(kind, rng.choice((0, 1, 9, numbers[1])), bitmap),) * rng.choice((0, 1, 8))
                lock = rng.choice((None, (rng.choice((0, numbers[1])), digest)))
                at, where = rng.choice(((height, digest), (head.height, head.block_hash), (numbers[0], digest)))
                return Status(at, where, bitmap, rng.choice(((), (digest,), (sha256(b"no"),) * 16)), held, lock)
            case 4 | 5:
                content = self._some_content(rng)
                round_number, phase = head.round + rng.choice((-1, 0, 0, 0, 1)), head.phase
                draft = Post(max(round_number, 0), phase, self.key.public_key, sha256(content), len(content), bytes(64))
                self._own[sha256(content)] = content
                return PostMessage(self._sign_post(draft), rng.choice((content, None)))
            case 6:
                return CandidateMessage(self._seal(block))
            case 7:
                return CandidateMessage(block)
            case 8 | 9:
                attempt = rng.choice((0, 0, 1, 7, numbers[1]))
                return VoteMessage(self._vote(rng.choice((head.height + 1, height)), attempt, kind, digest))
            case 10:
                return self.world.crowd().final(block)
            case 11:
                return self._final(block, rng.choice((height, height + 1, numbers[0])))
            case 12:
                return EvidenceMessage(self._crime(height, rng))
            case 13:
                session = sign_session(
                    self.key, self._chain_id, rng.randbytes(16), heard=b"", height=head.height, sequence=numbers[0]
                )
                return SessionMessage(session)
            case 14:
                return ChangeMessage(self._change(parent, rng))
            case 15:
                return CertificateMessage(certify([self._vote(height, numbers[0], kind, digest)]))
            case 16:
                return LightMessage(numbers[0], self._light(block, numbers[1]))
            case 17:
                return GetFinal(rng.choice((height, numbers[0])), numbers[1])
            case 18:
                return GetLight(rng.choice((height, numbers[0])), numbers[1], numbers[2])
            case 19:
                return rng.choice((GetPosts(head.round, head.phase, bitmap), GetPosts(*numbers[:2], bitmap)))
            case 20:
                return GetVotes(rng.choice((head.height + 1, numbers[0])), kind, rng.choice((0, numbers[1])), bitmap)
            case 21:
                wanted = rng.choice((block.header.knowledge_root, block.header.state_root, sha256(b"")))
                return GetContent(wanted, rng.choice((0, numbers[1])))
            case 22:
                return rng.choice((GetPayloads(height), GetPayloads(numbers[0]), GetCertificate(*numbers[:2], digest)))
            case _:
                return rng.choice((GetCandidate(digest), Payloads(height, (b"",)), Chunk(digest, numbers[0], b"x")))

    # what it makes

    def _edge(self, rng: Random) -> int:
        return self._favourite if rng.random() < 0.7 else rng.choice(EDGES)

    def _some_content(self, rng: Random) -> bytes:
        known = rng.choice(self.world.blocks)
        hashes = [*known.payload_hashes, known.header.knowledge_root]
        return rng.choice((b"", b"x", bytes(rng.choice((32, 40, 64, 2**18))), self.chain.contents[rng.choice(hashes)]))

    def _vote(self, height: int, attempt: int, kind: VoteKind, digest: bytes) -> Vote:
        measured = 1 if kind is VoteKind.PRECOMMIT else 0
        slot = height, attempt, kind
        return sign_vote(self.key, self._chain_id, slot, digest, clock_ms=measured, mining_ms=measured)

    def _crime(self, height: int, rng: Random) -> Evidence:
        at = rng.choice((height, height, self._edge(rng)))
        attempt, kind = rng.choice((0, self._edge(rng))), rng.choice((VoteKind.PREVOTE, VoteKind.PRECOMMIT))
        return evidence_of(*(self._vote(at, attempt, kind, sha256(b"%d" % number)) for number in range(2)))

    def _change(self, state: State, rng: Random) -> Change:
        kind = rng.choice((ChangeKind.LEAVE, ChangeKind.AWAY, ChangeKind.BACK, ChangeKind.JOIN))
        seat, until = state.roster.seats.get(self.key.public_key), rng.choice((state.height + 5, self._edge(rng)))
        known = state.records[seat].sequence if state.records and seat is not None else 0
        sequence = rng.choice((known, known, self._edge(rng)))
        return sign_change(self.key, self._chain_id, kind, text="a liar", sequence=sequence, until=until)

    def _final(self, block: Block, height: int) -> FinalMessage:
        """The block at another height, finalized by the liar alone."""
        made = self._seal(replace(block, header=replace(block.header, height=height)))
        return FinalMessage(made, certify([self._vote(height, 0, VoteKind.PRECOMMIT, made.hash)]))

    def _light(self, block: Block, height: int) -> LightBlock:
        final = self._final(block, height)
        true = self.world.crowd().light(block)
        below = None if true.below is None else replace(true.below, height=max(0, height - 1))
        return replace(true, header=final.block.header, certificate=final.certificate, below=below)

    def _sign_post(self, post: Post) -> Post:
        draft = replace(post, sender=self.key.public_key)
        return replace(draft, signature=self.key.sign(draft.signing_message(self._chain_id)))

    def _seal(self, block: Block) -> Block:
        """The block as the liar's own."""
        header = replace(
            block.header,
            transactions_root=transactions_root(block.transactions),
            certificate_root=certificate_root(block.certificate),
            evidence_root=evidence_root(block.evidence),
            changes_root=changes_root(block.changes),
            miner=self.key.public_key,
        )
        if header.bits <= TARGET_BITS_MAX:
            header = search_nonce(self.chain.genesis.proof_function, header, 0, 64) or header
        body = block.transactions, block.certificate, block.evidence, block.changes
        return sign_block(self.key, self._chain_id, header, *body)

    # damage

    def _bend(self, message: Message, rng: Random, places: int) -> Message:
        """The message with some places changed, and mostly signed anew."""
        for _ in range(places):
            fields = message.to_fields()
            _change_place(fields, rng, self._edge(rng), self.world.blocks)
            try:
                data = encode([message.KIND, fields])
                message = decode_message(data)
            except (InvalidEncoding, ValueError, OverflowError):
                continue
        if places and rng.random() < 0.85:
            message = self._signed(message, rng)
        try:
            return decode_message(encode_message(message))
        except (InvalidEncoding, ValueError, OverflowError):
            return Status(0, self._chain_id, b"", (), (), None)

    def _signed(self, message: Message, rng: Random) -> Message:
        match message:
            case PostMessage(post, payload):
                if payload is not None and rng.random() < 0.5:
                    post = replace(post, payload_hash=sha256(payload), payload_size=len(payload))
                return PostMessage(self._sign_post(post), payload)
            case VoteMessage(vote):
                return VoteMessage(self._sign_vote(vote))
            case CandidateMessage(block):
                return CandidateMessage(self._seal(self._sign_body(block, rng)))
            case FinalMessage(block, certificate):
                made = self._seal(self._sign_body(block, rng))
                return FinalMessage(made, self._certify(replace(certificate, block_hash=made.hash)))
            case CertificateMessage(certificate):
                return CertificateMessage(self._certify(certificate))
            case LightMessage(height, block) if block is not None:
                named = replace(block.certificate, block_hash=block.header.hash)
                return LightMessage(height, replace(block, certificate=self._certify(named)))
            case EvidenceMessage(evidence):
                first, second = (
                    self._sign_vote(item) if isinstance(item, Vote) else self._sign_post(item)
                    for item in (evidence.first, evidence.second)
                )
                return EvidenceMessage(Evidence(first, second))
            case SessionMessage(session):
                ours = replace(session, member=self.key.public_key)
                return SessionMessage(replace(ours, signature=self.key.sign(ours.signing_message(self._chain_id))))
            case ChangeMessage(change):
                if change.kind.needs_signature:
                    draft = replace(change, member=self.key.public_key)
                    change = replace(draft, signature=self.key.sign(draft.signing_message(self._chain_id)))
                return ChangeMessage(change.approved(self.key, self._chain_id))
        return message

    def _sign_body(self, block: Block, rng: Random) -> Block:
        """The block with the posts and votes that bear the liar's name signed."""
        if rng.random() < 0.5:
            return block
        posts = tuple(
            self._sign_post(item) if item.sender == self.key.public_key else item for item in block.transactions
        )
        return replace(block, transactions=posts)

    def _sign_vote(self, vote: Vote) -> Vote:
        draft = replace(vote, voter=self.key.public_key)
        return replace(draft, signature=self.key.sign(draft.signing_message(self._chain_id)))

    def _certify(self, certificate: Certificate) -> Certificate:
        """The liar's own vote among those of others, or alone."""
        slot: dict[str, Any] = {
            "height": certificate.height,
            "attempt": certificate.attempt,
            "block_hash": certificate.block_hash,
        }
        said = [item for item in certificate.votes if item.voter == self.key.public_key] or certificate.votes[:1]
        votes = [self._sign_vote(replace(item, kind=certificate.kind, **slot)) for item in said[:1]]
        return certify(votes) if votes else certificate


def _change_place(fields: list[Any], rng: Random, edge: int, blocks: Sequence[Block]) -> None:
    """Change one place of nested fields; sometimes all that have the same number or hash, so that they still agree."""
    places = list(_places(fields))
    if not places:
        return
    numbers = [place for place in places if type(place[0][place[1]]) is int]
    where, index = rng.choice(numbers if numbers and rng.random() < 0.6 else places)
    value = where[index]
    changed = _other(value, rng, edge, blocks)
    if isinstance(value, list):
        where[index] = changed
    elif rng.random() < 0.5:
        for other, at in places:
            if type(other[at]) is type(value) and other[at] == value:
                other[at] = changed
    else:
        where[index] = changed


def _other(value: Any, rng: Random, edge: int, blocks: Sequence[Block]) -> Any:
    if isinstance(value, int):
        return rng.choice((edge, edge, rng.choice(BOUNDARIES), value + 1, max(0, value - 1), value ^ 1, value * 2))
    if isinstance(value, str):
        return rng.choice(("", value * 2, "\0", "é" * 100))
    if isinstance(value, list):
        return rng.choice((value[:-1], value[::-1], value * 2, value + value[:1], value * rng.choice((1, 40)), []))
    header = rng.choice(blocks).header
    if len(value) == 32:
        return rng.choice((bytes(32), rng.randbytes(32), header.hash, header.state_root, header.miner, sha256(b"")))
    if rng.random() < 0.02:
        return bytes(LONG)
    return rng.choice((b"", value[:-1], value + b"\0", value * 2, rng.randbytes(len(value)), b"\xff" * len(value)))


def _places(fields: list[Any]) -> Iterator[tuple[list[Any], int]]:
    for index, item in enumerate(fields):
        yield fields, index
        if isinstance(item, list):
            yield from _places(item)
