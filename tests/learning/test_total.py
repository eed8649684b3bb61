"""`aggregate` takes every post that passes `check`: a post that only `aggregate` refuses would end a chain.

Posts are drawn from each method's own specs, with a liking for their edges, and damaged; a small model with batch
normalization stands for all.
"""

from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from torch import nn

from fedchain.learning.application import Application
from fedchain.learning.bulk import payload_specs
from fedchain.learning.config import OWN, LearningConfig
from fedchain.learning.exceptions import InvalidPayload, NothingToPost
from fedchain.learning.method import Contributor
from fedchain.learning.payload.codec import encode
from fedchain.learning.payload.part_folder import PartMemory
from fedchain.learning.payload.spec import TensorSpec
from fedchain.learning.registry import METHODS, HyperparameterValue, load_method
from fedchain.learning.round import OffChain, Tensors
from fedchain.learning.task.custom import describe_task
from fedchain.learning.worker.learner import Learner
from fedchain.learning.worker.stores import Stores
from tests.support.learning.federation import SPLITTING
from tests.support.learning.federation import config as small

CLIENTS = 4
EXAMPLES = 3
SMALLEST = float(np.finfo(np.float32).smallest_normal)

EXTREME: dict[str, tuple[str, dict[str, HyperparameterValue]]] = {
    "dfpl over all clients": ("dfpl", {"aggregation": "all"}),
    "dfpl by samples": ("dfpl", {"aggregation": "samples", "regularizer": "norm"}),
    "fednova with mu": ("fednova", {"proximal_weight": 0.5}),
    "fedadam, large step": ("fedadam", {"server_learning_rate": 1e3, "tau": 1e-12, "beta1": 0.0, "beta2": 0.0}),
    "pfedme, large mixing": ("pfedme", {"mixing": 10.0}),
    "demlearn, amplified": ("demlearn", {"levels": 6, "amplified_rounds": 9, "amplification": 10.0}),
    "mtfl, private statistics": ("mtfl", {"private": "us"}),
    "fedavg, equal weights": ("fedavg", {"weighting": "clients"}),
    "fedavg, trimmed": ("fedavg", {"aggregation_rule": "trimmed_mean", "byzantine": 2}),
    "fedproc, geometric median": ("fedproc", {"aggregation_rule": "geometric_median"}),
    "dfpl, mixed krum": ("dfpl", {"aggregation_rule": "krum", "byzantine": 1, "neighbour_mixing": True}),
    "dfpl, clipped": ("dfpl", {"aggregation_rule": "clipping", "clipping_norm": 1e-9}),
    "scaffold, median": ("scaffold", {"aggregation_rule": "median"}),
    "fedcurv, multi-krum": ("fedcurv", {"aggregation_rule": "multi_krum", "byzantine": 1}),
    "fededs on fednova": ("fededs", {"base": "fednova"}),
    "fededs, printed step": ("fededs", {"base": "fednova", "nova_step": "printed"}),
    "fedadam, clipped": ("fedadam", {"aggregation_rule": "clipping"}),
}
CASES = {**{name: (name, dict[str, HyperparameterValue]()) for name in sorted(METHODS)}, **EXTREME}
SENDERS = [bytes([place]) for place in range(CLIENTS + 1)]
"""The last one aggregates, where that takes a member of its own."""


class Net(nn.Module):
    """Two features, three numbers inside, two classes: 23 scalars, and the state of a norm."""

    def __init__(self) -> None:
        super().__init__()
        self.hidden, self.norm, self.head = nn.Linear(2, 3), nn.BatchNorm1d(3), nn.Linear(3, 2)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        layers, logits = self.layers(x)
        return layers[-1], logits

    def layers(self, x: torch.Tensor) -> tuple[tuple[torch.Tensor, ...], torch.Tensor]:
        hidden = self.hidden(x)
        embedding = torch.relu(self.norm(hidden))
        return (hidden, embedding), self.head(embedding)


def task(member: int) -> tuple[Any, Any, Any]:
    inputs = torch.randn(12, 2, generator=torch.Generator().manual_seed(member))
    examples = inputs, (inputs[:, 0] > inputs[:, 1]).long()
    return Net, examples, examples


@cache
def configuration(case: str) -> LearningConfig:
    method, hyperparameters = CASES[case]
    few = {} if method == "sgd" else {"local_steps": 2, "local_epochs": 0, "batch_size": 4}
    if load_method(method).needs_pooling or method in SPLITTING:
        return replace(small(method, **hyperparameters), clients=CLIENTS)
    return describe_task(LearningConfig(method=method, clients=CLIENTS, hyperparameters=few | hyperparameters), task)


@cache
def rules_of(case: str) -> Application:
    return Application(configuration(case), SENDERS)


@cache
def learner_of(case: str) -> Learner:
    config = configuration(case)
    parts = PartMemory()
    stores = Stores(parts_of=lambda client: parts)
    return Learner(config, task if config.dataset == OWN else None, members=SENDERS, stores=stores)


@cache
def elements_of(spec: TensorSpec) -> st.SearchStrategy[Any]:
    """Numbers that the spec allows, above all the outermost, and now and then one that it does not."""
    if spec.dtype == "uint8":
        return st.integers(0, 255)
    if spec.dtype == "int64":
        low = -(2**63) if spec.minimum is None else spec.minimum
        high = 2**63 - 1 if spec.maximum is None else spec.maximum
        inside = st.sampled_from([low, high, min(low + 1, high)]) | st.integers(low, high)
        return inside | st.integers(-2, 3) if spec.name == "labels" else inside
    least = -spec.magnitude_max if spec.minimum is None else float(spec.minimum)
    edges = [value for value in (0.0, 1.0, -1.0, SMALLEST, -SMALLEST, 1e-30) if least <= value <= spec.magnitude_max]
    return st.sampled_from([np.float32(value) for value in (least, spec.magnitude_max, *edges)])


@cache
def patterns_of(spec: TensorSpec, count: int) -> st.SearchStrategy[list[Any]]:
    """Numbers that fill a tensor of so many elements, again and again; built once, which takes longer than to draw."""
    return st.lists(elements_of(spec), min_size=1, max_size=max(1, min(count, 3)))


COMMON = st.integers(1, 3)
SIZES = {common: st.sampled_from([common] * 9 + [1, 2]) for common in (1, 2, 3)}


@st.composite
def tensors(draw: st.DrawFn, specs: Sequence[TensorSpec]) -> dict[str, NDArray[Any]]:
    """One post's tensors. Those of free size have one in common for the most part."""
    common = draw(COMMON)
    found: dict[str, NDArray[Any]] = {}
    for spec in specs:
        size = min(draw(SIZES[common]), spec.free_max)
        shape = tuple(size if wanted == -1 else wanted for wanted in spec.shape)
        count = int(np.prod(shape))
        pattern = draw(patterns_of(spec, count))
        values = np.resize(np.array(pattern, dtype=spec.dtype), shape)
        found[spec.name] = np.sort(values) if spec.name == "labels" and draw(st.booleans()) else values
    return found


@st.composite
def payloads(draw: st.DrawFn, case: str, phase: str, count: int) -> list[bytes]:
    """Posts that may pass, some of them damaged."""
    rules = rules_of(case)
    specs = payload_specs(rules.method, rules.info, CLIENTS)[phase]
    made = []
    for _ in range(count):
        data = bytearray(encode(draw(tensors(specs))))
        if draw(st.integers(0, 9)) == 0:
            data[draw(st.integers(0, len(data) - 1))] ^= 1 << draw(st.integers(0, 7))
        made.append(bytes(data))
    return made


def passing(
    rules: Application, phase: str, number: int, knowledge: bytes, made: Sequence[bytes]
) -> list[tuple[bytes, bytes]]:
    """Those that `check` lets pass, each from a sender of its own."""
    found = []
    for place, payload in enumerate(made):
        sender = bytes([place])
        try:
            rules.check(OffChain(phase, number, SENDERS), sender, knowledge, payload)
        except InvalidPayload:
            continue
        found.append((sender, payload))
    return found


@pytest.mark.long
@pytest.mark.parametrize("case", CASES)
@settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data())
def test_what_passes_is_aggregated_to_knowledge_that_all_can_use(case: str, data: st.DataObject) -> None:
    rules, knowledge = rules_of(case), b""
    schedule = [(phase, 0) for phase, _, _ in rules.setup_phases if data.draw(st.booleans())]
    schedule += [(phase, number) for number in (1, 2, 3) for phase, _, _ in rules.phases]
    for phase, number in schedule:
        count = data.draw(st.integers(1, CLIENTS))
        posts = passing(rules, phase, number, knowledge, data.draw(payloads(case, phase, count)))
        left = rules.aggregate(OffChain(phase, number, SENDERS), knowledge, posts)
        assert (left == knowledge) or posts
        assert rules.aggregate(OffChain(phase, number, SENDERS), bytes(bytearray(knowledge)), posts) == left, (
            "aggregated twice"
        )
        knowledge = left
        known = rules.read_knowledge(knowledge)
        assert known is None or encode(known) in knowledge
        listed = any(rules.lists_parts(name) for name, _, _ in (*rules.setup_phases, *rules.phases))
        assert known is not None or not knowledge or listed
    assert_honest_clients_go_on(case, knowledge, 4)


def assert_honest_clients_go_on(case: str, knowledge: bytes, number: int) -> None:
    """They train on it, and what they post passes; or they diverge, or have nothing to post, and are as they were."""
    rules, learner = rules_of(case), learner_of(case)
    for phase, by, _ in rules.phases:
        client = 0 if by == Contributor.PARTICIPANT.value else CLIENTS
        before = learner.checkpoint(client)
        try:
            made = learner.contribute(client, phase, number, knowledge)
        except NothingToPost:
            assert learner.checkpoint(client) == before
            return
        learner.restore(client, before)
        rules.check(OffChain(phase, number, SENDERS), SENDERS[client], knowledge, made.payload)
        knowledge = rules.aggregate(OffChain(phase, number, SENDERS), knowledge, [(SENDERS[client], made.payload)])
    assert rules.read_knowledge(knowledge) is not None


EDGES = ("lowest", "highest", "alternating", "smallest", "zero")


def at_the_edge(specs: Sequence[TensorSpec], edge: str, free: int) -> Tensors:
    """A post with nothing but an edge of its specs, and as many rows as asked for."""
    found = {}
    for spec in specs:
        shape = tuple(min(free, spec.free_max) if wanted == -1 else wanted for wanted in spec.shape)
        size = int(np.prod(shape))
        if spec.name == "labels":
            found[spec.name] = np.arange(size, dtype=np.int64)
            continue
        low = (-spec.magnitude_max if spec.dtype == "float32" else 0) if spec.minimum is None else spec.minimum
        high = (spec.magnitude_max if spec.dtype == "float32" else 2**63 - 1) if spec.maximum is None else spec.maximum
        if spec.dtype == "uint8":
            low, high = 0, 255
        tiny = low if spec.dtype != "float32" else max(low, SMALLEST)
        pattern = {
            "lowest": [low],
            "highest": [high],
            "alternating": [low, high],
            "smallest": [tiny],
            "zero": [max(low, 0)],
        }
        found[spec.name] = np.resize(np.array(pattern[edge], dtype=spec.dtype), shape)
    return found


@pytest.mark.long
@pytest.mark.parametrize("case", CASES)
def test_posts_at_the_edges_of_their_specs_are_aggregated(case: str) -> None:
    """A third of all combinations of two edges, one class or all, after knowledge from posts at an edge."""
    rules = rules_of(case)
    phase = rules.method.phases[0]
    specs = payload_specs(rules.method, rules.info, CLIENTS)[phase.name]
    made = list(dict.fromkeys(encode(at_the_edge(specs, edge, free)) for edge in EDGES for free in (1, 2)))
    for place, first in enumerate(made):
        knowledge = rules.aggregate(OffChain("update", 1, SENDERS), b"", [(SENDERS[0], first)])
        for second in made[place % 3 :: 3]:
            posts = passing(rules, "update", 2, knowledge, [first, second, second])
            assert len(posts) == 3 or rules.lists_parts("update"), "the edge itself is allowed"
            left = rules.aggregate(OffChain("update", 2, SENDERS), knowledge, posts)
            known = rules.read_knowledge(left)
            assert known is not None or rules.lists_parts("update")
            assert known is None or encode(known) in left
    assert_honest_clients_go_on(case, left, 3)
