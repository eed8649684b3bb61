"""Every registered method, on the digits, repeats itself, starts again from a checkpoint and stays in bounds."""

import math
import re

import numpy as np
import pytest
import torch

from fedchain.learning.exceptions import InvalidPayload
from fedchain.learning.models.registry import describe_model
from fedchain.learning.payload.codec import encode
from fedchain.learning.registry import METHODS, load_method
from fedchain.learning.round import OffChain
from tests.support.campaigns import some
from tests.support.learning.federation import (
    CLIENTS,
    SPLITTING,
    VARIED,
    Federation,
    check,
    common_model,
    config,
    fedavg_on,
    read_payload,
    with_norm,
)
from tests.support.learning.played import played

EVERY = sorted(METHODS)

EQUAL_TO_FEDAVG = {
    "fedprox with mu 0": config("fedprox", proximal_weight=0.0),
    "fedcurv with lambda 0": config("fedcurv", curvature_weight=0.0),
    "moon with mu 0": config("moon", contrast_weight=0.0),
    "fedintr with mu 0": config("fedintr", contrast_weight=0.0),
    "mtfl without batch normalization": config("mtfl"),
}


@pytest.mark.long
@pytest.mark.parametrize("method", some(EVERY, chosen=VARIED))
def test_two_rounds_repeat_to_the_byte_whatever_else_the_process_does(method: str) -> None:
    with played(method) as first:
        torch.rand(5)
        other = first.federation
        other.learner.contribute(CLIENTS - 1, other.rules.phases[0][0], 7, other.knowledge)  # another client's business
        again = Federation(config(method))
        again.play(2)
        assert first.federation.knowledge == again.knowledge


@pytest.mark.long
@pytest.mark.parametrize("method", EVERY)
def test_a_client_goes_on_from_a_checkpoint(method: str) -> None:
    with played(method) as first:
        federation = first.federation
        saved = federation.learner.checkpoint(1)
        expected = federation.learner.contribute(1, "update", 3, federation.knowledge)
        other = federation.new_learner()
        other.restore(1, saved)
        assert other.contribute(1, "update", 3, federation.knowledge) == expected


@pytest.mark.long
@pytest.mark.parametrize("method", some(EVERY, chosen=VARIED))
def test_clients_may_skip_rounds(method: str) -> None:
    federation = Federation(config(method))
    for participants in ([0, 1], [2], [0, 2], [1]):
        before = {client: federation.learner.checkpoint(client) for client in range(CLIENTS)}
        made = federation.play(1, participants)
        assert all(math.isfinite(one.trained.local_loss) for one in made)
        after = {client: federation.learner.checkpoint(client) for client in range(CLIENTS)}
        assert [client for client in range(CLIENTS) if after[client] != before[client]] == participants


@pytest.mark.long
@pytest.mark.parametrize("method", EVERY)
def test_evaluating_what_was_received_changes_nothing(method: str) -> None:
    with played(method) as first:
        federation = first.federation
        before = federation.learner.checkpoint(0)
        received = federation.learner.evaluate_received(0, 3, federation.knowledge, evaluate_test=True)
        assert federation.learner.checkpoint(0) == before
    assert (received is None) == (method in {"dfpl", "fedph", "fedproto", "solo", *SPLITTING})


@pytest.mark.long
@pytest.mark.parametrize("method", EVERY)
def test_a_phase_without_posts_keeps_the_knowledge(method: str) -> None:
    with played(method) as first:
        federation = first.federation
        for number, known in ((1, first.begun), (3, federation.knowledge)):
            assert federation.rules.aggregate(OffChain("update", number, federation.members), known, []) == known


@pytest.mark.parametrize("method", EVERY)
def test_damaged_posts_are_refused(method: str) -> None:
    with played(method) as first:
        payload = first.made[0][0].payload
        for damaged in (payload + b"\0", payload[:-1], b""):
            with pytest.raises(InvalidPayload):
                check(first.federation.rules, damaged)


@pytest.mark.parametrize("case", EQUAL_TO_FEDAVG)
def test_a_method_without_its_term_is_fedavg_to_the_bit(case: str) -> None:
    reduced, fedavg = Federation(EQUAL_TO_FEDAVG[case]), Federation(fedavg_on(EQUAL_TO_FEDAVG[case]))
    reduced.play(3)
    fedavg.play(3)
    assert common_model(reduced.known()) == common_model(fedavg.known())


@pytest.mark.parametrize("method", ["fedprox", "fedcurv", "moon", "fedintr", "swim", "scaffold", "fedproc", "fedreg"])
def test_a_methods_term_makes_a_difference(method: str) -> None:
    strong = {"fedcurv": {"curvature_weight": 1.0}}.get(method, {})
    ours = Federation(config(method, **strong))
    fedavg = Federation(fedavg_on(config(method, **strong)))
    ours.play(2)
    fedavg.play(2)
    assert common_model(ours.known()) != common_model(fedavg.known())


def test_equal_weights_are_a_choice_of_every_method_that_averages() -> None:
    equal = Federation(config("fedavg", weighting="clients"))
    equal.play(2)
    with played("blade-fl") as blade:
        assert common_model(equal.known()) == common_model(blade.federation.known())


@pytest.mark.parametrize("name", ["buffer.norms.0.running_var", "buffer.norms.0.num_batches_tracked"])
def test_a_norms_state_that_would_make_no_number_is_refused(name: str) -> None:
    federation = Federation(with_norm("fedavg"))
    posted = dict(read_payload(federation.rules, federation.play()[0].payload))
    assert (posted[name] >= 0).all()
    for value in (0.0, 9.9e11):
        check(federation.rules, encode(posted | {name: np.full_like(posted[name], value)}))
    for value, message in ((-1.0, "at least 0 expected, found -1.0"), (2e12, "a magnitude of at most 1e+12")):
        with pytest.raises(InvalidPayload, match=re.escape(message)):
            check(federation.rules, encode(posted | {name: np.full_like(posted[name], value)}))


def test_models_with_buffers_are_averaged_whole() -> None:
    federation = Federation(with_norm("fedavg", weighting="clients"))
    made = federation.play()
    read = [read_payload(federation.rules, one.payload) for one in made]
    known = federation.known()
    assert {name.split(".", 1)[1] for name in known} == {name for name, _ in describe_model("digits-mlp-bn").parameters}
    for name, value in known.items():
        np.testing.assert_allclose(value, np.mean([payload[name] for payload in read], axis=0), rtol=1e-5, atol=1e-7)


@pytest.mark.long
@pytest.mark.parametrize(
    "method",
    some(
        (method for method in EVERY if not load_method(method).needs_pooling and method not in SPLITTING - {"fedict"}),
        chosen=VARIED,
    ),
)
def test_every_method_takes_batch_normalization(method: str) -> None:
    with played(method, has_norm=True) as first:
        assert all(np.isfinite(one.trained.local_loss) for one in first.made[1])
        again = Federation(with_norm(method))
        again.play(2)
        assert again.knowledge == first.federation.knowledge
