"""Optimizers against torch's own, to the bit, also across a checkpoint of the client."""

from typing import Any

import pytest
import torch
import torch.nn.functional as F

from fedchain.learning.client import Client, Forward
from fedchain.learning.models.parameters import load_parameters, read_parameters
from fedchain.learning.training.loop import Training, draw_batches, take_batch, train
from fedchain.learning.training.optimizers import first_velocities
from fedchain.learning.training.schedule import Schedule, adamw_schedule
from fedchain.learning.worker.checkpoint import load_state, save_state
from tests.support.learning.linear_client import new_client, schedule

STEPS = 20
SETTINGS: dict[str, dict[str, Any]] = {
    "sgd": {},
    "momentum": {"momentum": 0.9},
    "adam": {"beta1": 0.8, "beta2": 0.99, "epsilon": 1e-6},
    "adamw": {},
}


def cross_entropy(forward: Forward, images: torch.Tensor, labels: torch.Tensor, given: Any) -> torch.Tensor:
    return F.cross_entropy(forward(images)[1], labels)


def torchs(name: str, client: Client, chosen: Schedule) -> torch.optim.Optimizer:
    common: dict[str, Any] = {"lr": chosen.learning_rate, "weight_decay": chosen.weight_decay}
    if name in ("sgd", "momentum"):
        return torch.optim.SGD(client.model.parameters(), momentum=chosen.momentum, **common)
    kind = torch.optim.Adam if name == "adam" else torch.optim.AdamW
    return kind(client.model.parameters(), betas=(chosen.beta1, chosen.beta2), eps=chosen.epsilon, **common)


def train_plainly(client: Client, optimizer: torch.optim.Optimizer, chosen: Schedule, steps: int) -> None:
    batches = draw_batches(len(client.train_labels), chosen.batch_size, client.generator)
    client.model.train()
    for _ in range(steps):
        images, labels = take_batch(client, next(batches))
        optimizer.zero_grad()
        torch.autograd.backward(F.cross_entropy(client.model(images)[1], labels))
        optimizer.step()


def restarted(client: Client) -> Client:
    """Return another process's client, which reads the checkpoint of this one."""
    other = new_client()
    load_state(other, save_state(client))
    return other


def test_there_are_velocities_where_there_is_momentum() -> None:
    parameters = [torch.ones(2, 3), torch.ones(4)]
    assert first_velocities(parameters, schedule()) == []
    velocities = first_velocities(parameters, schedule(momentum=0.5))
    assert [value.tolist() for value in velocities] == [[[0.0] * 3] * 2, [0.0] * 4]


@pytest.mark.parametrize("weight_decay", [0.0, 0.03])
@pytest.mark.parametrize("name", SETTINGS)
def test_twenty_steps_are_torchs_to_the_bit_across_a_restart(name: str, weight_decay: float) -> None:
    chosen = schedule(optimizer=name, steps=STEPS // 2, weight_decay=weight_decay, **SETTINGS[name])  # type: ignore[arg-type]
    ours, theirs = new_client(), new_client()
    optimizer = torchs(name, theirs, chosen)
    for number in (1, 2):
        for client in (ours, theirs):
            client.generator.manual_seed(number)
        train(Training(ours, cross_entropy, chosen, number))
        train_plainly(theirs, optimizer, chosen, STEPS // 2)
        ours = restarted(ours)
        expected, found = read_parameters(theirs.model), read_parameters(ours.model)
        assert all((found[tensor] == expected[tensor]).all() for tensor in expected)


def test_plain_sgd_forgets_its_momentum_between_rounds_and_momentum_does_not() -> None:
    found = {}
    for name in ("sgd", "momentum"):
        client = new_client()
        chosen = schedule(optimizer=name, momentum=0.9)  # type: ignore[arg-type]
        start = read_parameters(client.model)
        for number in (1, 2):
            client.generator.manual_seed(1)
            load_parameters(client.model, start)
            train(Training(client, cross_entropy, chosen, number))
            found[name, number] = next(client.model.parameters()).detach().clone()
    assert torch.equal(found["sgd", 1], found["momentum", 1])
    assert torch.equal(found["sgd", 1], found["sgd", 2])
    assert not torch.equal(found["momentum", 1], found["momentum", 2])


def test_an_encryptor_s_adamw_has_torch_s_settings() -> None:
    found, torch_s = adamw_schedule(0.001, 20, 64), torch.optim.AdamW([torch.zeros(1)]).defaults
    assert (found.optimizer, found.epochs, found.batch_size, found.learning_rate) == ("adamw", 20, 64, 0.001)
    settings = (found.weight_decay, (found.beta1, found.beta2), found.epsilon)
    assert settings == (torch_s["weight_decay"], torch_s["betas"], torch_s["eps"])
