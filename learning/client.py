"""The private side of a round: one client's model, data, state and secrets. B batch, C classes, D embedding, K clients.

Nothing of it leaves the peer except in the method's posts.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeVar

import torch

from fedchain.learning.models.base import Model
from fedchain.learning.models.model_info import ModelInfo
from fedchain.learning.privacy.ledger import PrivacyLedger, no_ledger
from fedchain.learning.state import read_record, record_size, validate_kind
from fedchain.learning.sums.secrets import Secrets, no_secrets
from fedchain.learning.task.augmentation import Augmentation
from fedchain.learning.task.lazy_inputs import LazyInputs

Forward = Callable[[torch.Tensor], tuple[torch.Tensor, torch.Tensor]]
"""The model as the loss sees it: images (B, channels, height, width) -> embedding (B, D), logits (B, C)."""

Record = TypeVar("Record")


@dataclass(slots=True)
class Client:
    """One client. It is the same object in every round."""

    index: int
    """Place among the members, from 0; a dedicated aggregator, which has no examples, has the last of the founders'."""

    model: Model
    """The local model; training changes it in place."""

    info: ModelInfo
    """The model's shapes."""

    train_images: torch.Tensor
    """(n, ...): normalised images (n, channels, height, width) in float32, or whatever else the model takes, float32 or
    int64; those of a large data set are read as they are needed (`LazyInputs`)."""

    train_labels: torch.Tensor
    """(n,), int64."""

    test_images: torch.Tensor
    """The client's own test set, shaped as `train_images`."""

    test_labels: torch.Tensor
    """Labels of the own test set, int64."""

    classes: tuple[int, ...]
    """Classes among the training labels, ascending."""

    generator: torch.Generator = field(default_factory=torch.Generator)
    """Order of the batches, and their augmentation; newly seeded for every phase of every round. Others can repeat it,
    but for what DP-SGD on Poisson batches fills it with: numbers that must stay private are drawn from `secrets`."""

    augmentation: Augmentation | None = None
    """The change made to training images each time that they are looked at; None: no change."""

    trainer: Callable[[Any], torch.Tensor | None] | None = field(default=None, repr=False)
    """Takes the `Training` of `training/loop.py`, while the client works beside others or for a graphics card.
    It returns each step's loss (steps,), or None to have the client train by itself."""

    open_secrets: Callable[[], Secrets] = field(default=no_secrets, repr=False)
    """Where its secrets are; opened when a method first asks for them."""

    open_ledger: Callable[[], PrivacyLedger] = field(default=no_ledger, repr=False)
    """The ledger of the noise that its posts carried; opened when a method first adds any."""

    steps: int = 0
    """SGD steps taken since the phase began."""

    skipped: dict[int, str] = field(default_factory=dict)
    """By place: the members whose contributions were of no use to the phase's work, and why; methods write it."""

    states: dict[str, Any] = field(default_factory=dict)
    """By the name of their class: the records that `state` gave."""

    aside: set[str] = field(default_factory=set)
    """Names of the model's buffers that its state leaves out (`persistent=False`) and that work has changed."""

    saved: dict[str, dict[str, torch.Tensor]] = field(default_factory=dict)
    """By the name of their class: records of a checkpoint that nobody has asked for yet, as tensors."""

    file: bytes = field(default=b"", repr=False)
    """A checkpoint that lies in a file and holds its state as it is now; empty: none does, or the state may have
    changed."""

    @property
    def secrets(self) -> Secrets:
        """Secrets that only this member knows. They are in no checkpoint and in no log."""
        return self.open_secrets()

    @property
    def ledger(self) -> PrivacyLedger:
        """The record of noised values that this member has released. It is in no checkpoint: it never goes back."""
        return self.open_ledger()

    @property
    def size(self) -> int:
        """Bytes of its examples that are in memory, of its model, and of the methods' states."""
        examples = (self.train_images, self.train_labels, self.test_images, self.test_labels)
        kept = [value for value in examples if not isinstance(value, LazyInputs)]
        saved = [value for record in self.saved.values() for value in record.values()]
        model = (*self.model.parameters(), *self.model.buffers())
        return sum(value.nbytes for value in (*kept, *saved, *model)) + sum(map(record_size, self.states.values()))

    def state(self, kind: type[Record]) -> Record:
        """Return a method's state of this client between rounds: a dataclass of the method's, at first as it is made.

        Fields are of the types that `fedchain.learning.state` lists; all of them are checkpointed. Work that
        raises leaves them as they were before it. Raises `TypeError` for fields of other types.
        """
        name = kind.__name__
        if name not in self.states:
            validate_kind(kind)
            self.states[name] = read_record(kind, self.saved.pop(name)) if name in self.saved else kind()
        record = self.states[name]
        assert isinstance(record, kind), f"two records of client {self.index} are called {name}"
        return record
