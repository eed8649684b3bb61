"""``fedchain runs``: runs and nodes, each in its row, whatever state the others are in."""

import json
import os
import socket
import tomllib
from pathlib import Path
from typing import Any

import anyio
import pytest
from anyio import to_thread
from typer.testing import CliRunner, Result

from fedchain.chain.genesis import Genesis
from fedchain.chain.membership.amendment import amendment_of
from fedchain.chain.membership.change import propose_amendment
from fedchain.chain.storage.sqlite import Store
from fedchain.cli.main import app
from fedchain.files.layout import ADDRESS_FILE, CHAIN_FOLDER, DATABASE, GENESIS_FILE, SOCKET
from fedchain.node.folders import Row, find_rows
from fedchain.node.operating.status import answer_status
from fedchain.simulator.scenario import scenario_from_dict
from tests.support.chain.builders import UPDATE, ChainBuilder, genesis
from tests.support.chain.changes import approved, joining, living
from tests.support.chain.explored import write
from tests.support.node.shell import on_trio, until

LEARNING = (("dataset", '"digits"'), ("method", '"dfpl"'))


def run(*words: str | Path) -> Result:
    return CliRunner().invoke(app, [str(word) for word in words])


def simulated(place: Path, *, closed: int = 2, result: str | None = '{"violations": []}', tail: str = "") -> Path:
    """A folder as a simulation leaves it."""
    place.mkdir(parents=True)
    (place / "scenario.toml").write_text('method = "fedavg"\ndataset = "digits"\npeers = 4\nrounds = 2\n')
    rows = [json.dumps({"round": number, "taa": number / 4}) for number in range(1, closed + 1)]
    (place / "metrics.jsonl").write_text("\n".join(rows) + "\n" + tail)
    if result is not None:
        (place / "result.json").write_text(result)
    return place


def chained(place: Path, document: Genesis, blocks: int) -> Path:
    """A node's data folder with so many blocks."""
    builder = ChainBuilder(document)
    with Store.create(place / CHAIN_FOLDER, document) as store:
        for block in builder.extend_many(blocks):
            store.append([builder.final(block)])
    (place / ADDRESS_FILE).write_text("{}")
    return place


# runs


def test_a_run_says_what_it_was_and_how_far_it_came(tmp_path: Path) -> None:
    simulated(tmp_path / "one")
    (row,) = find_rows(tmp_path)
    assert (row.folder, row.kind, row.state) == (str(tmp_path / "one"), "simulation", "finished")
    assert (row.method, row.data, row.peers, row.rounds, row.of, row.accuracy) == ("fedavg", "digits", 4, 2, 2, 0.5)


@pytest.mark.parametrize(
    ("given", "state", "rounds"),
    [
        ({"result": None, "closed": 1}, "open", 1),
        ({"result": None, "closed": 1, "tail": '{"round": 2, "ta'}, "open", 1),
        ({"result": None, "closed": 0}, "open", 0),
        ({"result": '{"violations": ["two heads"]}'}, "broken", 2),
    ],
)
def test_a_run_that_was_interrupted_or_broke_a_promise(
    tmp_path: Path, given: dict[str, Any], state: str, rounds: int
) -> None:
    simulated(tmp_path / "one", **given)
    (row,) = find_rows(tmp_path)
    assert (row.state, row.rounds) == (state, rounds)


def test_of_amendments_of_the_end_the_one_that_begins_last_counts(tmp_path: Path) -> None:
    """The newest was taken, whenever it begins."""
    scenario = simulated(tmp_path / "one", result=None, closed=1) / "scenario.toml"
    late, soon = "round = 2, begin = 9, values = { rounds = 12 }", "round = 3, values = { rounds = 30 }"
    text = f'rounds = 8\nchanges = [{{ kind = "amend", {late} }}, {{ kind = "amend", {soon} }}]\n'
    scenario.write_text(text)
    (row,) = find_rows(tmp_path)
    assert row.of == scenario_from_dict(tomllib.loads(text)).last_round == 12


@pytest.mark.parametrize(("given", "end"), [({"result": None, "closed": 1}, 7), ({"closed": 2}, 2)])
def test_a_run_whose_end_members_move(tmp_path: Path, given: dict[str, Any], end: int) -> None:
    scenario = simulated(tmp_path / "one", **given) / "scenario.toml"
    later, sooner = (
        '[[changes]]\nround = {}\nkind = "amend"\nvalues = {{ rounds = {} }}\n'.format(*at) for at in ((3, 7), (2, 9))
    )
    scenario.write_text(scenario.read_text().replace("rounds = 2", "rounds = 5") + later + sooner)
    (row,) = find_rows(tmp_path)
    assert row.of == end


def test_a_damaged_run_hides_no_other_and_the_newest_is_first(tmp_path: Path) -> None:
    for age, name in enumerate(("new", "old")):
        place = simulated(tmp_path / "deep" / name)
        for file in place.iterdir():
            os.utime(file, (1_000_000 - age, 1_000_000 - age))
    damaged = simulated(tmp_path / "damaged", result="{")
    (damaged / "scenario.toml").write_text("=")
    rows = find_rows(tmp_path)
    assert [Path(row.folder).name for row in rows] == ["damaged", "new", "old"]
    assert rows[0].state.startswith("cannot be read: ")
    assert "\n" not in rows[0].state


@pytest.mark.parametrize(
    "text",
    ["rounds = inf\n", 'changes = [{ round = 2, kind = "amend", values = { rounds = inf } }]\n', "changes = [3]\n"],
)
def test_a_run_whose_scenario_says_no_number_hides_no_other(tmp_path: Path, text: str) -> None:
    simulated(tmp_path / "one")
    (simulated(tmp_path / "two") / "scenario.toml").write_text(text)
    assert sorted(row.state[:15] for row in find_rows(tmp_path)) == ["cannot be read:", "finished"]


@pytest.mark.parametrize("accuracy", ['"x"', "1" + 400 * "0", "NaN", "-1", "[]"])
def test_a_run_whose_accuracy_is_no_number_hides_no_other(tmp_path: Path, accuracy: str) -> None:
    simulated(tmp_path / "one")
    (simulated(tmp_path / "two") / "metrics.jsonl").write_text(f'{{"round": 1, "taa": {accuracy}}}\n')
    states = sorted(row.state for row in find_rows(tmp_path))
    assert states[0].startswith("cannot be read: taa is ")
    assert states[1:] == ["finished"]


@pytest.mark.parametrize(("blocks", "rounds", "state"), [(3, 1, "open"), (4, 2, "finished"), (0, 0, "open")])
def test_a_test_network_is_a_run_with_the_rounds_of_its_chain(
    tmp_path: Path, blocks: int, rounds: int, state: str
) -> None:
    document = genesis(4, phases=(UPDATE, UPDATE), rounds=2, learning=LEARNING)
    (tmp_path / GENESIS_FILE).write_bytes(document.encode())
    chained(tmp_path / "node-0", document, blocks)
    chained(tmp_path / "node-1", document, 0)
    row, *_ = find_rows(tmp_path)
    assert (row.kind, row.method, row.data, row.peers) == ("testnet", "dfpl", "digits", 4)
    assert (row.rounds, row.of, row.state, row.accuracy) == (rounds, 2, state, None)


def test_a_federation_whose_end_was_put_off_is_not_finished(tmp_path: Path) -> None:
    builder = living(rounds=3, learning=LEARNING)
    change = approved(builder, propose_amendment(amendment_of({"rounds": 5}), "", sequence=0, until=9))
    builder.extend(changes=sorted([change, joining(builder, 5)], key=lambda item: item.hash))
    builder.extend_many(2)
    with Store.create(tmp_path / CHAIN_FOLDER, builder.genesis) as store:
        write(store, builder)
    (tmp_path / ADDRESS_FILE).write_text("{}")
    (row,) = find_rows(tmp_path)
    assert (row.kind, row.state, row.rounds, row.of, row.peers) == ("node", "stopped", 3, 5, 6)


def test_the_accuracy_of_a_test_network_is_the_mean_of_its_nodes_newest(tmp_path: Path) -> None:
    document = genesis(4, learning=LEARNING)
    (tmp_path / GENESIS_FILE).write_bytes(document.encode())
    for number, accuracies in enumerate(((0.25, 0.5), (1.0,), ())):
        node = chained(tmp_path / f"node-{number}", document, 0)
        lines = [json.dumps({"height": 1, "training": {"round": 1, "accuracy": item}}) for item in accuracies]
        (node / "timeline.jsonl").write_text("\n".join([*lines, '{"height": 3}', '{"heig']))
    row, *_ = find_rows(tmp_path)
    assert row.accuracy == 0.75


def test_to_look_at_a_test_network_is_no_change_of_it(tmp_path: Path) -> None:
    document = genesis(4, learning=LEARNING)
    for age, name in enumerate(("new", "old")):
        (tmp_path / name).mkdir()
        (tmp_path / name / GENESIS_FILE).write_bytes(document.encode())
        chained(tmp_path / name / "node-0", document, 1)
        os.utime(tmp_path / name / "node-0" / CHAIN_FOLDER / DATABASE, (1_000_000 - age, 1_000_000 - age))
    for _ in range(2):
        rows = find_rows(tmp_path)
        assert [(Path(row.folder).name, row.modified_s) for row in rows] == [("new", 1_000_000), ("old", 999_999)]


def test_what_only_the_log_of_a_chain_has_is_a_change(tmp_path: Path) -> None:
    document = genesis(4, learning=LEARNING)
    (tmp_path / GENESIS_FILE).write_bytes(document.encode())
    builder = ChainBuilder(document)
    database = chained(tmp_path / "node-0", document, 0) / CHAIN_FOLDER / DATABASE
    with Store.open(database.parent) as store:
        store.append([builder.final(builder.extend())])
        os.utime(database, (1_000_000, 1_000_000))
        os.utime(database.with_name(f"{DATABASE}-wal"), (2_000_000, 2_000_000))
        row, *_ = find_rows(tmp_path)
        assert row.modified_s == 2_000_000


def test_the_command_lists_runs_in_words_and_for_programs(tmp_path: Path) -> None:
    simulated(tmp_path / "one")
    answer = json.loads(run("runs", tmp_path, "--json").stdout)
    assert [(row["method"], row["accuracy"]) for row in answer] == [("fedavg", 0.5)]
    _, line = run("runs", tmp_path).stdout.splitlines()
    assert all(word in line for word in ("fedavg", "2 of 2", "50.0 %", "finished"))
    assert line.endswith(str(tmp_path / "one"))
    assert run("runs", tmp_path / "one" / "nothing").exit_code == 2
    (tmp_path / "empty").mkdir()
    assert run("runs", tmp_path / "empty").stdout == f"no run or node in {tmp_path / 'empty'}\n"


@pytest.mark.parametrize("text", [r'method = "fed\u001b[31mavg"', r'dataset = "digits\nnode  fedavg"'])
def test_what_a_stranger_wrote_into_a_run_neither_colours_nor_adds_a_line(tmp_path: Path, text: str) -> None:
    (simulated(tmp_path / "one") / "scenario.toml").write_text(text)
    said = run("runs", tmp_path).stdout
    assert len(said.splitlines()) == 2
    assert all(letter.isprintable() for letter in said.replace("\n", "")), said


# nodes


class Running:
    """A node that answers."""

    def status(self) -> dict[str, Any]:
        facts: dict[str, Any] = {"pid": 7, "chain_id": "ab" * 32, "address": "12D3KooWabcdefgh"}
        return facts | {"height": 2, "peers": ["x", "y"], "waiting_for": "a nonce", "accuracy": 0.75}


def test_nodes_that_run_have_stopped_or_cannot_be_read(tmp_path: Path) -> None:
    document = genesis(4)
    running, stopped, damaged = (chained(tmp_path / name, document, 2) for name in ("running", "stopped", "damaged"))
    (damaged / CHAIN_FOLDER / DATABASE).write_bytes(b"not a database")
    Store.create(simulated(tmp_path / "run") / CHAIN_FOLDER, document).close()
    rows: list[Any] = []

    @on_trio
    async def ask() -> None:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(answer_status, running, Running())
            await until(lambda: (running / SOCKET).exists(), "a socket")
            rows.extend(await to_thread.run_sync(find_rows, tmp_path))
            tasks.cancel_scope.cancel()

    ask()
    by_name = {Path(row.folder).name: row for row in rows}
    kinds = {name: row.kind for name, row in by_name.items()}
    assert kinds == {"run": "simulation", "running": "node", "stopped": "node", "damaged": "node"}
    now = by_name["running"]
    assert (now.state, now.pid, now.height, now.connected, now.waiting_for) == ("running", 7, 2, 2, "a nonce")
    assert now.accuracy == 0.75, "the node knows it before its timeline does"
    before = by_name["stopped"]
    assert (before.state, before.pid, before.height, before.rounds) == ("stopped", None, 2, 2)
    assert before.chain_id == document.chain_id.hex()
    assert stopped.name in before.folder
    assert by_name["damaged"].state.startswith("cannot be read: ")


def test_a_node_that_is_there_and_does_not_answer_is_not_called_stopped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An operator may start a stopped one a second time."""
    monkeypatch.setattr("fedchain.node.operating.status.CLIENT_TIMEOUT_S", 0.05)
    chained(tmp_path / "node", genesis(4), 1)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "node" / SOCKET))
        listener.listen()
        (row,) = find_rows(tmp_path)
    assert row.state.startswith(f"the node in {tmp_path / 'node'} gave no answer within ")
    (row,) = find_rows(tmp_path)
    assert row.state == "stopped", "a socket at which nobody listens is left of a node that was killed"


def test_a_stopped_node_of_a_finished_federation_says_so(tmp_path: Path) -> None:
    for name, blocks in (("finished", 2), ("before", 1)):
        chained(tmp_path / name, genesis(4, rounds=2), blocks)
    before, finished = find_rows(tmp_path)
    assert (before.state, before.height, before.rounds) == ("stopped", 1, 1)
    assert (finished.state, finished.height, finished.rounds) == ("finished", 2, 2)


def test_a_test_network_stands_for_its_nodes_until_it_is_asked_for_itself(tmp_path: Path) -> None:
    document, network = genesis(4, rounds=2, learning=LEARNING), tmp_path / "net"
    for number in (10, 9):
        chained(network / f"node-{number}", document, 1)
    (network / GENESIS_FILE).write_bytes(document.encode())
    assert [row.kind for row in find_rows(tmp_path)] == ["testnet"]
    assert [(row.kind, Path(row.folder).name) for row in find_rows(network)] == [
        ("testnet", "net"),
        *(("node", "node-9"), ("node", "node-10")),
    ]


def test_the_command_lists_nodes_in_words_and_for_programs(tmp_path: Path) -> None:
    chained(tmp_path / "node", genesis(4, learning=LEARNING), 1)
    (answer,) = json.loads(run("runs", tmp_path, "--json").stdout)
    assert (answer["kind"], answer["state"], answer["height"]) == ("node", "stopped", 1)
    _, line = run("runs", tmp_path).stdout.splitlines()
    assert line.split()[:6] == ["node", "dfpl", "digits", "4", "1", "-"]
    assert line.split()[-2:] == ["stopped", str(tmp_path / "node")]


def test_a_run_that_goes_on_is_shown_with_its_rounds_of_all_and_what_it_waits_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    row = Row("a", "node", "running", 0.0, method="dfpl", peers=5, rounds=3, of=10, pid=7, waiting_for="posts")
    monkeypatch.setattr("fedchain.node.folders.find_rows", lambda folder: [row])
    _, line = run("runs", tmp_path).stdout.splitlines()
    assert "  3 of 10  " in line
    assert "  running, process 7, waits for posts  a" in line
