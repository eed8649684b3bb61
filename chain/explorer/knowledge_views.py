"""Knowledge as an answer: what a learning method can say of it, and the parts that it refers to."""

from collections.abc import Iterator, Sequence
from typing import Protocol

from fedchain.chain.block import Header
from fedchain.chain.exceptions import InvalidPayload
from fedchain.chain.explorer.views import NAMED_READERS, KnowledgeView, PartsView, Prototype
from fedchain.chain.knowledge import AGGREGATOR, EVERYBODY, NEXT_AGGREGATOR, Part, Rules
from fedchain.chain.roster import Roster
from fedchain.crypto.address import address


class Prototypes(Protocol):
    """Class prototypes at a glance; all of them follow ``labels``."""

    @property
    def labels(self) -> Sequence[int]:
        """Classes that have a prototype."""

    @property
    def holders(self) -> Sequence[int]:
        """Members behind each prototype."""

    @property
    def norms(self) -> Sequence[float]:
        """L2 norm of each prototype."""

    @property
    def cosines(self) -> Sequence[Sequence[float]]:
        """Cosine of each prototype with each."""


class KnowledgeRules(Rules, Protocol):
    """A learning method that can also describe its knowledge."""

    def summary(self, knowledge: bytes) -> Prototypes | None:
        """The class prototypes in ``knowledge``; None for a method without any. Raises ValueError."""

    def safetensors(self, knowledge: bytes) -> Iterator[bytes | memoryview]:
        """``knowledge`` as the pieces of a file that other programs read. Raises ValueError."""


def view_knowledge(roster: Roster, rules: KnowledgeRules, header: Header, data: bytes) -> KnowledgeView:
    """The knowledge ``data`` that the block with ``header`` left behind. Raises InvalidPayload."""
    try:
        found = rules.summary(data)
    except ValueError as error:
        raise InvalidPayload("knowledge", str(error)) from None
    prototypes = None
    if found is not None:
        columns = zip(found.labels, found.holders, found.norms, found.cosines, strict=True)
        prototypes = tuple(Prototype(label, count, norm, tuple(row)) for label, count, norm, row in columns)
    parts = _view_parts(roster, rules.parts_known(data))
    return KnowledgeView(header.round, header.height, header.knowledge_root, len(data), prototypes, parts)


def _view_parts(roster: Roster, known: Sequence[tuple[int, Part, int]]) -> tuple[PartsView, ...]:
    """The parts that knowledge refers to, counted by round, sender and reader."""
    members, counted = roster.members, dict[tuple[int, int, int], list[int]]()
    for posted_in, (_, size, reader), sender in known:
        counted.setdefault((posted_in, sender, reader), []).append(size)
    named = dict(zip((EVERYBODY, AGGREGATOR, NEXT_AGGREGATOR), NAMED_READERS, strict=True))
    return tuple(
        PartsView(
            posted_in,
            address(members[sender]),
            named[reader] if reader in named else address(members[reader]),
            len(sizes),
            sum(sizes),
        )
        for (posted_in, sender, reader), sizes in sorted(counted.items())
    )
