"""``fedchain.simulate``: a run's rounds, models, chain and knowledge, wherever it is called, and however it ends."""

import ast
import asyncio
import multiprocessing
import os
import subprocess
import sys
import warnings
import zipfile
from copy import deepcopy
from dataclasses import FrozenInstanceError
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, cast

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from typer.testing import CliRunner

import fedchain
from fedchain.cli.main import app
from fedchain.files.tables import read_toml
from fedchain.learning.exceptions import ConfigurationError
from fedchain.learning.methods.fedavg import FedAvg
from fedchain.learning.models.base import Model
from fedchain.learning.training.evaluation import evaluate
from fedchain.learning.worker.learner import Learner
from fedchain.learning.worker.model_origin import read_origin
from fedchain.node.folders import find_rows
from fedchain.simulator.disturbances import Fault, MemberChange
from fedchain.simulator.scenario import Scenario, ScenarioError
from tests.python.tasks import Bag, Sound, load
from tests.support.learning import lora_task

QUICK: dict[str, Any] = {"peers": 3, "mining_attempts": 8, "hyperparameters": {"local_steps": 3}}


@pytest.fixture(scope="module")
def run() -> fedchain.Run:
    return fedchain.simulate(task=load, rounds=2, **QUICK)


def test_importing_is_cheap_and_every_name_is_there() -> None:
    heavy = {"torch", "numpy", "msgpack", "typer"}
    code = f"import fedchain, sys; print(*sorted({heavy} & {{*sys.modules}})); print(*dir(fedchain))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    imported, offered = done.stdout.splitlines()
    assert imported == ""
    assert {*fedchain.__all__} <= {*offered.split()}
    for name in fedchain.__all__:
        assert getattr(fedchain, name) is not None
    with pytest.raises(AttributeError, match="module 'fedchain' has no attribute 'simulat'"):
        _ = fedchain.simulat  # type: ignore[attr-defined]


def test_type_checkers_are_told_the_same_names() -> None:
    stub = Path(fedchain.__file__).with_suffix(".pyi").read_text(encoding="utf-8")
    imports = (node for node in ast.parse(stub).body if isinstance(node, ast.Import | ast.ImportFrom))
    names = {alias.asname for node in imports for alias in node.names}
    assert names == {*fedchain.__all__} - {"__version__"}


@pytest.mark.long
def test_rounds_are_records_that_nobody_changes(run: fedchain.Run) -> None:
    told: list[fedchain.RoundRecord] = []
    again = fedchain.simulate(task=load, rounds=2, on_round=told.append, **QUICK)
    assert [row.round for row in run.rounds] == [row.round for row in told] == [1, 2]
    assert (again.trace_hash, again.rounds) == (run.trace_hash, run.rounds)
    assert run.violations == ()
    with pytest.raises(FrozenInstanceError):
        run.rounds[0].taa = 1.0
    table = run.to_pandas()
    assert table.index.tolist() == [1, 2]
    assert table["taa"].tolist() == [row.taa for row in run.rounds]
    assert table["epsilon"].isna().all()
    assert table.mean()["taa"] == pytest.approx(np.mean([row.taa for row in run.rounds])), "no column is of objects"
    assert {str(kind) for kind in table.dtypes} == {"float64", "int64"}
    assert "dfpl on own, 3 peers × 2 rounds, seed 0, accuracy " in repr(run)


def test_rounds_and_runs_go_to_other_processes(run: fedchain.Run, tmp_path: Path) -> None:
    assert deepcopy(run.rounds) == run.rounds, "as pickle copies it"
    with pytest.raises(FrozenInstanceError):
        deepcopy(run.rounds[0]).taa = 1.0
    with pytest.raises(TypeError, match=r"cannot be pickled: name its folder with out, or take run\.rounds"):
        deepcopy(run)
    kept = fedchain.simulate(method="solo", rounds=1, out=tmp_path / "run", **QUICK)
    assert kept.chain.status().height == 1
    copied = deepcopy(kept)
    assert (copied.rounds, copied.chain.status()) == (kept.rounds, kept.chain.status())


def test_a_process_that_may_start_none_says_what_may(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Those of `multiprocessing.Pool` are such; they had an AssertionError of Python's once all data were read."""
    given: dict[str, Any] = {"method": "solo", "rounds": 1, "resume": True, **QUICK}
    run = fedchain.simulate(**given, out=tmp_path / "run")
    monkeypatch.setitem(multiprocessing.current_process()._config, "daemon", True)  # type: ignore[attr-defined]
    with pytest.raises(ScenarioError, match=r"may start none, .* take concurrent.futures.ProcessPoolExecutor"):
        fedchain.simulate(**given, out=tmp_path / "other")
    assert not (tmp_path / "other").exists()
    again = fedchain.simulate(**given, out=tmp_path / "run")
    assert again.trace_hash == run.trace_hash, "a finished run takes no processes"


def test_without_pandas_the_table_says_what_it_needs(run: fedchain.Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(ImportError, match=r"^to_pandas needs pandas: pip install 'fedchain\[pandas\]'$"):
        run.to_pandas()


def test_models_are_those_that_were_measured(run: fedchain.Run) -> None:
    accuracies = []
    for member in range(3):
        model = run.model(member)
        assert type(model) is Bag
        _, _, (tokens, topics) = load(member)
        accuracies.append(evaluate(cast(Model, model), tokens, topics)[0])
    assert run.rounds[-1].taa == pytest.approx(np.mean(accuracies), rel=1e-14)
    with pytest.raises(ConfigurationError, match="members share no whole model; ask for a member's"):
        run.model()
    with pytest.raises(ConfigurationError, match="member is 3, it must be between 0 and 2"):
        run.model(3)
    with pytest.raises(ConfigurationError, match="member is 'x', it must be between 0 and 2"):
        run.model("x")  # type: ignore[arg-type]
    assert [*run.state(True)] == [*run.state(1)], "whatever counts as its number"


def test_the_shared_model_is_what_everybody_receives() -> None:
    run = fedchain.simulate(Sound(local_steps=3), partition="iid", rounds=1, **(QUICK | {"hyperparameters": {}}))
    model = run.model()
    model.load_state_dict(run.state(), strict=True)
    assert run.rounds[-1].test_accuracy_received is not None
    assert run.scenario.method == "tests.python.tasks:Sound"
    assert run.scenario.hyperparameters == {"local_steps": 3}
    assert {name for name, _ in model.state_dict().items()} == {name.split(".", 1)[1] for name in run.knowledge}


@pytest.mark.parametrize(("adapters", "begins_with"), [("mean", ""), ("mean", "a file"), ("fedex", "a file")])
def test_models_have_the_frozen_tensors_that_no_file_of_theirs_holds(
    adapters: str, begins_with: str, tmp_path: Path
) -> None:
    quick = QUICK | {"hyperparameters": {"local_steps": 3, "adapters": adapters}}
    if begins_with:
        quick["weights"] = str(tmp_path / "begun.safetensors")
        begun = {name: value + 0.1 for name, value in lora_task.LoraNet().state_dict().items()}
        save_file({name: value.contiguous() for name, value in begun.items()}, quick["weights"])
    run = fedchain.simulate(task=lora_task.load, method="fedavg", rounds=1, **quick)
    assert "first.base_layer.bias" not in run.state(1)
    whole = run.model().state_dict()
    assert ("first.base_layer.weight" in run.state()) == (adapters == "fedex")
    assert all(value.equal(whole[name]) for name, value in run.state().items())
    _, _, (inputs, labels) = lora_task.load(0)  # everybody's test set
    accuracies = [evaluate(cast(Model, run.model(member)), inputs, labels)[0] for member in range(3)]
    assert run.rounds[-1].taa == pytest.approx(np.mean(accuracies), rel=1e-14)
    assert run.rounds[-1].taa_received == pytest.approx(evaluate(cast(Model, run.model()), inputs, labels)[0])
    frozen = run.model(1).state_dict()["first.base_layer.weight"]
    assert frozen.equal(run.model().state_dict()["first.base_layer.weight"]) == (adapters == "mean")
    if begins_with:
        assert frozen.equal(begun["first.base_layer.weight"])
        (tmp_path / "begun.safetensors").unlink()
        with pytest.raises(ConfigurationError, match="cannot be read"):
            run.model(1)


def test_the_common_model_of_adapters_that_keep_a_is_whole_over_a_member_s_file() -> None:
    quick = QUICK | {"hyperparameters": {"local_steps": 3, "adapters": "ffa"}}
    run = fedchain.simulate(task=lora_task.load, method="fedavg", rounds=1, **quick)
    whole, module = run.model().state_dict(), lora_task.LoraNet()
    module.load_state_dict({name: value for name, value in whole.items() if "base_layer" in name}, strict=False)
    module.load_state_dict(run.state(), strict=False)
    differing = {name for name, value in module.state_dict().items() if not value.equal(whole[name])}
    assert differing == {"first.lora_A.default.weight", "second.lora_A.default.weight"}
    for state in (run.state(1), run.state()):
        module.load_state_dict(state, strict=False)
    assert all(value.equal(whole[name]) for name, value in module.state_dict().items())


def test_a_folder_that_was_named_is_kept(tmp_path: Path) -> None:
    run = fedchain.simulate("solo", rounds=1, out=tmp_path / "run", draw=True, **QUICK)
    files = {path.name for path in (tmp_path / "run").iterdir()}
    accuracies = [item.accuracy for item in run.members]
    assert [(item.round, item.member) for item in run.members] == [(1, member) for member in range(len(accuracies))]
    assert run.rounds[-1].taa == pytest.approx(np.mean(accuracies))
    assert run.rounds[-1].taa_worst == min(accuracies)
    assert fedchain.open_run(run.folder).members == run.members
    assert {"scenario.toml", "metrics.jsonl", "result.json", "curves.png", "chain", "models"} <= files
    origin = read_origin((run.folder / "models" / "member-2.safetensors").read_bytes())
    assert origin is not None
    assert (origin.chain_id, origin.member, origin.round) == (run.chain.genesis.chain_id.hex(), 2, 1)
    numbers: dict[str, Any] = {"seed": np.int64(1), "hash_rates": [np.float32(1)] * 3}
    numbers["hyperparameters"] = {"learning_rate": np.float64(0.5)}
    again = fedchain.simulate(scenario=tmp_path / "run" / "scenario.toml", keep_models=False, **numbers)
    assert (again.scenario.method, again.scenario.seed, type(again.scenario.seed)) == ("solo", 1, int)
    assert again.scenario.hyperparameters == {"learning_rate": 0.5}
    with pytest.raises(ConfigurationError, match="is not there: the run kept no models, see keep_models"):
        again.model(0)
    run.folder.rename(tmp_path / "moved")
    with pytest.raises(ConfigurationError, match="is not there: the run's folder was moved or deleted"):
        run.model(0)


def test_an_interrupted_run_goes_on_with_its_models_and_names_its_task(run: fedchain.Run, tmp_path: Path) -> None:
    folder, heard = tmp_path / "run", list[int]()
    given: dict[str, Any] = {"task": load, "rounds": 2, "out": folder, "resume": True, **QUICK}

    def interrupt(row: fedchain.RoundRecord) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fedchain.simulate(**given, on_round=interrupt)
    assert read_toml(folder / "scenario.toml", ScenarioError)["task"] == "tests.python.tasks:load"
    with pytest.raises(ScenarioError, match="holds another scenario: its seed is 0, not 1"):
        fedchain.simulate(**given, seed=1)
    again = fedchain.simulate(**given, on_round=lambda row: heard.append(row.round), keep_models=False)
    assert (again.trace_hash, again.tip, again.rounds, heard) == (run.trace_hash, run.tip, run.rounds, [1, 2])
    assert all(torch.equal(value, run.state(1)[name]) for name, value in again.state(1).items())


def test_a_finished_run_is_opened_again_with_all_that_it_was(run: fedchain.Run, tmp_path: Path) -> None:
    heard = list[int]()
    given: dict[str, Any] = {"task": load, "rounds": 2, "out": tmp_path / "run", "resume": True, **QUICK}
    with pytest.raises(ScenarioError, match="run holds no finished run"):
        fedchain.open_run(tmp_path / "run")
    fedchain.simulate(**given, track="tensorboard")
    written = {path: path.read_bytes() for path in (tmp_path / "run").iterdir() if path.is_file()}
    for again in (
        fedchain.simulate(**given, on_round=lambda row: heard.append(row.round)),
        fedchain.open_run(given["out"]),
    ):
        assert (again.trace_hash, again.tip, again.rounds, heard) == (run.trace_hash, run.tip, run.rounds, [1, 2])
        assert repr(again) == repr(run)
        assert {name: array.tolist() for name, array in again.knowledge.items()} == {
            name: array.tolist() for name, array in run.knowledge.items()
        }
        assert all(torch.equal(value, run.state(1)[name]) for name, value in again.state(1).items())
        assert type(again.model(1)) is Bag
        assert [*again.state(1)] == [*again.model(1).state_dict()], "a vector made of them is in one order"
    assert {path: path.read_bytes() for path in (tmp_path / "run").iterdir() if path.is_file()} == written
    with pytest.raises(ScenarioError, match="holds another scenario: its seed is 0, not 1"):
        fedchain.simulate(**given, seed=1)
    with pytest.raises(ScenarioError, match="run exists already"):
        fedchain.simulate(**(given | {"resume": False}))
    metrics = tmp_path / "run" / "metrics.jsonl"
    metrics.write_text(metrics.read_text().partition("\n")[0] + "\n")
    with pytest.raises(ScenarioError, match=r"metrics.jsonl ends with height 1, and the run with 2$"):
        fedchain.open_run(tmp_path / "run")
    metrics.write_bytes(written[metrics])
    (tmp_path / "run" / "result.json").write_text("{}")
    with pytest.raises(ScenarioError, match=r"result.json has no height$"):
        fedchain.open_run(tmp_path / "run")


class Rates(NamedTuple):
    first: Any
    second: Any


@pytest.mark.parametrize(
    "rates", [np.linspace(1, 2, 3), Rates(np.float32(1), 1.5), [np.float64(1), 1.5]], ids=["array", "named", "list"]
)
def test_settings_come_as_a_list_an_array_or_a_named_tuple(rates: Any) -> None:
    rounds: Any = np.array(1)
    run = fedchain.simulate("solo", hash_rates=rates, rounds=rounds, **QUICK)
    assert run.scenario.hash_rates[:2] == (1.0, 1.5)


def test_numbers_of_a_scenario_and_of_a_method_may_be_of_numpy_s_too() -> None:
    seed, steps = (cast(Any, np.int64(number)) for number in (3, 2))
    scenario = Scenario(seed=seed, rounds=1, peers=3, mining_attempts=8)
    run = fedchain.simulate(FedAvg(local_steps=steps), scenario=scenario)
    assert (run.scenario.seed, run.scenario.hyperparameters) == (3, {"local_steps": 2})


def test_numbers_of_a_row_may_be_of_numpy_s_too(tmp_path: Path) -> None:
    at_s, peer, end = cast(Any, np.float32(0.5)), cast(Any, np.int64(2)), cast(Any, np.int64(4))
    slow = Fault(at_s=at_s, kind="slow", peers=(peer,), factor=cast(Any, np.float32(2)))
    moved = MemberChange(round=cast(Any, np.int64(2)), kind="amend", values={"rounds": end})
    rows: dict[str, Any] = {"faults": [slow], "changes": [moved], "admission": "quorum"}
    assert fedchain.simulate("solo", **rows, **QUICK, rounds=5, out=tmp_path / "run").rounds[-1].round == 4
    named = read_toml(tmp_path / "run" / "scenario.toml", ScenarioError)
    assert (named["faults"][0]["peers"], named["changes"][0]["values"]) == ([2], {"rounds": 4})
    again = Scenario(rounds=5, **QUICK, faults=(slow,), changes=(moved,), admission="quorum")
    assert len(fedchain.simulate("solo", scenario=again).rounds) == 4


@pytest.mark.parametrize("end", [4, 6])
def test_a_run_whose_end_members_move_is_measured_at_its_end_and_opened(tmp_path: Path, end: int) -> None:
    moved = {"round": 2, "kind": "amend", "values": {"rounds": end}}
    given: dict[str, Any] = {"peers": 4, "rounds": 5, "evaluate_every": 3, "test_every": 0, "changes": [moved]}
    run = fedchain.simulate("fedavg", out=tmp_path / "run", hyperparameters={"local_steps": 1}, **given)
    assert [row.round for row in run.rounds if row.taa is not None] == sorted({3, end})
    assert fedchain.open_run(tmp_path / "run").rounds == run.rounds
    (row,) = find_rows(tmp_path)
    assert (row.rounds, row.of, row.state) == (end, end, "finished")


def test_a_run_whose_end_members_would_move_when_it_is_over_is_measured_where_it_ends() -> None:
    """Nothing is proposed before the first block, so what round 1 asks for holds from round 4 on."""
    moved = {"round": 1, "kind": "amend", "values": {"rounds": 6}}
    given: dict[str, Any] = {"peers": 4, "rounds": 3, "evaluate_every": 5, "test_every": 0, "changes": [moved]}
    run = fedchain.simulate("fedavg", hyperparameters={"local_steps": 1}, **given)
    assert [row.round for row in run.rounds if row.taa is not None] == [3]


def test_a_run_is_found_wherever_its_program_works_later(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    runs = [fedchain.simulate(rounds=1, out="run", **QUICK), fedchain.open_run("run")]
    monkeypatch.chdir("/")
    for run in runs:
        assert run.folder == tmp_path / "run"
        assert run.chain.status().height == 1
        assert [*run.state(0)] == [*run.model(0).state_dict()]


def test_a_program_may_go_to_another_folder_while_it_simulates(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "near.py").write_text("from tests.python.tasks import load\n")
    given: dict[str, Any] = {"task": "near.py:load", "rounds": 2, **QUICK}
    runs = [fedchain.simulate(out="run", on_round=lambda row: os.chdir("/"), **given)]
    monkeypatch.chdir(tmp_path)
    runs.append(fedchain.open_run("run"))
    monkeypatch.chdir("/")
    for run in runs:
        assert run.folder == tmp_path / "run"
        assert [*run.state(0)] == [*run.model(0).state_dict()]


ARCHIVED_SCRIPT = """
import fedchain
from helper import load as build

def load(member):
    return build(member)

given = {"method": "fedavg", "peers": 3, "rounds": 1, "mining_attempts": 8}
print(fedchain.simulate(task=load, out="one", **given).trace_hash)
print(fedchain.simulate(task=build, out="two", **given).trace_hash)
print(fedchain.simulate(task=load, out="one", resume=True, **given).trace_hash)
"""


ARCHIVED_HELPER = """
import torch

def load(member):
    examples = torch.rand(20, 4), torch.arange(20) % 2
    return torch.nn.Linear(4, 2), examples, examples
"""


def test_a_program_may_lie_in_an_archive(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "program.zip", "w") as archive:
        archive.writestr("__main__.py", ARCHIVED_SCRIPT)
        archive.writestr("helper.py", ARCHIVED_HELPER)
    assert len(set(_printed(tmp_path, "program.zip").split())) == 1


def test_a_scenario_keeps_its_name_beside_a_function(tmp_path: Path) -> None:
    given: dict[str, Any] = {"task": load, "rounds": 1, **QUICK}
    named = fedchain.simulate(**given, name="words", out=tmp_path / "run")
    again = fedchain.simulate(task=load, scenario=tmp_path / "run" / "scenario.toml")
    assert (again.scenario.name, again.trace_hash) == ("words", named.trace_hash)
    assert fedchain.simulate(**given, scenario=fedchain.Scenario()).scenario.name == "own"


def test_a_finished_run_of_a_function_that_no_name_leads_to_is_opened_with_the_function(tmp_path: Path) -> None:
    def here(member: int) -> Any:
        return load(member)

    given: dict[str, Any] = {"task": here, "rounds": 1, "out": tmp_path / "run", "resume": True, **QUICK}
    run = fedchain.simulate(**given)
    for again in (fedchain.simulate(**given), fedchain.open_run(tmp_path / "run", task=here)):
        assert again.rounds == run.rounds
        assert type(again.model(1)) is Bag
    with pytest.raises(ConfigurationError, match="the members train on data of their own"):
        fedchain.open_run(tmp_path / "run")


def test_a_finished_run_of_a_function_is_not_taken_for_that_of_another_one(tmp_path: Path) -> None:
    """A notebook's cell that is run again after an edit would print the numbers of the code as it was."""

    def scaled(member: int, scale: int) -> Any:
        return load(member + scale)

    given: dict[str, Any] = {"rounds": 1, "out": tmp_path / "run", "resume": True, **QUICK}
    run = fedchain.simulate(task=partial(scaled, scale=1), **given)
    with pytest.raises(ScenarioError, match=r"run holds a finished run of another task, .*; name another folder"):
        fedchain.simulate(task=partial(scaled, scale=2), **given)
    assert fedchain.simulate(task=partial(scaled, scale=1), **given).rounds == run.rounds
    assert fedchain.open_run(tmp_path / "run", task=partial(scaled, scale=2)).rounds == run.rounds


def test_a_finished_run_of_a_file_is_not_taken_for_that_of_the_edited_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "edited.py").write_text("from tests.python.tasks import load\n")
    given: dict[str, Any] = {"task": "edited.py:load", "rounds": 1, "out": tmp_path / "run", "resume": True, **QUICK}
    run = fedchain.simulate(**given)
    assert fedchain.simulate(**given).rounds == run.rounds
    (tmp_path / "edited.py").write_text("from tests.python.tasks import load as other\nload = lambda: other(1)\n")
    with pytest.raises(ScenarioError, match=r"holds a finished run of another edited.py:load, which has changed"):
        fedchain.simulate(**given)
    (tmp_path / "edited.py").unlink()
    assert fedchain.simulate(**given).rounds == run.rounds, "its results are all that is left"


EDITED_SCRIPT = """
import fedchain, torch

def load(member):
    examples = torch.rand(20, 4), torch.arange(20) % 2
    return torch.nn.Linear(4, 2), examples, examples

if __name__ == "__main__":
    run = fedchain.simulate("fedavg", load, peers=3, rounds=1, mining_attempts=8, out="run", resume=True)
    print(run.trace_hash)
"""


def test_a_script_opens_its_finished_run_after_it_was_edited(tmp_path: Path) -> None:
    """A script changes more often in what it does with results than in what makes them."""
    (tmp_path / "script.py").write_text(EDITED_SCRIPT)
    first = _printed(tmp_path, "script.py")
    (tmp_path / "script.py").write_text(EDITED_SCRIPT + "    print(run.rounds[-1].round)\n")
    assert _printed(tmp_path, "script.py") == first + "1\n"


def test_an_interrupted_run_does_not_go_on_with_other_data(tmp_path: Path) -> None:
    """It would be a run of one set to its middle, and of another one from there on: the result of neither."""
    moved = {"by": 0}

    def changing(member: int) -> Any:
        model, (tokens, topics), test = load(member)
        return model, (tokens.roll(moved["by"], dims=1), topics), test

    def interrupt(row: fedchain.RoundRecord) -> None:
        raise KeyboardInterrupt

    given: dict[str, Any] = {"task": changing, "rounds": 2, "out": tmp_path / "run"} | QUICK
    with pytest.raises(KeyboardInterrupt):
        fedchain.simulate(on_round=interrupt, **given)
    moved["by"] = 1
    with pytest.raises(ScenarioError, match=r"/run was begun with data of SHA-256 .*: it cannot go on with that"):
        fedchain.simulate(resume=True, **given)
    moved["by"] = 0
    whole = fedchain.simulate(**given | {"out": None})
    assert fedchain.simulate(resume=True, **given).trace_hash == whole.trace_hash


def test_a_run_that_ends_while_its_data_are_hashed_leaves_its_folder_s_name_free(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A folder with a scenario and no record would neither go on nor begin anew."""

    def interrupt(learner: Learner) -> str:
        raise KeyboardInterrupt

    given: dict[str, Any] = {"task": load, "rounds": 1, "out": tmp_path / "run", "resume": True} | QUICK
    with monkeypatch.context() as patched:
        patched.setattr(Learner, "hash_own", interrupt)
        with pytest.raises(KeyboardInterrupt):
            fedchain.simulate(**given)
    assert not (tmp_path / "run").exists()
    assert len(fedchain.simulate(**given).rounds) == 1


OWN_METHOD = """
import sys
from dataclasses import dataclass
import fedchain
from fedchain.learning.methods.fedavg import FedAvg

@dataclass(frozen=True, kw_only=True)
class Mine(FedAvg):
    pass

def interrupt(row):
    raise KeyboardInterrupt

if __name__ == "__main__":
    given = {"peers": 3, "rounds": 2, "mining_attempts": 8, "hyperparameters": {"local_steps": 3}, "out": "run"}
    try:
        fedchain.simulate(Mine, on_round=interrupt, **given)
    except KeyboardInterrupt:
        print("interrupted")
    if sys.argv[1:] == ["resume"]:
        run = fedchain.simulate(Mine, resume=True, **given)
        print(run.trace_hash, run.chain.verify().is_valid)
"""


def _printed(folder: Path, *arguments: str) -> str:
    done = subprocess.run([sys.executable, *arguments], cwd=folder, capture_output=True, text=True, check=True)
    return done.stdout


@pytest.mark.long
def test_a_script_s_own_method_is_named_by_its_file_and_goes_on_from_its_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = tmp_path / "01-mine.py"
    script.write_text(OWN_METHOD)
    assert _printed(tmp_path, script.name) == "interrupted\n"
    assert read_toml(tmp_path / "run" / "scenario.toml", ScenarioError)["method"] == f"{script}:Mine"
    monkeypatch.chdir(tmp_path)
    assert "checks     all hold" in CliRunner().invoke(app, ["simulate", "--resume", "--out", "run"]).stdout
    resumed = fedchain.open_chain(tmp_path / "run")
    whole = fedchain.simulate(f"{script}:Mine", rounds=2, **QUICK)
    assert resumed.status().head.hex() == whole.tip
    assert dict(whole.chain.genesis.learning)["method"] == '"_01_mine:Mine"', "no path of this machine"


@pytest.mark.slow
def test_a_notebook_s_own_method_goes_on_there_and_nowhere_else(tmp_path: Path) -> None:
    _, last = _printed(tmp_path, "-c", OWN_METHOD, "resume").splitlines()
    assert last.endswith(" True")
    with pytest.raises(ConfigurationError, match="__main__:Mine was defined in a notebook or a shell, and"):
        fedchain.simulate(scenario=tmp_path / "run" / "scenario.toml")


def test_weights_that_are_refused_leave_the_folder_s_name_free(tmp_path: Path) -> None:
    (tmp_path / "weights").write_text("no tensors")
    again: dict[str, Any] = {"out": tmp_path / "run", "weights": str(tmp_path / "weights")} | QUICK
    for _ in range(2):
        with pytest.raises(ConfigurationError, match="are no sound safetensors file"):
            fedchain.simulate("fedavg", rounds=1, **again)
        assert not (tmp_path / "run").exists()


def test_a_temporary_folder_goes_with_the_run() -> None:
    run = fedchain.simulate("solo", rounds=1, **QUICK)
    folder = run.folder
    assert folder.is_dir()
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        del run
    assert not folder.exists()
    assert not warned


@pytest.mark.parametrize("how", ["function", "file", "loop"])
def test_a_run_that_begins_inside_the_loading_of_another_is_refused_where_it_would_wait_for_itself(
    tmp_path: Path, how: str
) -> None:
    def task(member: int) -> Any:
        if how == "loop":  # which waits for the thread of the inner one
            asyncio.run(fedchain.simulate_async("solo", rounds=1, **QUICK))
        fedchain.simulate("solo", rounds=1, **QUICK)
        return load(member)

    given: Any = task
    if how == "file":  # without if __name__ == "__main__"
        text = f"import fedchain\nfrom tests.python.tasks import load\nfedchain.simulate('solo', rounds=1, **{QUICK})\n"
        (tmp_path / "unguarded.py").write_text(text, encoding="utf-8")
        given = f"{tmp_path / 'unguarded.py'}:load"
    with pytest.raises(ConfigurationError, match="ScenarioError: simulate is called while another run reads its data"):
        fedchain.simulate("fedavg", task=given, rounds=1, **QUICK)
    assert fedchain.simulate("solo", task=load, rounds=1, **QUICK).rounds[-1].taa, "the next one is none inside another"


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"peer": 3}, "scenario has no key 'peer'; did you mean 'peers'"),
        ({"local_steps": 3}, "local_steps is a hyper-parameter of dfpl: hyperparameters={'local_steps': 3}"),
        ({"method": "dfpll"}, "unknown method 'dfpll'; did you mean 'dfpl'?"),
        ({"dataset": "own"}, "the members train on data of their own"),
        ({"task": load, "dataset": "digits"}, "the members train on digits, not on data of their own"),
        ({"task": lambda: 3}, "(model, train set, test set) must be returned, not int"),
        ({"method": Bag}, "tests.python.tasks.Bag'>, it must be a name, or a class or an instance of Method"),
        ({"method": 3}, "method is 3, it must be a name, or a class or an instance of Method"),
        ({"task": 3}, "task is 3, it must be a function or FILE.py:function"),
        ({"scenario": 3}, "scenario is 3, it must be a Scenario or a path"),
        ({"out": 3}, "out is 3, it must be a path"),
        ({"out": "a" * 300}, "a cannot be made: File name too long"),
        ({"track": [3], "out": "x"}, "track is [3], it must be names of trackers"),
        ({"track": 3, "out": "x"}, "track is 3, it must be names of trackers"),
        ({"sponsors": 2, "peers": 3}, "sponsors is 2, it must be 0 unless admission is sponsors"),
        ({"on_round": 3}, "on_round is 3, it must be a function"),
        ({"peers": "abc"}, "scenario peers is 'abc', it must be of type int"),
    ],
)
def test_what_cannot_be_run_is_one_line(given: dict[str, Any], message: str) -> None:
    with pytest.raises((ScenarioError, ConfigurationError)) as caught:
        fedchain.simulate(**given)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)
