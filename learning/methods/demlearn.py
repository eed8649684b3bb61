"""DemLearn: Nguyen et al., "Self-Organizing Democratized Learning: Toward Large-Scale Distributed Learning Systems",
IEEE Transactions on Neural Networks and Learning Systems 34(12), 2023 (arXiv:2007.03278).

K clients of the round, G groups that clients belong to directly (the root included), P scalars of the model.

A newcomer starts from a new model of its own, which it blends with the root group's, as a client that missed a round
does. A leaver stays in the hierarchy of its last round, which the next one replaces.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from fedchain.files.effects import Needs
from fedchain.learning.aggregation.mean import round_once
from fedchain.learning.aggregation.robust import squared_distances
from fedchain.learning.config import CLIENTS_MAX
from fedchain.learning.method import Phase, validate_range
from fedchain.learning.methods.fedavg import FedAvg
from fedchain.learning.models.model_info import ModelInfo
from fedchain.learning.models.parameters import PREFIX, read_parameters
from fedchain.learning.payload.codec import canonical
from fedchain.learning.payload.spec import TensorSpec
from fedchain.learning.round import Round, Tensors

if TYPE_CHECKING:
    import torch

    from fedchain.learning.client import Client

GROUP = "group."
"""Before the names of the groups' tensors."""

_INT64_MAX = 2**63 - 1


@dataclass(frozen=True, slots=True, eq=False)
class Group:
    """A node of the hierarchy above the clients."""

    children: tuple[int | Group, ...]
    """Clients, by their place among the posts, and smaller groups."""


@dataclass(slots=True)
class DemLearnState:
    """The state that a client keeps between rounds."""

    group: torch.Tensor | None = None
    """(P,): the model of the group that it belonged to last."""

    posted: int = -1
    """Fingerprint of its last post; -1, which no post has, before the first."""


@dataclass(frozen=True, kw_only=True)
class DemLearn(FedAvg):
    """Clients with similar models form groups within groups, and each keeps a model between its own and its groups'."""

    proximal_weight: float = 0.002
    """Weight mu of the squared distance to the model of the client's group."""

    blend: float = 0.7
    """alpha: a node becomes (1 - alpha) times itself plus alpha times its parent; the published code takes 0.6 for
    MNIST."""

    levels: int = 3
    """Number of levels of groups below the root."""

    amplified_rounds: int = 0
    """Number of first rounds in which every group's model is multiplied by `amplification`; 5 in the published code
    (3 for CIFAR-10), which the paper does not mention."""

    amplification: Annotated[float, Needs("amplified_rounds")] = 1.15
    """Factor of the amplified rounds."""

    weighting: Literal["clients"] = "clients"
    """Groups are averaged by the number of their clients."""

    personalizes: ClassVar[bool] = True
    leaves: ClassVar[str] = "a model of each group, of which there may be 2^(levels + 1): set fewer levels"
    beyond_dp_sgd: ClassVar[str] = ""
    beyond_late: ClassVar[str] = "its groups are made of one round's models"
    beyond_rules: ClassVar[str] = "its groups are means of models that are near each other"
    beyond_fedex: ClassVar[str] = "its groups have models of their own"

    def validate(self) -> None:
        """Raise `ConfigurationError` for a hyper-parameter outside its range."""
        super().validate()
        validate_range("proximal_weight", self.proximal_weight, 0.0, 1e6)
        validate_range("blend", self.blend, 0.0, 1.0)
        validate_range("levels", self.levels, 1, 6)
        validate_range("amplified_rounds", self.amplified_rounds, 0, 1 << 20)
        validate_range("amplification", self.amplification, 0.0, 10.0)

    def update(self, client: Client, round: Round) -> Tensors:
        """Train near the group's model; post the parameters. Buffers, such as running means, stay local."""
        from fedchain.learning.training.loop import Correction

        state = client.state(DemLearnState)
        pull = None if state.group is None else Correction(self._proximal, (state.group,))  # none before a hierarchy
        self.train(client, round, correct=pull)
        posted = {name: value for name, value in read_parameters(client.model).items() if name.startswith(PREFIX)}
        state.posted = fingerprint(canonical(posted))
        return posted

    def _proximal(self, gradient: torch.Tensor, parameter: torch.Tensor, group: torch.Tensor) -> torch.Tensor:
        return gradient + self.proximal_weight * (parameter - group)

    def receive(self, client: Client, round: Round) -> None:
        """Blend the client's model with its group's, the last step of the way down. A client that is not in the
        hierarchy, because it did not post in the last round, counts as a child of the root."""
        from fedchain.learning.models.vectors import kept_vector, trained_parameters, unflatten

        if round.knowledge is None:
            return
        state = client.state(DemLearnState)
        places = np.flatnonzero(round.knowledge["fingerprints"] == state.posted)
        group = int(round.knowledge["parents"][places[0]]) if len(places) else 0
        names = [GROUP + name for name, value in client.model.named_parameters() if value.requires_grad]
        parent = kept_vector((round.knowledge[name][group] for name in names), round.spools)  # (P,)
        model = [value.detach() for value in trained_parameters(client.model)]
        for own, of_group in zip(model, unflatten(parent, model), strict=True):
            own.copy_((1 - self.blend) * own + self.blend * of_group)
        state.group = parent

    def aggregate(self, phase: Phase, round: Round) -> Tensors:
        """Cluster the models, average them upwards, blend them downwards; leave the groups that clients belong to."""
        payloads = [post.payload for post in round.posts]
        root = build_hierarchy(link(distances(payloads)), len(payloads), self.levels)
        factor = self.amplification if round.number <= self.amplified_rounds else 1.0
        parents = find_parents(root)
        groups = [root, *(group for group in dict.fromkeys(parents.values()) if group is not root)]  # G
        found: dict[str, NDArray[Any]] = {
            "fingerprints": np.array([fingerprint(payload) for payload in payloads], dtype=np.int64),  # (K,)
            "parents": np.array([groups.index(parents[place]) for place in range(len(payloads))], dtype=np.int64),
        }
        for name in payloads[0]:
            models: dict[Group, NDArray[np.float64]] = {}
            average_upwards(root, [payload[name] for payload in payloads], factor, models)
            blend_downwards(root, self.blend, models)
            found[GROUP + name.removeprefix(PREFIX)] = np.stack([round_once(models[group]) for group in groups])
        return found

    def payload_spec(self, phase: Phase, info: ModelInfo) -> tuple[TensorSpec, ...]:
        """The tensors that training moves."""
        return tuple(TensorSpec(PREFIX + name, shape) for name, shape in info.parameters if name in info.trainable)

    def knowledge_spec(self, phase: Phase, info: ModelInfo) -> tuple[TensorSpec, ...]:
        """The groups' models, and for each post its fingerprint and its place among the groups."""
        most = 2 ** (self.levels + 1)
        trainable = [(name, shape) for name, shape in info.parameters if name in info.trainable]
        return (
            *(TensorSpec(GROUP + name, (-1, *shape), free_max=most) for name, shape in trainable),
            TensorSpec("fingerprints", (-1,), "int64", free_max=CLIENTS_MAX, minimum=0, maximum=_INT64_MAX),
            TensorSpec("parents", (-1,), "int64", free_max=CLIENTS_MAX, minimum=0, maximum=most - 1),
        )


def fingerprint(payload: Tensors) -> int:
    """Return 63 bits that tell posted models apart, by which a client finds its own among them."""
    digest = hashlib.sha256()
    for name in sorted(payload):
        digest.update(payload[name].tobytes())
    return int.from_bytes(digest.digest()[:8], "big") >> 1


def distances(payloads: Sequence[Tensors]) -> list[list[float]]:
    """Return the Euclidean distances between the posted models, (K, K)."""
    return [[math.sqrt(square) for square in row] for row in squared_distances(payloads)]


def link(rows: Sequence[Sequence[float]]) -> list[tuple[int, int]]:
    """Merge the two nearest clusters, by average linkage, until one is left; of equal pairs the first ones.

    The m-th merge makes cluster K + m, as in scipy's linkage.
    """
    between = {(i, j): rows[i][j] for j in range(len(rows)) for i in range(j)}
    sizes = dict.fromkeys(range(len(rows)), 1)
    merges: list[tuple[int, int]] = []
    while len(sizes) > 1:
        a, b = min(between, key=lambda pair: (between[pair], pair))
        merged = len(rows) + len(merges)
        merges.append((a, b))
        del between[a, b]
        for other in sizes.keys() - {a, b}:
            to_a = between.pop((min(a, other), max(a, other)))
            to_b = between.pop((min(b, other), max(b, other)))
            between[other, merged] = (sizes[a] * to_a + sizes[b] * to_b) / (sizes[a] + sizes[b])
        sizes[merged] = sizes.pop(a) + sizes.pop(b)
    return merges


def build_hierarchy(merges: Sequence[tuple[int, int]], clients: int, levels: int) -> Group:
    """Split from the root downwards, in two each; the groups of the lowest level hold all clients that are left."""

    def leaves(node: int) -> Iterator[int]:
        ahead = [node]
        while ahead:  # a chain of merges may be as deep as there are clients: too deep for a recursion
            node = ahead.pop()
            if node < clients:
                yield node
            else:
                ahead += reversed(merges[node - clients])

    def build(node: int, level: int) -> int | Group:
        if node < clients:
            return node
        if level == 1:
            return Group(tuple(leaves(node)))
        first, second = merges[node - clients]
        return Group((build(first, level - 1), build(second, level - 1)))

    if not merges:
        return Group((0,))
    first, second = merges[-1]
    return Group((build(first, levels), build(second, levels)))


def find_parents(group: Group) -> dict[int, Group]:
    """Return the group that each client, by its place, belongs to directly."""
    found = {child: group for child in group.children if isinstance(child, int)}
    for child in group.children:
        if isinstance(child, Group):
            found |= find_parents(child)
    return found


def average_upwards(
    group: Group, posted: Sequence[NDArray[np.float32]], factor: float, models: dict[Group, NDArray[np.float64]]
) -> int:
    """Give each group the mean of its children, weighted by their clients, times a factor; return how many clients."""
    total, clients = np.zeros(posted[0].shape, dtype=np.float64), 0
    for child in group.children:
        if isinstance(child, Group):
            inside = average_upwards(child, posted, factor, models)
            total += models[child] * float(inside)
            clients += inside
        else:
            total += posted[child].astype(np.float64)
            clients += 1
    models[group] = total / float(clients) * factor
    return clients


def blend_downwards(group: Group, blend: float, models: dict[Group, NDArray[np.float64]]) -> None:
    """child <- (1 - alpha) child + alpha parent, group after group; the clients do the last step themselves."""
    for child in group.children:
        if isinstance(child, Group):
            models[child] = (1.0 - blend) * models[child] + blend * models[group]
            blend_downwards(child, blend, models)
