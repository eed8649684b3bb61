"""Forgetting in local training, against the formula worked out with the methods' own parts."""

from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F

from fedchain.learning.application import Application
from fedchain.learning.config import LearningConfig
from fedchain.learning.round import OffChain
from fedchain.learning.worker.learner import Learner
from fedchain.simulator.reproduction.experiment import FORGETTING_METRICS
from fedchain.simulator.reproduction.forgetting import draw_clients, run_forgetting
from fedchain.simulator.scenario import Scenario

SETTINGS: dict[str, bool | int | float | str] = {
    "weighting": "clients",
    "local_steps": 2,
    "learning_rate": 0.05,
    "slowness": 1.0,
}
SCENARIO = Scenario(
    method="fedreg", peers=6, rounds=2, contributors_per_round=2, partition="by-class-equal", hyperparameters=SETTINGS
)


def _losses(config: LearningConfig, knowledge: bytes, clients: list[int]) -> list[float]:
    """The loss of a model on each client's training data, by loading it and asking the model."""
    learner, rules, losses = Learner(config), Application(config), []
    tensors = rules.read_knowledge(knowledge)
    assert tensors is not None
    for client in clients:
        with learner.lend(client, 1) as own:
            state = {name: torch.from_numpy(tensors[f"model.{name}"].copy()) for name in own.model.state_dict()}
            own.model.load_state_dict(state)
            logits = own.model.eval()(own.train_images)[1]
            losses.append(F.cross_entropy(logits, own.train_labels).item())
    return losses


def test_the_rise_of_the_loss_is_the_formula_s() -> None:
    closed: list[int] = []
    rows = run_forgetting(SCENARIO, closed.append)["rows"]
    assert closed == list(range(1, SCENARIO.rounds + 1))
    assert [row["round"] for row in rows] == [1, 2]
    assert [rows[0][metric] for metric in FORGETTING_METRICS] == [None] * 3, "before round 1 nobody trained"

    config = SCENARIO.learning_config()
    first, second = draw_clients(SCENARIO, 1), draw_clients(SCENARIO, 2)
    learner, rules = Learner(config), Application(config)
    posts = [(bytes([client]), learner.contribute(client, "update", 1, b"").payload) for client in first]
    knowledge = rules.aggregate(OffChain("update", 1), b"", posts)
    before = sum(_losses(config, knowledge, first)) / 2
    assert rows[1]["loss_before"] == pytest.approx(before, rel=1e-5)

    plain = {name: value for name, value in SETTINGS.items() if name != "slowness"}
    for metric, other in (
        ("forgetting", config),
        ("forgetting_fedavg", replace(config, method="fedavg", hyperparameters=plain)),
    ):
        trained, of_method = Learner(other), Application(other)
        rises = []
        for client in second:
            post = trained.contribute(client, "update", 2, knowledge).payload
            model = of_method.aggregate(OffChain("update", 2), b"", [(b"", post)])
            rises += [after - before for after in _losses(other, model, first)]
        assert rows[1][metric] == pytest.approx(sum(rises) / len(rises), rel=1e-4, abs=1e-6)
    assert rows[1]["forgetting"] != rows[1]["forgetting_fedavg"]


def test_what_is_forgotten_is_of_the_round_before_in_later_rounds_too() -> None:
    rows = run_forgetting(replace(SCENARIO, rounds=3), lambda number: None)["rows"]
    config, knowledge = SCENARIO.learning_config(), b""
    learner, rules = Learner(config), Application(config)
    for number in (1, 2):
        drawn = draw_clients(SCENARIO, number)
        posts = [(bytes([client]), learner.contribute(client, "update", number, knowledge).payload) for client in drawn]
        knowledge = rules.aggregate(OffChain("update", number), knowledge, posts)
    assert drawn != draw_clients(SCENARIO, 1)
    assert rows[2]["loss_before"] == pytest.approx(sum(_losses(config, knowledge, drawn)) / 2, rel=1e-5)


def test_the_same_clients_are_drawn_again_and_others_in_other_rounds_and_under_other_seeds() -> None:
    many = replace(SCENARIO, peers=1000, contributors_per_round=10)
    drawn = draw_clients(many, 1)
    assert drawn == draw_clients(many, 1) == sorted(set(drawn))
    assert len(drawn) == 10
    assert drawn != draw_clients(many, 2)
    assert drawn != draw_clients(replace(many, seed=1), 1)
    few = replace(SCENARIO, peers=10, contributors_per_round=9)
    assert len(set(draw_clients(few, 1))) == 9, "nobody is drawn twice"
