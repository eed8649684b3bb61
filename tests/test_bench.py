"""The yardstick: both sides do the same work, and a side that does less is noticed."""

import tempfile
from dataclasses import replace
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F

from fedchain.learning.device import DEVICE, as_training
from fedchain.learning.exceptions import ConfigurationError
from fedchain.simulator.scenario import scenario_from_dict
from tests.bench import local_steps
from tests.bench.bare import Loop, draw_as_the_processor
from tests.bench.local_steps import measured_methods
from tests.bench.measured import as_printed, training
from tests.bench.processes import Cost, warning
from tests.bench.scale import exponents
from tests.bench.training import Disagreement, rates, require_agreement

TINY = {"dataset": "digits", "peers": 4, "rounds": 3, "test_every": 0, "mining_attempts": 4}
HALF = {"hyperparameters": {"local_steps": 10}}
FEW = {"contributors_per_round": 2, "committee_size": 2, "partition": "iid", "method": "fedavg", "model": "logistic"}


@pytest.mark.parametrize(
    "setting",
    [
        pytest.param({"method": "fedavg"}, id="fedavg", marks=pytest.mark.slow),
        pytest.param({"method": "dfpl"}, id="dfpl"),
        pytest.param(FEW, id="drawn"),
    ],
)
def test_both_sides_take_the_same_steps_and_learn_the_same_numbers(
    setting: dict[str, object], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    scenario = scenario_from_dict(TINY | setting)
    ours = training(scenario)
    assert ours["updates"] == sum(map(len, ours["drawn"]))
    with as_training(torch.device(DEVICE)):
        for workers in (1, 2):
            theirs = as_printed(Loop(scenario, ours["drawn"]).run(workers))
            require_agreement(ours, theirs)
            # To the bit: models that are never averaged make of a last bit 1e-2 in twenty rounds.
            assert ours["result"] == theirs["result"]


def test_a_bare_loop_that_does_half_of_the_steps_is_noticed() -> None:
    scenario = scenario_from_dict(TINY | {"method": "fedavg"})
    with as_training(torch.device(DEVICE)):
        whole = Loop(scenario).run(1)
        half = Loop(scenario_from_dict(TINY | {"method": "fedavg"} | HALF)).run(1)
    assert half.steps == whole.steps // 2
    with pytest.raises(Disagreement, match="steps: 240 and 120"):
        require_agreement(as_printed(whole), as_printed(half))
    with pytest.raises(Disagreement, match="what was learned differs"):  # also where it counts wrongly
        require_agreement(as_printed(whole), as_printed(replace(half, steps=whole.steps)))


def test_a_bare_loop_on_a_card_drops_what_the_processor_drops(monkeypatch: pytest.MonkeyPatch) -> None:
    value, found = torch.ones(4, 3, 2, 2), list[list[torch.Tensor]]()
    for name in ("dropout", "dropout2d"):
        monkeypatch.setattr(F, name, getattr(F, name))  # put back afterwards
    for is_own in (True, False):
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(5)
            found.append([F.dropout(value), F.dropout2d(value, 0.25), F.dropout(value, training=False)])
        if is_own:
            draw_as_the_processor()
    assert all(map(torch.equal, *found))
    assert not torch.equal(found[0][0], value)


@pytest.mark.parametrize("method", measured_methods())
def test_a_local_step_of_each_method_is_measured(method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, number in (("STEPS", 1), ("STEPS_LONG", 2), ("EXAMPLES", 40)):
        monkeypatch.setattr(local_steps, name, number)
    assert local_steps.Update(method).measure().update_ms > 0


def test_methods_that_are_not_measured_train_no_such_network() -> None:
    for method in local_steps.OTHER_NETWORKS:
        with pytest.raises(ConfigurationError, match="model"):
            local_steps.Update(method)


def test_warm_figures_begin_with_the_third_round() -> None:
    marks = [{"wall_s": wall_s, "cpu_s": 2 * wall_s, "children_cpu_s": wall_s} for wall_s in (10.0, 11.0, 13.0, 15.0)]
    found = rates(Cost(32.0, 20.0, 0.1, 0.0, {"updates": 80, "marks": marks}))
    assert (found.whole, found.warm, found.warm_cpu, found.children_cpu) == (4.0, 10.0, 0.2, 0.1)


def test_figures_that_others_have_disturbed_are_warned_of() -> None:
    quiet, busy = (Cost(1.0, 1.0, 0.1, share, {}) for share in (0.01, 0.4))
    assert warning([quiet]) == ""
    assert "1 to 40 % of the machine" in warning([quiet, busy])


def test_costs_that_grow_with_the_square_have_the_exponent_two() -> None:
    assert exponents([10, 100, 200], [1.0, 100.0, 400.0]) == pytest.approx([2.0, 2.0])
