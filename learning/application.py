"""Learning as the chain sees it: the phases, the posts that are valid in each, and their aggregates, as bytes.

Everything here is public and repeatable: no data set, no private model, no randomness.
"""

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedchain.files.spool import InMemory, Spools
from fedchain.learning.aggregation.arithmetic import check_arithmetic
from fedchain.learning.bulk import kinds_of, knowledge_specs
from fedchain.learning.class_prototypes import class_prototypes
from fedchain.learning.config import LearningConfig
from fedchain.learning.exceptions import (
    OWN_CODE_ERRORS,
    ConfigurationError,
    InvalidPayload,
    NothingLeft,
    asking,
    is_own_code,
    raise_told,
)
from fedchain.learning.knowledge import KNOWLEDGE_SIZE_MAX, KnowledgeReader, Written, write_knowledge
from fedchain.learning.models.model_info import ModelInfo
from fedchain.learning.models.shapes import infos_of
from fedchain.learning.payload.bulk import check_manifest, decode_part, listed, listed_as, unpacked_size
from fedchain.learning.payload.codec import decode, document, lie_in_file, settle
from fedchain.learning.payload.document import Buffer
from fedchain.learning.payload.lazy import LazyTensors
from fedchain.learning.payload.tensor_file import array_pieces
from fedchain.learning.post_form import PostForm
from fedchain.learning.registry import build_method, validate_model
from fedchain.learning.round import NO_CHAIN, LatePost, Occasion, OffChain, ReadPost, Round, Tensors

PHASES_KEPT = 2
"""Phases whose decoded posts are kept: simulated peers share them, and some are a phase behind."""

POSTS_SIZE_MAX = 64 * 2**20
"""Bytes of decoded posts beyond which those of closed phases are not kept: another look at them decodes them again."""


@dataclass(frozen=True, slots=True)
class PrototypeSummary:
    """The global prototypes at a glance; all tuples follow `labels`."""

    labels: tuple[int, ...]
    """Classes with a prototype, ascending, n of them."""

    holders: tuple[int, ...]
    """Number of clients behind each prototype."""

    norms: tuple[float, ...]
    """L2 norm of each prototype."""

    cosines: tuple[tuple[float, ...], ...]
    """(n, n) cosine similarities; 0 where a norm is 0."""


Part = tuple[bytes, int, int]
"""Hash, size and reader of a part: all that the chain and the network need to know of it (`payload/bulk.py`)."""


class Application:
    """The public side of a learning task, for the chain's questions.

    Args:
        config: the task; it is validated here.
        members: public keys of the founding members, in the order of the partition, to which the material belongs. A
            process that judges a chain gives them, and then the material is checked; the founder of a chain knows none
            yet. Posts are judged by the members of their occasion.
        chain_id: identifier of the federation, to which proofs are bound.
        spools: begins the knowledge that an aggregate is written to, and what it is computed from.
    """

    def __init__(
        self,
        config: LearningConfig,
        members: Sequence[bytes] = (),
        chain_id: bytes = NO_CHAIN,
        spools: Spools = InMemory,
    ) -> None:
        config.validate()
        self._spools = spools
        check_arithmetic()
        self.method = build_method(config.method, dict(config.hyperparameters))
        of_method = type(self.method)
        self._own = f"{of_method.__name__}.aggregate" if is_own_code(of_method) else ""
        self.infos = infos_of(config)
        """The shapes of every architecture; see `LearningConfig.architecture_of`."""
        self.info: ModelInfo = self.infos[0]
        for info in self.infos:
            validate_model(self.method, info)
        self._knowledge = KnowledgeReader(self.method, self.info, config.clients)
        self._public = Round(
            0,
            None,
            clients=config.clients,
            material=MappingProxyType(dict(config.material)),
            chain_id=chain_id,
            info=self.info,
            spools=spools,
        )
        if members:
            with asking("validate_material", type(self.method)):
                self.method.validate_material(replace(self._public, members=tuple(members)))
        self._phases = {phase.name: phase for phase in (*self.method.setup, *self.method.phases)}
        self._kinds = kinds_of(self.method, self.info)
        self.forms = tuple(PostForm(self.method, info, config.clients) for info in self.infos)
        """How posts of each architecture are decoded."""
        self._payload_sizes = {phase: max(form.size_bytes_max(phase) for form in self.forms) for phase in self._phases}
        self._payload_specs = self.forms[0].specs  # of phases that list parts, they are everybody's
        self._knowledge_specs = knowledge_specs(self.method, self.info, config.clients)
        self._config = config
        self._validate_one_form(config)
        self._decoded = _DecodedPosts()

    def join(self, chain_id: bytes) -> None:
        """Judge for the federation that is known by this id from now on; founding needs this object to find the id."""
        self._public = replace(self._public, chain_id=chain_id)

    @property
    def phases(self) -> tuple[tuple[str, str, int], ...]:
        """Name, contributor ('participant' or 'aggregator') and quorum of every round's phases, in order."""
        return tuple((phase.name, phase.by.value, phase.quorum) for phase in self.method.phases)

    @property
    def setup_phases(self) -> tuple[tuple[str, str, int], ...]:
        """The same for the phases that run once, before round 1."""
        return tuple((phase.name, phase.by.value, phase.quorum) for phase in self.method.setup)

    def payload_size_max(self, phase: str) -> int:
        """Return the size that no valid payload of the phase exceeds."""
        return self._payload_sizes[phase]

    def knowledge_size_max(self) -> int:
        """Return the size in bytes that no knowledge exceeds, which may be far more than posts leave behind."""
        return min(self.stated_size, KNOWLEDGE_SIZE_MAX)

    @property
    def stated_size(self) -> int:
        """Bytes of the largest knowledge that the method's specs allow, whether or not a document can have so many."""
        return self._knowledge.size_bytes_max

    def check(self, occasion: Occasion, sender: bytes, knowledge: bytes, payload: bytes) -> None:
        """Raise `InvalidPayload` unless the bytes are a valid post of the sender's on this occasion.

        `knowledge` is what the previous phase left, b'' before the first. `aggregate` takes every post that passes.
        Raises `OwnCodeFailed` where a user's own method fails.
        """
        which, round = self._phases[occasion.phase], self._round(occasion, knowledge)
        post = self._read(occasion, sender, payload, round.knowledge)
        self._check_parts(post.payload, occasion.phase)
        if occasion.phase in self._kinds and sender in occasion.members[self._config.clients + 1 :]:
            # what the phase leaves behind lists senders by place, up to that of the last part of the data
            raise InvalidPayload(f"sender: the data have {self._config.clients} parts, and none is this member's")
        try:
            self.method.check(which, post, round)
        except ValueError:  # bytes that a check stumbles over are the sender's, whoever wrote the check
            raise
        except OWN_CODE_ERRORS as error:
            raise_told(error, f"check of phase {occasion.phase}", type(self.method))

    def _check_parts(self, payload: Tensors, phase: str) -> None:
        kinds = self._kinds.get(phase, {})
        check_manifest(payload, kinds, self.method.parts_bytes_max)
        for place, ref in enumerate(listed(payload, kinds)):
            if not self.method.may_read(ref.kind, ref.reader):
                raise InvalidPayload(f"parts[{place}]: kind {ref.kind} is not for reader {ref.reader}")

    def lists_parts(self, phase: str) -> bool:
        """Whether posts of the phase list parts."""
        return phase in self._kinds

    def parts(self, phase: str, payload: bytes) -> tuple[Part, ...]:
        """Return the parts that a checked post of the phase lists, none where posts are whole."""
        if phase not in self._kinds:
            return ()
        refs = listed(decode(payload, self._payload_specs[phase]), self._kinds[phase])
        return tuple((ref.hash, ref.size, ref.reader) for ref in refs)

    def parts_known(self, knowledge: bytes) -> tuple[tuple[int, Part, int], ...]:
        """Return the parts that the knowledge lists, each with the round that it was posted in and its sender."""
        return tuple(
            (left.round, (ref.hash, ref.size, ref.reader), ref.sender)
            for left in self._knowledge.read(knowledge)
            if left.phase in self._kinds
            for ref in listed(left.tensors, self._kinds[left.phase])
        )

    def check_part(self, phase: str, payload: bytes, part_hash: bytes, data: bytes) -> None:
        """Raise `InvalidPayload` unless the bytes are a part of the kind that a checked post lists them as."""
        kinds = self._kinds[phase]
        for ref in listed_as(decode(payload, self._payload_specs[phase]), kinds, part_hash):
            if len(data) != ref.size:
                raise InvalidPayload(f"part: {ref.size} bytes listed, found {len(data)}")
            if (found := unpacked_size(data)) != ref.unpacked:
                raise InvalidPayload(f"part: {ref.unpacked} bytes listed when unpacked, it says {found}")
            decode_part(data, kinds[ref.kind])

    def is_slow_to_check(self, phase: str) -> bool:
        """Whether posts of the phase take long to check, however short they are."""
        return self._phases[phase].slow_to_check

    def aggregate(self, occasion: Occasion, knowledge: bytes, posts: Sequence[tuple[bytes, bytes]]) -> bytes:
        """Return the knowledge that (sender, payload) posts, in ascending order of sender, leave behind.

        `check` let all of them pass beside the same knowledge: they are not checked again, since a proof may take as
        long as everything else together. Without posts, or with posts that leave nothing, the knowledge stays as it is.
        Late posts of the occasion that the method gives a weight count beside them.

        Raises `InvalidPayload` where the method refuses the posts all the same, which is their senders' fault, and
        `OwnCodeFailed` if a user's own method fails, which is no member's fault; OSError if the disk refuses a large
        one.
        """
        assert list(posts) == sorted(posts, key=lambda post: post[0]), "posts must come in ascending order of sender"
        if not posts:
            return knowledge
        phase, number = occasion.phase, occasion.round
        closed, round = self._phases[phase], self._round(occasion, knowledge)
        read = tuple(self._read(occasion, sender, payload, round.knowledge) for sender, payload in posts)
        late = self._read_late(occasion, round)
        try:
            aggregate = self.method.aggregate(closed, replace(round, posts=read, late=late))
        except NothingLeft:
            return knowledge
        except OWN_CODE_ERRORS as error:
            # A ValueError of a built-in method is the posts' fault, as far as anybody can tell.
            raise_told(error, f"aggregate of phase {occasion.phase}", type(self.method))
        specs = self._knowledge_specs[phase]
        settled = settle(aggregate, specs, self._own)
        computed = LazyTensors({name: partial(self._computed, settled, name, phase) for name in settled})
        left = document(computed, specs)
        is_last = closed in (*self.method.setup[-1:], *self.method.phases[-1:])
        kept = self._knowledge.kept(self._knowledge.read(knowledge), closed, number, is_last=is_last)
        parts: list[Written] = [(part.phase, part.round, (len(part.document), (part.document,))) for part in kept]
        parts.append((phase, number, left))
        written = write_knowledge(sorted(parts, key=self._knowledge.place), self._spools)
        self._decoded.close(phase, number)
        return written

    def _computed(self, aggregate: Tensors, name: str, phase: str) -> NDArray[Any]:
        """A tensor of an aggregate. Where it is computed only now, its errors are the same as if it had been before."""
        try:
            return aggregate[name]
        except OWN_CODE_ERRORS as error:
            raise_told(error, f"aggregate of phase {phase}", type(self.method))

    def _read_late(self, occasion: Occasion, round: Round) -> tuple[LatePost, ...]:
        """Decode the late posts that the method gives a weight, and the knowledge that each was made from."""
        found = []
        for late in occasion.late:
            of_then, age = OffChain(occasion.phase, late.round, occasion.members), round.number - late.round
            try:
                weight = self.method.late(age)
            except OWN_CODE_ERRORS as error:
                raise_told(error, f"late({age})", type(self.method))
            if weight:
                base = self._knowledge.fill(replace(round, number=late.round), late.knowledge).knowledge
                if base is None:  # what the setup left beside it is knowledge to the chain, and nothing to count from
                    continue
                post = self._read(of_then, late.sender, late.payload, base)
                found.append(LatePost(post=post, age=age, weight=weight, base=base))
        return tuple(found)

    def read_knowledge(self, knowledge: bytes) -> Tensors | None:
        """Decode knowledge; b'' is None. Raises `InvalidPayload` for bytes that no phase leaves behind."""
        return self._knowledge.fill(self._public, knowledge).knowledge

    def summary(self, knowledge: bytes) -> PrototypeSummary | None:
        """Describe the class prototypes in the knowledge; None for a method without any, or before the first.

        Raises `OwnCodeFailed` where a user's own method fails.
        """
        tensors = self.read_knowledge(knowledge)
        found = None if tensors is None else class_prototypes(self.method, tensors)
        if found is None:
            return None
        rows = found["prototypes"].astype(np.float64)  # (n, D)
        norms = tuple(math.sqrt(_inner(row, row)) for row in rows)
        return PrototypeSummary(
            labels=tuple(found["labels"].tolist()),
            holders=tuple(found["holders"].tolist()),
            norms=norms,
            cosines=tuple(
                tuple(_inner(a, b) / (p * q) if p * q > 0 else 0.0 for b, q in zip(rows, norms, strict=True))
                for a, p in zip(rows, norms, strict=True)
            ),
        )

    def safetensors(self, knowledge: bytes) -> Iterator[Buffer]:
        """Return the knowledge as the pieces of a safetensors file; without knowledge, of one without tensors.

        Raises `InvalidPayload` for bytes that no phase leaves behind.
        """
        return array_pieces(self.read_knowledge(knowledge) or {})

    def _round(self, occasion: Occasion, knowledge: bytes) -> Round:
        clients, members = occasion.clients or self._config.clients, tuple(occasion.members)
        round = replace(self._public, number=occasion.round, clients=clients, members=members)
        return self._knowledge.fill(round, knowledge)

    def _read(self, occasion: Occasion, sender: bytes, payload: bytes, known: Tensors | None = None) -> ReadPost:
        """Decode a post. Raises `InvalidPayload` unless it follows the phase's spec for the sender's model.

        `known` is the knowledge that it was made from.
        """
        phase, number, architecture = occasion.phase, occasion.round, self._architecture_of(sender, occasion.members)
        form = self.forms[architecture]
        base = None if form.packing(phase, known) is None else known  # whole posts are the same beside any
        context = _Context(phase, number, architecture, base)
        tensors = self._decoded.find(context, payload)
        if tensors is None:
            tensors = form.decode(phase, payload, base, self._spools)
            self._decoded.keep(context, payload, tensors)
        return ReadPost(sender, tensors, self.infos[architecture])

    def _architecture_of(self, sender: bytes, members: Sequence[bytes]) -> int:
        """The architecture of a member's place; the first one if there is no other, or for none of the members."""
        count = len(self.infos)
        if count == 1 or sender not in members:
            return 0
        return self._config.architecture_of(self._config.part_of(members.index(sender)), count)

    def _validate_one_form(self, config: LearningConfig) -> None:
        """Raise `ConfigurationError` if knowledge or lists of parts, which are nobody's, depend on the model."""
        for info, form in zip(self.infos[1:], self.forms[1:], strict=True):
            left_alike = knowledge_specs(self.method, info, config.clients) == self._knowledge_specs
            listed_alike = all(form.specs[name] == self._payload_specs[name] for name in self._kinds)
            if not (left_alike and listed_alike and kinds_of(self.method, info) == self._kinds):
                raise ConfigurationError(
                    f"what {config.method} leaves behind depends on the model, which differs from member to member"
                )


@dataclass(frozen=True, slots=True, eq=False)
class _Context:
    """All that a payload's tensors depend on beside its bytes."""

    phase: str
    round: int
    architecture: int
    base: Tensors | None
    """The knowledge that a packed post is counted from; None for a whole post."""

    @property
    def which(self) -> tuple[str, int]:
        return self.phase, self.round


class _DecodedPosts:
    """Payloads of the phases that are open somewhere: a post is checked when it comes and read when its phase closes.

    The tensors kept are views of bytes that the caller, too, holds until then, one post of each member. If the posts
    are large, the views must not outlive the phase, or they alone would keep the bytes. Unpacked tensors are nobody
    else's: they are kept while there is room or in files, and unpacked again where there was none.
    """

    def __init__(self) -> None:
        self._phases: dict[tuple[str, int], dict[tuple[int, int, int], tuple[bytes, _Context, Tensors]]] = {}
        self._sizes: Counter[tuple[str, int]] = Counter()  # bytes of each phase's payloads; the newest phase is last

    def find(self, context: _Context, payload: bytes) -> Tensors | None:
        """Return the tensors that these very bytes were decoded to in this context."""
        known = self._phases.get(context.which, {}).get(self._key(context, payload))
        return None if known is None else known[2]

    def keep(self, context: _Context, payload: bytes, tensors: Tensors) -> None:
        """Remember the tensors of decoded bytes, and hold the bytes, so that no others take their place in memory."""
        size = len(payload)
        if context.base is not None and not lie_in_file(tensors):
            size += sum(tensor.nbytes for tensor in tensors.values())
            if self._sizes.total() + size > POSTS_SIZE_MAX:
                return
        self._phases.setdefault(context.which, {})[self._key(context, payload)] = payload, context, tensors
        self._sizes[context.which] += size
        while len(self._phases) > PHASES_KEPT or (len(self._phases) > 1 and self._sizes.total() > POSTS_SIZE_MAX):
            self._drop(next(iter(self._phases)))

    def close(self, phase: str, round_number: int) -> None:
        """Forget the posts of a phase that was aggregated, if they are large."""
        if self._sizes[phase, round_number] > POSTS_SIZE_MAX:
            self._drop((phase, round_number))

    @staticmethod
    def _key(context: _Context, payload: bytes) -> tuple[int, int, int]:
        return id(payload), id(context.base), context.architecture

    def _drop(self, which: tuple[str, int]) -> None:
        del self._phases[which], self._sizes[which]


def _inner(a: NDArray[Any], b: NDArray[Any]) -> float:
    """Inner product with one rounding per product and a correctly rounded sum."""
    return math.fsum((a * b).tolist())
