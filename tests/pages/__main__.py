"""Walk through all pages, or those that are named: ``python -m tests.pages [--write] [docs/tutorials/audit.md …]``.

``--write`` puts what commands print into the pages where it is something else than what they say.
"""

import argparse
import re
import sys
import tempfile
import time
from collections.abc import Sequence
from difflib import SequenceMatcher
from pathlib import Path

from tests.pages.blocks import PAGES, missing_for
from tests.pages.walk import Difference, arithmetic, is_as_stated, walk
from tests.support.orphans import end_with_this_process
from tests.support.paths import ROOT


def main() -> int:
    """Print what differs; the exit code says whether anything does."""
    parser = argparse.ArgumentParser("python -m tests.pages", description="Type the commands of pages, and compare.")
    parser.add_argument("pages", nargs="*", metavar="PAGE", help="such as docs/tutorials/audit.md; without: all")
    parser.add_argument("--write", action="store_true", help="put what commands print into the pages")
    asked = parser.parse_args()
    end_with_this_process()
    print(f"arithmetic {arithmetic()}")
    differ = False
    for page in [ROOT / name for name in asked.pages] or PAGES:
        if missing := missing_for(page):
            print(f"{page.relative_to(ROOT)}: not typed, it needs {' and '.join(missing)}", flush=True)
            continue
        start = time.perf_counter()
        with tempfile.TemporaryDirectory() as folder:
            (Path(folder) / "page").mkdir()
            found = walk(page, Path(folder) / "page", slow=True)
        print(f"{page.relative_to(ROOT)}: {len(found)} differ, {time.perf_counter() - start:.0f} s", flush=True)
        for difference in found:
            print(difference, flush=True)
        if asked.write:
            write(page, found)
        differ = differ or bool(found)
    return int(differ)


def write(page: Path, found: list[Difference]) -> None:
    """Put what was printed into a page, from its end to its beginning."""
    lines = page.read_text(encoding="utf-8").splitlines()
    for difference in sorted(found, key=lambda item: -item.first):
        said = lines[difference.first : difference.last]
        lines[difference.first : difference.last] = rewritten(said, _lasting(difference.printed).splitlines())
    page.write_text("\n".join(lines) + "\n", encoding="utf-8")


def rewritten(said: Sequence[str], printed: Sequence[str]) -> list[str]:
    """The printed lines, with a page's dots where it leaves something out between lines that are as they were."""
    found = list[str]()
    for what, first, last, start, stop in SequenceMatcher(None, said, printed, autojunk=False).get_opcodes():
        old, new = said[first:last], printed[start:stop]
        if what == "replace" and old == ["..."] != said:
            found += old
        elif len(old) == len(new):
            found += [one if is_as_stated(one, other) else other for one, other in zip(old, new, strict=True)]
        else:
            found += new
    return found


def _lasting(printed: str) -> str:
    """Without what is another time or folder at the next try."""
    return re.sub(r"/tmp/\S+/page/", ".../", re.sub(r"(virtual s in )[\d.]+ s", r"\1... s", printed))


if __name__ == "__main__":
    sys.exit(main())
