"""Work ahead of its time uses nothing that is not put back."""

from dataclasses import dataclass, replace

import numpy as np
import pytest

from fedchain.learning.client import Client
from fedchain.learning.methods.fedavg import FedAvg
from fedchain.learning.round import Round, Tensors
from fedchain.learning.worker.foresight import Foreseen, NotRestored, only_what_is_restored
from fedchain.learning.worker.learner import Learner
from tests.support.learning.federation import config, new_client, secrets_of


def test_secrets_and_ledger_are_out_of_reach_and_then_back() -> None:
    client = replace(new_client(), open_secrets=lambda: secrets_of(0))
    ledger = client.open_ledger
    with only_what_is_restored(client) as used:
        assert used == []
        with pytest.raises(NotRestored):
            client.ledger.entries()
        with pytest.raises(NotRestored):
            client.secrets.draw(8, "noise")
        assert used == ["ledger", "secrets"]
    assert client.open_ledger is ledger
    assert client.secrets.root == secrets_of(0).root


def test_the_size_is_that_of_the_post_and_of_the_client_after_it() -> None:
    learner = Learner(config("fedavg"))
    found = learner.foresee(0, "update", 1, b"")
    assert isinstance(found, Foreseen)
    assert found.size >= 2 * len(found.made.payload) * 9 // 10, "a model each"


@dataclass(frozen=True, kw_only=True)
class Stubborn(FedAvg):
    """It goes on without its secrets."""

    def update(self, client: Client, round: Round) -> Tensors:
        posted = super().update(client, round)
        try:
            return {**posted, "examples": np.array([len(client.secrets.root)])}
        except Exception:
            return posted


def test_a_method_that_goes_on_without_its_secrets_is_not_foreseen() -> None:
    learner = Learner(config(f"{__name__}:Stubborn"))
    assert learner.foresee(0, "update", 1, b"") is None
    assert not learner.can_foresee("update")
