"""``python -m tests.mutants``: plant one bug after the other in a copy of this tree, and see the tests notice each."""

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterable
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path

from tests.support.paths import ROOT

BUGS = Path(__file__).parent / "bugs"
TIMEOUT_S = 120
"""A bug may keep a test from ever ending, which is noticed, too."""

PASSED, FAILED = 0, 1
"""Exit statuses of pytest; any other one says that the tests did not run."""


@dataclass(frozen=True, slots=True)
class Bug:
    """One change to one file, and what notices it."""

    name: str
    """A number or a word; unique."""
    file: str
    """Relative to the root."""
    bug: str
    """The fault that it plants."""
    old: str
    """Text that stands in the file exactly once."""
    new: str
    """Text in its place."""
    tests: tuple[str, ...] = ()
    """Tests, as pytest names them, of which CI runs at least one that fails with the bug; all pass without it."""
    equivalent: str = ""
    """Why no test can notice it; then there are none."""


def read_bugs(paths: Iterable[Path]) -> list[Bug]:
    """The bugs of some files; raises ValueError for one that is not whole."""
    bugs = []
    for path in paths:
        for entry in tomllib.loads(path.read_text(encoding="utf-8"))["bug"]:
            bug = Bug(**(entry | {"tests": tuple(entry.get("tests", ()))}))
            if bool(bug.tests) == bool(bug.equivalent):
                raise ValueError(f"{bug.name} of {path.name} has either tests or a reason why it is equivalent")
            bugs.append(bug)
    return bugs


def is_plantable(bug: Bug, root: Path = ROOT) -> bool:
    """Whether the old text of a bug stands in its file once."""
    path = root / bug.file
    return path.is_file() and path.read_text(encoding="utf-8").count(bug.old) == 1


def copy_tree(target: Path) -> None:
    """Copy what git knows of, and what is new, with links as links and times as they are."""
    listed = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    names = subprocess.run(listed, cwd=ROOT, check=True, capture_output=True, text=True).stdout
    for name in filter(None, names.split("\0")):
        if (ROOT / name).exists():
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, target / name, follow_symlinks=False)


def run_tests(root: Path, tests: Iterable[str], *, is_planted: bool) -> tuple[int | None, str]:
    """Pytest's exit status in a tree, None if it did not end, and the first test that failed.

    Slow tests are left out: CI does not run them, and what they alone notice would not be noticed.
    With a bug they have a time limit, and no bytecode is written: the age in seconds and the size of a planted file
    could be those of the next one.
    """
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-m", "not slow", "-p", "no:cacheprovider", *tests]
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONDONTWRITEBYTECODE"}
    environment |= {"PYTHONPATH": str(root / "src")} | ({"PYTHONDONTWRITEBYTECODE": "1"} if is_planted else {})
    limit_s = TIMEOUT_S if is_planted else None
    try:
        done = subprocess.run(
            command, cwd=root, env=environment, capture_output=True, text=True, timeout=limit_s, check=False
        )
    except subprocess.TimeoutExpired:
        return None, f"no end within {TIMEOUT_S} s"
    failed = re.search(r"^(?:FAILED|ERROR) (.*?)(?: - .*)?$", done.stdout, re.MULTILINE)
    return done.returncode, failed[1] if failed else done.stdout.strip().splitlines()[-1]


def plant(bug: Bug, root: Path) -> tuple[bool, str]:
    """Run a bug's tests with it planted: whether they notice it, and which does. The tree is as before."""
    path = root / bug.file
    before, times = path.read_text(encoding="utf-8"), path.stat()
    path.write_text(before.replace(bug.old, bug.new), encoding="utf-8")
    try:
        status, said = run_tests(root, bug.tests, is_planted=True)
    finally:
        path.write_text(before, encoding="utf-8")
        os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))
    if status == PASSED:
        return False, "SURVIVES"
    return (True, said) if status in (FAILED, None) else (False, f"the tests did not run: {said}")


def choose(bugs: list[Bug], wanted: Iterable[str]) -> list[Bug]:
    """The bugs with one of these names, or in a file whose path has one of these texts; all if none is wanted.

    Raises ValueError: one of the texts is of none, which would otherwise plant nothing, or all.
    """
    wanted = [*wanted]
    for text in wanted:
        if not any(_is_of(text, bug) for bug in bugs):
            near = get_close_matches(text, [bug.name for bug in bugs] + [Path(bug.file).name for bug in bugs])
            files = sorted({bug.file.partition("/")[0] for bug in bugs})
            words = f"did you mean {' or '.join(dict.fromkeys(near))}?" if near else f"files are in {', '.join(files)}"
            raise ValueError(f"no bug has the name {text!r} or stands in a file of this path; {words}")
    return [bug for bug in bugs if not wanted or any(_is_of(text, bug) for text in wanted)]


def _is_of(text: str, bug: Bug) -> bool:
    return text == bug.name or text in bug.file


def main() -> None:
    """Plant the bugs that were chosen, print what noticed each as a table, and exit with 1 if one survives."""
    parser = argparse.ArgumentParser(prog="python -m tests.mutants", description=__doc__)
    parser.add_argument("--only", action="append", metavar="TEXT", help="bugs with this name or in a file of this path")
    parser.add_argument("--bugs", type=Path, nargs="+", metavar="FILE", help="other lists than those of tests/mutants")
    options = parser.parse_args()
    try:
        bugs = choose(read_bugs(options.bugs or sorted(BUGS.glob("*.toml"))), options.only or ())
    except ValueError as error:
        parser.error(str(error))
    survivors = 0
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        copy_tree(root)
        status, said = run_tests(root, sorted({test for bug in bugs for test in bug.tests}), is_planted=False)
        if status != PASSED:
            sys.exit(f"without any bug: {said}")
        print("| bug | file | what is wrong | noticed by |\n|---|---|---|---|", flush=True)
        for bug in bugs:
            if not is_plantable(bug, root):
                is_noticed, what = False, "its old text does not stand in the file once"
            elif bug.equivalent:
                is_noticed, what = True, f"equivalent: {bug.equivalent}"
            else:
                is_noticed, what = plant(bug, root)
            survivors += not is_noticed
            print(f"| {bug.name} | {bug.file} | {bug.bug} | {what} |", flush=True)
    sys.exit(f"{survivors} of {len(bugs)} bugs are not noticed" if survivors else 0)


if __name__ == "__main__":
    main()
