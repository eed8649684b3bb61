"""Tables of the explorer."""

import re
from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console

from fedchain.chain.explorer.audit import BlockCheck, ChainAudit
from fedchain.chain.explorer.member_views import ChangeView, RoundPart
from fedchain.chain.membership.amendment import amendment_of
from fedchain.chain.membership.change import propose_amendment
from fedchain.chain.storage.sqlite import Store
from fedchain.cli.explorer_tables import MATRIX_SIZE_MAX, render
from fedchain.crypto.address import address
from tests.support.chain.builders import CREATED_MS, ChainBuilder, genesis
from tests.support.chain.changes import UNTIL, approved, living
from tests.support.chain.explored import FakeRules, Summary
from tests.support.chain.explored import write as write_chain
from tests.support.cli_explored import GENESIS, write
from tests.support.cli_explored import chain as chain
from tests.support.cli_explored import run_folder as run_folder
from tests.support.cli_explorer import explore


def test_the_tables_say_the_same_within_80_columns(run_folder: Path, chain: ChainBuilder) -> None:
    head, post = chain.blocks[chain.tip], chain.blocks[chain.tip].transactions[0]
    short, sender = f"{head.hash.hex()[:8]}…", address(post.sender)
    for arguments, expected in {
        ("status",): [
            GENESIS.chain_id.hex(),
            "Tue, 14 Nov 2023 22:13:50 GMT (+30.0 s)",
            "0x207fffff",
            "byzantine",
        ],
        ("blocks",): [short, "+30.0 s", "4.0 s", "…" + address(GENESIS.members[0])[-8:]],
        ("block", "3"): [
            head.hash.hex(),
            f"{GENESIS.index[post.sender]} …{sender[-8:]}",
            "final        yes",
            "quorum        3",
            "+0.000 s",
        ],
        ("tx", post.hash.hex()): [post.payload_hash.hex(), "32 B", sender, head.hash.hex()],
        ("peer", sender): [sender, "blocks mined", "96 B"],
        ("round", "3"): [short, "missing", f"…{address(GENESIS.members[3])[-8:]}"],
        ("knowledge",): ["holders", "1.500", "0.25"],
        ("proof", post.hash.hex()): ["The proof holds.", head.header.transactions_root.hex()],
        ("verify",): ["3 blocks, all recomputed", "valid     yes", "15 contents: all as they were written"],
    }.items():
        result = explore(arguments[0], run_folder, *arguments[1:])
        assert (result.exit_code, result.stderr) == (0, "")
        for part in expected:
            assert part in result.stdout, arguments
        assert max(len(line) for line in result.stdout.splitlines()) <= 80


def test_posts_and_votes_are_in_the_order_of_their_members_numbers(tmp_path: Path) -> None:
    builder = ChainBuilder(genesis(13))
    builder.extend_many(2)
    write(tmp_path / "chain", builder)
    for question in (("block", 2), ("round", 2)):
        text = explore(*question[:1], tmp_path, *question[1:]).stdout
        tables = re.split(r"\n(?=transactions\n|voters\n)", text)[1:]
        assert len(tables) == (2 if question[0] == "block" else 1)
        for table in tables:
            numbers = [int(found) for found in re.findall(r"(?:^| )(\d+) …", table, re.MULTILINE)]
            assert len(numbers) >= 9, table
            assert numbers == sorted(numbers), table


def test_a_median_clock_before_the_founding_has_its_sign(tmp_path: Path) -> None:
    """The founder's clock was ahead of the members'."""
    builder = ChainBuilder(genesis(4))
    first = builder.extend()
    builder.extend(certificate=builder.certificate(first, clock_ms=CREATED_MS - 1_000_000))
    write(tmp_path / "chain", builder)
    shown = explore("block", tmp_path, "1").stdout
    assert "GMT (-0:16:40)" in shown
    assert "+-" not in shown


@pytest.mark.parametrize("width", [40, 60, 80])
def test_a_narrow_terminal_loses_nothing(
    run_folder: Path, chain: ChainBuilder, width: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    head, post = chain.blocks[chain.tip], chain.blocks[chain.tip].transactions[0]
    monkeypatch.setenv("COLUMNS", str(width))
    asked = [("status",), ("blocks",), ("block", 3), ("tx", post.hash.hex()), ("members",), ("peer", 0), ("round", 3)]
    many = Summary(range(9), [1] * 9, [1.0] * 9, [[-0.125] * 9] * 9)
    for command, *names in (*asked, ("knowledge",), ("proof", post.hash.hex()), ("verify",)):
        narrow = explore(command, run_folder, *names, rules=FakeRules(many)).stdout
        monkeypatch.setenv("COLUMNS", "200")
        wide = explore(command, run_folder, *names, rules=FakeRules(many)).stdout
        monkeypatch.setenv("COLUMNS", str(width))
        assert {*wide.split()} == {*narrow.split()}, command
        # A line that is too long ends in such a word, which the terminal breaks, and joins when it is copied.
        assert all(len(line.split()) <= 2 for line in narrow.splitlines() if len(line.rstrip()) > width), command
    assert head.hash.hex() in explore("block", run_folder, 3).stdout


def test_many_classes_leave_their_cosines_to_json(run_folder: Path) -> None:
    count = MATRIX_SIZE_MAX + 1
    many = Summary(range(count), [1] * count, [1.0] * count, [[0.125] * count] * count)
    output = explore("knowledge", run_folder, rules=FakeRules(many)).stdout
    assert "--json has their cosines" in output
    assert "0.12" not in output


def test_amended_values_stand_among_the_changes_of_a_block(tmp_path: Path) -> None:
    chain = living(5)
    values: dict[str, int | str] = {"rounds": 12, "hyperparameters.learning_rate": "0.05"}
    chain.extend(changes=[approved(chain, propose_amendment(amendment_of(values), "better", sequence=0, until=UNTIL))])
    with Store.create(tmp_path / "run" / "chain", chain.genesis) as store:
        write_chain(store, chain)
    shown = explore("block", tmp_path / "run", "1").stdout
    assert re.search(r"amend +better +3 +50 +learning_rate 0.05, rounds 12", shown), shown


def printed(answer: object) -> str:
    """An answer as a wide terminal has it."""
    console = Console(file=StringIO(), width=200)
    for part in render(answer, GENESIS):
        console.print(part, crop=False)
    return str(console.file.getvalue())  # type: ignore[attr-defined]


def test_an_audit_names_each_invalid_block_and_calls_none_of_them_unchecked() -> None:
    checks = (
        BlockCheck(3, bytes(32), "invalid", (), "InvalidBlock: too heavy"),
        BlockCheck(4, bytes(32), "invalid", (), "InvalidBlock: too light"),
        BlockCheck(5, bytes(32), "unchecked", (bytes(32),), ""),
    )
    text = printed(ChainAudit(bytes(32), False, 3, 5, checks, 9, 2, (), path_certificates=2))
    assert "3 blocks: 2 invalid, 1 unchecked" in text
    assert "unchecked: at height 5 contents are missing" in text
    assert text.count("unchecked:") == 1
    assert "InvalidBlock: too heavy" in text
    assert "InvalidBlock: too light" in text
    assert "2 certificates from the founding document on; blocks below height 3 are not held" in text


def test_of_several_values_the_first_stands_with_how_many_more() -> None:
    names = tuple(map(address, GENESIS.members))
    change = ChangeView("remove", names[0], "silent", "", 4, 9, (), names)
    assert f"{names[0]} and 3 more" in printed((change,))


def test_who_is_missing_stands_in_the_order_of_the_members_numbers(tmp_path: Path) -> None:
    builder = ChainBuilder(genesis(9))
    builder.extend(posts=builder.posts(members=builder.genesis.members[:2]))
    write(tmp_path / "chain", builder)
    (line,) = re.findall(r"^missing .*(?:\n  .*)*", explore("block", tmp_path, "1").stdout, re.MULTILINE)
    assert re.findall(r"(\d+)\s+…", line) == ["2", "3", "4", "5", "6", "7", "8"]


def test_an_accuracy_is_in_hundredths() -> None:
    shown = printed((RoundPart(1, "posted", 2, "block 2 counts its post", 0.876),))
    assert "87.6 %" in shown
