"""Knowledge as bytes: the documents that phases left behind, each with its phase and its round.

It is a msgpack array of `[phase, round, document]`: first the knowledge itself, if there is any yet, then the parts
beside it for this round, then the parts beside it for ever, each in the order of the phases. `document` is the form
that payloads have (`payload/codec.py`). No bytes are no knowledge.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from fedchain.files.spool import InMemory, Spools, write_pieces
from fedchain.learning.bulk import knowledge_specs
from fedchain.learning.exceptions import InvalidPayload
from fedchain.learning.method import Lifetime, Method, Phase
from fedchain.learning.models.model_info import ModelInfo
from fedchain.learning.payload.codec import Document, decode, size_bytes_max
from fedchain.learning.payload.document import (
    Buffer,
    read_number,
    read_text,
    write_array,
    write_bytes,
    write_integer,
    write_text,
)
from fedchain.learning.round import Round, Tensors

KNOWLEDGE_SIZE_MAX = 2**32 - 1
"""Most bytes that msgpack can say of a document."""

PART_OVERHEAD_BYTES_MAX = 300
"""Bytes of a part beside its document: its phase's name, its round, and a size."""

KNOWLEDGE_KEPT = 2
"""Decoded knowledge that is kept: that with which a phase begins, and that which it leaves."""


@dataclass(frozen=True, slots=True)
class Left:
    """Knowledge that one phase left behind."""

    phase: str
    """Its name."""

    round: int
    """Round that it belongs to; 0 for the setup."""

    document: Buffer = field(repr=False)
    """The encoded tensors."""

    tensors: Tensors = field(repr=False, compare=False)
    """The same, decoded."""


Written = tuple[str, int, Document]
"""Phase, round, and the document that it left."""


def write_knowledge(parts: Sequence[Written], spools: Spools = InMemory) -> bytes:
    """Return the bytes of what phases left, which are hashed and copied once. Raises OSError if the disk refuses."""
    return write_pieces(_pieces(parts), spools)


class KnowledgeReader:
    """Decodes knowledge, and keeps the last results: all posts of a phase are checked against the same."""

    def __init__(self, method: Method, info: ModelInfo, clients: int) -> None:
        self._phases: Mapping[str, Phase] = {phase.name: phase for phase in (*method.setup, *method.phases)}
        in_order = sorted(self._phases.values(), key=lambda phase: list(Lifetime).index(phase.lifetime))
        self._order = {phase.name: place for place, phase in enumerate(in_order)}
        self._specs = knowledge_specs(method, info, clients)
        self._last: tuple[tuple[bytes, tuple[Left, ...]], ...] = ()  # the newest first

    @property
    def size_bytes_max(self) -> int:
        """Bytes that no knowledge exceeds; where a dimension is free, its bound counts, which posts may never reach."""
        sizes = {name: size_bytes_max(specs) + PART_OVERHEAD_BYTES_MAX for name, specs in self._specs.items()}
        lasting = [name for name, phase in self._phases.items() if phase.lifetime is Lifetime.UNTIL_REPLACED]
        beside = sum(sizes[name] for name in sizes.keys() - set(lasting))
        return beside + max((sizes[name] for name in lasting), default=0)

    def read(self, knowledge: bytes) -> tuple[Left, ...]:
        """Decode knowledge; b'', which stands before the first aggregate, is nothing.

        Raises `InvalidPayload` for bytes that no phase leaves behind.
        """
        if not knowledge:
            return ()
        for known, parts in self._last:
            if known is knowledge or known == knowledge:
                return parts
        found = self._decode(knowledge)
        self._last = ((knowledge, found), *self._last)[:KNOWLEDGE_KEPT]
        return found

    def fill(self, round: Round, knowledge: bytes) -> Round:
        """Return the round with the federation's knowledge in it, except what another round left for itself."""
        parts = self.read(knowledge)
        main = [part for part in parts if self._lifetime(part) is Lifetime.UNTIL_REPLACED]
        return replace(
            round,
            knowledge=main[0].tensors if main else None,
            knowledge_phase=main[0].phase if main else "",
            beside={part.phase: part.tensors for part in parts if self._is_beside(part, round.number)},
        )

    def kept(self, parts: Sequence[Left], closed: Phase, round_number: int, *, is_last: bool) -> tuple[Left, ...]:
        """Return the parts that stay beside the aggregate of a phase that closes."""
        return tuple(
            part
            for part in parts
            if part.phase != closed.name
            and (
                closed.lifetime is not Lifetime.UNTIL_REPLACED
                if self._lifetime(part) is Lifetime.UNTIL_REPLACED
                else self._is_beside(part, round_number) and not (is_last and self._lifetime(part) is Lifetime.ROUND)
            )
        )

    def place(self, part: Written) -> int:
        """Return the key by which parts are ordered when they are written."""
        return self._order[part[0]]

    def _decode(self, knowledge: bytes) -> tuple[Left, ...]:
        count, position = read_number(knowledge, 0, "array")
        if not 1 <= count <= len(self._phases):
            raise InvalidPayload(f"knowledge: parts of 1 to {len(self._phases)} phases expected, found {count}")
        parts: list[Left] = []
        for _ in range(count):
            part, position = self._read_part(knowledge, position)
            if parts and self._order[parts[-1].phase] >= self._order[part.phase]:
                raise InvalidPayload(f"knowledge: another order than {parts[-1].phase}, {part.phase} expected")
            parts.append(part)
        if position != len(knowledge):
            raise InvalidPayload(f"knowledge: {position} bytes expected, found {len(knowledge)}")
        if sum(self._lifetime(part) is Lifetime.UNTIL_REPLACED for part in parts) > 1:
            raise InvalidPayload(f"knowledge: one phase's expected, found {', '.join(part.phase for part in parts)}")
        return tuple(parts)

    def _read_part(self, knowledge: bytes, position: int) -> tuple[Left, int]:
        fields, position = read_number(knowledge, position, "array")
        if fields != 3:
            raise InvalidPayload(f"knowledge: [phase, round, document] expected, found an array of {fields}")
        phase, position = read_text(knowledge, position)
        if phase not in self._phases:
            raise InvalidPayload(f"knowledge: one of {', '.join(self._phases)} expected, found phase {phase!r:.40}")
        number, position = read_number(knowledge, position, "integer")
        size, position = read_number(knowledge, position, "bytes")
        document = memoryview(knowledge)[position : position + size]
        if len(document) != size:
            raise InvalidPayload(f"knowledge: {position + size} bytes expected, found {len(knowledge)}")
        return Left(phase, number, document, decode(document, self._specs[phase])), position + size

    def _lifetime(self, part: Left) -> Lifetime:
        return self._phases[part.phase].lifetime

    def _is_beside(self, part: Left, round_number: int) -> bool:
        lifetime = self._lifetime(part)
        return lifetime is Lifetime.FEDERATION or (lifetime is Lifetime.ROUND and part.round == round_number)


def _pieces(parts: Sequence[Written]) -> Iterator[Buffer]:
    yield write_array(len(parts))
    for phase, number, (size, document) in parts:
        yield write_array(3) + write_text(phase) + write_integer(number) + write_bytes(size)
        yield from document
