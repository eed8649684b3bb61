"""Encrypted data that clients show each other, in memory."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from fedchain.learning.exceptions import PartMissing
from fedchain.learning.methods.fededs import ENCRYPT
from fedchain.learning.payload.bulk import EVERYBODY, PartRef, manifest
from fedchain.learning.payload.pixels import pack_images
from fedchain.learning.round import Tensors


class Parts:
    """Parts in memory, in place of those that a federation keeps."""

    def __init__(self) -> None:
        self.held: dict[PartRef, Tensors] = {}
        self.read_from: list[int] = []

    def show(self, sender: int, *parts: Tensors) -> None:
        for part in parts:
            self.held[PartRef(bytes([len(self.held)]), 1, "encrypted", EVERYBODY, sender)] = part

    def write(self, kind: str, tensors: Tensors, reader: int) -> PartRef:
        ref = PartRef(bytes([len(self.held)]) * 32, 1, kind, reader)
        self.held[ref] = tensors
        return ref

    def read(self, ref: PartRef) -> Tensors:
        self.read_from.append(ref.sender)
        if not self.held[ref]:
            raise PartMissing("it is not here")
        return self.held[ref]

    def parts(self, phase: str) -> tuple[PartRef, ...]:
        assert phase == ENCRYPT.name
        return tuple(self.held)

    def manifest(self, refs: Sequence[PartRef] | None = None) -> Tensors:
        return manifest(tuple(self.held), {"encrypted": ()})


def shown(images: int, seed: int) -> dict[str, Any]:
    """One part: random images and probabilities."""
    draw = np.random.default_rng(seed)
    teacher = draw.dirichlet(np.ones(10), images).astype(np.float32)
    return pack_images(draw.standard_normal((images, 1, 8, 8)).astype(np.float32), "uint8") | {"teacher": teacher}
