"""Payloads by reference as methods meet them: access to parts, and the specs of posts that list them."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from fedchain.crypto.hashing import sha256
from fedchain.learning.exceptions import (
    ConfigurationError,
    InvalidPayload,
    OwnCodeFailed,
    PartMissing,
    UnsoundNumbers,
    asking,
)
from fedchain.learning.method import Method, Phase
from fedchain.learning.models.model_info import ModelInfo
from fedchain.learning.payload.bulk import (
    AGGREGATOR,
    EVERYBODY,
    NEXT_AGGREGATOR,
    Kinds,
    PartRef,
    decode_part,
    left_behind_spec,
    listed,
    manifest,
    manifest_spec,
    pack_part,
)
from fedchain.learning.payload.codec import decode, encode, validate_arrays
from fedchain.learning.payload.part_folder import PartStore
from fedchain.learning.payload.spec import WIRE_DTYPES, TensorSpec
from fedchain.learning.round import Tensors


@dataclass(frozen=True, slots=True)
class AddressedBytes:
    """Bytes of a post, by the members that have to fetch them; each byte counts once, however many members fetch it."""

    everybody: int = 0
    """The payload itself, and parts for all members."""

    aggregator: int = 0
    """Parts for this round's aggregator."""

    next_aggregator: int = 0
    """Parts for the next round's, which goes on from them. Nobody fetches them if it is the same member."""

    one_member: int = 0
    """Parts that one member reads each."""


NO_BYTES = AddressedBytes()


def address_bytes(payload: bytes, parts: Sequence[PartRef]) -> AddressedBytes:
    """Return the bytes of a post with these parts."""
    sizes: Counter[int] = Counter()
    for part in parts:
        sizes[part.reader] += part.size
    for_one = sum(size for reader, size in sizes.items() if reader >= 0)
    return AddressedBytes(len(payload) + sizes[EVERYBODY], sizes[AGGREGATOR], sizes[NEXT_AGGREGATOR], for_one)


class PartAccess:
    """Reads and writes parts one after the other, so that memory holds one of them; see `learning.round.Bulk`.

    Args:
        store: where the bytes are.
        kinds: of each phase.
        phase: the one that is open.
        left: by phase, the tensors that the knowledge at hand has of it.
    """

    def __init__(self, store: PartStore, kinds: Mapping[str, Kinds], phase: str, left: Mapping[str, Tensors]) -> None:
        self._store, self._kinds, self._phase, self._left = store, kinds, phase, left
        self._specs = {name: specs for of_phase in kinds.values() for name, specs in of_phase.items()}
        self.written: list[PartRef] = []
        """The parts that were written, in order."""

    def write(self, kind: str, tensors: Tensors, reader: int) -> PartRef:
        """See `Bulk`."""
        kinds, what = self._kinds.get(self._phase, {}), f"a part '{kind}' of phase {self._phase}"
        if kind not in kinds:
            raise OwnCodeFailed(f"{what} is written, but {', '.join(kinds) or 'none'} is stated (`parts`)")
        validate_arrays(what, tensors)
        document = encode(tensors)
        try:
            decode(document, kinds[kind])  # what others would refuse is found here
        except UnsoundNumbers:
            raise
        except InvalidPayload as error:
            raise OwnCodeFailed(f"{what} is not what is stated: {error}") from None
        data = pack_part(document)
        part_hash = sha256(data)
        try:
            self._store.write(part_hash, data)
        except OSError as error:
            raise ConfigurationError(f"part {part_hash.hex()} of {len(data)} bytes cannot be kept: {error}") from error
        self.written.append(PartRef(part_hash, len(data), kind, reader, unpacked=len(document)))
        return self.written[-1]

    def read(self, ref: PartRef) -> Tensors:
        """See `Bulk`."""
        try:
            return decode_part(self._store.read(ref.hash), self._specs[ref.kind])
        except InvalidPayload as error:
            # Its readers refuse it when it comes; a majority of others may have let it pass.
            raise PartMissing(f"part {ref.hash.hex()} is of no use: {error}") from None

    def parts(self, phase: str) -> tuple[PartRef, ...]:
        """See `Bulk`."""
        return listed(self._left[phase], self._kinds[phase]) if phase in self._left else ()

    def manifest(self, refs: Sequence[PartRef] | None = None) -> Tensors:
        """See `Bulk`."""
        return manifest(self.written if refs is None else refs, self._kinds[self._phase])


def kinds_of(method: Method, info: ModelInfo) -> dict[str, Kinds]:
    """Return the kinds of parts of every phase that has any. Raises `ConfigurationError` for a name given twice."""
    phases = (*method.setup, *method.phases)
    kinds = {phase.name: found for phase in phases if (found := _stated_parts(method, phase, info))}
    names = [name for found in kinds.values() for name in found]
    if len(set(names)) < len(names):
        raise ConfigurationError(f"kinds of parts of {type(method).__name__} are named twice: {', '.join(names)}")
    return kinds


def payload_specs(method: Method, info: ModelInfo, clients: int) -> dict[str, tuple[TensorSpec, ...]]:
    """State the tensors that a contributor posts in each phase: the method's own, and those that list parts.

    `clients` is the number at the founding: the specs are the same at every height.
    """
    kinds, places = kinds_of(method, info), clients + 1  # a dedicated aggregator has no data, and the last place
    return {
        phase.name: (*_stated(method, "payload_spec", phase, info), *manifest_spec(kinds.get(phase.name, {}), places))
        for phase in (*method.setup, *method.phases)
    }


def knowledge_specs(method: Method, info: ModelInfo, clients: int) -> dict[str, tuple[TensorSpec, ...]]:
    """State the tensors that each phase leaves behind, in the same way."""
    kinds, places = kinds_of(method, info), clients + 1
    return {
        phase.name: (
            *_stated(method, "knowledge_spec", phase, info),
            *left_behind_spec(kinds.get(phase.name, {}), places),
        )
        for phase in (*method.setup, *method.phases)
    }


def _stated(method: Method, which: str, phase: Phase, info: ModelInfo) -> tuple[TensorSpec, ...]:
    """Return what the method states of a phase. Raises `ConfigurationError` where a user's own states no tensors."""
    with asking(f"{which} of phase {phase.name}", type(method)):
        specs = tuple(getattr(method, which)(phase, info))
    _validate_specs(f"{type(method).__name__}.{which} of phase {phase.name}", specs)
    return specs


def _stated_parts(method: Method, phase: Phase, info: ModelInfo) -> Kinds:
    """Return the kinds of parts that the method states of a phase, in the same way."""
    what = f"parts of phase {phase.name}"
    with asking(what, type(method)):
        kinds = {kind: tuple(specs) for kind, specs in method.parts(phase, info).items()}
    for kind, specs in kinds.items():
        _validate_specs(f"{type(method).__name__}.{what}, kind {kind}", specs)
    return kinds


def _validate_specs(what: str, specs: Sequence[TensorSpec]) -> None:
    if wrong := [spec for spec in specs if not isinstance(spec, TensorSpec)]:
        raise ConfigurationError(f"{what} must be TensorSpec objects, not {wrong[0]!r}")
    for spec in specs:
        if spec.dtype not in WIRE_DTYPES:
            raise ConfigurationError(f"{what}: {spec.name} must be of {', '.join(WIRE_DTYPES)}, not {spec.dtype}")
        if any(size < -1 for size in spec.shape):
            raise ConfigurationError(f"{what}: {spec.name} has the shape {spec.shape}; -1 alone is a free size")
    if twice := [name for name, count in Counter(spec.name for spec in specs).items() if count > 1]:
        raise ConfigurationError(f"{what}: tensors are named twice: {', '.join(twice)}")
