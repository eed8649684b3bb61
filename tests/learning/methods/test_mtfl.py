"""MTFL against its formulas."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from fedchain.learning.methods.mtfl import Mtfl
from fedchain.learning.round import Round
from tests.support.learning.federation import Federation, config

WITH_NORM = "digits-mlp-bn"


def norm_config(method: str, **hyperparameters: Any) -> Any:
    return replace(config(method, **hyperparameters), model=WITH_NORM)


LEARNED = {f"model.norms.{place}.{kind}" for place in (0, 1) for kind in ("weight", "bias")}
STATISTICS = {
    f"buffer.norms.{place}.{kind}"
    for place in (0, 1)
    for kind in ("running_mean", "running_var", "num_batches_tracked")
}


@pytest.mark.parametrize(("private", "expected"), [("usyb", LEARNED | STATISTICS), ("yb", LEARNED), ("us", STATISTICS)])
def test_mtfl_neither_posts_nor_receives_what_is_private(private: Any, expected: set[str]) -> None:
    federation = Federation(norm_config("mtfl", private=private))
    everything = Federation(norm_config("fedavg"))
    federation.play(2)
    everything.play(1)
    known = federation.known()
    assert everything.known().keys() - known.keys() == expected
    before = federation.learner.client(1).model.state_dict()
    kept = {name: value.clone() for name, value in before.items()}
    Mtfl(private=private).receive(federation.learner.client(1), Round(3, known))
    after = federation.learner.client(1).model.state_dict()
    for name, value in after.items():
        posted = known.get(f"model.{name}", known.get(f"buffer.{name}"))
        if posted is None:
            assert torch.equal(value, kept[name])
        elif "num_batches" not in name:
            assert np.array_equal(value.numpy(), posted)


def test_mtfl_clients_are_measured_with_their_own_normalization() -> None:
    federation = Federation(norm_config("mtfl"))
    federation.play(2)
    results = [
        federation.learner.evaluate_received(client, 3, federation.knowledge, evaluate_test=True) for client in range(3)
    ]
    assert len({result.test_loss for result in results if result is not None}) == 3
