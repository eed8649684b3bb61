"""How members' class vectors become means that everybody knows: what each posts, and how the sums of all are opened.

A method has one scheme, and does not ask which: in clear (`plain.py`), or encrypted until t members open the sums
(`threshold.py`). The last phase of each leaves labels (n,), holders (n,) and prototypes (n, D).

C classes, D numbers of a vector, K members, n classes of a post or of the knowledge.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from fedchain.learning.exceptions import InvalidPayload
from fedchain.learning.method import Phase
from fedchain.learning.payload.spec import TensorSpec

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from fedchain.crypto.randomness import RandomBytes
    from fedchain.crypto.signatures import PublicKey
    from fedchain.crypto.threshold import Dealing
    from fedchain.learning.client import Client
    from fedchain.learning.models.model_info import ModelInfo
    from fedchain.learning.round import ReadPost, Round, Tensors

UPDATE = "update"
"""The phase in which members train and post; every scheme begins with it."""


class SumScheme(ABC):
    """How posts are hidden, and their sums opened. It says nothing of what the vectors are, nor who may post them."""

    hides: ClassVar[bool]
    """Whether nobody sees what one member posts: rules and weights that look into posts are refused then."""

    counts_late: ClassVar[bool] = False
    """Whether `aggregate` counts `Round.late`."""

    @property
    def phases(self) -> tuple[Phase, ...]:
        """Phases of a round: `update`, and those that the scheme adds, whose work is `contribute`."""
        return (Phase(UPDATE, trains=True),)

    @property
    def honest_min(self) -> int:
        """Fewest holders of an opened class that conspire with nobody, that holder itself among them (FedPH: t)."""
        return 1

    @property
    def contributors_least(self) -> tuple[int, str]:
        """The fewest members that have to contribute, as `Method.contributors_least`."""
        return 1, ""

    @abstractmethod
    def payload_spec(self, phase: Phase, info: ModelInfo) -> tuple[TensorSpec, ...]:
        """State the tensors of a post."""

    @abstractmethod
    def knowledge_spec(self, phase: Phase, info: ModelInfo) -> tuple[TensorSpec, ...]:
        """State the tensors that a phase leaves behind."""

    @abstractmethod
    def hide(self, posted: Tensors, client: Client, round: Round) -> Tensors:
        """Return the post of `update` for labels (n,), ascending, counts (n,) and prototypes (n, D) of the client."""

    def contribute(self, phase: Phase, client: Client, round: Round) -> Tensors:
        """Do a client's work of a phase that the scheme adds, and return its post."""
        raise NotImplementedError

    @abstractmethod
    def check(self, phase: Phase, post: ReadPost, round: Round) -> None:
        """Raise `InvalidPayload` for faults beyond the spec, as `Method.check`."""

    @abstractmethod
    def aggregate(self, phase: Phase, round: Round) -> Tensors:
        """Turn posts into what the phase leaves behind, as `Method.aggregate`."""

    def derived(self, members: int) -> Mapping[str, int]:
        """Return the settings that follow from the number of members, as `Method.derived`."""
        return {}

    def deal(self, members: Sequence[PublicKey], random_bytes: RandomBytes) -> Dealing | None:
        """Make the keys that the scheme needs, as `Method.deal`."""
        return None

    def validate_material(self, round: Round) -> None:  # noqa: B027 - a scheme without keys needs none
        """Raise `ConfigurationError` unless members and public material fit."""

    def cautions(self) -> Sequence[str]:
        """Say what a founder may not expect of the scheme, a sentence each."""
        return ()


def labels_spec(info: ModelInfo) -> TensorSpec:
    """State the classes of a post or of the knowledge."""
    return TensorSpec("labels", (-1,), "int64", free_max=info.classes, minimum=0, maximum=info.classes - 1)


def known_spec(info: ModelInfo) -> tuple[TensorSpec, ...]:
    """State what the last phase leaves: the known classes, their global prototypes, and the clients behind each."""
    return (*vectors_spec(info), TensorSpec("holders", (-1,), "int64", free_max=info.classes, minimum=1))


def vectors_spec(info: ModelInfo) -> tuple[TensorSpec, ...]:
    """State classes, and a vector of each."""
    return labels_spec(info), TensorSpec("prototypes", (-1, info.embedding_size), free_max=info.classes)


def validate_ascending(labels: np.ndarray) -> None:
    """Raise `InvalidPayload` unless labels ascend strictly, so that each stands once in a post."""
    if (np.diff(labels) <= 0).any():
        raise InvalidPayload(f"labels: strictly ascending order expected, found {labels.tolist()}")
