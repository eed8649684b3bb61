"""A client's packed post, and its memory of what its posts have left out so far. N numbers of all packed tensors.

The residual is that of SparseLoCo: Sarfi et al., "Communication Efficient LLM Pre-training with SparseLoCo", 2025
(arXiv:2508.15706): e <- kept * e + change; what is posted of e is taken from it.
"""

from dataclasses import dataclass, field

import numpy as np
import torch

from fedchain.learning.client import Client
from fedchain.learning.compression.packing import Packing
from fedchain.learning.round import Round, Tensors


@dataclass(slots=True)
class CompressionState:
    """The state that a client keeps between rounds; a newcomer owes nothing."""

    residuals: dict[str, torch.Tensor] = field(default_factory=dict)
    """By phase: what posts have left out, (N,)."""


def compress(
    client: Client, phase: str, packing: Packing, posted: Tensors, round: Round, generator: np.random.Generator
) -> bytes:
    """Return the packed form of a plain post of the client's, made from the knowledge of the round.

    Changes that a compressor leaves out stay with the client, for its next post, unless the method makes up for them.
    """
    assert round.knowledge is not None, "packed posts count from what is known"
    method, kept = packing.method, packing.compressor.kept
    if method.makes_up:
        payload, plain, _ = packing.pack_and_read(posted, round.knowledge, generator)
        method.heard(client, round, plain)
        return payload
    if not kept:
        return packing.pack(posted, round.knowledge, generator)
    residuals = client.state(CompressionState).residuals
    owed = residuals[phase].numpy() * np.float32(kept) if phase in residuals else None
    payload, _, missed = packing.pack_and_read(posted, round.knowledge, generator, owed)
    residuals[phase] = torch.from_numpy(missed)
    return payload
