"""`fedchain model export --passport` and `fedchain passport verify`: a model that travels without its chain."""

from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from fedchain.cli.main import app
from fedchain.simulator.choices import RunOptions
from fedchain.simulator.console import run_scenario
from fedchain.simulator.scenario import Scenario


def run(*words: object) -> Result:
    return CliRunner().invoke(app, [str(word) for word in words])


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs")
    for method in ("fedavg", "scaffold"):
        scenario = Scenario(
            method=method, peers=2, rounds=2, hyperparameters={"local_steps": 1}, mining_attempts=4, model="digits-mlp"
        )
        run_scenario(scenario, folder / method, RunOptions(keep_models=True))
    return folder


@pytest.mark.parametrize(("method", "after"), [("fedavg", 2), ("scaffold", 1)])
def test_a_model_is_exported_with_its_passport_and_verified_elsewhere(
    folder: Path, tmp_path: Path, method: str, after: int
) -> None:
    out = tmp_path / "model.safetensors"
    done = run("model", "export", folder / method, "--aggregate", "--round", after, "--passport", "--out", out)
    assert (done.exit_code, len(done.stdout.splitlines())) == (0, 2)
    shown = run("passport", "verify", out)
    assert shown.exit_code == 0
    first, model, block, *_ = shown.stdout.splitlines()
    assert first.startswith("federation  digits, 2 members; chain id ")
    assert f"6 tensors with 6,570 numbers: what round {after} left behind (by update of round {after})" in model
    assert block.startswith(f"verified    block {after}, ")
    proof = out.with_name("model.safetensors.passport.json")
    proof.write_bytes(proof.read_bytes().replace(b'"version": "0', b'"version": "1'))
    refused = run("passport", "verify", proof)
    assert (refused.exit_code, refused.stdout[:23]) == (1, "NOT VERIFIED: checksum:")


def test_what_cannot_be_proven_is_one_line(folder: Path, tmp_path: Path) -> None:
    out = tmp_path / "model.safetensors"
    own = run("model", "export", folder / "fedavg", "--member", 0, "--passport", "--out", out)
    assert (own.exit_code, own.stderr) == (
        2,
        "fedchain: --passport proves what is on the chain, and only the --aggregate is\n",
    )
    out.with_name("model.safetensors.passport.json").write_text("mine")
    twice = run("model", "export", folder / "fedavg", "--aggregate", "--passport", "--out", out)
    assert twice.exit_code == 2
    assert "passport.json exists already; nothing is overwritten" in twice.stderr
    assert not out.exists()
    gone = run("passport", "verify", tmp_path / "none.safetensors")
    assert (gone.exit_code, gone.stderr.count("\n")) == (2, 1)
    assert "none.safetensors.passport.json: No such file or directory" in gone.stderr


def test_a_full_disk_leaves_no_model_without_its_passport(folder: Path, tmp_path: Path) -> None:
    out = tmp_path / "model.safetensors"
    out.with_name("model.safetensors.passport.json.unfinished").symlink_to("/dev/full")
    full = run("model", "export", folder / "fedavg", "--aggregate", "--passport", "--out", out)
    assert (full.exit_code, full.stderr.count("\n"), full.stdout) == (2, 1, "")
    assert "model.safetensors.passport.json: No space left on device" in full.stderr
    assert not [path.name for path in tmp_path.iterdir() if path.name.startswith("model")]
