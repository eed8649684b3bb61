"""The scenario of a simulated run on its pages."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import tomli_w
from starlette.testclient import TestClient

from fedchain.simulator.disturbances import Trouble
from fedchain.simulator.scenario import ScenarioError, load_scenario
from fedchain.web.course.scenario import moments, peers_text, read_scenario, rows_of, span_text
from fedchain.web.pages.blocks import timed_blocks
from tests.support.web.builders import document, learning_chain, write_run
from tests.support.web.pages import text_of
from tests.support.web.site import HOME, site

SETTINGS = {
    "peers": 4,
    "hyperparameters": {"local_epochs": 2},
    "faults": [
        {"at_s": 12.0, "kind": "crash", "peers": [1]},
        {"at_s": 31.0, "kind": "restart", "peers": [1]},
        {"at_s": 33.0, "kind": "partition", "peers": [0, 2]},
        {"at_s": 900.0, "kind": "heal"},
    ],
    "clocks": [{"peers": [2], "offset_s": 20.0}],
    "adversaries": [{"behaviour": "label-flipper", "peers": [3]}],
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Five rounds of 10 s each."""
    folder = write_run(
        tmp_path_factory.mktemp("runs") / "a run", learning_chain(document(), 5), (0.5, 0.7, 0.8, 0.9, 1)
    )
    (folder / "scenario.toml").write_text(tomli_w.dumps(SETTINGS))
    return folder


@pytest.fixture(scope="module")
def client(folder: Path) -> TestClient:
    return TestClient(site(folder).app, base_url=HOME)


def test_the_overview_tells_the_scenario_and_the_command_that_repeats_it(client: TestClient, folder: Path) -> None:
    shown = text_of(client, "/a-run/").partition('id="scenario"')[2].partition("</section>")[0]
    path = folder / "scenario.toml"
    assert f"fedchain simulate &#39;{path}&#39;</pre>" in shown
    assert load_scenario(path, {}).faults, "the command would run it"
    assert "<b>peer 1</b> down from 12.0 s to 31.0 s, rounds" in shown
    assert "<b>peers 0, 2</b> cut off from the others from 33.0 s to 0:15:00" in shown
    assert "<b>peer 2</b> wrong by the clock: +20 s from the beginning" in shown
    assert "<b>peer 3</b> not following the protocol: label-flipper from the beginning" in shown
    changed, _, defaults = shown.partition("<summary>Defaults</summary>")
    assert "<dt>local_epochs</dt><dd>2</dd>" in changed
    assert "<dt>peers <small>Number of peers with data" in changed
    assert "<dt>rounds <small>Number of rounds, R.</small></dt><dd>10</dd>" in defaults


def test_settings_that_are_lists_are_told_in_words(tmp_path: Path) -> None:
    changes: list[dict[str, Any]] = [{"round": 2, "kind": "join", "peers": [4, 5], "reason": "Erin"}]
    changes += [{"round": 3, "kind": "amend", "values": {"rounds": 14, "difficulty_window": 9}, "begin": 6}]
    changes += [{"round": 3, "kind": "leave", "peers": [1]}] * 70
    (tmp_path / "scenario.toml").write_text(tomli_w.dumps({"changes": changes, "peers": 4}))
    found = read_scenario(tmp_path)
    assert found is not None
    told = {setting.name: setting.value for setting in (*found.changed, *found.others)}
    first, second, third, *_, last = told["changes"].split("; ")
    assert first == "round 2: join, peers 4, 5 (Erin)"
    assert second == "round 3: amend rounds 14, difficulty_window 9 from round 6 on"
    assert (third, last) == ("round 3: leave, peer 1", "and 8 more")
    assert told["hash_rates"] == "none"


def test_charts_and_timelines_mark_the_round_in_which_it_happened(client: TestClient) -> None:
    """Blocks become final at 10, 20, … virtual seconds."""
    chart = text_of(client, "/a-run/rounds")
    assert [chart.count(f'<path class="mark" d="M{place} 0V300">') for place in (250.0, 750.0)] == [1, 1]
    assert "<li>round 2: peer 1 down (12.0 s)</li>" in chart
    assert "<li>round 4: peer 1 up again (31.0 s); peers 0, 2 cut off from the others (33.0 s)</li>" in chart
    assert "connected again" not in chart, "the run was over"
    blocks = text_of(client, "/a-run/blocks")
    assert blocks.count('<path class="moment"') == 3
    assert "peer 1 down (12.0 s)" in text_of(client, "/a-run/block/2")
    assert "peer 1 down" not in text_of(client, "/a-run/block/3")


def test_a_moment_stands_on_the_bar_of_its_block_where_it_was(folder: Path) -> None:
    """The second block took from 10 to 20 s, the fourth from 30 to 40 s."""
    (shown,) = site(folder).chains.values()
    with shown.reading() as reading:
        found = {height: timed_blocks(shown, reading, height, height)[0].moments for height in (2, 3, 4)}
    ((place, text),) = found[2]
    assert (round(place, 3), text) == (200.0, "peer 1 down (12.0 s)")
    assert found[3] == ()
    assert [place for place, _ in found[4]] == pytest.approx([100.0, 300.0])


def test_a_member_s_page_tells_its_own_troubles(client: TestClient) -> None:
    assert "peer 1 down (12.0 s)" in text_of(client, "/a-run/member/1")
    third = text_of(client, "/a-run/member/3")
    assert "peer 1 down" not in third
    assert "not following the protocol: label-flipper" in third
    assert text_of(client, "/a-run/members").count(">label-flipper<") == 1


def test_a_chain_of_nodes_has_no_scenario(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "live", learning_chain(document(), 2), (0.5, 0.7))
    shown = text_of(TestClient(site(folder).app, base_url=HOME), "/live/")
    assert "scenario" not in shown
    assert read_scenario(folder) is None


def test_a_scenario_that_cannot_be_read_is_named_and_the_chain_is_shown(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run", learning_chain(document(), 2), (0.5, 0.7))
    (folder / "scenario.toml").write_text("peers = [")
    shown = text_of(TestClient(site(folder).app, base_url=HOME), "/run/")
    assert "A page met damage" in shown
    assert "is not TOML" in shown
    assert "simulated" in shown


@pytest.mark.parametrize("text", ["faults = [{at_s = nan, kind = 'heal'}]", "clocks = [{peers = [0], at_s = 1e99}]"])
def test_times_that_no_scenario_has_are_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "scenario.toml").write_text(text)
    with pytest.raises(ScenarioError, match="must be between 0 and 1,000"):
        read_scenario(tmp_path)


def test_the_folder_of_the_chain_itself_leads_to_the_scenario(tmp_path: Path) -> None:
    (tmp_path / "chain").mkdir()
    (tmp_path / "scenario.toml").write_text("peers = 3")
    found = read_scenario(tmp_path / "chain")
    assert found is not None
    assert [setting.name for setting in found.changed] == ["peers"]


def test_what_a_setting_is_stands_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "scenario.toml").write_text("peers = 3")
    found = read_scenario(tmp_path)
    assert found is not None
    assert all(setting.help.isprintable() for setting in (*found.changed, *found.others))


def test_words_for_peers_and_times() -> None:
    assert peers_text((3,)) == "peer 3"
    assert peers_text((0, 1, 2, 3, 7, 8)) == "peers 0 to 3, 7, 8"
    assert span_text(Trouble("slow", (1,), 2.0, None)) == "from 2.0 s on"
    (moment,) = moments([Trouble("down", (1,), 2.0, 2.0)])
    assert (moment.at_ms, moment.text) == (2_000, "peer 1 restarted")


def test_a_scenario_of_very_many_troubles_is_shown_in_part(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fedchain.web.course.scenario.TROUBLES_MAX", 3)
    run = write_run(tmp_path / "run", learning_chain(document(), 2))
    faults = [{"at_s": float(second), "kind": "slow", "peers": [1, 2], "factor": second + 2.0} for second in range(9)]
    (run / "scenario.toml").write_text(tomli_w.dumps({"faults": faults}))
    scenario = read_scenario(run)
    assert scenario is not None
    assert [item.begin_s for item in scenario.troubles] == [0.0, 1.0, 2.0]
    assert (scenario.of_peer(1), scenario.of_peer(0), scenario.left_out) == ([*scenario.troubles], (), 6)
    shown = text_of(TestClient(site(run).app, base_url=HOME), "/run/")
    assert "The first 3 of 9." in shown


def test_the_times_of_blocks_are_read_once_for_all_troubles() -> None:
    read = 0

    class Timed(SimpleNamespace):
        @property
        def time_ms(self) -> int:
            nonlocal read
            read += 1
            return 1_000 * int(self.height)

    lines: Any = [Timed(height=height, round=height) for height in range(1, 51)]
    found = [Trouble("slow", (1,), float(second), second + 0.5, "") for second in range(40)]
    assert [rounds for *_, rounds in rows_of(found, lines, 0)][:3] == [[1], [1, 2], [2, 3]]
    assert read == len(lines)


def test_what_went_wrong_before_the_lowest_block_that_is_held_was_in_no_round_that_is_known() -> None:
    lines: Any = [SimpleNamespace(height=height, round=height, time_ms=1_000 * height) for height in range(3, 7)]
    ((*_, rounds),) = rows_of([Trouble("slow", (1,), 0.5, 4.5, "")], lines, 0)
    assert rounds == [5]
