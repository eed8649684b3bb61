"""`fedchain node check`."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from fedchain.chain.genesis import Genesis
from fedchain.cli.main import app
from fedchain.node.config import NodeConfig
from tests.support.node.checked import config as config
from tests.support.node.checked import no_data as no_data


def run(config: NodeConfig, *more: str) -> Result:
    words = ["node", "check", "--genesis", config.genesis, "--key", config.key, "--data", config.data]
    return CliRunner().invoke(app, [*words, "--listen", config.listen, *more])


@pytest.mark.usefixtures("no_data")
def test_the_command_prints_a_line_for_each_and_exits_with_2_if_one_fails(config: NodeConfig) -> None:
    good = run(config)
    assert good.exit_code == 0, good.output
    assert [line.split()[0] for line in good.stdout.splitlines()].count("warn") == 2  # a plain key, and no bootstrap
    bad = run(config, "--set", "metrics=here")
    assert bad.exit_code == 2
    assert "fail  metrics    metrics is 'here', which is not of the form HOST:PORT" in bad.stdout.splitlines()
    assert bad.stderr == "fedchain: the node cannot start: metrics\n"


@pytest.mark.usefixtures("no_data")
def test_the_command_answers_programs_in_json(config: NodeConfig) -> None:
    answer = json.loads(run(config, "--json").stdout)
    assert answer["ok"] is True
    assert {item["outcome"] for item in answer["checks"]} == {"ok", "warn"}
    assert json.loads(run(config, "--json", "--set", "metrics=here").stdout)["ok"] is False


@pytest.mark.usefixtures("no_data")
def test_a_founding_document_of_a_stranger_does_not_speak_to_the_terminal(config: NodeConfig) -> None:
    path = Path(config.genesis)
    founded = Genesis.decode(path.read_bytes())
    task = dict(founded.learning) | {"method": json.dumps("fed\x1b[31mavg")}
    path.write_bytes(replace(founded, learning=tuple(sorted(task.items()))).encode())
    lines = run(config).stdout.split("\n")
    assert [line for line in lines if "fed\ufffd[31mavg" in line]
    assert all(line.isprintable() for line in lines), lines
