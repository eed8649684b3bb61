"""The shell completes commands, options and names."""

import pytest
from typer.testing import CliRunner

from fedchain.cli.main import app


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("fedchain e", ["explorer"]),
        ("fedchain explorer st", ["status"]),
        ("fedchain reproduce --se", ["--seeds"]),
        ("fedchain simulate --method fedpr", ["fedproc", "fedproto", "fedprox"]),
        ("fedchain compare --methods dfpl,fedpr", ["dfpl,fedproc", "dfpl,fedproto", "dfpl,fedprox"]),
        ("fedchain simulate --dataset fash", ["fashion-mnist"]),
        ("fedchain genesis new g --partition n", ["n-way", "n-way-exact"]),
        ("fedchain simulate --set model=resnet18-2", ["model=resnet18-200"]),
        ("fedchain simulate --set fault_model=c", ["fault_model=crash"]),
        ("fedchain simulate --set aggregator=d", ["aggregator=dedicated"]),
        ("fedchain genesis new g --set proof_function=s", ["proof_function=scrypt", "proof_function=sha256d"]),
        ("fedchain genesis new g --set om", ["omission_slack_s="]),
        ("fedchain node testnet --set time", ["timeout_s="]),
        ("fedchain compare --set phase_f", ["phase_floor_s="]),
        ("fedchain attack inversion --set kno", ["known_pairs="]),
        ("fedchain simulate --set partition=n", ["partition=n-way", "partition=n-way-exact"]),
        ("fedchain genesis new g --set mod", ["model="]),
        ("fedchain genesis new g --set fault", ["fault_model="]),
        ("fedchain node testnet --set aggr", ["aggregator="]),
        ("fedchain simulate --set aggr", ["aggregator="]),
        ("fedchain compare --set fault", ["fault_model="]),
        ("fedchain plan --set rounds_m", ["rounds_max="]),
        ("fedchain attack inversion --set attac", ["attacker="]),
        ("fedchain node start --set log", ["log_format="]),
        ("fedchain methods fedpr", ["fedproc", "fedproto", "fedprox"]),
        ("fedchain reproduce dfpl-table1-f", ["dfpl-table1-fmnist"]),
    ],
)
def test_the_shell_completes_commands_options_and_names(words: str, expected: list[str]) -> None:
    count = str(len(words.split()) - 1)
    given = {"_FEDCHAIN_COMPLETE": "complete_bash", "COMP_WORDS": words, "COMP_CWORD": count}
    result = CliRunner().invoke(app, [], prog_name="fedchain", env=given)
    assert result.stdout.split() == expected
