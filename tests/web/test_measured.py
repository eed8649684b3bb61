"""Measurements come from files, as far as they are whole."""

from pathlib import Path

from starlette.testclient import TestClient

from fedchain.chain.storage.sqlite import Store
from fedchain.crypto.address import address
from fedchain.files.layout import METRICS_FILE, TIMELINE_FILE
from fedchain.node.shell.timeline import SeenBlock, TimelineFile, TrainingResult
from fedchain.web.measured import MeasuredFile
from fedchain.web.seen import SeenFile
from tests.support.chain.builders import ChainBuilder
from tests.support.web.builders import write_run
from tests.support.web.pages import chain as chain
from tests.support.web.pages import client as client
from tests.support.web.pages import run as run
from tests.support.web.site import HOME, site


def test_what_a_stopped_network_measured_is_in_its_timelines(tmp_path: Path, chain: ChainBuilder) -> None:
    for number in range(2):
        folder = write_run(tmp_path / "net" / f"node-{number}", chain)
        (folder / "metrics.jsonl").unlink()
        for height in (1, 2):
            training = TrainingResult(height, (10 * (number + 6) + height) / 100, None)
            TimelineFile(folder / TIMELINE_FILE).add(SeenBlock(height, "ab", 100, 200, (), training))
        with Store.open(folder / "chain") as store:
            store.append([chain.blocks[chain.tip].transactions[number]])
    owners = [address(post.sender) for post in chain.blocks[chain.tip].transactions[:2]]
    client = TestClient(site(tmp_path / "net").app, base_url=HOME)
    assert [node["member"] for node in client.get("/api/v1/net/open").json()["nodes"]] == owners
    assert "72.0 %" in client.get(f"/net/member/{owners[1]}").text
    assert "67.0 %" in client.get("/compare").text
    shown = client.get("/net/").text
    assert "accuracy on each node&#39;s own test set" in shown
    assert "62.0 %" in shown


def test_measurements_that_are_damaged_are_left_out(tmp_path: Path, chain: ChainBuilder) -> None:
    folder = write_run(tmp_path / "run", chain, (0.5,))
    rows = [
        "nonsense",
        "[]",
        '{"round": "x"}',
        f'{{"round": {10**400}, "taa": 0.5}}',
        '{"round": -1, "taa": 0.5}',
        '{"round": 2, "taa": null}',
        '{"round": 3, "taa": NaN}',
        "[" * 9_999,
    ]
    with (folder / "metrics.jsonl").open("a") as file:
        file.write("\n".join(rows))
    shown = TestClient(site(folder).app, base_url=HOME).get("/run/rounds")
    assert shown.status_code == 200
    assert "50.0 %" in shown.text


def test_measurements_are_joined_anew_where_a_file_has_changed_alone(tmp_path: Path) -> None:
    """Folders are looked at several times a second, and a timeline of weeks has thousands of lines."""
    timeline, seen = TimelineFile(tmp_path / TIMELINE_FILE), SeenFile(tmp_path, 4)
    measured = MeasuredFile(tmp_path, seen)
    found = []
    for number in range(1, 3):
        timeline.add(SeenBlock(number, "ab", 100, 200, (), TrainingResult(number, number / 10, None)))
        for _ in range(2):
            seen.look()
            measured.look()
            found.append(measured.rounds)
    accuracies = [[item.values["taa"] for item in rounds.values()] for rounds in found]
    assert accuracies == [[0.1], [0.1], [0.1, 0.2], [0.1, 0.2]]
    (tmp_path / METRICS_FILE).write_text('{"round": 1, "tal": 0.75}', encoding="utf-8")
    measured.look()
    found.append(measured.rounds)
    assert found[-1][1].values == {"tal": 0.75, "taa": 0.1}
    assert len({id(rounds) for rounds in found}) == 3


def test_a_file_that_is_written_anew_makes_new_pages(tmp_path: Path, chain: ChainBuilder) -> None:
    folder = write_run(tmp_path / "run", chain, (0.5,))
    (shown,) = site(folder).chains.values()
    version = shown.look()
    assert shown.look() == version
    (folder / "metrics.jsonl").write_text('{"round": 1, "taa": 0.75}')
    assert shown.look() != version


def test_each_member_of_a_simulation_has_its_curve(tmp_path: Path, chain: ChainBuilder) -> None:
    """Lines that are damaged are left out, and so are members that nobody knows."""
    folder = write_run(tmp_path / "run", chain, (0.5, 0.75))
    (folder / "scenario.toml").touch()
    client = TestClient(site(folder).app, base_url=HOME)
    assert "writes the accuracy of each member when it is finished" in client.get("/run/member/1").text
    rows = [
        "round,member,accuracy,test_accuracy",
        "1,0,0.25,",
        "1,1,0.5,0.125",
        "2,1,0.625,",
        "2,1,nan,",
        "x",
        "2,99,1,1",
    ]
    (folder / "members.csv").write_text("\n".join(rows))
    client = TestClient(site(folder).app, base_url=HOME)
    shown = client.get("/run/member/1").text
    assert "62.5 %" in shown
    assert "12.5 %" in shown
    assert "when it is finished" not in shown
    liar = client.get("/run/member/3").text
    assert "when it is finished" not in liar, "it is"
    assert "The simulation measured no model of this member." in liar
    assert "25.0 %" in client.get("/run/members").text
    assert 'class="band"' in client.get("/run/").text
