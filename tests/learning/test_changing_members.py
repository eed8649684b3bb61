"""Every registered method goes on while members come and go, and its rounds are those of plain loops over the members.

A method that is added without a loop here fails (`ORACLES`).
"""

from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from typing import Any

import numpy as np
import pytest
import torch

from fedchain.learning.bulk import kinds_of
from fedchain.learning.methods.demlearn import fingerprint
from fedchain.learning.methods.fedict import FedIct
from fedchain.learning.methods.scaffold import ScaffoldState
from fedchain.learning.models.vectors import flatten, read_vector
from fedchain.learning.payload.bulk import listed
from fedchain.learning.registry import METHODS
from fedchain.learning.round import OffChain
from fedchain.learning.seeding import derive
from fedchain.learning.training.loop import draw_batches
from tests.support.campaigns import some
from tests.support.learning.federation import SPLITTING, VARIED
from tests.support.learning.living import JOINED, LEAVER, LEFT, NEWCOMER, Life, PlayedRound, clients_by_round, living

Oracle = Callable[[Life], None]

ONLY = frozenset({"fedadam", "fedcurv", "fednova", "fedproc", "solo"})
"""Methods whose rounds no other one's are like."""

EQUALLY = frozenset({"blade-fl", "fedreg"})
"""Methods whose mean gives every member the same weight, unless they are told otherwise."""


def mean_of(life: Life, played: PlayedRound, name: str, weights: Mapping[int, float]) -> np.ndarray[Any, Any]:
    """The weighted mean of a posted tensor, float64, member after member."""
    total: Any = 0.0
    divisor = 0.0
    for client in played.clients:
        total = total + played.posts[client][name].astype(np.float64) * float(weights[client])
        divisor += weights[client]
    return np.asarray(total / divisor)


def models_are_means(life: Life) -> None:
    """w = sum_k n_k w_k / sum_k n_k over exactly the members of each round, to the bit."""
    method = life.federation.config.method
    weights = dict.fromkeys(life.examples, 1) if method in EQUALLY else life.examples
    for played in life.rounds:
        names = [name for name in played.known if name.startswith(("model.", "buffer."))]
        assert names
        for name in names:
            expected = mean_of(life, played, name, weights).astype(np.float32)
            np.testing.assert_array_equal(played.known[name], expected, f"{name}, round {played.number}")


def fedadam_steps(life: Life) -> None:
    """Algorithm 2: m and v decay, and w moves by m / (sqrt v + tau) against the members' mean change."""
    assert life.first is not None
    for name in life.first:
        w, m, v = life.first[name].astype(np.float64), 0.0, 0.0
        for played in life.rounds:
            delta = w - mean_of(life, played, name, life.examples)
            m, v = 0.9 * m + 0.1 * delta, 0.99 * v + 0.01 * delta**2
            w = w - 0.01 * m / (np.sqrt(v) + 1e-3)
            np.testing.assert_allclose(played.known[name], w, rtol=1e-4, atol=2e-5)


def fednova_steps(life: Life) -> None:
    """w <- w - tau_eff sum_k p_k (w - w_k) / a_k with p_k of the round's members; a_k are steps of SGD."""
    assert life.first is not None
    for name in life.first:
        w = life.first[name].astype(np.float64)
        for played in life.rounds:
            total = sum(life.examples[client] for client in played.clients)
            share = {client: life.examples[client] / total for client in played.clients}
            steps = {client: played.made[client].steps for client in played.clients}
            effective = sum(share[client] * steps[client] for client in played.clients)
            moved = sum(share[k] * (w - played.posts[k][name]) / steps[k] for k in played.clients)
            w = w - effective * moved
            np.testing.assert_allclose(played.known[name], w, rtol=1e-4, atol=1e-5)


def fedcurv_sums(life: Life) -> None:
    """The mean of the models, and both sums over the last round's members alone."""
    models_are_means(life)
    for played in life.rounds:
        for name in ("fisher", "fisher_parameters"):
            expected = sum(played.posts[client][name].astype(np.float64) for client in played.clients)
            np.testing.assert_allclose(played.known[name], expected, rtol=1e-6)


def scaffold_steps(life: Life) -> None:
    """Algorithm 1 for every member: a newcomer's c_i is zero, and N is the number of the round's members."""
    models_are_means(life)
    federation = life.federation
    method, seed = federation.learner.method, federation.config.seed
    size = federation.rules.info.parameter_count
    c, own = torch.zeros(size), {client: torch.zeros(size) for client in life.examples}
    x = read_vector(federation.new_learner().client(0).model)
    drifts = []
    for played in life.rounds:
        there = [own[client] for client in played.clients]
        drifts.append(c - sum(there) / len(there))
        if played.number == JOINED:
            torch.testing.assert_close(drifts[-1], c / len(there))
        if played.number == LEFT:  # beside what it was
            torch.testing.assert_close(drifts[-1] - drifts[-2], (own[LEAVER] - c + drifts[-2]) / len(there))
        renewed = {}
        for client in played.clients:
            trained = federation.client(client)
            drawn = torch.Generator().manual_seed(
                derive(seed, "client", client, "phase", "update", "round", played.number, "batches")
            )
            batches, y = draw_batches(len(trained.train_labels), method.batch_size, drawn), x.clone()  # type: ignore[attr-defined]
            for _ in range(4):
                y = y - 0.1 * (_gradient(trained, y, next(batches)) - own[client] + c)
            renewed[client] = own[client] - c + (x - y) / (4 * 0.1)
            posted = flatten(torch.from_numpy(played.posts[client][name].copy()) for name in _names(federation))
            torch.testing.assert_close(posted, y, rtol=1e-4, atol=1e-5)
        change = sum(renewed[client] - own[client] for client in played.clients)
        c = c + change / len(played.clients)
        own |= renewed
        torch.testing.assert_close(torch.from_numpy(played.known["control"].copy()), c, rtol=1e-3, atol=1e-4)
        x = flatten(torch.from_numpy(played.known[name].copy()) for name in _names(federation))
    for number in (3, 5, 7):  # a drift stays until members change again
        torch.testing.assert_close(drifts[number - 1], drifts[number - 2], rtol=1e-3, atol=1e-5)
    for client, control in own.items():
        state = federation.client(client).state(ScaffoldState).control
        assert state is not None
        torch.testing.assert_close(state, control, rtol=1e-3, atol=1e-4)


def prototypes_are_means(life: Life) -> None:
    """Each class's mean over exactly those of the round's members that hold it, to the bit."""
    counts_examples = "model.output.weight" in life.rounds[0].known or life.federation.config.method == "fedproc"
    for played in life.rounds:
        held: dict[int, list[tuple[np.ndarray[Any, Any], int]]] = {}
        for client in played.clients:
            post = played.posts[client]
            for label, count, row in zip(post["labels"], post["counts"], post["prototypes"], strict=True):
                held.setdefault(int(label), []).append((row, int(count) if counts_examples else 1))
        assert played.known["labels"].tolist() == sorted(held)
        assert played.known["holders"].tolist() == [len(held[label]) for label in sorted(held)]
        for label, found in zip(sorted(held), played.known["prototypes"], strict=True):
            total: Any = 0.0
            weights = 0
            for row, weight in held[label]:
                total, weights = total + row.astype(np.float64) * weight, weights + weight
            np.testing.assert_array_equal(found, np.asarray(total / weights).astype(np.float32))


def fedproc_means(life: Life) -> None:
    """Models and prototypes."""
    models_are_means(life)
    prototypes_are_means(life)


def groups_are_of_the_round(life: Life) -> None:
    """The hierarchy has the round's members as its leaves, and the root is their mean."""
    for played in life.rounds:
        posted = [fingerprint(played.posts[client]) for client in played.clients]
        assert played.known["fingerprints"].tolist() == posted
        assert len(played.known["parents"]) == len(played.clients)
        for name in played.posts[played.clients[0]]:
            expected = mean_of(life, played, name, dict.fromkeys(life.examples, 1))
            root = played.known["group." + name.removeprefix("model.")][0]
            np.testing.assert_allclose(root, expected, rtol=1e-5, atol=1e-7)


def answers_are_for_the_members(life: Life) -> None:
    """The aggregator answers exactly the round's members; the newcomer sends its labels, which missed the setup."""
    federation = life.federation
    kinds = kinds_of(federation.learner.method, federation.rules.info)
    for played in life.rounds:
        answered = [ref.reader for ref in listed(played.known, kinds["distill"]) if ref.kind == "answers"]
        assert answered == list(played.clients)
        for client, post in played.posts.items():
            posted = [ref.kind for ref in listed(post, kinds["update"])]
            assert ("late labels" in posted) == (client == NEWCOMER)
    if not isinstance(federation.learner.method, FedIct):
        return
    counts = {c: np.bincount(federation.client(c).train_labels, minlength=10) for c in life.examples}
    stated = [counts[client] for client in life.rounds[0].clients]  # in the setup, the leaver's among them
    for client, counted in ((0, stated), (NEWCOMER, [*stated, counts[NEWCOMER]])):
        occasion = OffChain("update", len(life.rounds) + 1, federation.members)
        round = federation.rules._round(occasion, federation.knowledge)
        given = federation.learner.method.given_to_server(client, federation.client(client).train_labels, round)
        assert given.own is not None
        assert given.common is not None
        np.testing.assert_allclose(given.own, counts[client] / counts[client].sum(), rtol=1e-6)
        np.testing.assert_allclose(given.common, sum(counted) / sum(map(np.sum, counted)), rtol=1e-6)


def nothing_is_common(life: Life) -> None:
    """SOLO."""
    assert all(dict(played.known) == {} for played in life.rounds)


ORACLES: Mapping[str, Oracle] = {
    **dict.fromkeys(
        ("blade-fl", "fedavg", "fededs", "fedintr", "fedprox", "fedreg", "moon", "mtfl", "pfedme", "sgd", "swim"),
        models_are_means,
    ),
    **dict.fromkeys(("dfpl", "fedph", "fedproto"), prototypes_are_means),
    **dict.fromkeys(SPLITTING, answers_are_for_the_members),
    "demlearn": groups_are_of_the_round,
    "fedadam": fedadam_steps,
    "fedcurv": fedcurv_sums,
    "fednova": fednova_steps,
    "fedproc": fedproc_means,
    "scaffold": scaffold_steps,
    "solo": nothing_is_common,
}


def test_a_chain_gives_each_round_its_members() -> None:
    sets = clients_by_round()
    assert [NEWCOMER in clients for clients in sets] == [number >= JOINED for number in range(1, len(sets) + 1)]
    assert [LEAVER in clients for clients in sets] == [number < LEFT for number in range(1, len(sets) + 1)]


@pytest.mark.parametrize("method", some(sorted(METHODS), chosen=VARIED | ONLY))
def test_rounds_are_those_of_a_plain_loop_over_their_members(method: str) -> None:
    life = living(method)
    for played, clients in zip(life.rounds, clients_by_round(), strict=True):
        assert tuple(sorted(played.posts)) == clients
        assert all(np.isfinite(one.trained.local_loss) for one in played.made.values())
    assert method in ORACLES, f"{method} has no loop here that says what a round leaves when members come and go"
    ORACLES[method](life)


@pytest.mark.parametrize("method", sorted(METHODS))
def test_a_newcomer_needs_knowledge_and_no_history(method: str) -> None:
    """A process that has seen nothing else, and one that has trained others for three rounds, give it the same post."""
    life = living(method)
    played = life.rounds[JOINED - 1]
    phase, count = life.federation.rules.phases[0][0], len(played.clients)
    alone = life.federation.new_learner()
    assert (
        alone.contribute(NEWCOMER, phase, JOINED, played.before, clients_count=count).payload
        == played.made[NEWCOMER].payload
    )


@pytest.mark.parametrize("method", sorted(METHODS))
def test_a_method_says_what_members_bring_and_leave(method: str) -> None:
    said = import_module(METHODS[method].partition(":")[0]).__doc__ or ""
    assert "newcomer" in said.lower()
    assert "leaver" in said.lower()


def _gradient(client: Any, point: torch.Tensor, batch: torch.Tensor) -> torch.Tensor:
    """The gradient of cross-entropy on a batch of the client's, at other parameters than its own."""
    names = [name for name, _ in client.model.named_parameters()]
    shapes = [value.shape for _, value in client.model.named_parameters()]
    parts = torch.split(point, [shape.numel() for shape in shapes])
    given = {n: p.view(s).clone().requires_grad_() for n, p, s in zip(names, parts, shapes, strict=True)}
    _, logits = torch.func.functional_call(client.model, given, (client.train_images[batch],))
    loss = torch.nn.functional.cross_entropy(logits, client.train_labels[batch])
    return torch.cat([part.ravel() for part in torch.autograd.grad(loss, list(given.values()))])


def _names(federation: Any) -> Sequence[str]:
    return [f"model.{name}" for name, _ in federation.client(0).model.named_parameters()]
