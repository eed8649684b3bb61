"""SCAFFOLD: Karimireddy et al., "SCAFFOLD: Stochastic Controlled Averaging for Federated Learning", ICML 2020
(arXiv:1910.06378).

Line numbers are those of Algorithm 1. K clients of the round, N clients in all, P scalars of the model.

A packed post says c_i+ - c_i alone, from which the model follows: y_i = x - S eta_l (c + c_i+ - c_i), S local steps
(SCALLION: Huang, Li and Li, "Stochastic Controlled Averaging for Federated Learning with Communication Compression",
ICLR 2024, arXiv:2308.08165, Algorithm 1 with alpha = 1). The client keeps the c_i that the others heard, so what a post
leaves out is in the next one (EF21: Richtarik et al., NeurIPS 2021), and c stays the mean of all c_i.

A client cannot tell whether its post was counted: it may have come too late. c and c_i would part for ever by each
change that was not, so the knowledge says of each member in which round a post of its was counted last
(`acknowledged`), and a client whose last one was not goes back to the c_i before it.

A newcomer starts from the common model and c_i = 0; N counts it from its first round on. A leaver takes c_i with it,
and only changes of c_i were ever posted, so c keeps the leaver's share, as it keeps what a newcomer's zero would
dilute: each adds a constant to c - mean c_i, which members that stay for ever keep at zero.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from fedchain.learning.aggregation.mean import by_block, weighted_sum
from fedchain.learning.config import CLIENTS_MAX
from fedchain.learning.exceptions import ConfigurationError
from fedchain.learning.method import Phase
from fedchain.learning.methods.fedavg import FedAvg
from fedchain.learning.models.model_info import ModelInfo
from fedchain.learning.models.parameters import places_in_vector
from fedchain.learning.payload.lazy import LazyTensors
from fedchain.learning.payload.spec import TensorSpec
from fedchain.learning.round import Round, Tensors

if TYPE_CHECKING:
    import torch

    from fedchain.learning.client import Client

LENGTH_MIN = 1e-9
"""Smallest S eta_l that lines 12 and 13 divide by: a liar's post may state 0."""


@dataclass(slots=True)
class ScaffoldState:
    """The state that a client keeps between rounds."""

    control: torch.Tensor | None = None
    """c_i, (P,), of its last round. Each round leaves another tensor, so that none is ever changed."""


@dataclass(slots=True)
class LastPost:
    """The state to which a client returns where its last post was not counted; only where posts are acknowledged."""

    round: int = 0
    """The round that it was made for; 0: none yet."""

    control: torch.Tensor | None = None
    """c_i before it, (P,); None for zeros."""


@dataclass(frozen=True, kw_only=True)
class Scaffold(FedAvg):
    """FedAvg with gradients corrected by how the client's drift differs from everybody's."""

    acknowledged: bool = False
    """Whether the knowledge says in which round each member's post was counted last, so that c_i does not part from c
    where a post came too late. Founders write true (`derived`); a document without it is older."""

    beyond_dp_sgd: ClassVar[str] = ""
    beyond_late: ClassVar[str] = "its control variates are of the round's model"
    beyond_rules: ClassVar[str] = ""
    implied: ClassVar[frozenset[str]] = frozenset({"control_change"})
    makes_up: ClassVar[bool] = True
    beyond_fedex: ClassVar[str] = "its control variates are gradients at the frozen weights as they were"
    sgd_alone: ClassVar[str] = "a control variate is the mean gradient only if SGD took the steps (line 12)"

    def validate(self) -> None:
        """Raise `ConfigurationError` for an error feedback of its own."""
        super().validate()
        if self.error_decay != type(self).error_decay:
            raise ConfigurationError("error_decay is not of SCAFFOLD, whose c_i make up for what a post leaves out")

    def derived(self, members: int) -> Mapping[str, bool]:
        """New federations acknowledge posts, however many members they have."""
        return {"acknowledged": True}

    def update(self, client: Client, round: Round) -> Tensors:
        """Train with corrected gradients, renew c_i (option II), post the parameters, n_k and the change of c_i."""
        import torch

        from fedchain.learning.models.vectors import kept_vector, trained_parameters, unflatten
        from fedchain.learning.training.loop import Correction

        if self.acknowledged:
            _undo_unless_counted(client, round)
        model = [value.detach() for value in trained_parameters(client.model)]
        state, known = client.state(ScaffoldState), round.knowledge
        zero = torch.zeros(()).expand(client.info.parameter_count)  # of a single number in memory
        common = kept_vector(model, round.spools)  # x, (P,)
        server = zero if known is None else kept_vector([known["control"]], round.spools)  # c, (P,)
        own = zero if state.control is None else state.control  # c_i, (P,)
        self.train(client, round, correct=Correction(_corrected, (own, server)))
        length = client.steps * self.schedule_in(round.number).learning_rate  # S eta_l
        parts = zip(*(unflatten(vector, model) for vector in (own, server, common)), model, strict=True)
        renewed = kept_vector((c_i - c + (x - y) / length for c_i, c, x, y in parts), round.spools)  # line 12, (ii)
        state.control = renewed
        change = partial(_difference, renewed, own)  # line 13
        posted = self.post_model(client) | LazyTensors({"control_change": change})
        if self.compression == "none":
            return posted
        return posted | {"length": np.array([length], dtype=np.float32)}

    def aggregate(self, phase: Phase, round: Round) -> Tensors:
        """x <- weighted mean of y_i; c <- c + 1/N sum_i (c_i+ - c_i), a client that did not post changing nothing
        (lines 16 and 17, server step 1)."""
        rule, changes = self.robust_rule, [post.payload["control_change"] for post in round.posts]  # (K, P)
        combined = None if rule is None else rule.combine([{"change": change} for change in changes])
        left = self.combine(round, self.weight) | LazyTensors({"control": partial(_control, round, changes, combined)})
        return left | {"counted": _counted(round)} if self.acknowledged else left

    def expected(self, known: Tensors, stated: Tensors, info: ModelInfo) -> Tensors:
        """x - S eta_l c: the model of a client whose c_i does not change."""
        length, control = _length(stated), known["control"]

        def moved(parts: Sequence[NDArray[Any]]) -> NDArray[np.float64]:
            x, c = (part.astype(np.float64) for part in parts)
            return np.asarray(x - length * c)

        def expected(name: str, place: slice) -> NDArray[np.float32]:
            return by_block([known[name].reshape(-1), control[place]], moved).reshape(known[name].shape)

        return LazyTensors({name: partial(expected, name, place) for name, place in places_in_vector(info).items()})

    def complete(self, known: Tensors, plain: Tensors, info: ModelInfo) -> Tensors:
        """c_i+ - c_i = -c + (x - y_i) / (S eta_l), by lines 12 and 13."""
        length, control = _length(plain), known["control"]

        def moved(parts: Sequence[NDArray[Any]]) -> NDArray[np.float64]:
            x, y, c = (part.astype(np.float64) for part in parts)
            return np.asarray((x - y) / length - c)

        change = np.empty(info.parameter_count, dtype=np.float32)
        for name, place in places_in_vector(info).items():
            change[place] = by_block([known[name].reshape(-1), plain[name].reshape(-1), control[place]], moved)
        return {"control_change": change}

    def heard(self, client: Client, round: Round, plain: Tensors) -> None:
        """Renew c_i (line 12) with the model that others heard, in place of the client's own."""
        from fedchain.learning.models.vectors import kept_vector, trained_parameters

        state, length = client.state(ScaffoldState), _length(plain)
        assert state.control is not None, "the client has just trained"
        control, model = state.control.numpy(), trained_parameters(client.model)

        def moved(parts: Sequence[NDArray[Any]]) -> NDArray[np.float64]:
            c_i, y, heard = (part.astype(np.float64) for part in parts)
            return np.asarray(c_i + (y - heard) / length)

        places = zip(places_in_vector(client.info).items(), model, strict=True)
        renewed = (
            by_block([control[place], value.detach().numpy().reshape(-1), plain[name].reshape(-1)], moved)
            for (name, place), value in places
        )
        state.control = kept_vector(renewed, round.spools)

    def payload_spec(self, phase: Phase, info: ModelInfo) -> tuple[TensorSpec, ...]:
        """The model's tensors, n_k and the change of c_i; with `compression`, S eta_l (1,), too."""
        change = TensorSpec("control_change", (info.parameter_count,))
        length = () if self.compression == "none" else (TensorSpec("length", (1,), minimum=0),)
        return (*super().payload_spec(phase, info), change, *length)

    def knowledge_spec(self, phase: Phase, info: ModelInfo) -> tuple[TensorSpec, ...]:
        """The model's tensors and c; with `acknowledged`, the round of the last post of each place that was counted."""
        places = TensorSpec("counted", (-1,), "int64", free_max=CLIENTS_MAX + 1, minimum=0)
        known = (*super().knowledge_spec(phase, info), TensorSpec("control", (info.parameter_count,)))
        return (*known, places) if self.acknowledged else known


def _undo_unless_counted(client: Client, round: Round) -> None:
    """Go back to the c_i before the client's last post, if that is not counted; keep the one that stands now."""
    state, last = client.state(ScaffoldState), client.state(LastPost)
    counted = () if round.knowledge is None else round.knowledge["counted"].tolist()
    if last.round and (client.index >= len(counted) or counted[client.index] != last.round):
        state.control = last.control
    last.round, last.control = round.number, state.control


def _counted(round: Round) -> NDArray[np.int64]:
    """Return the round in which a post of each place was counted last, 0 for never."""
    before = np.zeros(0, np.int64) if round.knowledge is None else round.knowledge["counted"]
    found = np.zeros(max(len(round.members), len(before)), np.int64)
    found[: len(before)] = before
    places = {member: place for place, member in enumerate(round.members)}
    found[[places[post.sender] for post in round.posts]] = round.number
    return found


def _corrected(
    gradient: torch.Tensor, parameter: torch.Tensor, own: torch.Tensor, server: torch.Tensor
) -> torch.Tensor:
    """Return the gradient of a tensor that line 10 takes, with its parts of the control variates c_i and c."""
    return gradient - own + server


def _difference(renewed: torch.Tensor, own: torch.Tensor) -> NDArray[Any]:
    """Return c_i+ - c_i, (P,)."""
    difference: NDArray[Any] = (renewed - own).numpy()
    return difference


def _length(post: Tensors) -> float:
    """Return S eta_l as a post states it, but not 0."""
    return max(float(post["length"][0]), LENGTH_MIN)


def _control(round: Round, changes: Sequence[NDArray[Any]], combined: Tensors | None) -> NDArray[Any]:
    """Return c, (P,), from the changes (K, P) of c_i, or from what a rule made of them: their mean."""
    count, known = len(changes), [] if round.knowledge is None else [round.knowledge["control"]]
    terms = changes if combined is None else [combined["change"]]

    def moved(parts: Sequence[NDArray[Any]]) -> NDArray[np.float64]:
        total = weighted_sum(parts[: len(terms)], [1.0] * len(terms)) * (1.0 if combined is None else float(count))
        before = parts[-1].astype(np.float64) if known else 0.0
        return np.asarray(before + total / max(round.clients, count))

    return by_block([*terms, *known], moved)
