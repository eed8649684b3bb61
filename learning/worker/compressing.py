"""A client's packed post, and its memory of what its posts have left out so far. N numbers of all packed tensors.

The residual is that of SparseLoCo: Sarfi et al., "Communication Efficient LLM Pre-training with SparseLoCo", 2025
(arXiv:2508.15706): e <- kept * e + change; what is posted of e is taken from it.
"""

from dataclasses import dataclass, field

import numpy as np
import torch

from fedchain.learning.client import Client
from fedchain.learning.compression.packing import Packing
from fedchain.learning.round import Tensors


@dataclass(slots=True)
class CompressionState:
    """The state that a client keeps between rounds; a newcomer owes nothing."""

    residuals: dict[str, torch.Tensor] = field(default_factory=dict)
    """By phase: what posts have left out, (N,)."""


def compress(
    client: Client, phase: str, packing: Packing, posted: Tensors, known: Tensors, generator: np.random.Generator
) -> bytes:
    """Return the packed form of a plain post of the client's, made from the knowledge `known`.

    A compressor that remembers leaves what is left out with the client, for its next post.
    """
    kept = packing.compressor.kept
    if not kept:
        return packing.pack(posted, known, generator)
    residuals = client.state(CompressionState).residuals
    owed = residuals[phase].numpy() * np.float32(kept) if phase in residuals else None
    payload, missed = packing.pack_and_owe(posted, known, generator, owed)
    residuals[phase] = torch.from_numpy(missed)
    return payload
