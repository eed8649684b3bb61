"""A client's packed post, and its memory of what its posts have left out so far. N numbers of all packed tensors.

The residual is that of SparseLoCo: Sarfi et al., "Communication Efficient LLM Pre-training with SparseLoCo", 2025
(arXiv:2508.15706): e <- kept * e + change; what is posted of e is taken from it.
"""

from dataclasses import dataclass, field

import numpy as np
import torch

from fedchain.files.spool import InMemory, Spools
from fedchain.learning.client import Client
from fedchain.learning.compression.packing import Packing
from fedchain.learning.models.vectors import tensor_on
from fedchain.learning.round import Round, Tensors


@dataclass(slots=True)
class CompressionState:
    """The state that a client keeps between rounds; a newcomer owes nothing."""

    residuals: dict[str, torch.Tensor] = field(default_factory=dict)
    """By phase: what posts have left out, (N,). Each post leaves another tensor, so that none is ever changed."""


def compress(
    client: Client,
    phase: str,
    packing: Packing,
    posted: Tensors,
    round: Round,
    generator: np.random.Generator,
    spools: Spools = InMemory,
) -> bytes:
    """Return the packed form of a plain post of the client's, made from the knowledge of the round.

    Changes that a compressor leaves out stay with the client, for its next post, unless the method makes up for them.
    `spools` begins the post, what others unpack of it, and what the client still owes.
    """
    known = round.knowledge
    assert known is not None, "packed posts count from what is known"
    if packing.method.makes_up:
        payload = packing.pack(posted, known, generator, None, spools)
        packing.method.heard(client, round, packing.unpack(payload, known, spools))
        return payload
    if not packing.compressor.kept:
        return packing.pack(posted, known, generator, None, spools)
    residuals = client.state(CompressionState).residuals
    owed = residuals[phase].numpy() if phase in residuals else None
    payload = packing.pack(posted, known, generator, owed, spools)
    plain = packing.unpack(payload, known, spools)  # what the members get, with their rounding
    missed = spools()
    for part in packing.missed(posted, plain, known, owed):
        missed.write(part.data)
    residuals[phase] = tensor_on(np.frombuffer(missed.content(b""), dtype=np.float32))
    return payload
