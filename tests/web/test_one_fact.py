"""One fact has one figure, wherever it is read: pages, their interface, commands, files of a run, and Python."""

import json
import random
import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

import fedchain
from fedchain.chain.storage.sqlite import Store
from fedchain.simulator.disturbances import Clock, Traitors
from fedchain.simulator.scenario import Scenario
from fedchain.web.formats import filters
from tests.support.cli_shell import run
from tests.support.simulator.trivial import TrivialRules, trivial_genesis, trivial_scenario, trivial_simulation
from tests.support.web.pages import text_of
from tests.support.web.site import HOME, site

LIARS = (
    "clock-liar",
    "double-voter",
    "post-equivocator",
    "random-voter",
    "sibling-miner",
    "silent",
    "stale-lock-voter",
)


def rows_of(page: str, within: str) -> list[list[str]]:
    """The texts of the cells of the last table in a section of a page, row by row."""
    section = page.partition(f'<section id="{within}"')[2].partition("</section>")[0]
    body = section.rpartition("<tbody>")[2].partition("</tbody>")[0]
    rows = re.findall(r"<tr.*?</tr>", body, flags=re.DOTALL)
    return [[re.sub("<[^>]*>", "", cell).strip() for cell in re.findall("<td.*?</td>", row, re.DOTALL)] for row in rows]


def cell(page: str, name: str) -> str:
    """The text of a figure of a page."""
    (found,) = re.findall(f"<dt>{name}</dt><dd>(.*?)</dd>", page)
    return re.sub("<[^>]*>", "", found).strip()


@pytest.mark.parametrize(
    "seed", [pytest.param(seed, marks=pytest.mark.slow if seed > 2 else pytest.mark.long) for seed in range(10)]
)
def test_figures_of_members_are_the_sums_over_the_pages_of_the_blocks(tmp_path: Path, seed: int) -> None:
    """Two members of seven lie, drawn anew for each run; another one's clock is wrong."""
    draw = random.Random(seed)
    traitors = tuple(Traitors(behaviour=draw.choice(LIARS), peers=(peer,)) for peer in draw.sample(range(1, 7), 2))
    clocks = (Clock(peers=(0,), offset_s=0.2),)
    scenario = trivial_scenario(peers=7, rounds=4, seed=seed, adversaries=traitors, clocks=clocks)
    with Store.create(tmp_path / "run" / "chain", trivial_genesis(scenario)) as store:
        trivial_simulation(scenario, store=store).run()
    summed = {name: Counter[str]() for name in ("votes", "posts", "mined")}
    with TestClient(site(tmp_path / "run", rules=lambda genesis: TrivialRules()).app, base_url=HOME) as client:
        answer = client.get("/api/v1/run/status").json()
        for height in range(1, answer["height"] + 1):
            page = text_of(client, f"/run/block/{height}")
            summed["votes"].update(row[0].split()[0] for row in rows_of(page, "certificate") if row[1] == "yes")
            summed["posts"].update(row[0].split()[0] for row in rows_of(page, "posts") if len(row) > 1)
            summed["mined"][cell(page, "miner").split()[0]] += 1
        members = rows_of(text_of(client, "/run/members"), "members")
    assert [row[0] for row in members] == [str(peer) for peer in range(7)]
    for peer, _, _, posts, votes, _, mined, *_ in members:
        assert (votes, posts, mined) == tuple(str(summed[name][peer]) for name in ("votes", "posts", "mined"))
    assert sum(summed["votes"].values()) > 0


def asked(*words: object) -> Any:
    """The JSON that a command of the explorer prints."""
    result = run("explorer", *map(str, words), "--json")
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


@pytest.mark.long
def test_pages_interface_commands_files_and_python_say_the_same(tmp_path: Path) -> None:
    """A run in which one member is silent and another one votes twice."""
    liars = (Traitors(behaviour="silent", peers=(5,)), Traitors(behaviour="double-voter", peers=(6,)))
    settings = {"model": "logistic", "proof_function": "sha256d", "hyperparameters": {"local_steps": 2}}
    scenario = Scenario(method="fedavg", peers=7, rounds=3, adversaries=liars, **settings)  # type: ignore[arg-type]
    folder, percent = tmp_path / "run", filters()["percent"]
    found = fedchain.simulate(scenario=scenario, out=folder, keep_models=False)
    metrics = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    result = json.loads((folder / "result.json").read_text())
    with TestClient(site(folder).app, base_url=HOME) as client:
        pages = {name: text_of(client, f"/run/{name}") for name in ("", "rounds", "members", "blocks")}
        status, members = (client.get(f"/api/v1/run/{name}").json() for name in ("status", "members"))
        shown_rounds = [text_of(client, f"/run/round/{row.round}") for row in found.rounds]
        shown_members = [text_of(client, f"/run/member/{peer}") for peer in range(7)]

    told = asked("status", folder)
    assert told == {name: status[name] for name in told}
    assert found.tip == status["head"] == result["tip"] == found.chain.status().head.hex()
    assert (
        status["height"] == metrics[-1]["height"] == found.rounds[-1].height == len(rows_of(pages["blocks"], "blocks"))
    )

    by_round = {row[0]: row for row in rows_of(pages["rounds"], "rounds")}
    assert [row.to_dict() for row in found.rounds] == metrics
    for row, page in zip(found.rounds, shown_rounds, strict=True):
        assert cell(page, "posts") == by_round[str(row.round)][2] == str(row.posts)
        assert cell(page, "accuracy") == by_round[str(row.round)][4] == percent(row.taa)
        assert len(asked("round", folder, row.round)["transactions"]) == row.posts
        accuracies = [item.accuracy for item in found.members if item.round == row.round]
        assert sum(accuracies) / len(accuracies) == pytest.approx(row.taa)
        assert min(accuracies) == row.taa_worst

    newest = {item.member: percent(item.accuracy) for item in found.members}  # by round: the last one stays
    by_member = {row[0]: row for row in rows_of(pages["members"], "members")}
    commands = asked("members", folder)
    for peer, page in enumerate(shown_members):
        _, _, accuracy, posts, votes, _, mined, *_ = by_member[str(peer)]
        assert accuracy == cell(page, "accuracy") == newest.get(peer, "–")
        for name, value in (("posts", posts), ("votes", votes), ("blocks_mined", mined)):
            one = asked("peer", folder, peer)
            assert value == str(members[peer][name]) == str(commands[peer][name]) == str(one[name])
            assert value in re.split(r"\s", cell(page, name.replace("blocks_mined", "blocks mined")))
