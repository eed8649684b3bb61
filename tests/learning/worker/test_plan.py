"""A plan that went to another process as bytes builds a learner there whose answers are those of a forked process."""

import multiprocessing
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from fedchain.learning.exceptions import ConfigurationError
from fedchain.learning.executors.executor import Answer, Backend, InFile, Question
from fedchain.learning.executors.inline import InlineExecutor
from fedchain.learning.executors.processes import ProcessExecutor
from fedchain.learning.payload.part_folder import PartFolder
from fedchain.learning.registry import HyperparameterValue
from fedchain.learning.worker.contribution import Contribution
from fedchain.learning.worker.plan import LearnerPlan, Named
from fedchain.node.custody.ledger_file import open_ledger
from fedchain.simulator.disturbances import Traitors
from fedchain.simulator.run import load_learner
from fedchain.simulator.scenario import Scenario

SCENARIO = Scenario(peers=4, rounds=2, hyperparameters={"local_steps": 2}, partition="iid", workers=1)
NOISE: dict[str, HyperparameterValue] = {"local_steps": 2, "gradient_noise": 2.0}
SUM: dict[str, HyperparameterValue] = {
    **{"encryption": "threshold", "decryption_threshold": 2, "contributors_min": 3},
    **{"local_epochs": 0, "local_steps": 1},
}
PARTS: dict[str, HyperparameterValue] = {"extractor_epochs": 1, "encryptor_epochs": 1, "encryptor_width": 4}
CASES = {
    "plain": (SCENARIO, "update"),
    "encrypted": (
        replace(SCENARIO, method="tests.support.learning.small_keys:SmallKeyFedPh", hyperparameters=SUM),
        "update",
    ),
    "ledger": (replace(SCENARIO, method="fedavg", hyperparameters=NOISE), "update"),
    "parts": (replace(SCENARIO, method="fededs", hyperparameters=PARTS), "encrypt"),
    "label flippers": (replace(SCENARIO, adversaries=(Traitors(behaviour="label-flipper", peers=(0, 1)),)), "update"),
}


def ask(backend: Backend, phase: str) -> list[Answer | InFile]:
    """The answers of two clients to the same question each."""
    try:
        questions = [Question(client, phase, int(phase == "update"), b"") for client in (0, 3)]
        return [job.result() for job in [backend.compute(question) for question in questions]]
    finally:
        backend.close()


def ask_elsewhere(data: bytes, phase: str) -> list[Answer | InFile]:
    """The answers of a fresh process, which has nothing but the plan."""
    return ask(InlineExecutor(LearnerPlan.decode(data)), phase)


@pytest.fixture(scope="module")
def elsewhere() -> Iterator[Callable[[LearnerPlan, str], list[Answer | InFile]]]:
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as fresh:
        yield lambda plan, phase: fresh.submit(ask_elsewhere, plan.encode(), phase).result()


@pytest.mark.parametrize("case", CASES)
def test_a_fresh_process_answers_as_a_forked_one(
    case: str, elsewhere: Callable[[LearnerPlan, str], list[Answer | InFile]], tmp_path: Path
) -> None:
    scenario, phase = CASES[case]
    plan, parts = load_learner(scenario).plan, tmp_path / "parts"
    plan = replace(plan, parts=Named("fedchain.learning.payload.part_folder:parts_in", (str(parts),)))
    found = elsewhere(plan, phase)
    if case == "ledger":
        ledger = Named("fedchain.node.custody.ledger_file:ledger_beside", (str(tmp_path / "secrets"),))
        kept = elsewhere(replace(plan, ledger=ledger), phase)
        assert kept[0] == found[0]
        assert len(open_ledger(tmp_path / "secrets", 0).entries()) == 2, "both were asked for one member's file"
    assert found == ask(ProcessExecutor(plan, 2), phase)
    for made in found:
        assert isinstance(made, Contribution)
        assert all(PartFolder(parts).has(part) for part in made.parts)
        assert bool(made.parts) is (case == "parts")
        assert (made.epsilon is not None) is (case == "ledger")


@pytest.mark.parametrize("case", CASES)
def test_a_plan_is_plain_values_and_shows_no_secret(case: str) -> None:
    plan = load_learner(CASES[case][0]).plan
    read = LearnerPlan.decode(plan.encode())
    assert read.encode() == plan.encode()
    assert read.config == plan.config
    assert plan.secrets is not None
    assert repr(plan.secrets) == "Named(name='fedchain.simulator.run:simulated_secrets')"


def test_flipped_labels_change_the_answers_of_their_members_alone() -> None:
    plans = [load_learner(CASES[case][0]).plan for case in ("plain", "label flippers")]
    honest, flipped = (ask(InlineExecutor(plan), "update") for plan in plans)
    assert honest[0] != flipped[0]
    assert honest[1] == flipped[1]


def test_a_function_that_is_not_there_is_named() -> None:
    for name in ("fedchain.nowhere:nothing", "fedchain.learning.config:nothing"):
        with pytest.raises(ConfigurationError, match=f"^a learner's plan names {name}, which is not here: "):
            InlineExecutor(LearnerPlan(config=SCENARIO.learning_config(), secrets=Named(name)))
