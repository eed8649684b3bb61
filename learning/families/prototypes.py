"""Methods whose clients keep their own models and exchange class prototypes. K clients, C classes, D embedding.

A client posts the mean embedding of each class that it holds; a round leaves one global prototype of each class that
anybody posted. Each method decides what clients train towards, and which embeddings they average. With encryption a
second phase, of decryption shares, opens the sums; see `sums/threshold.py`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fedchain.crypto.randomness import RandomBytes
from fedchain.crypto.signatures import PublicKey
from fedchain.crypto.threshold import KEY_BITS, Dealing, deal_sealed
from fedchain.crypto.threshold.public_key import MEMBERS_MAX
from fedchain.learning.aggregation.mean import WEIGHT_MAX, weighted_mean
from fedchain.learning.exceptions import ConfigurationError, DecryptionRefused, InvalidPayload
from fedchain.learning.families.robust import RobustMethod
from fedchain.learning.method import Phase, validate_range
from fedchain.learning.models.model_info import ModelInfo
from fedchain.learning.payload.spec import TensorSpec
from fedchain.learning.round import ReadPost, Round, Tensors
from fedchain.learning.sums.threshold import UPDATE, Encryption, usual_threshold

if TYPE_CHECKING:
    import torch

    from fedchain.learning.client import Client
    from fedchain.learning.models.prototypes import ClassMeans
    from fedchain.learning.privacy.releases import Release


DIFFERENCES = (
    "each round opens sums of its own: where a member was in one and not in the next, their difference shows its "
    "prototypes to within a few per cent, and only large noise hides them"
)
"""A warning to founders: encryption hides one sum, not the difference of two."""


class Known(NamedTuple):
    """The global prototypes, spread over all classes."""

    prototypes: torch.Tensor
    """(C, D); zeros where none is known."""

    is_known: torch.Tensor
    """(C,), bool."""


_Posted = tuple[int, NDArray[np.float32]]
"""One client's count and prototype (D,) of one class."""


@dataclass(slots=True)
class Opened:
    """The last sums that a client helped to open."""

    round: int = 0
    """The round; 0 before the first."""

    sums: torch.Tensor | None = None
    """Hash of the sums, (32,) uint8."""


@dataclass(frozen=True, kw_only=True)
class PrototypeMethod(RobustMethod):
    """Clients exchange class prototypes, and nothing else."""

    aggregation: Literal["holders", "all", "samples"] = "holders"
    """The clients that count in a class's global prototype: holders (mean over the clients that have the class), all
    (their sum over K, as DFPL's Eq. 2 is printed) or samples (holders, weighted by the examples that they say they
    have). Another aggregation_rule takes each class's holders for its posts."""

    encryption: Literal["none", "threshold"] = "none"
    """Whether prototypes are posted in clear (none), or encrypted so that nobody sees but their sums (threshold)."""

    decryption_threshold: int = 0
    """threshold: how many members open sums together; one fewer open nothing. More than a third of the members, so that
    the liars that a federation bears are too few; 0: as the number of members has it, 3 or the least allowed."""

    contributors_min: int = 0
    """threshold: fewest holders of a class whose sum is opened; classes with fewer have no prototype. Above
    decryption_threshold, so that two holders at least conspire with nobody; 0: one above it."""

    key_bits: int = KEY_BITS[0]
    """threshold: bits of the key, 2048 or 3072."""

    magnitude_max: float = 1024.0
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
        if self.encryption == "threshold" and self.robust_rule is not None:
            raise ConfigurationError(f"aggregation_rule {self.aggregation_rule} cannot look into encrypted prototypes")
        if self.encryption == "threshold" and self.aggregation == "samples":
            raise ConfigurationError("aggregation samples needs counts, which encrypted prototypes come without")

    @property
    def hides_prototypes(self) -> bool:
        """Whether there is noise on what is posted. It hides an example from the means that a given model makes; from
        the model it is hidden by DP-SGD."""
        return False

    @property
    def adds_noise(self) -> bool:
        """Whether posts carry noise, and a ledger says which."""
        return self.hides_prototypes

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

            releases.append(planned_release(self.schedule, len(client.train_labels), self._gradient_noise))
        client.ledger.validate(round.number, UPDATE, releases, self.budget)

    def round_releases(self) -> Sequence[Release]:
        """The passes of DP-SGD, and the prototypes."""
        passes = super().round_releases()
        return (*passes, self.prototype_release()) if passes else ()

    def cautions(self, rounds: int | None) -> Sequence[str]:
        """See `Method.cautions`."""
        known = super().cautions(rounds)
        return known if self._encryption is None else (*known, DIFFERENCES)

    @classmethod
    def validate_together(cls, infos: Mapping[str, ModelInfo]) -> None:
        """Raise `ConfigurationError` unless all embeddings, whose means are exchanged, have one width."""
        if len({info.embedding_size for info in infos.values()}) > 1:
            widths = ", ".join(f"{name} has {info.embedding_size}" for name, info in infos.items())
            raise ConfigurationError(f"models that exchange prototypes need embeddings of one width, but {widths}")

    @property
    def phases(self) -> tuple[Phase, ...]:
        """One in clear; with encryption one more, which opens the sums of the first."""
        return super().phases if self._encryption is None else self._encryption.phases

    def compute(self, phase: Phase, client: Client, round: Round) -> Tensors:
        """Do the work of a phase; prototypes leave it encrypted if the method encrypts."""
        posted = super().compute(phase, client, round)
        if self._encryption is None or phase.name != UPDATE:
            return posted
        return self._encryption.of(round).encrypt(posted["labels"], posted["prototypes"], client.secrets)

    def decryption_share(self, client: Client, round: Round) -> Tensors:
        """Post the client's share of each sum. It opens one set of sums of a round, and none of an earlier round.

        Raises `DecryptionRefused` where that would not be so, or too few have contributed.
        """
        import torch

        assert self._encryption is not None, "without encryption there is no such phase"
        sums, opened = self._encryption.of(round), client.state(Opened)
        sums.validate_openable(client.index)
        fingerprint = torch.frombuffer(bytearray(sums.fingerprint), dtype=torch.uint8)
        is_same = opened.round == round.number and opened.sums is not None and torch.equal(opened.sums, fingerprint)
        if round.number <= opened.round and not is_same:
            raise DecryptionRefused(
                f"member {client.index}, round {round.number}: it has opened other sums, those of round {opened.round}"
            )
        opened.round, opened.sums = round.number, fingerprint
        return sums.share(client.secrets)

    def derived(self, members: int) -> Mapping[str, int]:
        """With encryption, the thresholds that are not stated."""
        if self._encryption is None:
            return {}
        threshold = self.decryption_threshold or usual_threshold(members)
        return {"decryption_threshold": threshold, "contributors_min": self.contributors_min or threshold + 1}

    def deal(self, members: Sequence[PublicKey], random_bytes: RandomBytes) -> Dealing | None:
        """With encryption, a key of `key_bits`. Raises `ConfigurationError` for thresholds that do not protect."""
        if self._encryption is None:
            return None
        self._encryption.validate_members(len(members))
        return self._deal(members, random_bytes)

    def validate_material(self, round: Round) -> None:
        """With encryption, the public key of a dealing."""
        if self._encryption is not None:
            self._encryption.validate_material(round)

    @property
    def honest_min(self) -> int:
        """Fewest holders of an opened class that conspire with nobody, if too few to open anything do (FedPH: t)."""
        stated = self.decryption_threshold and self.contributors_min
        return self.contributors_min - self.decryption_threshold + 1 if stated else 2

    def _deal(self, members: Sequence[PublicKey], random_bytes: RandomBytes) -> Dealing:
        return deal_sealed(members, self.decryption_threshold, random_bytes, key_bits=self.key_bits)

    @property
    def _encryption(self) -> Encryption | None:
        if self.encryption == "none":
            return None
        return Encryption(
            threshold=self.decryption_threshold,
            contributors_min=self.contributors_min,
            key_bits=self.key_bits,
            magnitude_max=self.magnitude_max,
            key_bits_allowed=self.key_bits_allowed,
        )

    def post_prototypes(self, means: ClassMeans) -> Tensors:
        """Return class means as a post."""
        return {
            "labels": means.labels.numpy(),  # (n,)
            "counts": means.counts.numpy(),  # (n,)
            "prototypes": means.prototypes.numpy(),  # (n, D)
        }

    def aggregate(self, phase: Phase, round: Round) -> Tensors:
        """Average each class over its holders, or as `aggregation` and the rule say, if anybody posted it."""
        if self._encryption is not None:
            sums = self._encryption.of(round)
            return (
                sums.add(round.posts)
                if phase.name == UPDATE
                else sums.open(round.posts, over_all=self.aggregation == "all")
            )
        posted: dict[int, list[_Posted]] = {}  # by label, in sender order
        for post in round.posts:
            payload = post.payload
            for label, count, prototype in zip(
                payload["labels"].tolist(), payload["counts"].tolist(), payload["prototypes"], strict=True
            ):
                posted.setdefault(label, []).append((count, prototype))
        labels = sorted(posted)
        holders = [len(posted[label]) for label in labels]
        before = {} if round.knowledge is None else _by_label(round.knowledge)
        prototypes = [self._global_prototype(posted[label], len(round.posts), before.get(label)) for label in labels]
        return {
            "labels": np.array(labels, dtype=np.int64),  # (n,)
            "holders": np.array(holders, dtype=np.int64),  # (n,)
            "prototypes": np.stack(prototypes),  # (n, D)
        }

    def _global_prototype(
        self, posted: list[_Posted], clients: int, before: NDArray[np.float32] | None
    ) -> NDArray[np.float32]:
        """Average the prototypes of one class, (D,), whose last global prototype is `before`, if it had one."""
        prototypes = [prototype for _, prototype in posted]
        if self.robust_rule is not None:
            known = None if before is None else {"prototype": before}
            return self.robust_rule.combine([{"prototype": prototype} for prototype in prototypes], known)["prototype"]
        if self.aggregation == "samples":
            return weighted_mean(prototypes, [count for count, _ in posted])
        if self.aggregation == "all":
            absent = [np.zeros_like(prototypes[0])] * (clients - len(posted))
            return weighted_mean(prototypes + absent, [1] * clients)
        return weighted_mean(prototypes, [1] * len(posted))

    def prototypes(self, knowledge: Tensors) -> Tensors:
        """The global prototypes and how many clients stand behind each."""
        return knowledge

    def check(self, phase: Phase, post: ReadPost, round: Round) -> None:
        """Labels ascend strictly, with one count and one prototype each; or ciphertexts and shares are right."""
        if self._encryption is not None:
            sums = self._encryption.of(round)
            sums.check_ciphertexts(post) if phase.name == UPDATE else sums.check_shares(post)
            return
        payload = post.payload
        labels, n = payload["labels"], len(payload["labels"])
        if (np.diff(labels) <= 0).any():
            raise InvalidPayload(f"labels: strictly ascending order expected, found {labels.tolist()}")
        for name in ("counts", "prototypes"):
            if len(payload[name]) != n:
                raise InvalidPayload(f"{name}: one for each of {n} labels expected, found {len(payload[name])}")

    def payload_spec(self, phase: Phase, info: ModelInfo) -> tuple[TensorSpec, ...]:
        """The client's classes, the examples behind each, and their prototypes; or ciphertexts, or shares."""
        if self._encryption is not None:
            return self._encryption.payload_spec(phase, info)
        return (
            *_labelled_prototypes(info),
            TensorSpec("counts", (-1,), "int64", free_max=info.classes, minimum=1, maximum=WEIGHT_MAX),
        )

    def knowledge_spec(self, phase: Phase, info: ModelInfo) -> tuple[TensorSpec, ...]:
        """The known classes, the clients behind each, and the global prototypes; or their encrypted sums."""
        if self._encryption is not None and phase.name == UPDATE:
            return self._encryption.sums_spec(info)
        return (*_labelled_prototypes(info), TensorSpec("holders", (-1,), "int64", free_max=info.classes, minimum=1))


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


def _by_label(knowledge: Tensors) -> dict[int, NDArray[np.float32]]:
    """The global prototype (D,) of each known class."""
    return dict(zip(knowledge["labels"].tolist(), knowledge["prototypes"], strict=True))


def _labelled_prototypes(info: ModelInfo) -> tuple[TensorSpec, ...]:
    return (
        TensorSpec("labels", (-1,), "int64", free_max=info.classes, minimum=0, maximum=info.classes - 1),
        TensorSpec("prototypes", (-1, info.embedding_size), free_max=info.classes),
    )
