"""The server's half of a split network."""

import torch

from fedchain.learning.models.registry import build_model
from fedchain.learning.models.server import build_server_model

SPLIT = ("resnet2-56", "resnet4-56", "resnet8-56", "resnet10-56", "resnet12-56")


def count(module: torch.nn.Module) -> int:
    return sum(parameter.numel() for parameter in module.parameters())


def test_the_server_s_networks_have_the_papers_numbers_of_parameters() -> None:
    assert count(build_server_model((16, 32, 32), 10)) == 590_858
    assert count(build_server_model((13,), 5)) == 2_053


def test_a_stage_halves_the_sides_of_the_next() -> None:
    server = build_server_model((16, 8, 8), 4, 2)
    hidden, shapes = torch.randn(2, 16, 8, 8), []
    for stage in server.stages.children():  # type: ignore[union-attr]
        hidden = stage(hidden)
        shapes.append(tuple(hidden.shape[1:]))
    assert shapes == [(64, 8, 8), (128, 4, 4), (256, 2, 2)]


def test_the_last_two_networks_of_five_are_the_same() -> None:
    first, second = (build_model(name, 5) for name in SPLIT[3:])
    states = first.state_dict(), second.state_dict()
    assert states[0].keys() == states[1].keys()
    assert all(torch.equal(value, states[1][name]) for name, value in states[0].items())
