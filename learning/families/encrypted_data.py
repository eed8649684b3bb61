"""Encrypted data as FedEDS's clients show them to each other: images, and the sender's model's output for each.

Li et al., 2025 (arXiv:2506.20644), Eq. 4. B batch, C classes, n images.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from fedchain.learning.exceptions import PartMissing
from fedchain.learning.payload.bulk import PART_SIZE_MAX, PartRef, oversized
from fedchain.learning.payload.pixels import PixelType, image_spec, unpack_images
from fedchain.learning.payload.spec import TensorSpec
from fedchain.learning.round import Bulk, Tensors

if TYPE_CHECKING:
    import torch

    from fedchain.learning.client import Client

IMAGES_MAX = 1 << 17
"""Images in one part, at most."""

SUM_TOLERANCE = 1e-3
"""How far from 1 the sum of a teacher's probabilities may be."""

_REST_BYTES = 1 << 12
"""Bytes that the names and sizes of a part's tensors take at most."""


def encrypted_spec(classes: int, kind: PixelType) -> tuple[TensorSpec, ...]:
    """State the tensors of a part: the images, and `teacher` (n, C), their probabilities."""
    teacher = TensorSpec("teacher", (-1, classes), free_max=IMAGES_MAX, minimum=0, magnitude_max=1.0)
    return (*image_spec(kind, IMAGES_MAX, PART_SIZE_MAX), teacher)


def images_in_part(pixels: int, classes: int) -> int:
    """Return how many images of so many pixels fit into a part, whatever the type of the pixels."""
    return min((PART_SIZE_MAX - _REST_BYTES) // (2 * pixels + 4 * (2 + classes)), IMAGES_MAX)


class EncryptedData:
    """D_i^F of one client: n images and the teacher's probabilities, as they were sent; read batch by batch.

    Raises `PartMissing` for parts that are no images of this shape with a teacher each: they are of no use.
    """

    def __init__(self, parts: Sequence[Tensors], shape: tuple[int, ...]) -> None:
        self._shape = shape
        size = math.prod(shape)
        for part in parts:
            counts = {name: len(column) // (size if name == "pixels" else 1) for name, column in part.items()}
            sums = part["teacher"].sum(axis=1)
            if len(set(counts.values())) > 1 or len(part["pixels"]) % size or (np.abs(sums - 1) > SUM_TOLERANCE).any():
                raise PartMissing(f"encrypted data are of no use: {counts}, sums of probabilities up to {sums.max()}")
        columns = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
        self._columns = columns | {"pixels": columns["pixels"].reshape(-1, size)}

    def __len__(self) -> int:
        return len(self._columns["teacher"])

    def rows(self, batch: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return images (B, c, h, w) and the teacher's probabilities (B, C) at places (B,)."""
        import torch

        chosen = {name: column[batch.numpy()] for name, column in self._columns.items()}
        images = unpack_images(chosen | {"pixels": chosen["pixels"].reshape(-1)}, self._shape)
        return torch.from_numpy(images), torch.from_numpy(chosen["teacher"])


class Draws:
    """Draws, again and again, another client than this one whose encrypted data are here.

    Args:
        client: the client that draws; those whose data are of no use are noted as skipped.
        bulk: the parts.
        phase: name of the phase that posted them.
        generator: draws.
    """

    def __init__(self, client: Client, bulk: Bulk, phase: str, generator: torch.Generator) -> None:
        self._client, self._bulk, self._generator = client, bulk, generator
        self._left: dict[int, list[PartRef]] = {}  # by the place of the client that shows them
        refs, sizes = bulk.parts(phase), Counter[int]()
        for ref in refs:
            sizes[ref.sender] += ref.unpacked
        unread = {sender: why for sender, why in oversized(sizes).items() if sender != client.index}
        client.skipped |= unread
        for ref in refs:
            if ref.sender != client.index and ref.sender not in unread:
                self._left.setdefault(ref.sender, []).append(ref)

    def draw(self) -> tuple[int, EncryptedData] | None:
        """Return a client's place and data; None if nobody's are of use."""
        import torch

        shape = tuple(self._client.train_images.shape[1:])
        while left := self._left:
            place = sorted(left)[int(torch.randint(len(left), (), generator=self._generator))]
            try:
                return place, EncryptedData([self._bulk.read(ref) for ref in left[place]], shape)
            except PartMissing as error:
                self._client.skipped[place] = str(error)
                del left[place]
        return None
