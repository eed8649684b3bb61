"""Methods whose clients keep their own models and exchange class prototypes. K clients, C classes, D embedding.

A client posts the mean embedding of each class that it holds; a round leaves one global prototype of each class that
anybody posted. Each method decides what clients train towards, and which embeddings they average. How posts become
global prototypes, in clear or encrypted, is the method's scheme (`sums/scheme.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal, NamedTuple

import numpy as np

from fedchain.crypto.randomness import RandomBytes
from fedchain.crypto.signatures import PublicKey
from fedchain.crypto.threshold import KEY_BITS, Dealing
from fedchain.crypto.threshold.public_key import MEMBERS_MAX
from fedchain.files.effects import Needs
from fedchain.learning.exceptions import ConfigurationError
from fedchain.learning.families.late import LateMethod
from fedchain.learning.method import Phase, validate_range
from fedchain.learning.models.model_info import ModelInfo
from fedchain.learning.payload.spec import TensorSpec
from fedchain.learning.round import ReadPost, Round, Tensors
from fedchain.learning.sums.plain import PlainSums
from fedchain.learning.sums.scheme import UPDATE, SumScheme
from fedchain.learning.sums.threshold import ThresholdSums

if TYPE_CHECKING:
    import torch

    from fedchain.learning.client import Client
    from fedchain.learning.privacy.releases import Release


NEVER = -1e9
"""Similarity to a class without prototype: its exponential is zero, and its gradient is finite."""


class Known(NamedTuple):
    """The global prototypes, spread over all classes."""

    prototypes: torch.Tensor
    """(C, D); zeros where none is known."""

    is_known: torch.Tensor
    """(C,), bool."""


ENCRYPTING = Needs("encrypts", why="nothing is encrypted")
"""Settings of encryption need it."""


@dataclass(frozen=True, kw_only=True)
class PrototypeMethod(LateMethod):
    """Clients exchange class prototypes, and nothing else."""

    aggregation: Literal["holders", "all", "samples"] = "holders"
    """The clients that count in a class's global prototype: holders (mean over the clients that have the class), all
    (their sum over K, as DFPL's Eq. 2 is printed) or samples (holders, weighted by the examples that they say they
    have). Another aggregation_rule takes each class's holders for its posts."""

    encryption: Literal["none", "threshold"] = "none"
    """Whether prototypes are posted in clear (none), or encrypted so that nobody sees but their sums (threshold)."""

    decryption_threshold: Annotated[int, ENCRYPTING] = 0
    """threshold: how many members open sums together; one fewer open nothing. At least a third of the members, so that
    the liars that a federation bears are too few; 0: as the number of members has it, 3 or the least allowed."""

    contributors_min: Annotated[int, ENCRYPTING] = 0
    """threshold: fewest holders of a class whose sum is opened; classes with fewer have no prototype. Above
    decryption_threshold, so that two holders at least conspire with nobody; 0: one above it."""

    key_bits: Annotated[int, ENCRYPTING] = KEY_BITS[0]
    """threshold: bits of the key, 2048 or 3072."""

    magnitude_max: Annotated[float, ENCRYPTING] = 1024.0
    """threshold: largest magnitude of a number that can be encrypted; smaller ones need less room."""

    mixes_models: ClassVar[bool] = True

    def validate(self) -> None:
        """Raise `ConfigurationError` for a hyper-parameter outside its range."""
        super().validate()
        if self.robust_rule is not None and self.aggregation != "holders":
            raise ConfigurationError(f"aggregation {self.aggregation} is of the plain mean; robust rules take holders")
        if self.gradient_noise > 0 and not self.hides_prototypes:
            raise ConfigurationError("gradient_noise alone hides nothing here: prototypes need noise, too")
        if self.batch_sampling == "poisson":
            raise ConfigurationError("batch_sampling poisson counts other neighbours than prototypes do; take shuffled")
        validate_range("decryption_threshold", self.decryption_threshold, 0, MEMBERS_MAX)
        validate_range("contributors_min", self.contributors_min, 0, MEMBERS_MAX)
        validate_range("magnitude_max", self.magnitude_max, 2.0**-10, 2.0**16)
        if self.key_bits not in self.key_bits_allowed:
            allowed = " or ".join(map(str, self.key_bits_allowed))
            raise ConfigurationError(f"key_bits must be {allowed}, not {self.key_bits}")
        if self.sums.hides and self.robust_rule is not None:
            raise ConfigurationError(f"aggregation_rule {self.aggregation_rule} cannot look into encrypted prototypes")
        if self.sums.hides and self.aggregation == "samples":
            raise ConfigurationError("aggregation samples needs counts, which encrypted prototypes come without")

    @cached_property
    def sums(self) -> SumScheme:
        """The scheme of the method's posts. A method of one's own that overrides it brings another."""
        if self.encryption == "none":
            return PlainSums(self.aggregation, self.robust_rule)
        return ThresholdSums(
            threshold=self.decryption_threshold,
            contributors_min=self.contributors_min,
            key_bits=self.key_bits,
            magnitude_max=self.magnitude_max,
            over_all=self.aggregation == "all",
            key_bits_allowed=self.key_bits_allowed,
        )

    @property
    def encrypts(self) -> bool:
        """Whether nobody sees what one member posts."""
        return self.sums.hides

    @property
    def hides_prototypes(self) -> bool:
        """Whether there is noise on what is posted. It hides an example from the means that a given model makes; from
        the model it is hidden by DP-SGD."""
        return False

    @property
    def adds_noise(self) -> bool:
        """Whether posts carry noise, and a ledger says which."""
        return self.hides_prototypes

    @property
    def refuses_late(self) -> str:
        """As all of its kind, and where the scheme's sums are of one round's posts."""
        reason = super().refuses_late
        return reason if reason or self.sums.counts_late else "its encrypted sums are opened for one round's posts"

    @property
    def contributors_least(self) -> tuple[int, str]:
        """As many as the scheme needs."""
        return self.sums.contributors_least

    def prototype_release(self) -> Release:
        """The release of prototypes in a round under their noise, if the model is given; asked where there is any."""
        raise NotImplementedError

    def validate_budget(self, client: Client, round: Round) -> None:
        """Raise `ReleaseRefused`, which names the client, if all releases of a round would exceed its budget.

        To be asked before training, so that no member pays for a model whose prototypes it may not post any more.
        """
        if not self.hides_prototypes:
            return
        releases = [self.prototype_release()]
        if self.gradient_noise > 0:
            from fedchain.learning.privacy.dp_sgd import planned_release

            schedule = self.schedule_in(round.number)
            releases.append(planned_release(schedule, len(client.train_labels), self._gradient_noise))
        client.ledger.validate(round.number, UPDATE, releases, self.budget)

    def round_releases(self) -> Sequence[Release]:
        """The passes of DP-SGD, and the prototypes."""
        passes = super().round_releases()
        return (*passes, self.prototype_release()) if passes else ()

    def cautions(self, rounds: int | None) -> Sequence[str]:
        """See `Method.cautions`."""
        return (*super().cautions(rounds), *self.sums.cautions())

    @classmethod
    def validate_together(cls, infos: Mapping[str, ModelInfo]) -> None:
        """Raise `ConfigurationError` unless all embeddings, whose means are exchanged, have one width."""
        if len({info.embedding_size for info in infos.values()}) > 1:
            widths = ", ".join(f"{name} has {info.embedding_size}" for name, info in infos.items())
            raise ConfigurationError(f"models that exchange prototypes need embeddings of one width, but {widths}")

    @property
    def phases(self) -> tuple[Phase, ...]:
        """Those of the scheme."""
        return self.sums.phases

    def work(self, phase: Phase) -> Callable[[Client, Round], Tensors]:
        """Let the scheme hide what `update` returns, and do the work of the phases that it adds."""
        if phase.name == UPDATE:
            return self._train_and_hide
        return partial(self.sums.contribute, phase) if phase in self.sums.phases else super().work(phase)

    def derived(self, members: int) -> Mapping[str, int]:
        """The scheme's settings that are not stated."""
        return self.sums.derived(members)

    def deal(self, members: Sequence[PublicKey], random_bytes: RandomBytes) -> Dealing | None:
        """The scheme's keys."""
        return self.sums.deal(members, random_bytes)

    def validate_material(self, round: Round) -> None:
        """See `SumScheme.validate_material`."""
        self.sums.validate_material(round)

    def aggregate(self, phase: Phase, round: Round) -> Tensors:
        """Leave what the scheme does."""
        return self.sums.aggregate(phase, round)

    def prototypes(self, knowledge: Tensors) -> Tensors:
        """The global prototypes and how many clients stand behind each."""
        return knowledge

    def check(self, phase: Phase, post: ReadPost, round: Round) -> None:
        """Raise `InvalidPayload` for what the scheme refuses."""
        self.sums.check(phase, post, round)

    def payload_spec(self, phase: Phase, info: ModelInfo) -> tuple[TensorSpec, ...]:
        """The scheme's posts."""
        return self.sums.payload_spec(phase, info)

    def knowledge_spec(self, phase: Phase, info: ModelInfo) -> tuple[TensorSpec, ...]:
        """The scheme's sums and, at last, the known classes with their holders and prototypes."""
        return self.sums.knowledge_spec(phase, info)

    def _train_and_hide(self, client: Client, round: Round) -> Tensors:
        return self.sums.hide(self.update(client, round), client, round)


def known_prototypes(info: ModelInfo, round: Round) -> Known:
    """Return the prototypes of the knowledge; without any, no class is known."""
    import torch

    prototypes = torch.zeros(info.classes, info.embedding_size)  # (C, D)
    is_known = torch.zeros(info.classes, dtype=torch.bool)  # (C,)
    if round.knowledge is not None:
        labels = torch.from_numpy(np.array(round.knowledge["labels"]))
        prototypes[labels] = torch.from_numpy(np.array(round.knowledge["prototypes"]))
        is_known[labels] = True
    return Known(prototypes, is_known)
