"""Low-rank adapters under three rules, beside the mean of the dense weights that they stand for."""

from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from fedchain.learning.application import Application
from fedchain.learning.config import LearningConfig
from fedchain.learning.device import kept_generator
from fedchain.learning.exceptions import ConfigurationError
from fedchain.learning.families.adapters import UNSTATED, AdapterMethod
from fedchain.learning.methods.blade_fl import BladeFl
from fedchain.learning.methods.fedavg import FedAvg
from fedchain.learning.registry import METHODS, build_method
from fedchain.learning.round import Round
from fedchain.node.founding.task import learning_to_genesis
from tests.support.learning.federation import Federation, last_phase, read_payload
from tests.support.learning.lora_task import LoraNet, load
from tests.support.learning.own_task import config

TAKING = {"blade-fl", "fedavg", "fedprox", "mtfl", "sgd"}
LAYERS = ("first", "second")


def federation(method: str = "fedavg", weights: str = "", **hyperparameters: Any) -> Federation:
    settings: dict[str, Any] = {"local_steps": 10, "learning_rate": 0.3, **hyperparameters}
    return Federation(config(method, hyperparameters=settings, weights=weights), task=load)


def dense(model: Any) -> dict[str, Any]:
    return {name: getattr(model, name).weight() for name in LAYERS}


def error_after(found: Federation, rounds: int = 2) -> float:
    """Play, and return the largest distance between the weights with which everybody begins the next round, a newcomer,
    too, and the mean of those that the members trained."""
    found.play(rounds)
    counts = [len(found.client(client).train_labels) for client in range(3)]
    trained = [dense(found.client(client).model) for client in range(3)]
    newcomer = found.new_learner().client(0)
    found.rules.method.receive(newcomer, Round(rounds + 1, found.known()))
    common = dense(newcomer.model)
    found.rules.method.receive(found.client(1), Round(rounds + 1, found.known()))
    assert all(torch.equal(common[name], other) for name, other in dense(found.client(1).model).items())
    errors = []
    for name in LAYERS:
        mean = sum(count * one[name] for count, one in zip(counts, trained, strict=True)) / sum(counts)
        errors.append(float((common[name] - mean).abs().max()))
    return max(errors)


def test_fedex_is_the_dense_mean_and_plain_means_are_not() -> None:
    """Plain averaging is off by 4e-3 here after two rounds, the others by float32's rounding."""
    errors = {adapters: error_after(federation(adapters=adapters)) for adapters in ("mean", "ffa", "fedex")}
    print(", ".join(f"{name} {error:.2e}" for name, error in errors.items()))
    assert errors["fedex"] < 1e-6
    assert errors["ffa"] < 1e-6
    assert errors["mean"] > 1e-3


def test_residuals_are_added_to_the_weights_of_a_file(tmp_path: Path) -> None:
    """And not to those that the function's module had before it took the file's."""
    path = tmp_path / "begun.safetensors"
    with kept_generator():
        torch.manual_seed(5)
        save_file({name: value.contiguous() for name, value in LoraNet().state_dict().items()}, path)
    found = federation(weights=str(path), adapters="fedex")
    assert error_after(found) < 1e-6
    known, begun = found.known(), load_file(path)
    weights = found.client(1).model.state_dict()
    for layer in LAYERS:
        name = f"{layer}.base_layer.weight"
        torch.testing.assert_close(weights[name], begun[name] + torch.from_numpy(known[f"residual.{name}"].copy()))


@pytest.mark.parametrize("method", sorted(TAKING - {"fedavg", "sgd"}))
def test_fedex_under_other_methods(method: str) -> None:
    counted = {} if method == "blade-fl" else {"weighting": "examples"}
    found = federation(method, adapters="fedex", **counted)
    if method == "blade-fl":
        found.rules.method.receive(found.client(0), Round(1, None))
        found.play(1)
        assert any(name.startswith("residual.") for name in found.known())
    else:
        assert error_after(found) < 1e-6


def test_posts_hold_adapters_alone() -> None:
    names: dict[str, set[str]] = {}
    for adapters in ("mean", "ffa", "fedex"):
        found = federation(adapters=adapters)
        (made, *_) = found.play()
        info = found.rules.info
        names[adapters] = set(read_payload(found.rules, made.payload))
        assert info.frozen >= {f"{layer}.base_layer.{part}" for layer in LAYERS for part in ("weight", "bias")}
        assert not {f"buffer.{name}" for name in info.frozen} & names[adapters]
    assert names["mean"] == names["fedex"]
    assert names["mean"] - names["ffa"] == {f"model.{layer}.lora_A.default.weight" for layer in LAYERS}
    assert not names["ffa"] - names["mean"]


def test_a_client_that_is_set_aside_goes_on_with_its_residuals() -> None:
    found = federation(adapters="fedex")
    found.play(2)
    other = found.new_learner()
    other.restore(1, found.learner.checkpoint(1))
    ours, theirs = (one.contribute(1, "update", 3, found.knowledge) for one in (found.learner, other))
    assert ours.payload == theirs.payload
    assert found.learner.checkpoint(1) == other.checkpoint(1)
    other.evaluate_received(2, 3, found.knowledge)
    assert dense(other.client(2).model)["first"].equal(dense(found.new_learner().client(2).model)["first"])


@pytest.mark.parametrize("name", sorted(METHODS))
def test_methods_that_take_no_fedex_say_why(name: str) -> None:
    method = build_method(name, {})
    if not isinstance(method, AdapterMethod):
        return
    if name in TAKING:
        assert build_method(name, {"adapters": "fedex"}).refuses_late.startswith("adapters fedex adds up products")
        return
    with pytest.raises(ConfigurationError, match=r"takes no adapters fedex: (it|its) [a-zA-Z ,()`_]+"):
        build_method(name, {"adapters": "fedex"})


def test_a_class_that_is_made_of_one_that_takes_it_says_so_anew() -> None:
    class Mine(FedAvg):
        pass

    with pytest.raises(ConfigurationError, match="Mine takes no adapters fedex") as found:
        Mine(adapters="fedex")
    assert UNSTATED in str(found.value)
    with pytest.raises(ConfigurationError, match="it allows no other rule"):
        FedAvg(adapters="fedex", aggregation_rule="median")


@pytest.mark.parametrize("adapters", ["ffa", "fedex"])
def test_a_model_without_adapters_is_refused(adapters: str) -> None:
    with pytest.raises(ConfigurationError, match=f"adapters {adapters} needs a model with low-rank adapters"):
        Application(LearningConfig(method="fedavg", clients=3, hyperparameters={"adapters": adapters}))
    shapes = federation(adapters="mean").rules.info
    other = config("fedavg", hyperparameters={"adapters": adapters}, shapes=shapes)
    with pytest.raises(ConfigurationError, match=f"adapters {adapters} needs a model with low-rank adapters"):
        Application(other)


@pytest.mark.parametrize(("adapters", "other"), [("ffa", "fedex"), ("fedex", "ffa")])
def test_shapes_of_another_choice_are_refused(adapters: str, other: str) -> None:
    shapes = federation(adapters=adapters).rules.info
    with pytest.raises(ConfigurationError, match=f"adapters {other} cannot be: first.lora_A.default.weight is"):
        Application(config("fedavg", hyperparameters={"adapters": other}, shapes=shapes))


def test_documents_of_federations_that_do_not_choose_say_nothing_of_it() -> None:
    assert "adapters" not in str(learning_to_genesis(federation().config))
    assert "low_rank" in str(learning_to_genesis(federation(adapters="fedex").config))


def test_late_posts_and_robust_rules_go_with_the_plain_mean() -> None:
    assert FedAvg().refuses_late == BladeFl(adapters="ffa").refuses_late == ""
    found = federation(aggregation_rule="median")
    found.play()
    posted = {spec.name for spec in found.rules.method.payload_spec(last_phase(found.rules.method), found.rules.info)}
    assert {*found.known()} == posted - {"examples"}


@pytest.mark.parametrize("compression", ["int8", "sparse"])
def test_compressed_posts_are_added_up_as_they_are_read(compression: str) -> None:
    found, plain = federation(adapters="fedex", compression=compression), federation(adapters="fedex")
    sizes = [len(one.play(3)[0].payload) for one in (found, plain)]
    assert sizes[0] < sizes[1]
    name = "residual.first.base_layer.weight"
    assert found.known()[name] == pytest.approx(plain.known()[name], abs=0.05)
    assert abs(found.known()[name]).max() > 1e-4
