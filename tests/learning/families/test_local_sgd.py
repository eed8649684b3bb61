"""Local training by an optimizer and a schedule of choice: what a federation learns, and what methods refuse."""

from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from fedchain.learning.exceptions import ConfigurationError
from fedchain.learning.families.local_sgd import LocalSgdMethod
from fedchain.learning.models.parameters import load_parameters, read_parameters
from fedchain.learning.registry import METHODS, build_method, load_method
from fedchain.learning.round import ReadPost, Round
from fedchain.learning.training.loop import draw_batches, take_batch
from tests.support.learning.federation import new_client

ADAMW: dict[str, Any] = {"optimizer": "adamw", "learning_rate": 0.01, "weight_decay": 0.1, "local_steps": 3}


def refusing(name: str) -> bool:
    kind = load_method(name)
    assert issubclass(kind, LocalSgdMethod)
    return bool(kind.sgd_alone)


def test_a_federation_that_trains_with_adamw_and_a_schedule_learns_what_a_plain_loop_does() -> None:
    method = build_method("fedavg", ADAMW | {"schedule": "linear", "schedule_rounds": 4, "warmup_rounds": 1})
    assert isinstance(method, LocalSgdMethod)
    members, loops = [new_client(), new_client()], [new_client(), new_client()]
    optimizers = [torch.optim.AdamW(one.model.parameters(), lr=0.0, weight_decay=0.1) for one in loops]
    common, expected = None, None
    for number, rate in enumerate((0.005, 0.01, 0.0075, 0.005), 1):
        posts = []
        for place, client in enumerate(members):
            client.generator.manual_seed(10 * number + place)
            method.receive(client, Round(number, common))
            posts.append(ReadPost(bytes([place]) * 32, method.update(client, Round(number, common))))
        common = method.aggregate(method.phases[0], Round(number, common, tuple(posts)))
        for place, (client, optimizer) in enumerate(zip(loops, optimizers, strict=True)):
            if expected is not None:
                load_parameters(client.model, expected)
            optimizer.param_groups[0]["lr"] = rate
            client.model.train()
            batches = draw_batches(len(client.train_labels), 32, client.generator.manual_seed(10 * number + place))
            for _ in range(3):
                images, labels = take_batch(client, next(batches))
                optimizer.zero_grad()
                torch.autograd.backward(F.cross_entropy(client.model(images)[1], labels))
                optimizer.step()
        first, second = (read_parameters(client.model) for client in loops)
        mean = {name: (first[name].astype(np.float64) + second[name]) / 2 for name in first}
        expected = {name: value.astype(np.float32) for name, value in mean.items()}
        assert all(np.array_equal(common[name], expected[name]) for name in expected), number


@pytest.mark.parametrize("name", sorted(name for name in METHODS if refusing(name)))
def test_a_method_whose_equations_are_of_sgd_takes_nothing_else(name: str) -> None:
    momentum = {"momentum": 0.0} if name != "pfedme" else {}
    for optimizer in ("momentum", "adam", "adamw"):
        with pytest.raises(ConfigurationError, match=f"takes no optimizer but sgd, not {optimizer}: "):
            build_method(name, {"optimizer": optimizer, **momentum})
    build_method(name, {"schedule": "cosine", "schedule_rounds": 10, "warmup_rounds": 2})


@pytest.mark.parametrize("name", sorted(name for name in METHODS if not refusing(name)))
def test_all_others_take_any(name: str) -> None:
    for optimizer, momentum in (("momentum", 0.9), ("adam", 0.0), ("adamw", 0.0)):
        build_method(name, {"optimizer": optimizer, "momentum": momentum})


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"optimizer": "adagrad"}, "unknown value of fedavg.optimizer 'adagrad'"),
        ({"optimizer": "momentum"}, "optimizer momentum needs momentum, which is 0"),
        ({"optimizer": "adam", "momentum": 0.9}, "adam has adam_beta1 in place of momentum: set momentum to 0"),
        ({"adam_beta2": 1.0}, "adam_beta2 must lie in [0.0, 1.0), not 1.0"),
        ({"adam_epsilon": 0.0}, "adam_epsilon must lie in (0.0, 1.0], not 0.0"),
        ({"schedule": "cosine"}, "schedule is cosine and schedule_rounds 0: cosine, linear and step need rounds"),
        ({"schedule_rounds": 5}, "schedule is constant and schedule_rounds 5"),
    ],
)
def test_settings_that_cannot_be_are_refused_in_one_line(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        build_method("fedavg", settings)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_noise_under_adam_costs_what_it_costs_under_sgd() -> None:
    costs = []
    for optimizer in ("sgd", "adam"):
        method = build_method("fedavg", {"optimizer": optimizer, "gradient_noise": 2.0, "local_epochs": 1})
        assert isinstance(method, LocalSgdMethod)
        costs.append(method.round_releases())
    assert costs[0] == costs[1] != ()
