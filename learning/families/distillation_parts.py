"""How examples travel between clients and the aggregator of a distillation: by reference, in the order of the data.

A value about one example is found by its position, so a client's parts are equally large to one row, and hold as many
examples together as it has labels. B batch, C classes, n examples of one client, H shape of an example's features.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np

from fedchain.learning.exceptions import PartMissing, TrainingDiverged, UnsoundNumbers
from fedchain.learning.method import Contributor, Lifetime, Phase
from fedchain.learning.models.model_info import ModelInfo
from fedchain.learning.payload.bulk import AGGREGATOR, NEXT_AGGREGATOR, PART_SIZE_MAX, PartRef, oversized
from fedchain.learning.payload.spec import WIRE_DTYPES, TensorSpec
from fedchain.learning.round import Bulk, Round, bulk_of

if TYPE_CHECKING:
    import torch

    from fedchain.learning.client import Client

LABELS = Phase("labels", lifetime=Lifetime.FEDERATION)
"""Runs once: each client sends its labels."""

UPDATE = Phase("update", lifetime=Lifetime.ROUND, trains=True)
"""Clients train, then send features and logits; and labels, where the setup lacks them or their bytes are lost."""

DISTILL = Phase("distill", by=Contributor.AGGREGATOR)
"""The aggregator trains its network, then sends each client logits."""

ROWS_MAX = 1 << 16
"""Most examples in a part, however small each is."""

FLOAT16_MAX = 6e4
"""Numbers are moved to at most this magnitude before they become float16."""

STATE_MAX = 1 << 20
"""Numbers of the state of the aggregator's network; one part holds them and their momentum."""

STATE_MAGNITUDE_MAX = 1e12
"""Largest absolute value of those: features that a client makes up can have a running variance beyond it."""

_HEADER_BYTES = 1 << 12
"""Room in a part for everything but the numbers."""

_SERVER_SPEC = (
    TensorSpec("round", (1,), "int64", minimum=1),
    TensorSpec("values", (-1,), free_max=STATE_MAX, magnitude_max=STATE_MAGNITUDE_MAX),
    TensorSpec("velocity", (-1,), free_max=STATE_MAX, magnitude_max=STATE_MAGNITUDE_MAX),
)


@dataclass(frozen=True, slots=True)
class ExampleParts:
    """The kinds of parts of a federation, as they are written."""

    precision: Literal["float32", "float16"]
    """Type of features and logits."""

    def specs(self, phase: Phase, info: ModelInfo) -> Mapping[str, tuple[TensorSpec, ...]]:
        """State labels; features and logits; answers, and the network's state for the next aggregator."""
        rows, classes = self.rows_max(info), info.classes
        labels = TensorSpec("labels", (-1,), "int64", ROWS_MAX, minimum=0, maximum=classes - 1)
        logits = TensorSpec("logits", (-1, classes), self.precision, rows)
        if phase == LABELS:
            return {"labels": (labels,)}
        if phase == UPDATE:
            assert info.feature_shape is not None, "a validated model has one"
            features = TensorSpec("features", (-1, *info.feature_shape), self.precision, rows)
            return {"examples": (features, logits), "late labels": (labels,)}
        return {"answers": (logits,), "server": _SERVER_SPEC}

    def rows_max(self, info: ModelInfo) -> int:
        """Return how many examples a part holds at most; 0 if not even one fits."""
        numbers = math.prod(info.feature_shape or ()) + info.classes
        return min(ROWS_MAX, (PART_SIZE_MAX - _HEADER_BYTES) // (numbers * WIRE_DTYPES[self.precision].itemsize))

    def send_examples(self, client: Client, round: Round) -> None:
        """Write features and logits of all examples: in their order, in evaluation mode, and not augmented.

        A client that missed the setup, which runs once, also sends its labels; without them none of its posts could
        ever be used. So does one that has lost those it sent then, which nobody else gives to an aggregator that lacks
        them.
        """
        import torch

        client.model.eval()
        with torch.inference_mode():
            for images in _cut(client.train_images, self.rows_max(client.info)):
                features, _, logits = client.model.split(images)
                self._send(client, round, "examples", {"features": features, "logits": logits}, AGGREGATOR)
        if not _has_own_labels(client, bulk_of(round)):
            send_labels(client, round, "late labels")

    def send_answer(self, client: Client, round: Round, answer: torch.Tensor, reader: int) -> list[PartRef]:
        """Write the aggregator's logits (n, C) for one client."""
        rows = _cut(answer, self.rows_max(client.info))
        return [self._send(client, round, "answers", {"logits": part}, reader) for part in rows]

    def send_server(self, client: Client, round: Round, state: Mapping[str, torch.Tensor]) -> PartRef:
        """Write the state of the aggregator's network for the next aggregator."""
        return self._send(client, round, "server", state, NEXT_AGGREGATOR)

    def _send(
        self, client: Client, round: Round, kind: str, tensors: Mapping[str, torch.Tensor], reader: int
    ) -> PartRef:
        """Write a part; features and logits in the type in which they are sent. Raises `TrainingDiverged` for numbers
        that nobody would take."""
        import torch

        if kind == "server":
            sent = dict(tensors)
        elif self.precision == "float16":
            sent = {name: value.clamp(-FLOAT16_MAX, FLOAT16_MAX).to(torch.float16) for name, value in tensors.items()}
        else:
            sent = {name: value.float() for name, value in tensors.items()}  # under autocast they are bfloat16
        written = {name: value.numpy() for name, value in sent.items()}
        try:
            return bulk_of(round).write(kind, written, reader)
        except UnsoundNumbers as error:
            raise TrainingDiverged(client.index, round.number, client.steps, math.nan, str(error)) from None


def _has_own_labels(client: Client, bulk: Bulk) -> bool:
    """Whether the setup has the client's labels, and the client still has what it sent then."""
    refs = [ref for ref in bulk.parts(LABELS.name) if ref.sender == client.index]
    try:
        return [bulk.read(ref) for ref in refs] != []
    except PartMissing:
        return False


def send_labels(client: Client, round: Round, kind: str) -> None:
    """Write the client's labels, as `labels` in the setup and as `late labels` after it."""
    for part in _cut(client.train_labels, ROWS_MAX):
        bulk_of(round).write(kind, {"labels": part.numpy()}, AGGREGATOR)


def read_answer(client: Client, round: Round) -> torch.Tensor | None:
    """Return the aggregator's last logits for the client's examples, (n, C); None where they are not all here."""
    import torch

    bulk = bulk_of(round)
    refs = [ref for ref in bulk.parts(DISTILL.name) if ref.kind == "answers" and ref.reader == client.index]
    logits, left = list[torch.Tensor](), len(client.train_labels)
    for ref in refs:
        try:
            logits.append(_tensor(bulk.read(ref)["logits"]))
        except PartMissing as error:
            client.skipped[ref.sender] = str(error)
            return None
        left -= len(logits[-1])
        if left < 0:  # whatever else is listed: there may be a gigabyte of it
            return None
    return torch.cat(logits) if logits and left == 0 else None


def examples_by_sender(bulk: Bulk) -> dict[int, list[PartRef]]:
    """Return the parts with features and logits by the place of their sender, ascending."""
    return _by_sender(bulk.parts(UPDATE.name), "examples")


def oversized_posts(bulk: Bulk) -> dict[int, str]:
    """Return the clients, by place, whose labels and examples are too many to be read, with the reason."""
    labels, examples = _labels_by_sender(bulk), examples_by_sender(bulk)
    listed = {sender: [*refs, *labels.get(sender, ())] for sender, refs in examples.items()}
    return oversized({sender: sum(ref.unpacked for ref in refs) for sender, refs in listed.items()})


def read_labels(bulk: Bulk, sender: int) -> torch.Tensor:
    """Return a client's labels, (n,): those of the setup, or else the late ones. Raises `PartMissing`."""
    import torch

    refs = _labels_by_sender(bulk).get(sender)
    if refs is None:
        raise PartMissing(f"member {sender} has posted no labels")
    return torch.cat([_tensor(bulk.read(ref)["labels"]) for ref in refs])


def read_examples(bulk: Bulk, ref: PartRef, rows: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return features (rows, *H) and logits (rows, C) of a part. Raises `PartMissing`, also for another number."""
    tensors = bulk.read(ref)
    features, logits = _tensor(tensors["features"]), _tensor(tensors["logits"])
    if not len(features) == len(logits) == rows:
        found = f"{len(features)} features and {len(logits)} logits"
        raise PartMissing(f"part {ref.hash.hex()} of member {ref.sender} must have {rows} examples, found {found}")
    return features, logits


def _labels_by_sender(bulk: Bulk) -> dict[int, list[PartRef]]:
    """The labels of the setup, and the late ones of those that the setup has not got."""
    return _by_sender(bulk.parts(UPDATE.name), "late labels") | _by_sender(bulk.parts(LABELS.name), "labels")


def _by_sender(refs: Sequence[PartRef], kind: str) -> dict[int, list[PartRef]]:
    """The parts of a kind by the place of their sender, ascending, each sender's in their order."""
    found: dict[int, list[PartRef]] = {}
    for ref in refs:
        if ref.kind == kind:
            found.setdefault(ref.sender, []).append(ref)
    return dict(sorted(found.items()))


def _cut(rows: torch.Tensor, rows_max: int) -> Iterator[torch.Tensor]:
    """Cut (n, ...) into as few parts as the bound allows, equally large to one row."""
    yield from rows.tensor_split(max(1, -(-len(rows) // rows_max)))


def _tensor(values: np.ndarray) -> torch.Tensor:
    """Return a copy, floats as float32."""
    import torch

    read = torch.from_numpy(np.array(values))
    return read.float() if read.is_floating_point() else read
