"""Every block of the documentation is of a kind that is checked; what is quick to run is run here."""

import re
from pathlib import Path

import pytest

from tests.pages.__main__ import rewritten
from tests.pages.blocks import PAGES, Block, blocks_of, missing_for
from tests.pages.shell import COMPILERS, Shell
from tests.pages.walk import arithmetic, command_faults, commands_in, faults, is_as_stated, walk
from tests.support.paths import ROOT

RUN = [
    page
    for page in PAGES
    if any(
        block.language == "console" and not {"slow", "not run", "file"} & block.said.keys() for block in blocks_of(page)
    )
    and not missing_for(page)
]


RUN_ELSEWHERE = {"CONTRIBUTING.md": "tests/test_contributing.py", "docs/python.md": "tests/python/test_page.py"}
"""Pages whose Python a test of their own runs."""


def name(item: Path | Block) -> str:
    return item.name if isinstance(item, Block) else str(item.relative_to(ROOT))


@pytest.mark.parametrize("block", [block for page in PAGES for block in blocks_of(page)], ids=name)
def test_every_block_can_be_believed(block: Block) -> None:
    assert faults(block) == [], block.name


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_python_is_a_file_of_the_page_or_run_by_a_test_of_its_own(page: Path) -> None:
    blocks = [block for block in blocks_of(page) if block.language == "python"]
    if name(page) in RUN_ELSEWHERE:
        assert blocks
        assert (ROOT / RUN_ELSEWHERE[name(page)]).exists()
    else:
        assert [block.name for block in blocks if not {"file", "not run"} & block.said.keys()] == []


NETWORK = re.compile(r"fedchain (node|keys|genesis)|make testnet")
ANOTHER_SYSTEM = {"## Under systemd", "## In containers"}
"""Sections of the operators' guide whose commands need systemd or Docker; tests/test_deploy.py reads them."""


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_what_runs_over_a_network_is_typed(page: Path) -> None:
    """But for the README, whose two lines the page on getting started has."""
    lines = page.read_text(encoding="utf-8").splitlines()
    left_out = []
    for block in blocks_of(page):
        is_typed = block.language == "console" and "not run" not in block.said
        section = next((line for line in reversed(lines[: block.line]) if line.startswith("## ")), "")
        if NETWORK.search(block.text) and not is_typed and section not in ANOTHER_SYSTEM:
            left_out.append(name(block).rpartition(":")[0])
    assert left_out == (["README.md"] if page.name == "README.md" else [])


@pytest.mark.long
@pytest.mark.parametrize("page", RUN, ids=name)
def test_what_is_quick_prints_what_the_page_says(page: Path, tmp_path: Path) -> None:
    (tmp_path / "page").mkdir()
    found = walk(page, tmp_path / "page", slow=False)
    assert not found, "\n\n".join(map(str, found))


@pytest.mark.parametrize(
    ("typed", "fault"),
    [
        ("fedchain simulate --peers 4 --out run", None),
        ("A=$(fedchain keys show a.pem)", None),
        ("fedchain simulat --peers 4", "fedchain simulat is no command"),
        ("fedchain keys nwe a.pem", "fedchain keys nwe is no command"),
        ("cd x && fedchain simulate --pears 4", "fedchain simulate --pears has no option --pears"),
        ("fedchain keys new \\\n --plane a.pem", "fedchain keys new has no option --plane"),
        ("make dock", "make has no target dock"),
        ("make docs  # all of them", None),
    ],
)
def test_a_command_that_does_not_exist_is_noticed(typed: str, fault: str | None) -> None:
    assert command_faults(typed) == ([] if fault is None else [fault])


def test_commands_are_found_behind_each_other() -> None:
    assert commands_in("A=1 B=2; for x in 1; do fedchain x | tail -1; done") == [
        ["x", "in", "1"],
        ["fedchain", "x"],
        ["tail", "-1"],
        ["done"],
    ]


def test_a_page_is_walked_through(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(
        "<!-- file: words -->\n```text\nHello\n```\n\n```console\n$ cat words\nHello\n$ A=3; false\n$ echo $?\n1\n"
        "$ echo $A \\\n  more\n3 ...\n$ echo four\nfive\n```\n\n"
        "<!-- not run: of no use -->\n```console\n$ exit 1\n```\n",
        encoding="utf-8",
    )
    (tmp_path / "folder").mkdir()
    [found] = walk(page, tmp_path / "folder", slow=False)
    assert (found.typed, found.printed, found.stated) == ("echo four", "four", "five")
    assert page.read_text(encoding="utf-8").splitlines()[found.first : found.last] == ["five"]


@pytest.mark.parametrize(
    ("said", "written"),
    [
        (["a", "...", "e"], ["a", "...", "e"]),  # what lies between is left out as before
        (["a", "...", "x"], ["a", "b", "c", "d", "e"]),  # where it ended is no more to be seen
        (["a", "b ...", "x", "d", "e"], ["a", "b ...", "c", "d", "e"]),
        (["..."], ["a", "b", "c", "d", "e"]),  # says nothing of more than one line
    ],
)
def test_dots_of_a_page_stay_where_it_is_written_anew(said: list[str], written: list[str]) -> None:
    assert rewritten(said, ["a", "b  9", "c", "d", "e"] if "b ..." in said else ["a", "b", "c", "d", "e"]) == written


def test_a_command_that_fails_is_noticed(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("```console\n$ false\n```\n", encoding="utf-8")
    (tmp_path / "folder").mkdir()
    with pytest.raises(AssertionError, match="exit code 1"):
        walk(page, tmp_path / "folder", slow=False)


def test_what_comments_have_typed_is_typed(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(
        "<!-- before:\nB=5 &&\nC=6\n-->\n<!-- typed: 192.0.2.7 => $B -->\n"
        "```console\n$ echo 192.0.2.7 $C\n5 6\n```\n\n"
        "<!-- quiet -->\n```console\n$ echo loud\n```\n\n"
        "<!-- typed: nowhere => x -->\n```console\n$ true\n```\n",
        encoding="utf-8",
    )
    (tmp_path / "folder").mkdir()
    assert walk(page, tmp_path / "folder", slow=False) == []
    [fault] = [fault for block in blocks_of(page) for fault in faults(block)]
    assert fault == "has no 'nowhere' to type as something else"


def test_a_reader_has_no_compiler(tmp_path: Path) -> None:
    (tmp_path / "page").mkdir()
    with Shell(tmp_path / "page") as shell:
        assert [shell.run(f"{name} --version")[1] for name in COMPILERS] == [127] * len(COMPILERS)
        assert [shell.run(f"${name} --version")[1] for name in ("CC", "CXX")] == [1, 1]


def test_three_dots_stand_for_anything() -> None:
    assert is_as_stated("a ... c\n...\nend", "a b c\n1\n2\nend")
    assert not is_as_stated("a ... c", "a b d")


@pytest.mark.parametrize("is_elsewhere", [True, False])
def test_another_machine_prints_other_digits_and_hashes(is_elsewhere: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.pages.walk.PRINTED_ON", "another machine" if is_elsewhere else arithmetic())
    stated = "content 18aaa2c69c6d has ... posts and ... votes: 1 damaged"
    assert is_as_stated(stated, "content 18aaa2c69c6d has 14 posts and 15 votes: 1 damaged")
    assert is_as_stated(stated, "content 0f232666fe6d has 9 posts and 115 votes: 12 damaged") == is_elsewhere
    assert not is_as_stated(stated, "content 0f232666fe6d has 9 posts and 115 votes: all whole")


def test_a_page_says_what_it_needs_that_is_not_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FEDCHAIN_DATA", str(tmp_path))
    page, block = tmp_path / "page.md", "```console\n$ ls\n```\n"
    page.write_text(f"{block}\n<!-- needs: numpy no_such_module data:digits data:svhn -->\n{block}")
    assert missing_for(page) == ["no_such_module", "data:svhn"]
    page.write_text(block)
    assert missing_for(page) == []
