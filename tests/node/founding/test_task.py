"""The learning part of the genesis document is complete, and can be read back."""

import json
import sys
from contextlib import nullcontext
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest

from fedchain.chain.exceptions import InvalidGenesis, MethodFailed
from fedchain.learning.application import Application
from fedchain.learning.config import LearningConfig
from fedchain.learning.exceptions import ConfigurationError, InvalidPayload
from fedchain.learning.method import Phase
from fedchain.learning.methods.blade_fl import BladeFl
from fedchain.learning.models.parameters import PREFIX
from fedchain.learning.models.registry import describe_model
from fedchain.learning.payload.codec import encode
from fedchain.learning.round import OffChain, ReadPost, Round, Tensors
from fedchain.node.founding.task import (
    LATER_FIELDS,
    found_federation,
    learning_from_genesis,
    learning_to_genesis,
    round_phases,
    rules_of,
    rules_with,
    setup_phases,
)
from tests.support.chain.builders import EASY_BITS, genesis, keys

INFO = describe_model("digits-mlp")
CONFIG = LearningConfig(method="dfpl", hyperparameters={"momentum": 0.5}, data_dir="somewhere", clients=4)


def test_every_hyperparameter_is_agreed_on_and_not_left_to_a_program_s_defaults() -> None:
    agreed = dict(json.loads(dict(learning_to_genesis(CONFIG))["hyperparameters"]))
    assert agreed["momentum"] == 0.5
    assert agreed["aggregation"] == "holders"
    assert {"learning_rate", "batch_size", "local_steps", "regularizer"} <= agreed.keys()


def test_what_each_peer_chooses_is_left_out() -> None:
    assert "data_dir" not in dict(learning_to_genesis(CONFIG))


def test_what_came_later_is_said_only_where_it_differs_so_that_chain_ids_stay() -> None:
    assert not LATER_FIELDS & dict(learning_to_genesis(CONFIG)).keys()
    changed = replace(CONFIG, partition="by-class", classes_per_client=2, augmentation="crop-flip", train_examples=900)
    changed = replace(changed, classes=6, feature_shift="weather")
    changed = replace(changed, weights_hash="ab" * 32, weights_head="new")
    changed = replace(changed, material={"verification key": b"\0\xff"})
    document = genesis(4, learning=learning_to_genesis(changed))
    assert dict(document.learning).keys() >= LATER_FIELDS - {"more_shapes", "scaling"}  # augmentation moves pixels
    by_pixel = genesis(4, learning=learning_to_genesis(replace(CONFIG, scaling="pixel")))
    assert learning_from_genesis(by_pixel).scaling == "pixel"
    config = learning_from_genesis(document)
    assert (config.classes_per_client, config.augmentation, config.train_examples) == (2, "crop-flip", 900)
    assert (config.classes, config.feature_shift) == (6, "weather")
    assert config.material == (("verification key", b"\0\xff"),)


def test_a_task_is_written_as_it_always_was() -> None:
    written = learning_to_genesis(LearningConfig(method="solo", clients=3))
    settings = {"learning_rate": 0.1, "batch_size": 32, "local_steps": 20, "local_epochs": 0, "momentum": 0.0}
    settings |= {"shared_init": True, "weight_decay": 0.0}
    assert dict(written) == {
        "classes_avg": "3",
        "classes_std": "1",
        "clients": "3",
        "dataset": '"digits"',
        "dirichlet_alpha": "0.5",
        "hyperparameters": json.dumps(sorted(settings.items())),
        "method": '"solo"',
        "model": '"auto"',
        "partition": '"n-way"',
        "seed": "0",
        "shots": "100",
        "test_shots": "40",
    }


def test_the_configuration_is_read_back() -> None:
    document = genesis(4, learning=learning_to_genesis(CONFIG))
    config = learning_from_genesis(document, "here")
    assert dict(config.hyperparameters)["momentum"] == 0.5
    assert (config.method, config.clients, config.data_dir) == ("dfpl", 4, "here")
    assert learning_to_genesis(config) == document.learning


def test_the_rules_know_the_phases() -> None:
    rules = rules_of(genesis(4, learning=learning_to_genesis(CONFIG)))
    assert [phase.name for phase in round_phases(rules)] == ["update"]
    assert setup_phases(rules) == ()


@pytest.mark.parametrize(
    "learning",
    [(("method", "dfpl"),), (("method", '"dfplx"'),), (("unknown", "1"),), (("clients", '"four"'),)],
    ids=["not JSON", "unknown method", "unknown field", "wrong type"],
)
def test_a_task_that_cannot_be_read_is_named(learning: tuple[tuple[str, str], ...]) -> None:
    with pytest.raises(InvalidGenesis, match=r"^learning cannot be read: "):
        learning_from_genesis(genesis(4, learning=learning))


@pytest.mark.parametrize(
    "learning",
    [(("method", "dfpl"),), (("method", "5"),), (("method", '"a..b:C"'),), (("method", '"__main__:C"'),), ()],
    ids=["not JSON", "no text", "no path", "a notebook's", "nothing"],
)
def test_no_file_is_asked_for_where_the_document_is_at_fault(learning: tuple[tuple[str, str], ...]) -> None:
    with pytest.raises(InvalidGenesis, match=r"^learning cannot be read: ") as caught:
        rules_with(())(genesis(4, learning=learning))
    assert "--method" not in str(caught.value)


def test_a_method_that_is_in_no_file_is_refused() -> None:
    with pytest.raises(InvalidGenesis, match=r"^method dfpl is not of the form FILE.py:Class$"):
        rules_with(["dfpl"])


@dataclass(frozen=True, kw_only=True)
class Failing(BladeFl):
    """A method of a user's own that fails, and one that refuses what it is shown."""

    refuses: bool = False

    def aggregate(self, phase: Phase, round: Round) -> Tensors:
        raise InvalidPayload("too large") if self.refuses else ValueError("boom")

    def check(self, phase: Phase, post: ReadPost, round: Round) -> None:
        raise InvalidPayload("too large") if self.refuses else RuntimeError("boom")


@pytest.mark.parametrize(
    ("method", "numbers", "refused"),
    [
        ("blade-fl", 400_000_000, ""),
        ("blade-fl", 600_000_000, r"blade-fl posts up to 24\d{8} bytes in phase update, at most 2147483648 can be all"),
        (
            "fedadam",
            400_000_000,
            r"fedadam leaves up to 48\d{8} bytes behind \(the model and two moments as large as it\)",
        ),
        ("demlearn", 60_000_000, ""),
        (
            "demlearn",
            100_000_000,
            r"demlearn leaves up to 64\d{8} bytes behind \(a model of each group, .* fewer levels\)",
        ),
    ],
)
def test_what_no_document_can_hold_is_refused_at_the_founding(method: str, numbers: int, refused: str) -> None:
    info = replace(INFO, parameters=(("fc.weight", (numbers,)),), trainable=frozenset({"fc.weight"}))
    config = LearningConfig(method=method, dataset="own", shapes=info, clients=4)
    members = [key.public_key for key in keys(4)]
    with pytest.raises(ConfigurationError, match=refused) if refused else nullcontext():
        found_federation(
            config, Application(config), members, name="large", created_ms=1, version=3, initial_bits=EASY_BITS
        )


def test_posts_that_a_document_of_version_2_has_no_room_for_are_refused_with_its_bound() -> None:
    info = replace(INFO, parameters=(("fc.weight", (400_000_000,)),), trainable=frozenset({"fc.weight"}))
    config = LearningConfig(method="blade-fl", dataset="own", shapes=info, clients=4)
    members, rules = [key.public_key for key in keys(4)], Application(config)
    with pytest.raises(ConfigurationError, match="at most 1073741824 can be allowed"):
        found_federation(config, rules, members, name="large", created_ms=1, version=2, initial_bits=EASY_BITS)


def test_posts_that_may_be_too_large_are_let_in_where_a_founder_bounds_them() -> None:
    info = replace(INFO, parameters=(("fc.weight", (600_000_000,)),), trainable=frozenset({"fc.weight"}))
    config = LearningConfig(method="blade-fl", dataset="own", shapes=info, clients=4)
    members, rules = [key.public_key for key in keys(4)], Application(config)
    bounded: dict[str, Any] = {"version": 3, "initial_bits": EASY_BITS, "payload_size_max": 2**20}
    genesis = found_federation(config, rules, members, name="large", created_ms=1, **bounded)
    assert genesis.payload_size_max == 2**20


@dataclass(frozen=True, kw_only=True)
class Unfounded(BladeFl):
    """A method of a user's own that fails where it is asked at the founding."""

    wrong: str = ""

    @property
    def refuses_late(self) -> str:
        return self._unless("refuses_late")

    def validate_material(self, round: Round) -> None:
        self._unless("validate_material")

    def _unless(self, asked: str) -> str:
        if self.wrong == asked:
            raise ValueError("no good")
        return ""


@pytest.mark.parametrize("wrong", ["refuses_late", "validate_material"])
def test_an_own_method_that_fails_where_it_is_asked_at_the_founding_is_told_in_one_line(wrong: str) -> None:
    config = LearningConfig(method=f"{__name__}:Unfounded", clients=4, hyperparameters={"wrong": wrong})
    members, settings = [key.public_key for key in keys(4)], {"version": 3, "initial_bits": EASY_BITS}

    def found() -> None:
        rules = Application(config, members)
        found_federation(config, rules, members, name="none", created_ms=1, late_rounds=1, **settings)

    with pytest.raises(ConfigurationError, match=rf"^Unfounded.{wrong}: ValueError: no good \(.*, line \d+\)$"):
        found()


@pytest.mark.parametrize(("refuses", "expected"), [(False, MethodFailed), (True, InvalidPayload)])
def test_the_chain_is_told_when_the_method_s_own_code_fails(
    monkeypatch: pytest.MonkeyPatch, refuses: bool, expected: type[Exception]
) -> None:
    monkeypatch.setitem(sys.modules, "contributed", sys.modules[__name__])
    config = replace(CONFIG, method="contributed:Failing", hyperparameters={"refuses": refuses})
    rules = rules_of(genesis(4, learning=learning_to_genesis(config)))
    payload = encode(
        {PREFIX + name: np.zeros(shape, np.float32) for name, shape in describe_model("digits-mlp").parameters}
    )
    place = "" if refuses else r".* \(.*test_task.py, line \d+\)"
    with pytest.raises(expected, match=f"too large|^method: check of phase update: RuntimeError: boom{place}"):
        rules.check(OffChain("update", 1), b"a", b"", payload)
    with pytest.raises(expected, match=f"too large|^method: aggregate of phase update: ValueError: boom{place}"):
        rules.aggregate(OffChain("update", 1), b"", [(b"a", payload)])
