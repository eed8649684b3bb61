"""The view of a test network: it goes on when a node ends, and says what ended, came back, stands or was logged."""

import io
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from fedchain.node.config import NodeConfigError
from fedchain.node.operating import watch
from fedchain.node.operating.watch import Watch
from fedchain.terminal import Console

LACKS_VOTES = {"lacks": "votes", "needed": 3, "here": 2, "missing": ["c", "d"], "since_ms": 0}
STATUS: dict[str, Any] = {"height": 1, "head": "aa", "finished": False, "stands": None, "numbers": {"c": 2, "d": 3}}


@dataclass
class FakeNode:
    """A node whose next looks a test chooses: a status, or how it ended."""

    number: int
    folder: Path
    coming: list[dict[str, Any] | str]
    status: dict[str, Any] = field(default_factory=dict)
    ended: str = ""

    def look(self) -> dict[str, Any]:
        found = self.coming.pop(0) if len(self.coming) > 1 else self.coming[0]
        if isinstance(found, str):
            self.ended = found
        else:
            self.status, self.ended = STATUS | found, ""
        return self.status


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watch, "LOOK_EVERY_S", 0)


def watched(folder: Path, *coming: list[dict[str, Any] | str], shows_logs: bool = False) -> list[str]:
    """Lines that are printed until the end."""
    printed = io.StringIO()
    watch_all(folder, printed, *coming, shows_logs=shows_logs)
    return printed.getvalue().splitlines()


def watch_all(
    folder: Path, printed: io.StringIO, *coming: list[dict[str, Any] | str], shows_logs: bool = False
) -> None:
    nodes: list[Any] = [FakeNode(number, folder / str(number), list(looks)) for number, looks in enumerate(coming)]
    console = Console()
    console.file = printed
    Watch(nodes, console, shows_logs=shows_logs).until_finished(60)


DONE: dict[str, Any] = {"height": 2, "finished": True}


def test_the_others_go_on_when_a_node_ends_and_it_may_come_back(tmp_path: Path) -> None:
    found = watched(tmp_path, [{}, {}, {}, {}, DONE], [{}, "ended by signal 9", "ended by signal 9", {}, DONE])
    script = tmp_path / "1" / "start.sh"
    assert found == [
        "height 1",
        "node 1 ended by signal 9; start it again with",
        f"  {script} &",
        "node 1 runs again",
        "height 2",
    ]


def test_what_ended_is_waited_for_no_more(tmp_path: Path) -> None:
    assert watched(tmp_path, [{}, {}, DONE], [{}, "ended by signal 9"])[-1] == "height 2"


def test_nodes_that_have_finished_on_other_blocks_are_waited_for(tmp_path: Path) -> None:
    other = DONE | {"head": "bb"}
    assert watched(tmp_path, [other, other, other | {"height": 3}], [DONE, DONE, other])[-1] == "height 3"


def test_a_node_that_ends_at_its_start_ends_all(tmp_path: Path) -> None:
    with pytest.raises(NodeConfigError, match="node 1 ended with code 2: there is no such file"):
        watched(tmp_path, [{}], ["ended with code 2: there is no such file"])


def test_a_run_lasts_as_long_as_there_are_new_blocks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its time was counted from its start: of many rounds, each one closed soon, those after ten minutes were lost."""
    now_s = iter(range(0, 10_000, 25))  # seconds, of each time that it asks for them
    monkeypatch.setattr(time, "monotonic", now_s.__next__)
    rising: list[dict[str, Any] | str] = [{"height": height // 2} for height in range(40)]
    assert watched(tmp_path, [*rising, DONE | {"height": 20}])[-1] == "height 20"
    where = tmp_path / "0"
    with pytest.raises(NodeConfigError, match=rf"no node has a new block since 60 s \(timeout_s\); see {where}"):
        watched(tmp_path, [*rising, {"height": 20}])


def test_if_all_have_ended_there_is_nothing_to_watch(tmp_path: Path) -> None:
    with pytest.raises(NodeConfigError, match="all nodes have ended; node 0 ended by signal 15"):
        watched(tmp_path, [{}, "ended by signal 15"], [{}, {}, "ended by signal 2"])


def test_a_standstill_is_told_once_and_its_end_too(tmp_path: Path) -> None:
    stands = {"stands": LACKS_VOTES}
    found = watched(tmp_path, [{}, stands, stands, stands, {}, DONE], [{}, {}, stands, stands, {}, DONE])
    text = "stands still: votes of 3 members needed, 2 are here; missing: peer 2, peer 3"
    assert found == ["height 1", text, "goes on", "height 2"]


def test_a_standstill_in_which_all_end_does_not_go_on(tmp_path: Path) -> None:
    stands, printed = {"stands": LACKS_VOTES}, io.StringIO()
    with pytest.raises(NodeConfigError, match="all nodes have ended"):
        watch_all(tmp_path, printed, [{}, stands, "ended with code 0"], [{}, stands, "ended with code 0"])
    lines = printed.getvalue().splitlines()
    assert lines[1].startswith("stands still: ")
    assert "goes on" not in lines


def test_whole_lines_of_all_logs_are_shown_once(tmp_path: Path) -> None:
    for number in range(2):
        (tmp_path / str(number)).mkdir()
        (tmp_path / str(number) / "node.log").write_text(f"first of {number}\nsecond\nthird, not yet who", "utf-8")
    found = watched(tmp_path, [{}, DONE], [{}, DONE], shows_logs=True)
    assert found == ["node 0   first of 0", "node 0   second", "node 1   first of 1", "node 1   second"]


def test_a_log_may_be_emptied_or_moved_away_while_it_is_shown(tmp_path: Path) -> None:
    log = tmp_path / "0" / "node.log"
    log.parent.mkdir()
    log.write_text("first\nsecond, which is longer\n", "utf-8")

    class Rotated(FakeNode):
        """A node whose log is emptied before its second look, moved away before its third, and there at its last."""

        def look(self) -> dict[str, Any]:
            if len(self.coming) == 3:
                log.write_text("third\n", "utf-8")
            elif len(self.coming) == 2:
                log.rename(log.with_name("node.log.1"))
            elif self.coming[0] is DONE:
                log.write_text("third\nfourth\n", "utf-8")
            return super().look()

    printed, console = io.StringIO(), Console()
    console.file = printed
    node: Any = Rotated(0, log.parent, [{}, {}, {}, DONE])
    Watch([node], console, shows_logs=True).until_finished(60)
    shown = [line.removeprefix("node 0   ") for line in printed.getvalue().splitlines()]
    assert shown == ["first", "second, which is longer", "third", "fourth"]
