import json
import sqlite3
import subprocess
import sys
from contextlib import closing
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest
import typer
from starlette.testclient import TestClient
from typer.testing import CliRunner, Result

from fedchain.chain.encoding import decode
from fedchain.chain.evidence import Evidence
from fedchain.chain.explorer import block_views
from fedchain.chain.explorer.history import Entry
from fedchain.chain.explorer.views import BlockView
from fedchain.chain.genesis import Genesis
from fedchain.chain.roster import Roster
from fedchain.chain.state import genesis_state
from fedchain.chain.storage.database import DATABASE
from fedchain.chain.storage.sqlite import Store
from fedchain.chain.storage.store import Candidate
from fedchain.chain.transition import judge_final
from fedchain.cli.explorer import explorer_app
from fedchain.crypto.address import address
from fedchain.crypto.hashing import sha256
from fedchain.crypto.keys import is_valid_signature
from fedchain.files.layout import SOCKET
from fedchain.node.membership.account import proposed
from tests.support.chain.builders import ChainBuilder, double_vote, genesis
from tests.support.chain.changes import joining, living
from tests.support.chain.explored import FakeRules, finals
from tests.support.chain.explored import write as write_chain
from tests.support.cli_explored import GENESIS, write
from tests.support.cli_explored import chain as chain
from tests.support.cli_explored import run_folder as run_folder
from tests.support.cli_explorer import explore
from tests.support.web.lying import lying
from tests.support.web.site import HOME, site


def explore_json(*arguments: object) -> Any:
    result = explore(*arguments, "--json")
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


# --- answers


def test_every_command_speaks_json(run_folder: Path, chain: ChainBuilder) -> None:
    head, post = chain.blocks[chain.tip], chain.blocks[chain.tip].transactions[0]
    status = explore_json("status", run_folder)
    assert (status["chain_id"], status["height"], status["head"]) == (GENESIS.chain_id.hex(), 3, head.hash.hex())
    assert [block["height"] for block in explore_json("blocks", run_folder, "--limit", 2)] == [3, 2]
    block = explore_json("block", run_folder, 3)
    assert block["header"]["knowledge_root"] == head.header.knowledge_root.hex()
    assert block == explore_json("block", run_folder, head.hash.hex()[:12])
    assert explore_json("tx", run_folder, post.hash.hex())["post"]["payload_hash"] == post.payload_hash.hex()
    assert explore_json("peer", run_folder, address(post.sender))["posts"] == 3
    assert len(explore_json("round", run_folder, 3)["missing"]) == 1
    knowledge = explore_json("knowledge", run_folder)
    assert (knowledge["round"], knowledge["prototypes"][1]["norm"]) == (3, 2.0)
    assert explore_json("knowledge", run_folder, 1)["round"] == 1
    proof = explore_json("proof", run_folder, post.hash.hex()[:16])
    assert (proof["block_hash"], proof["merkle"]["leaf"]) == (head.hash.hex(), post.hash.hex())
    assert sha256(bytes.fromhex(proof["header_bytes"])) == head.hash
    assert [check["verdict"] for check in explore_json("verify", run_folder)["blocks"]] == ["ok"] * 3
    members = explore_json("members", run_folder)
    assert [(row["number"], row["address"]) for row in members] == [*enumerate(map(address, GENESIS.members))]
    assert sum(row["posts"] for row in members) == status["posts"]


def test_members_are_named_by_number_and_address_everywhere(run_folder: Path, chain: ChainBuilder) -> None:
    post = chain.blocks[chain.tip].transactions[0]
    number, sender = GENESIS.index[post.sender], address(post.sender)
    for arguments in (("block", 3), ("round", 3)):
        assert f" {number} …{sender[-8:]} " in explore(arguments[0], run_folder, *arguments[1:]).stdout
    assert f"{sender} (peer {number})" in explore("tx", run_folder, post.hash.hex()).stdout
    assert f"   {number}  {sender}  " in explore("members", run_folder).stdout
    assert explore_json("peer", run_folder, number) == explore_json("peer", run_folder, sender)
    assert_refused(explore("peer", run_folder, 4), "no member 4: their numbers are 0 to 3")


def test_height_0_is_the_genesis_document(run_folder: Path) -> None:
    shown = explore("block", run_folder, 0).stdout
    assert f"{'chain id':28}{GENESIS.chain_id.hex()}\n" in shown
    assert f"{'member 3':28}{address(GENESIS.members[3])}\n" in shown
    answer = explore_json("block", run_folder, 0)
    assert (answer["height"], answer["chain_id"], answer["name"]) == (0, GENESIS.chain_id.hex(), GENESIS.name)
    assert answer["members"][3] == {"number": 3, "address": address(GENESIS.members[3])}
    assert answer["learning"] == {name: json.loads(text) for name, text in GENESIS.learning}
    assert answer.keys() >= {item.name for item in fields(Genesis) if item.init}


def test_a_test_networks_folder_names_its_chains(tmp_path: Path, chain: ChainBuilder) -> None:
    write(tmp_path / "node-10" / "chain", chain)
    assert_refused(explore("status", tmp_path), f"{tmp_path} holds 1 chain; name {tmp_path / 'node-10'}")
    write(tmp_path / "node-2" / "chain", chain)
    (tmp_path / "other").mkdir()
    for command in (("status",), ("members",), ("block", 1)):
        expected = f"{tmp_path} holds 2 chains; name one of {tmp_path / 'node-2'}, {tmp_path / 'node-10'}"
        assert_refused(explore(command[0], tmp_path, *command[1:]), expected)
    assert explore_json("status", tmp_path / "node-2")["height"] == 3


def test_the_blocks_are_limited(run_folder: Path) -> None:
    assert len(explore("blocks", run_folder, "--limit", 1).stdout.splitlines()) == 2
    assert len(explore("blocks", run_folder).stdout.splitlines()) == 4


def test_times_of_a_simulated_chain_count_from_its_start(tmp_path: Path) -> None:
    simulated = ChainBuilder(genesis(4, created_ms=0))
    block = simulated.extend()
    certificate = simulated.certificate(block, clock_ms=3_723_000)
    with Store.create(tmp_path, simulated.genesis) as store:
        store.append([simulated.final(block, certificate)])
    (tmp_path / "scenario.toml").touch()
    output = explore("status", tmp_path).stdout
    assert "time            +1:02:03\n" in output
    assert "GMT" not in output


def test_what_a_run_s_scenario_simulates_has_no_dates_whatever_its_founding(tmp_path: Path) -> None:
    simulated = ChainBuilder(genesis(4))
    with Store.create(tmp_path / "run" / "chain", simulated.genesis) as store:
        store.append([simulated.final(simulated.extend())])
    (tmp_path / "run" / "scenario.toml").touch()
    for folder in (tmp_path / "run", tmp_path / "run" / "chain"):
        assert "GMT" not in explore("status", folder).stdout
    (tmp_path / "run" / "scenario.toml").unlink()
    assert "GMT" in explore("status", tmp_path / "run").stdout


def test_a_finished_federation_shows_its_last_round(tmp_path: Path) -> None:
    chain = ChainBuilder(genesis(4, rounds=2))
    chain.extend_many(2)
    write(tmp_path, chain)
    lines = [line.split() for line in explore("status", tmp_path).stdout.splitlines()]
    assert [line for line in lines if line[0] in ("round", "phase", "finished")] == [
        ["round", "2"],
        ["phase", "–"],
        ["finished", "yes"],
    ]
    assert_refused(explore("round", tmp_path, 3), "no block of round 3: the chain ended with round 2")
    assert_refused(explore("knowledge", tmp_path, 3), "no knowledge of round 3: the chain ended with round 2")


@pytest.mark.parametrize("digits", [19, 23, 5_000])
def test_a_number_larger_than_any_is_refused_in_a_line(run_folder: Path, digits: int) -> None:
    number = "9" * digits
    assert_refused(explore("block", run_folder, number), "no block has a hash that begins with '9999")
    assert explore("peer", run_folder, number).exit_code == 2
    if digits < 5_000:  # the terminal's own parser refuses what is longer
        assert_refused(explore("round", run_folder, number), f"no block of round {number}: the chain is in round 4")
        assert_refused(explore("knowledge", run_folder, number), f"no knowledge of round {number}")
        assert len(explore_json("blocks", run_folder, "--limit", number)) == 3


def test_an_empty_chain_has_no_blocks(tmp_path: Path) -> None:
    write(tmp_path, ChainBuilder(GENESIS))
    assert explore("blocks", tmp_path).stdout == "none\n"
    assert explore("verify", tmp_path).exit_code == 0


def test_names_from_others_cannot_drive_the_terminal(tmp_path: Path) -> None:
    write(tmp_path, ChainBuilder(genesis(4, name="[red]a\x1b[2Jb[/red]")))
    assert "[red]a\N{REPLACEMENT CHARACTER}[2Jb[/red]" in explore("status", tmp_path).stdout


def test_convictions_are_a_table_of_who_did_what_and_where_it_is_proven(tmp_path: Path) -> None:
    chain = ChainBuilder(genesis(7))
    chain.extend()
    chain.extend(evidence=[double_vote(chain.key(chain.genesis.members[1]), chain.genesis, 1)])
    write(tmp_path, chain)
    culprit = address(chain.genesis.members[1])
    for arguments in (("status",), ("block", 2)):
        output = explore(arguments[0], tmp_path, *arguments[1:]).stdout
        assert f"…{culprit[-8:]}  two different precommits at height 1, attempt 0       2" in output
        assert max(len(line) for line in output.splitlines()) <= 80
    assert f"member  {culprit}" in explore("peer", tmp_path, culprit).stdout


def test_clocks_that_are_years_off_are_shown(tmp_path: Path) -> None:
    chain = ChainBuilder(GENESIS)
    block = chain.extend()
    voters = GENESIS.members[:3]
    clocks_ms = {voters[0]: 0, voters[1]: 2**48, voters[2]: 2**48}
    with Store.create(tmp_path, GENESIS) as store:
        store.append([chain.final(block, chain.certificate(block, voters, clock_ms=clocks_ms))])
    output = explore("block", tmp_path, 1).stdout
    assert "+3238136 d 7:18:30" in output
    assert "-3257812 d 5:31:50" in output
    assert explore("status", tmp_path).exit_code == 0


def test_only_what_reads_knowledge_asks_for_the_rules(run_folder: Path, chain: ChainBuilder) -> None:
    def refuse(genesis: Genesis) -> FakeRules:
        raise AssertionError("the rules import torch")

    app, post = explorer_app(lambda methods: refuse), chain.blocks[chain.tip].transactions[0]
    for arguments in (
        ["status"],
        ["blocks"],
        ["block", "2"],
        ["tx", post.hash.hex()],
        ["peer", address(post.sender)],
        ["round", "1"],
        ["proof", post.hash.hex()],
    ):
        result = CliRunner().invoke(app, [arguments[0], str(run_folder), *arguments[1:]])
        assert result.exit_code == 0, result.output


def test_a_method_without_prototypes_says_so(run_folder: Path) -> None:
    result = explore("knowledge", run_folder, rules=FakeRules(None))
    assert (result.exit_code, "no class prototypes" in result.stdout) == (0, True)


def test_the_folder_may_be_the_runs_or_the_chains(run_folder: Path) -> None:
    assert explore_json("status", run_folder) == explore_json("status", run_folder / "chain")


def test_a_chain_can_be_read_while_a_node_writes_it(run_folder: Path, chain: ChainBuilder) -> None:
    with Store.open(run_folder / "chain", GENESIS) as store:
        store.append([chain.final(chain.extend())])
        assert explore_json("status", run_folder)["height"] == 4


# --- verify, export


def test_verify_says_what_it_could_not_check(tmp_path: Path, chain: ChainBuilder) -> None:
    dropped = chain.blocks[chain.tip].transactions[0].payload_hash
    write(tmp_path, chain, without=(dropped,))
    result = explore("verify", tmp_path)
    assert result.exit_code == 0
    assert "3 blocks: 2 recomputed, 1 unchecked" in result.stdout
    assert "unchecked: at height 3 contents are missing; every rule but the aggregate holds" in result.stdout


def test_verify_names_many_unchecked_blocks_by_ranges(tmp_path: Path, chain: ChainBuilder) -> None:
    chain.extend_many(6)
    dropped = {1, 2, 3, 5, 8, 9}
    heights = {block.hash: block.header.height for block in chain.blocks.values()}
    posts = [post for block in chain.blocks.values() if heights[block.hash] in dropped for post in block.transactions]
    write(tmp_path, chain, without=tuple(post.payload_hash for post in posts))
    result = explore("verify", tmp_path)
    assert "9 blocks: 3 recomputed, 6 unchecked" in result.stdout
    assert "unchecked: at heights 1–3, 5, 8–9 contents are missing" in " ".join(result.stdout.split())


def test_verify_says_which_blocks_no_state_leads_to(tmp_path: Path, chain: ChainBuilder) -> None:
    records = finals(chain)
    with Store.create(tmp_path, GENESIS) as store:
        write_chain(store, chain, base=3)
        store.append([replace(records[1], state=b"")])
    result = explore("verify", tmp_path)
    assert (result.exit_code, "2 blocks: 1 recomputed, 1 unchecked" in result.stdout) == (0, True)
    assert "unchecked: at height 2 the state that says who may vote is not held" in result.stdout


def test_verify_names_what_is_damaged_and_exits_with_1(run_folder: Path) -> None:
    with closing(sqlite3.connect(run_folder / "chain" / DATABASE)) as connection, connection:
        connection.execute("UPDATE finals SET posts = 9 WHERE height = 2")
    result = explore("verify", run_folder)
    assert result.exit_code == 1
    assert "finals row with height 2 was altered" in result.stdout
    assert "3 blocks: 1 invalid, 2 recomputed" in result.stdout


RECORDS = {
    "genesis": "data",
    "finals": "block",
    "states": "data",
    "candidates": "data",
    "votes": "data",
    "posts": "data",
    "contents": "data",
}
"""A column of each table that holds what was received or computed."""


@pytest.mark.long
@pytest.mark.parametrize(("table", "column"), [*RECORDS.items(), ("finals", "certificate")])
def test_verify_notices_one_bit_in_any_record_or_content(tmp_path: Path, table: str, column: str) -> None:
    chain = ChainBuilder(GENESIS)
    chain.extend_many(3)
    with Store.create(tmp_path, GENESIS) as store:
        write_chain(store, chain)
        candidate = chain.extend()
        store.append([Candidate(candidate, True), candidate.transactions[0], chain.vote(GENESIS.members[0], candidate)])
    assert explore("verify", tmp_path).exit_code == 0
    with closing(sqlite3.connect(tmp_path / DATABASE)) as connection:
        rows = connection.execute(f"SELECT rowid, {column} FROM {table}").fetchall()
    assert rows, table
    for row, data in rows:
        with closing(sqlite3.connect(tmp_path / DATABASE)) as connection, connection:
            flipped = (int.from_bytes(data, "big") ^ 1 << 4 * len(data)).to_bytes(max(1, len(data)), "big")
            connection.execute(f"UPDATE {table} SET {column} = ? WHERE rowid = ?", (flipped, row))
        result = explore("verify", tmp_path)
        assert result.exit_code in (1, 2), (table, row)
        assert "altered" in result.output
        assert "all as they were written" not in result.output
        with closing(sqlite3.connect(tmp_path / DATABASE)) as connection, connection:
            connection.execute(f"UPDATE {table} SET {column} = ? WHERE rowid = ?", (data, row))
    assert explore("verify", tmp_path).exit_code == 0


@pytest.mark.parametrize("options", [[], ["--json"]])
def test_verify_exits_with_1_when_a_block_is_invalid(tmp_path: Path, chain: ChainBuilder, options: list[str]) -> None:
    chain.keep(chain.remake(chain.blocks[chain.tip], knowledge_root=sha256(b"wrong")))
    write(tmp_path, chain)
    result = explore("verify", tmp_path, *options)
    assert result.exit_code == 1
    assert "knowledge root" in result.stdout
    assert f"{sha256(b'wrong').hex()[:8]}" in result.stdout


def test_export_writes_the_knowledge_and_the_chain(run_folder: Path, tmp_path: Path, chain: ChainBuilder) -> None:
    out = tmp_path / "a" / "b"
    result = explore("export", run_folder, "--out", out)
    assert (result.exit_code, result.stderr) == (0, "")
    knowledge = chain.contents[chain.states[chain.tip].knowledge_root]
    assert (out / "knowledge.safetensors").read_bytes() == b"tensors:" + knowledge
    lines = [json.loads(line) for line in (out / "chain.jsonl").read_text().splitlines()]
    assert [line["summary"]["height"] for line in lines] == [1, 2, 3]
    assert lines[2] == explore_json("block", run_folder, 3)


@pytest.mark.parametrize("existing", ["knowledge.safetensors", "chain.jsonl"])
def test_export_overwrites_nothing(run_folder: Path, tmp_path: Path, existing: str) -> None:
    (tmp_path / existing).write_text("precious")
    result = explore("export", run_folder, "--out", tmp_path)
    assert_refused(result, f"{tmp_path / existing} exists already")
    assert (tmp_path / existing).read_text() == "precious"
    assert not list(tmp_path.glob("*.safetensors" if existing == "chain.jsonl" else "*.jsonl"))


def test_an_export_that_fails_leaves_nothing(run_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = block_views.view_block

    def fail(store: Store, entry: Entry, roster: Roster | None) -> BlockView:
        if entry.block.header.height == 3:
            raise OSError(28, "No space left on device")
        return real(store, entry, roster)

    monkeypatch.setattr("fedchain.chain.explorer.explorer.view_block", fail)
    assert_refused(explore("export", run_folder, "--out", tmp_path / "out"), "No space left")
    assert list((tmp_path / "out").iterdir()) == []


def test_export_of_a_chain_without_knowledge_writes_nothing(tmp_path: Path) -> None:
    write(tmp_path / "chain", ChainBuilder(GENESIS))
    assert_refused(explore("export", tmp_path, "--out", tmp_path / "out"), "no knowledge of round 1")
    assert not (tmp_path / "out").exists()


# --- bad input


def assert_refused(result: Result, message: str, code: int = 2) -> None:
    """One line on stderr and an exit code."""
    assert result.exit_code == code
    assert isinstance(result.exception, SystemExit)
    assert result.stdout == ""
    (line,) = result.stderr.splitlines()
    assert line.startswith("fedchain: ")
    assert message in line


@pytest.mark.parametrize("options", [[], ["--json"]])
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["block", "4"], "no block at height 4: the chain has heights 1 to 3"),
        (["block", "ffffffff"], "no block has a hash that begins with 'ffffffff'"),
        (["tx", "nonsense"], "no transaction has a hash that begins with 'nonsense'"),
        (["proof", "ff"], "at least 4 digits"),
        (["peer", "nobody"], "'nobody' is not"),
        (["round", "7"], "no block of round 7"),
        (["knowledge", "7"], "no knowledge of round 7"),
    ],
)
def test_an_unknown_name_is_one_line(run_folder: Path, arguments: list[str], message: str, options: list[str]) -> None:
    assert_refused(explore(arguments[0], run_folder, *arguments[1:], *options), message)


def test_a_wrong_folder_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("text")
    assert_refused(explore("status", tmp_path / "nowhere"), f"{tmp_path / 'nowhere'} is not a folder")
    assert_refused(explore("status", tmp_path / "file"), f"{tmp_path / 'file'} is not a folder")
    assert_refused(explore("status", tmp_path), f"{tmp_path} holds no chain")


@pytest.mark.parametrize(
    ("damage", "message", "verify_code"),
    [
        (lambda data: data[: len(data) // 2], DATABASE, 1),
        (lambda data: b"\xff" * len(data), "not a database", 1),
        (
            lambda data: data[:60] + (77).to_bytes(4, "big") + data[64:],
            "store version 77, this program reads version 2",
            2,
        ),
        (lambda data: data[:60] + (1).to_bytes(4, "big") + data[64:], "found a new federation", 2),
        (lambda data: data.replace(GENESIS.encode()[:40], bytes(40)), "was altered", 1),
    ],
)
def test_a_damaged_store_is_one_line(run_folder: Path, damage: Any, message: str, verify_code: int) -> None:
    path = run_folder / "chain" / DATABASE
    path.write_bytes(damage(path.read_bytes()))
    assert_refused(explore("status", run_folder), message)
    assert_refused(explore("verify", run_folder), message, verify_code)


def test_a_damaged_head_is_one_line_with_what_to_do(run_folder: Path) -> None:
    with closing(sqlite3.connect(run_folder / "chain" / DATABASE)) as connection, connection:
        connection.execute("DELETE FROM finals WHERE height = 3")
    result = explore("status", run_folder)
    assert_refused(result, "the highest block is at height 2, the last state is the one before height 3")
    assert_refused(result, f"; start the node, or run: fedchain node repair {run_folder / 'chain'}")


def test_importing_the_commands_is_cheap() -> None:
    code = "import sys, fedchain.cli.explorer; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert "fedchain.cli.explorer" in loaded
    assert not {"numpy", "torch", "rich.table", "rich.console"} & set(loaded)


def test_every_command_has_help() -> None:
    names = [
        "status",
        "blocks",
        "block",
        "tx",
        "members",
        "peer",
        "round",
        "knowledge",
        "proof",
        "verify",
        "export",
        "serve",
        "report",
    ]
    app = typer.main.get_group(explorer_app(lambda methods: lambda genesis: FakeRules()))
    assert sorted(app.commands) == sorted(names)
    assert all(command.help for command in app.commands.values())


# --- explorers elsewhere


def test_what_an_explorer_serves_is_verified_by_certificates(run_folder: Path, chain: ChainBuilder) -> None:
    trusted, forged = GENESIS.chain_id.hex(), {"/api/v1/run/light/3": lambda body: body.replace(b'"bytes":"95c4', b"")}
    with TestClient(site(run_folder).app, base_url=HOME) as client:
        with lying(client, {}) as address:
            shown = explore("verify", f"{address}#{trusted}")
            found = explore_json("verify", f"{address}#{trusted}")
            other = explore("verify", f"{address}#{'00' * 32}")
        with lying(client, forged) as address:
            spoilt = explore("verify", address)
            told = explore("verify", address, "--json")
    assert (shown.exit_code, len(shown.stdout.splitlines())) == (0, 5)
    assert f"verified    height 3, block {chain.tip.hex()}; 1 server has it" in shown.stdout
    assert (found["height"], found["block_hash"], found["is_compared"]) == (3, chain.tip.hex(), True)
    assert (other.exit_code, other.stdout[:20]) == (1, "NOT VERIFIED: chain:")
    assert spoilt.exit_code == 1
    assert "NOT VERIFIED: answer" in spoilt.stdout
    assert (told.exit_code, [*json.loads(told.stdout)]) == (1, ["error"])


def test_two_explorers_that_contradict_each_other_show_the_evidence(
    run_folder: Path, chain: ChainBuilder, tmp_path: Path
) -> None:
    twin = ChainBuilder(GENESIS)
    twin.extend_many(3, payload_of=7)
    write(tmp_path / "twin" / "chain", twin)
    with (
        TestClient(site(run_folder).app, base_url=HOME) as one,
        TestClient(site(tmp_path / "twin").app, base_url=HOME) as other,
        lying(one, {}) as first,
        lying(other, {}) as second,
    ):
        shown = explore("verify", first, second)
        found = explore("verify", first, second, "--json")
    assert (shown.exit_code, found.exit_code) == (1, 1)
    signers = [address(member) for member in sorted(GENESIS.members)[:3]]
    first_line, *others = shown.stdout.splitlines()
    assert first_line.startswith("NOT VERIFIED: height 3 has two certified blocks, ")
    assert others == [f"signed both   {signer}" for signer in signers]
    answer = json.loads(found.stdout)
    assert answer["signers"] == signers
    crimes = [Evidence.from_record(decode(bytes.fromhex(item), 2**12)) for item in answer["evidence"]]
    assert [address(crime.culprit) for crime in crimes] == signers
    assert all(bytes.fromhex(answer["blocks"][place]) for place in (0, 1))
    builder = ChainBuilder(GENESIS)
    builder.extend(evidence=crimes[:1])
    audit = judge_final(
        GENESIS,
        genesis_state(GENESIS),
        builder.blocks[builder.tip],
        builder.certificate(builder.tip),
        None,
        is_valid_signature,
    )
    assert [address(crime.culprit) for crime in audit.convicted] == signers[:1]


def test_folders_are_judged_one_at_a_time_and_a_silent_server_is_a_line(run_folder: Path) -> None:
    assert_refused(explore("verify", run_folder, run_folder), "2 folders are named")
    assert_refused(explore("verify", run_folder, "http://127.0.0.1:1/"), "is not the address of an explorer")
    assert_refused(explore("verify", "http://127.0.0.1:1/"), "http://127.0.0.1:1/ does not answer: ")


def test_members_are_followed_by_what_is_proposed_as_a_running_node_tells(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    builder = living(5)
    builder.extend_many(2)
    change = joining(builder, 5, 2, text="clinic", until=9)
    folder = tmp_path / "node"
    with Store.create(folder / "chain", builder.genesis) as store:
        write_chain(store, builder)
    told = proposed(builder.genesis, builder.state, [change], [])
    monkeypatch.setattr("fedchain.node.operating.status.ask", lambda folder, question: told)
    assert "joins" not in explore("members", folder).output, "no node runs there"
    (folder / SOCKET).touch()
    lines = explore("members", folder).output.splitlines()
    assert lines[-2:] == [
        "waits for a block, or for approval",
        f"{change.hash.hex()[:8]}  {address(change.member)} joins (clinic): 2 of 4 approve (peer 0, peer 1); "
        "not yet: peer 2, peer 3, peer 4, until height 9",
    ]
    assert "joins" not in explore("peer", folder, 1).output
    assert len(explore_json("members", folder)) == 5
