"""The bytes of posts: whole tensors or, where the method compresses, changes of the knowledge in force."""

import numpy as np

from fedchain.files.spool import InMemory, Spools
from fedchain.learning.bulk import kinds_of, knowledge_specs, payload_specs
from fedchain.learning.compression.packing import Packing, find_packing
from fedchain.learning.exceptions import ConfigurationError, asking
from fedchain.learning.method import Method
from fedchain.learning.models.model_info import ModelInfo
from fedchain.learning.payload.codec import decode, encode, size_bytes_max
from fedchain.learning.payload.spec import TensorSpec
from fedchain.learning.round import Tensors


class PostForm:
    """Decodes the posts of members with one architecture.

    Args:
        method: of the task.
        info: shapes of their model.
        clients: number of members with data at the founding.
    """

    def __init__(self, method: Method, info: ModelInfo, clients: int) -> None:
        self.specs: dict[str, tuple[TensorSpec, ...]] = payload_specs(method, info, clients)
        """By phase: the tensors of a plain post."""
        self._packings: dict[str, Packing] = {}
        with asking("compressor", type(method)):
            is_whole = method.compressor is None
        if is_whole:
            return
        left, listing = knowledge_specs(method, info, clients), kinds_of(method, info)
        for phase, specs in self.specs.items():
            packing = find_packing(method, info, specs, left[phase])
            if packing is not None and phase not in listing:
                self._packings[phase] = packing
        if not self._packings:
            raise ConfigurationError(
                f"{type(method).__name__} posts nothing that is a change of the knowledge: use no compression"
            )

    def size_bytes_max(self, phase: str) -> int:
        """Return the size that no valid payload of the phase exceeds."""
        forms = [self.specs[phase]] + ([self._packings[phase].specs] if phase in self._packings else [])
        return max(size_bytes_max(specs) for specs in forms)

    def packing(self, phase: str, known: Tensors | None) -> Packing | None:
        """Return how posts of the phase are packed beside the knowledge in force; None if they are whole."""
        packing = self._packings.get(phase)
        return packing if packing is not None and packing.fits(known) else None

    def decode(self, phase: str, payload: bytes, known: Tensors | None, spools: Spools = InMemory) -> Tensors:
        """Return the plain tensors of a post, read-only; `spools` begins those of a large one that was packed.

        Raises `InvalidPayload`.
        """
        packing = self.packing(phase, known)
        return decode(payload, self.specs[phase]) if packing is None else packing.unpack(payload, known or {}, spools)

    def encode(self, phase: str, posted: Tensors, known: Tensors | None, generator: np.random.Generator) -> bytes:
        """Return the bytes of a plain post of somebody who owes nothing from earlier ones."""
        packing = self.packing(phase, known)
        return encode(posted) if packing is None else packing.pack(posted, known or {}, generator)
