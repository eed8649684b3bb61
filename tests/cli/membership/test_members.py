"""``fedchain node members`` and its neighbours: the running node's answers, and one line where there is none."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
import pytest
from anyio import to_thread
from typer.testing import CliRunner, Result

from fedchain.cli.node import node_app
from fedchain.node.config import NodeConfigError
from fedchain.node.membership.account import account
from fedchain.node.operating.status import answer_status
from tests.support.chain.changes import living
from tests.support.node.shell import on_trio

QUESTIONS = {
    ("approve", "clinic"): {"ask": "approve", "which": "clinic"},
    ("amend", "away_after=5", "rounds=9"): {"ask": "amend", "values": ["away_after=5", "rounds=9"]},
    ("leave",): {"ask": "leave"},
    ("away",): {"ask": "away"},
    ("back",): {"ask": "back"},
    ("rekey",): {"ask": "rekey"},
    ("remove", "3", "gone mad"): {"ask": "remove", "member": "3", "reason": "gone mad"},
}
"""The words that are typed but for the folder, and the question to the node."""


class Clerk:
    """Has the account of a chain, says yes to what is its folder's only, and notes the questions."""

    def __init__(self) -> None:
        self.asked: list[Any] = []

    def status(self) -> dict[str, Any]:
        return {}

    def answer(self, asked: Any) -> dict[str, Any] | None:
        self.asked.append(asked)
        if asked == {"ask": "members"}:
            chain = living()
            return account(chain.genesis, chain.state, [], [])
        if asked == {"ask": "back"}:
            raise NodeConfigError("this member is active, and not away")
        return {"said": f"done: {asked['ask']}"}


def run(folder: Path, name: str, *words: str) -> Result:
    return CliRunner().invoke(node_app, [name, str(folder), *words])


@on_trio
async def test_each_command_asks_the_node_and_shows_its_answer(tmp_path: Path) -> None:
    clerk = Clerk()

    async def typed(name: str, *words: str) -> Result:
        call: Callable[[], Result] = lambda: run(tmp_path, name, *words)  # noqa: E731
        return await to_thread.run_sync(call)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(answer_status, tmp_path, clerk, None, clerk)
        while (shown := await typed("members")).exit_code:
            await anyio.sleep(0.01)
        assert "members     5 of 5 count, a quorum is 4" in shown.stdout
        assert json.loads((await typed("members", "--json")).stdout)["quorum"] == 4
        for (name, *words), question in QUESTIONS.items():
            result = await typed(name, *words)
            assert clerk.asked[-1] == question
            if name == "back":
                assert result.exit_code == 2
                assert result.stderr.endswith("answered: this member is active, and not away\n")
            else:
                assert (result.exit_code, result.stdout) == (0, f"done: {name}\n")
        tasks.cancel_scope.cancel()


@pytest.mark.parametrize("words", [("members",), *QUESTIONS], ids=lambda words: words[0])
def test_a_node_that_does_not_run_is_said_in_one_line(tmp_path: Path, words: tuple[str, ...]) -> None:
    name, *rest = words
    result = run(tmp_path, name, *rest)
    assert result.exit_code == 2
    assert result.stderr == f"fedchain: no node answers in {tmp_path}; is it running?\n"
