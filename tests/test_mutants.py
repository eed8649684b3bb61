"""The list of planted bugs is whole, and planting one leaves nothing behind."""

import re
from pathlib import Path

import pytest

from tests.mutants.__main__ import BUGS, Bug, choose, is_plantable, plant, read_bugs
from tests.support.paths import ROOT

LISTS = sorted(BUGS.glob("*.toml"))
ENTRY = '[[bug]]\nname = "1"\nfile = "value.py"\nbug = "it is another one"\nold = "1"\nnew = "2"\n'


def test_every_bug_has_a_name_of_its_own_and_names_tests_that_exist() -> None:
    bugs = read_bugs(LISTS)
    assert len(bugs) >= 70
    assert len({bug.name for bug in bugs}) == len(bugs)
    for test in {test for bug in bugs for test in bug.tests}:
        file, _, function = test.partition("::")
        text = (ROOT / file).read_text(encoding="utf-8")
        assert not function or re.search(rf"^(async )?def {re.escape(function)}\(", text, re.MULTILINE), test


def test_every_bug_can_be_planted_in_the_code_as_it_is() -> None:
    lost = [f"{bug.name} in {bug.file}" for bug in read_bugs(LISTS) if not is_plantable(bug)]
    assert not lost, "write these bugs anew: their old text does not stand in the file once"


@pytest.mark.parametrize("end", ["", 'tests = ["test_value.py"]\nequivalent = "it is never read"\n'])
def test_a_bug_has_either_tests_or_a_reason_why_none_can_notice_it(end: str, tmp_path: Path) -> None:
    path = tmp_path / "bugs.toml"
    path.write_text(ENTRY + end)
    with pytest.raises(ValueError, match=r"1 of bugs\.toml has either"):
        read_bugs([path])


def test_a_choice_that_is_of_no_bug_is_refused_and_plants_nothing() -> None:
    bugs = read_bugs(LISTS)
    assert choose(bugs, []) == bugs
    assert {*choose(bugs, ["light_joining.py", "mining.py"])} == {
        bug for bug in bugs if "light_joining.py" in bug.file or "mining.py" in bug.file
    }
    assert choose(bugs, [bugs[0].name])[0] == bugs[0]
    with pytest.raises(ValueError, match=r"no bug has the name 'light_joinin\.py' .* did you mean light_joining\.py\?"):
        choose(bugs, [bugs[0].name, "light_joinin.py"])
    with pytest.raises(ValueError, match=r"no bug has the name 'xyzzy-0' .* files are in .*chain, .*node"):
        choose(bugs, ["xyzzy-0"])


@pytest.mark.slow
def test_a_bug_is_planted_noticed_and_taken_out_again(tmp_path: Path) -> None:
    source = tmp_path / "value.py"
    source.write_text("VALUE = 1\nOTHER = 3\n")
    (tmp_path / "test_value.py").write_text("from value import VALUE\n\n\ndef test_it():\n    assert VALUE == 1\n")
    (tmp_path / "test_slow.py").write_text(
        "import pytest, value\n\n\n@pytest.mark.slow\ndef test_it():\n    assert value.VALUE == 1\n"
    )
    before = source.read_bytes(), source.stat().st_mtime_ns
    noticed = Bug("1", "value.py", "another value", "VALUE = 1", "VALUE = 2", ("test_value.py",))
    unnoticed = Bug("2", "value.py", "another value that nobody reads", "OTHER = 3", "OTHER = 4", ("test_value.py",))
    slow = Bug("6", "value.py", "another value, which a slow test notices", "VALUE = 1", "VALUE = 2", ("test_slow.py",))
    unread = Bug("3", "value.py", "no Python any more", "OTHER = 3", "OTHER =", ("test_value.py",))
    assert plant(noticed, tmp_path) == (True, "test_value.py::test_it")
    assert plant(unnoticed, tmp_path) == (False, "SURVIVES")
    assert plant(slow, tmp_path)[0] is False, "CI does not notice it"
    assert plant(unread, tmp_path)[0] is False, "tests that did not run notice nothing"
    assert (source.read_bytes(), source.stat().st_mtime_ns) == before
    assert is_plantable(noticed, tmp_path)
    assert not is_plantable(Bug("4", "value.py", "gone", "VALUE = 7", "", ()), tmp_path)
    assert not is_plantable(Bug("5", "value.py", "not one place", " = ", "", ()), tmp_path)
