import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner, Result

from fedchain.chain.explorer.cli import explorer_app
from fedchain.chain.explorer.tables import MATRIX_SIZE_MAX
from fedchain.chain.storage.sqlite import DATABASE, Store
from fedchain.chain.storage.store import Content
from fedchain.crypto.address import address
from fedchain.crypto.hashing import sha256
from tests.chain.builders import ChainBuilder, genesis
from tests.chain.test_explorer import FakeRules, Summary

GENESIS = genesis(4)


def write(folder: Path, chain: ChainBuilder, *, without: tuple[bytes, ...] = ()) -> None:
    with Store.create(folder, chain.genesis) as store:
        store.append([*chain.blocks.values(), *chain.votes(chain.tip)])
        store.append([Content(key, data) for key, data in chain.contents.items() if key not in without])


@pytest.fixture
def chain() -> ChainBuilder:
    builder = ChainBuilder(GENESIS)
    builder.extend_many(2)
    builder.extend(posts=builder.posts(members=GENESIS.members[:2]))
    return builder


@pytest.fixture
def run_folder(tmp_path: Path, chain: ChainBuilder) -> Path:
    write(tmp_path / "run" / "chain", chain)
    return tmp_path / "run"


def explore(*arguments: object, rules: FakeRules | None = None) -> Result:
    app = explorer_app(lambda genesis: rules or FakeRules())
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


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
    assert len(explore_json("round", run_folder, 3)["missing"]) == 2
    knowledge = explore_json("knowledge", run_folder)
    assert (knowledge["round"], knowledge["prototypes"][1]["norm"]) == (3, 2.0)
    assert explore_json("knowledge", run_folder, 1)["round"] == 1
    proof = explore_json("proof", run_folder, post.hash.hex()[:16])
    assert (proof["block_hash"], proof["merkle"]["leaf"]) == (head.hash.hex(), post.hash.hex())
    assert [check["verdict"] for check in explore_json("verify", run_folder)["blocks"]] == ["ok"] * 3


def test_the_tables_say_the_same_within_80_columns(run_folder: Path, chain: ChainBuilder) -> None:
    head, post = chain.blocks[chain.tip], chain.blocks[chain.tip].transactions[0]
    short, sender = f"{head.hash.hex()[:8]}…", address(post.sender)
    for arguments, expected in {
        ("status",): [GENESIS.chain_id.hex()[:32], "Tue, 14 Nov 2023 22:13:35 GMT (+15.0 s)", "0x207fffff"],
        ("blocks",): [short, "+15.0 s", "4.0 s", "…" + address(GENESIS.members[0])[-8:]],
        ("block", "3"): [head.hash.hex()[:32], f"…{sender[-8:]}", "on head chain  yes"],
        ("tx", post.hash.hex()): [post.payload_hash.hex()[:32], "32 B", sender, head.hash.hex()[:32]],
        ("peer", sender): [sender, "blocks mined", "96 B"],
        ("round", "3"): [short, "missing", f"…{address(GENESIS.members[3])[-8:]}"],
        ("knowledge",): ["holders", "1.500", "0.25"],
        ("proof", post.hash.hex()): ["The proof holds.", head.header.transactions_root.hex()[:32]],
        ("verify",): ["3 ok", "valid           yes"],
    }.items():
        result = explore(arguments[0], run_folder, *arguments[1:])
        assert (result.exit_code, result.stderr) == (0, "")
        for part in expected:
            assert part in result.stdout, arguments
        assert max(len(line) for line in result.stdout.splitlines()) <= 80


def test_the_blocks_are_limited(run_folder: Path) -> None:
    assert len(explore("blocks", run_folder, "--limit", 1).stdout.splitlines()) == 2
    assert len(explore("blocks", run_folder).stdout.splitlines()) == 4


def test_times_of_a_simulated_chain_count_from_its_start(tmp_path: Path) -> None:
    simulated = ChainBuilder(genesis(4, created_ms=0))
    simulated.extend(timestamp_ms=3_723_000)
    write(tmp_path, simulated)
    output = explore("status", tmp_path).stdout
    assert "timestamp       +1:02:03 " in output
    assert "GMT" not in output


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


def test_an_empty_chain_has_no_blocks(tmp_path: Path) -> None:
    write(tmp_path, ChainBuilder(GENESIS))
    assert explore("blocks", tmp_path).stdout == "none\n"
    assert explore("verify", tmp_path).exit_code == 0


def test_names_from_others_cannot_drive_the_terminal(tmp_path: Path) -> None:
    write(tmp_path, ChainBuilder(genesis(4, name="[red]a\x1b[2Jb[/red]")))
    assert "[red]a\N{REPLACEMENT CHARACTER}[2Jb[/red]" in explore("status", tmp_path).stdout


def test_many_classes_leave_their_cosines_to_json(run_folder: Path) -> None:
    count = MATRIX_SIZE_MAX + 1
    many = Summary(range(count), [1] * count, [1.0] * count, [[0.125] * count] * count)
    output = explore("knowledge", run_folder, rules=FakeRules(many)).stdout
    assert "--json has their cosines" in output
    assert "0.12" not in output


def test_a_method_without_prototypes_says_so(run_folder: Path) -> None:
    result = explore("knowledge", run_folder, rules=FakeRules(None))
    assert (result.exit_code, "no class prototypes" in result.stdout) == (0, True)


def test_the_folder_may_be_the_runs_or_the_chains(run_folder: Path) -> None:
    assert explore_json("status", run_folder) == explore_json("status", run_folder / "chain")


def test_a_chain_can_be_read_while_a_node_writes_it(run_folder: Path, chain: ChainBuilder) -> None:
    with Store.open(run_folder / "chain", GENESIS) as store:
        block = chain.extend()
        store.append([block, *chain.votes(block.hash)])
        assert explore_json("status", run_folder)["height"] == 4


# --- verify, export


def test_verify_says_what_it_could_not_check(tmp_path: Path, chain: ChainBuilder) -> None:
    dropped = chain.blocks[chain.tip].transactions[0].payload_hash
    write(tmp_path, chain, without=(dropped,))
    result = explore("verify", tmp_path)
    assert result.exit_code == 0
    assert "2 ok, 1 unchecked" in result.stdout
    assert "unchecked: at height 3 contents are missing; every rule but the aggregate holds" in result.stdout


def test_verify_names_many_unchecked_blocks_by_ranges(tmp_path: Path, chain: ChainBuilder) -> None:
    chain.extend_many(6)
    dropped = {1, 2, 3, 5, 8, 9}
    heights = {block.hash: block.header.height for block in chain.blocks.values()}
    posts = [post for block in chain.blocks.values() if heights[block.hash] in dropped for post in block.transactions]
    write(tmp_path, chain, without=tuple(post.payload_hash for post in posts))
    result = explore("verify", tmp_path)
    assert "3 ok, 6 unchecked" in result.stdout
    assert "unchecked: at heights 1–3, 5, 8–9 contents are missing" in " ".join(result.stdout.split())


@pytest.mark.parametrize("options", [[], ["--json"]])
def test_verify_exits_with_1_when_a_block_is_invalid(tmp_path: Path, chain: ChainBuilder, options: list[str]) -> None:
    wrong = chain.remake(chain.blocks[chain.tip], knowledge_root=sha256(b"wrong"))
    del chain.blocks[chain.tip]
    chain.keep(wrong)
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


def test_export_of_a_chain_without_knowledge_writes_nothing(tmp_path: Path) -> None:
    write(tmp_path / "chain", ChainBuilder(GENESIS))
    assert_refused(explore("export", tmp_path, "--out", tmp_path / "out"), "no knowledge of round 1")
    assert not (tmp_path / "out").exists()


# --- bad input


def assert_refused(result: Result, message: str) -> None:
    """One line on stderr and exit code 2."""
    assert result.exit_code == 2
    assert isinstance(result.exception, SystemExit)
    assert result.stdout == ""
    (line,) = result.stderr.splitlines()
    assert line.startswith("fedchain explorer: ")
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
    ("damage", "message"),
    [
        (lambda data: data[: len(data) // 2], DATABASE),
        (lambda data: b"\xff" * len(data), "not a database"),
        (
            lambda data: data[:60] + (77).to_bytes(4, "big") + data[64:],
            "store version 77, this program reads version 1",
        ),
        (lambda data: data.replace(GENESIS.encode()[:40], bytes(40)), "was altered"),
    ],
)
def test_a_damaged_store_is_one_line(run_folder: Path, damage: Any, message: str) -> None:
    path = run_folder / "chain" / DATABASE
    path.write_bytes(damage(path.read_bytes()))
    for command in ("status", "verify"):
        assert_refused(explore(command, run_folder), message)


def test_importing_the_commands_is_cheap() -> None:
    code = "import sys, fedchain.chain.explorer.cli; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert "fedchain.chain.explorer.cli" in loaded
    assert not {"numpy", "torch", "rich.table", "rich.console"} & set(loaded)


def test_every_command_has_help() -> None:
    names = ["status", "blocks", "block", "tx", "peer", "round", "knowledge", "proof", "verify", "export"]
    app = typer.main.get_group(explorer_app(lambda genesis: FakeRules()))
    assert sorted(app.commands) == sorted(names)
    assert all(command.help for command in app.commands.values())
