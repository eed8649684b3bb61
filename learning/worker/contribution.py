"""A client's contribution to one phase: its post, and what was counted and measured while it was made."""

from dataclasses import dataclass

from fedchain.learning.bulk import NO_BYTES, AddressedBytes
from fedchain.learning.training.measured import Evaluation


@dataclass(frozen=True, slots=True)
class Contribution:
    """A client's contribution to one phase."""

    payload: bytes
    """The encoded post."""

    steps: int
    """SGD steps taken."""

    local: Evaluation | None
    """The client's model after the phase; None for a phase that does not train it."""

    received: Evaluation | None
    """The shared model as received, before training; None if the method shares none, or none exists yet."""

    scalars: int = 0
    """Floating-point numbers in the post, which papers count as communicated parameters, before any compression. Labels
    and counts are none."""

    epsilon: float | None = None
    """Privacy that all posts of the client have cost so far, this one included, at the method's `privacy_delta`; None
    if noise does not cover everything that posts are made of, or there is none."""

    parts: tuple[bytes, ...] = ()
    """Hashes of the parts that the post lists; their bytes are in the learner's store of parts."""

    addressed: AddressedBytes = NO_BYTES
    """Bytes of payload and parts, by the members that have to fetch them."""

    skipped: tuple[tuple[int, str], ...] = ()
    """Places of the members whose contributions were of no use to it, ascending, each with the reason."""

    @property
    def trained(self) -> Evaluation:
        """The client's model after a phase that is known to train it."""
        assert self.local is not None, "the phase trains no model"
        return self.local
