"""Models leave runs and nodes as files that plain PyTorch takes, with the accuracy that was measured, to the bit."""

import gc
import io
import os
import re
import shutil
import sys
import tracemalloc
import weakref
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import safetensors.torch
from typer.testing import CliRunner

from fedchain.chain.genesis import Genesis
from fedchain.chain.storage.sqlite import Store
from fedchain.cli.main import app
from fedchain.files.layout import CHAIN_FOLDER, GENESIS_FILE, SCENARIO_FILE, TRAINING_FILE, read_metrics
from fedchain.files.spool import write_file_of
from fedchain.learning.exceptions import ConfigurationError
from fedchain.learning.executors.executor import Question
from fedchain.learning.worker.checkpoint import state_pieces
from fedchain.learning.worker.model_origin import read_origin
from fedchain.node.workers.local import Local
from fedchain.node.workers.process import Trainer
from fedchain.simulator.choices import RunOptions
from fedchain.simulator.console import run_scenario
from fedchain.simulator.disturbances import MemberChange
from fedchain.simulator.scenario import Scenario
from fedchain.simulator.trained.folders import open_models
from fedchain.simulator.trained.measure import measure_trained
from fedchain.simulator.trained.origins import read_file
from tests.support.chain.builders import genesis
from tests.support.learning.lora_task import LoraNet
from tests.support.node.shell import DIGITS, write_genesis
from tests.support.simulator.models import PEERS, ROUNDS, Plain, Runs, ask, export
from tests.support.simulator.models import runs as runs


def own_scenario(task: str, **others: Any) -> Scenario:
    """A scenario of FedAvg on data that members have at home."""
    task = f"tests.support.learning.{task}:load"
    values: dict[str, Any] = {"rounds": 1, "hyperparameters": {"local_steps": 3}, **others}
    return Scenario(method="fedavg", peers=PEERS, dataset="own", task=task, mining_attempts=4, workers=1, **values)


@pytest.mark.long
@pytest.mark.parametrize("source", ["dfpl", "net", "net/node-1"])
def test_a_member_s_model_is_taken_by_plain_pytorch_and_is_as_good_as_measured(
    runs: Runs, tmp_path: Path, source: str
) -> None:
    path = export(tmp_path / "model.safetensors", runs / source, "--member", 1)
    model = Plain()
    model.load_state_dict(safetensors.torch.load_file(path), strict=True)
    accuracy = model.accuracy(*runs.own_test_set(1))
    answer = ask("evaluate", runs / source, "--member", 1)
    assert answer["accuracy"] == answer["reported"]["accuracy"] == accuracy
    assert read_file(path).state.keys() == read_file(runs / "dfpl" / "models" / "member-1.safetensors").state.keys()
    again = export(tmp_path / "again.safetensors", runs / source, "--member", 1)
    assert again.read_bytes() == path.read_bytes()


@pytest.mark.parametrize("number", range(1, ROUNDS + 1))
def test_the_common_model_of_any_round_is_as_good_as_the_run_reported(runs: Runs, tmp_path: Path, number: int) -> None:
    path = export(tmp_path / "model.safetensors", runs / "fedavg", "--aggregate", "--round", number)
    model = Plain()
    model.load_state_dict(safetensors.torch.load_file(path), strict=True)
    row = list(read_metrics(runs / "fedavg"))[number - 1]
    accuracies = [model.accuracy(*runs.own_test_set(member)) for member in range(PEERS)]
    assert sum(accuracies) / PEERS == row["taa_received"]
    answer = ask("evaluate", runs / "fedavg", "--aggregate", "--round", number)
    assert answer["accuracy"] == row["taa_received"]
    assert answer["test_accuracy"] == row["test_accuracy_received"]
    assert answer["is_same"]
    assert ask("evaluate", runs / "fedavg", "--file", path)["accuracies"] == accuracies


@pytest.mark.parametrize(
    ("source", "whose", "measure"),
    [
        ("dfpl", ("--member", 1), ""),
        ("net/node-1", ("--member", 1), ""),
        ("fedavg", ("--aggregate",), "tal_received"),
    ],
)
def test_a_model_s_file_has_the_loss_that_was_measured(
    runs: Runs, tmp_path: Path, source: str, whose: tuple[object, ...], measure: str
) -> None:
    origin = read_origin(export(tmp_path / "model.safetensors", runs / source, *whose).read_bytes())
    assert origin is not None
    assert origin.loss == ask("evaluate", runs / source, *whose)["loss"]
    if measure:
        assert origin.loss == list(read_metrics(runs / source))[-1][measure]


def test_the_members_losses_make_up_what_the_run_reported(runs: Runs) -> None:
    losses = [ask("evaluate", runs / "dfpl", "--member", member)["loss"] for member in range(PEERS)]
    assert sum(losses) / PEERS == list(read_metrics(runs / "dfpl"))[-1]["tal"]


def test_measurements_that_were_damaged_are_none(runs: Runs, tmp_path: Path) -> None:
    shutil.copytree(runs / "fedavg", tmp_path / "run")
    (tmp_path / "run" / "metrics.jsonl").write_text('{}\n{"round": 1, "taa_received": "much"}\n')
    answer = ask("evaluate", tmp_path / "run", "--aggregate", "--round", 1)
    assert answer["reported"] == {"accuracy": None, "test_accuracy": None}


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [("seed", "77", r"77, not 0"), ("classes_avg", "4", "4, not 3"), ("partition", '"iid"', "'iid', not 'n-way'")],
)
def test_a_scenario_that_is_not_the_chain_s_is_refused(
    runs: Runs, tmp_path: Path, name: str, value: str, said: str
) -> None:
    """Else models would be measured on other examples than their members', and nothing would say so."""
    shutil.copytree(runs / "fedavg", tmp_path / "run")
    file = tmp_path / "run" / SCENARIO_FILE
    file.write_text(re.sub(rf"(?m)^{name} = .*$", f"{name} = {value}", file.read_text()))
    result = CliRunner().invoke(app, ["model", "cross-site", str(tmp_path / "run")])
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr.strip().endswith(f"is another scenario than the chain's: its {name} is {said}")


def test_a_model_of_another_federation_in_a_node_s_folder_is_not_taken_for_its_own(runs: Runs, tmp_path: Path) -> None:
    shutil.copytree(runs / "fedavg" / CHAIN_FOLDER, tmp_path / "node" / CHAIN_FOLDER)
    shutil.copy(runs / "net" / "node-1" / TRAINING_FILE, tmp_path / "node")
    refused = CliRunner().invoke(app, ["model", "evaluate", str(tmp_path / "node"), "--member", "1"])
    assert (refused.exit_code, refused.stdout) == (2, "")
    assert "node holds no local model: its member has not trained yet" in refused.stderr


def test_an_aggregator_without_data_has_no_model_of_its_own(tmp_path: Path) -> None:
    scenario = Scenario(
        method="fedavg", peers=2, rounds=1, aggregator="dedicated", centralized=True, hyperparameters={"local_steps": 1}
    )
    run_scenario(scenario, tmp_path / "run", RunOptions(keep_models=True))
    refused = CliRunner().invoke(app, ["model", "evaluate", str(tmp_path / "run"), "--member", "2"])
    assert refused.exit_code == 2
    assert refused.stderr == "fedchain: member 2 is the aggregator, which has no data and no model of its own\n"


def test_members_with_several_architectures_are_measured_as_what_they_are(tmp_path: Path) -> None:
    scenario = Scenario(
        method="solo", model="digits-mlp+logistic", peers=2, rounds=1, hyperparameters={"local_steps": 1}, workers=1
    )
    run_scenario(scenario, tmp_path / "run", RunOptions(keep_models=True))
    for member, name in enumerate(("digits-mlp", "logistic")):
        answer = ask("evaluate", tmp_path / "run", "--member", member)
        assert (answer["sites"], answer["is_same"]) == ([member], True)
        assert f"model {name}, " in answer["model"]


def test_a_node_measures_on_its_own_data_where_each_member_has_some_at_home(tmp_path: Path) -> None:
    """A test network has the data of all its members, and its folder says nothing else."""
    run, net = tmp_path / "run", tmp_path / "net"
    scenario = own_scenario("own_task")
    assert not run_scenario(scenario, run, RunOptions())
    with Store.open(run / CHAIN_FOLDER, read_only=True) as store:
        (net / GENESIS_FILE).parent.mkdir()
        (net / GENESIS_FILE).write_bytes(store.genesis.encode())
        for member in range(2):
            node = net / f"node-{member}"
            shutil.copytree(run / CHAIN_FOLDER, node / CHAIN_FOLDER)
            Trainer(store.genesis, node, member, Local(task=scenario.task)).ask(Question(member, "update", 1, b""))
    whose = ("--aggregate", "--task", scenario.task)
    assert ask("evaluate", net / "node-1", *whose)["sites"] == [1]
    assert ask("evaluate", net, *whose)["sites"] == [0, 1, 2]
    unnamed = CliRunner().invoke(app, ["model", "evaluate", str(net), "--aggregate"])
    assert (unnamed.exit_code, unnamed.stdout) == (2, "")
    assert "the members train on data of their own: name your function with --task" in unnamed.stderr


@pytest.mark.parametrize("is_run", [True, False])
def test_data_are_looked_for_in_the_folder_that_is_named(runs: Runs, tmp_path: Path, is_run: bool) -> None:
    path, folder = export(tmp_path / "model.safetensors", runs / "fedavg", "--aggregate"), tmp_path / "folder"
    if is_run:
        shutil.copytree(runs / "fedavg", folder)
        file = folder / SCENARIO_FILE
        text = file.read_text().replace('dataset = "digits"', 'dataset = "mnist"')
        file.write_text(text.replace('data_dir = ""', 'data_dir = "on-another-machine"'))
    else:
        document = Genesis.decode(write_genesis(tmp_path / "genesis", replace(DIGITS, dataset="mnist")).read_bytes())
        Store.create(folder / CHAIN_FOLDER, document).close()
    words = ["model", "evaluate", folder, "--file", path, "--data-dir", tmp_path / "mine"]
    refused = CliRunner().invoke(app, [*map(str, words)])
    assert (refused.exit_code, refused.stdout) == (2, "")
    assert str(tmp_path / "mine") in refused.stderr


METHOD = """
from dataclasses import dataclass
from fedchain.learning.methods.blade_fl import BladeFl

@dataclass(frozen=True, kw_only=True)
class Moved(BladeFl):
    '''One of a user's own.'''
"""


@pytest.mark.parametrize("is_run", [True, False])
def test_a_method_whose_file_is_elsewhere_by_now_is_named_with_the_command(tmp_path: Path, is_run: bool) -> None:
    code, run = tmp_path / "there" / "moved_method.py", tmp_path / "run"
    code.parent.mkdir()
    code.write_text(METHOD)
    scenario = Scenario(method=f"{code}:Moved", peers=2, rounds=1, hyperparameters={"local_steps": 1}, workers=1)
    run_scenario(scenario, run, RunOptions())
    folder = run if is_run else tmp_path / "node"
    if not is_run:
        shutil.copytree(run / CHAIN_FOLDER, folder / CHAIN_FOLDER)
    else:
        assert ask("evaluate", run, "--aggregate")["is_same"], "where it lies, it needs no name"
    here = code.rename(tmp_path / "moved_method.py")
    forget(code)
    out = str(tmp_path / "model.safetensors")
    refused = CliRunner().invoke(app, ["model", "export", str(folder), "--aggregate", "--out", out])
    assert (refused.exit_code, refused.stdout) == (2, "")
    assert (f"; the run names {code}:Moved: --method runs it" in refused.stderr) is is_run, refused.stderr
    words = ["evaluate", folder, "--aggregate", "--method", f"{here}:Moved"]
    try:
        assert ask(*words)["model"].startswith("the aggregate after round 1: moved_method:Moved on digits")
    finally:
        forget(here)


def forget(code: Path) -> None:
    """Let a module be imported anew, as by the next process."""
    sys.modules.pop(code.stem, None)
    sys.path[:] = [folder for folder in sys.path if folder != str(code.parent)]


def test_members_that_came_later_have_models_and_means_are_of_the_same_members(tmp_path: Path) -> None:
    """A newcomer's model is exported; a mean over those that were there is not compared with one over all."""
    changes = (MemberChange(round=2, kind="join", peers=(4,)),)
    scenario = Scenario(
        method="blade-fl",
        model="logistic",
        hyperparameters={"local_steps": 1},
        peers=4,
        rounds=5,
        admission="quorum",
        changes=changes,
        workers=1,
    )
    run_scenario(scenario, tmp_path / "run", RunOptions(keep_models=True))
    path = export(tmp_path / "model.safetensors", tmp_path / "run", "--member", 4)
    assert path.read_bytes() == (tmp_path / "run" / "models" / "member-4.safetensors").read_bytes()
    assert [row["receivers"] for row in read_metrics(tmp_path / "run")] == [4, 4, 5, 5, 5]
    for number, is_of_all in ((2, False), (3, True)):
        answer = ask("evaluate", tmp_path / "run", "--aggregate", "--round", number)
        assert (answer["is_same"], len(answer["sites"])) == (True, 5)
        assert answer["reported"]["accuracy"] == (answer["accuracy"] if is_of_all else None)
        assert answer["reported"]["test_accuracy"] == answer["test_accuracy"]


def test_the_common_model_has_what_members_add_to_frozen_weights(tmp_path: Path) -> None:
    run = tmp_path / "run"
    scenario = own_scenario("lora_task", rounds=ROUNDS, hyperparameters={"local_steps": 3, "adapters": "fedex"})
    assert not run_scenario(scenario, run, RunOptions())
    path = export(tmp_path / "model.safetensors", run, "--aggregate")
    model = LoraNet()
    before = model.first.base_layer.weight.clone()
    missing, unexpected = model.load_state_dict(safetensors.torch.load_file(path), strict=False)
    assert (set(missing), unexpected) == ({"first.base_layer.bias", "second.base_layer.bias"}, [])
    assert not before.equal(model.first.base_layer.weight)
    answer, row = ask("evaluate", run, "--aggregate"), list(read_metrics(run))[-1]
    assert answer["is_same"]
    assert answer["accuracy"] == row["taa_received"]
    assert ask("evaluate", run, "--file", path)["accuracies"] == answer["accuracies"]
    proven = CliRunner().invoke(
        app, ["model", "export", str(run), "--aggregate", "--passport", "--out", str(tmp_path / "proven.safetensors")]
    )
    assert proven.exit_code == 2
    assert "no passport proves this model: the chain holds what is added to first.base_layer.weight" in proven.output
    assert not [*tmp_path.glob("proven*")]


def test_a_node_s_folder_is_told_the_weights_with_which_models_began(tmp_path: Path) -> None:
    """Its genesis document has their hash alone, and what is frozen is on no chain and in no file of the node."""
    run, net, path = tmp_path / "run", tmp_path / "net", tmp_path / "begun.safetensors"
    safetensors.torch.save_file({name: value.clone() for name, value in LoraNet().state_dict().items()}, path)
    scenario = own_scenario("lora_task", weights=str(path))
    assert not run_scenario(scenario, run, RunOptions())
    for member in range(2):
        shutil.copytree(run / CHAIN_FOLDER, net / f"node-{member}" / "chain")
    with Store.open(run / CHAIN_FOLDER, read_only=True) as store:
        (net / GENESIS_FILE).write_bytes(store.genesis.encode())
    asked = ["evaluate", net, "--aggregate", "--task", scenario.task]
    refused = CliRunner().invoke(app, ["model", *map(str, asked)])
    assert refused.exit_code == 2
    assert "frozen parameters are those of a file" in refused.stderr
    assert ask(*asked, "--weights", path)["accuracy"] == ask("evaluate", run, "--aggregate")["accuracy"]


def test_weights_are_refused_where_no_model_begins_with_any(runs: Runs) -> None:
    result = CliRunner().invoke(app, ["model", "evaluate", str(runs / "net"), "--weights", "some.safetensors"])
    assert (result.exit_code, result.stdout) == (2, "")
    assert "weights some.safetensors: the models of this federation begin with no file" in result.stderr


@pytest.mark.parametrize("option", ["method", "task"])
def test_a_run_of_somebody_else_does_not_say_which_file_is_run(tmp_path: Path, option: str) -> None:
    """Its models are read; to be measured they take the run's own code, and so do those that the chain lacks."""
    run, code = tmp_path / "run", tmp_path / "run" / "theirs.py"
    with Store.create(run / CHAIN_FOLDER, genesis(4)):
        (run / SCENARIO_FILE).write_text(f'{option} = "{code}:Own"\n', encoding="utf-8")
        code.write_text(f"open({str(tmp_path / 'ran')!r}, 'w')", encoding="utf-8")
    models = open_models(run)
    with pytest.raises(ConfigurationError, match=f"the run's own code builds this model: --{option} {code}:Own runs"):
        models.learner()
    assert not (tmp_path / "ran").exists()
    given = {"method": "", "task": ""} | {option: f"{code}:Own"}
    with suppress(ConfigurationError):  # it holds no class, and no function
        open_models(run, "", given["task"], given["method"]).learner()
    assert (tmp_path / "ran").exists()
    sys.modules.pop("theirs", None)


def test_a_file_of_another_program_in_their_place_has_no_history(runs: Runs, tmp_path: Path) -> None:
    changed = tmp_path / "run"
    shutil.copytree(runs / "dfpl", changed)
    path = changed / "models" / "member-0.safetensors"
    path.write_bytes(b"".join(state_pieces(read_file(path).state)))
    answer = ask("evaluate", changed, "--member", 0)
    assert answer["accuracy"] == ask("evaluate", runs / "dfpl", "--member", 0)["accuracy"]
    assert answer["reported"] == {"accuracy": None, "test_accuracy": None}
    refused = CliRunner().invoke(app, ["model", "evaluate", str(changed), "--member", "0", "--round", "1"])
    assert refused.stderr == "fedchain: member 0's model is kept as it was after its last round, not after 1\n"


def test_pipes_are_not_waited_for_and_devices_not_read_to_their_end(runs: Runs, tmp_path: Path) -> None:
    """The folder may be somebody else's: a command waited for ever, or until the memory was full."""
    changed = tmp_path / "run"
    shutil.copytree(runs / "dfpl", changed)
    pipe, device = (changed / "models" / f"member-{member}.safetensors" for member in (0, 1))
    for path in (pipe, device):
        path.unlink()
    os.mkfifo(pipe)
    device.symlink_to("/dev/full")
    for path, words in ((pipe, ("--member", "0")), (device, ("--member", "1")), (pipe, ("--file", str(pipe)))):
        refused = CliRunner().invoke(app, ["model", "evaluate", str(changed), *words])
        said = f"fedchain: {path} cannot be read: it is a pipe or a device, and no file\n"
        assert (refused.exit_code, refused.stderr) == (2, said)


def test_a_large_common_model_is_written_and_measured_where_it_lies(
    runs: Runs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    models = open_models(runs / "fedavg")
    model = models.aggregate()
    write_file_of(model.pieces(), tmp_path / "first.safetensors")  # the first time, modules may be read
    tracemalloc.start()
    try:
        write_file_of(model.pieces(), tmp_path / "model.safetensors")
        found, size = tracemalloc.get_traced_memory()[1], (tmp_path / "model.safetensors").stat().st_size
    finally:
        tracemalloc.stop()
    assert found - io.DEFAULT_BUFFER_SIZE < size // 2, "one tensor at a time, and none of them copied"
    expected = measure_trained(models, models.learner(), model)
    monkeypatch.setattr("fedchain.simulator.trained.folders.MAPPED_SIZE", 0)
    learner = models.learner()
    built = [learner.client(member).index for member in range(PEERS)]
    first = weakref.ref(learner.client(0).model)
    learner.client(1)
    gc.collect()
    assert (built, first()) == ([0, 1, 2], None), "one at a time"
    assert measure_trained(models, learner, model) == expected
