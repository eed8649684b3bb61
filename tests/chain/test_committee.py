"""The risk of a drawn committee: against counting all committees, and against what the documentation says."""

import re
from fractions import Fraction
from itertools import combinations

import pytest

from fedchain.chain.genesis import FaultModel
from tests.support.chain.committee import captured_share
from tests.support.chain.grinding import BY_HASH, BY_HEIGHT, BY_REVEAL, wanted_share
from tests.support.paths import DOCS

PROTOCOL = (DOCS / "protocol.md").read_text(encoding="utf-8")

ROW = re.compile(r"^\| (\d[\d ]*) \| (\d[\d ]*) \| (\d+) \| (\d+) \| ([^|]+) \|$", re.MULTILINE)
"""members | liars | committee | f | probability for one height."""


@pytest.mark.parametrize(
    ("members", "liars", "committee"), [(4, 1, 3), (7, 2, 4), (9, 3, 5), (10, 3, 4), (10, 3, 7), (12, 5, 6)]
)
def test_it_is_the_share_of_all_committees(members: int, liars: int, committee: int) -> None:
    drawn = list(combinations(range(members), committee))
    bad = sum(len([member for member in one if member < liars]) > (committee - 1) // 3 for one in drawn)
    assert captured_share(members, liars, committee) == Fraction(bad, len(drawn))


def test_everybody_is_a_committee_that_bears_what_the_federation_bears() -> None:
    for members in range(1, 40):
        liars = FaultModel.BYZANTINE.faulty(members)
        assert captured_share(members, liars, members) == 0
        assert captured_share(members, liars + 1, members) == 1


def test_nobody_lies_nothing_happens() -> None:
    assert captured_share(100, 0, 16) == 0


def test_the_documentation_says_what_is_computed() -> None:
    rows = ROW.findall(PROTOCOL)
    assert len(rows) >= 12
    for members, liars, committee, bearable, text in rows:
        share = captured_share(_number(members), _number(liars), int(committee))
        assert int(bearable) == FaultModel.BYZANTINE.faulty(int(committee))
        assert text.strip() == written(share), f"{members} members, {liars} liars, committee of {committee}"


def test_whoever_mines_chooses_committees_unless_heights_draw_them() -> None:
    """Six of twenty members mine no block after which not more than two of them would be in a committee of seven."""
    chance = float(captured_share(20, 6, 7))
    by_hash, by_reveal, by_height = (
        wanted_share(drawn_by, 20, 6, chance, 4_000, seed=2) for drawn_by in (BY_HASH, BY_REVEAL, BY_HEIGHT)
    )
    # They mine three of ten blocks in the long run, and want each of these.
    for share in (by_hash, by_reveal):
        assert share == pytest.approx(0.3 + 0.7 * chance, rel=0.1)
    assert by_height == pytest.approx(chance, rel=0.1)


def written(share: Fraction) -> str:
    """A probability as the documentation has it: two digits."""
    if share == 0:
        return "0"
    mantissa, exponent = f"{float(share):.1e}".split("e")
    if int(exponent) >= -3:
        return f"{float(share):.2g}"
    return f"{mantissa} · 10{str(int(exponent)).translate(str.maketrans('-0123456789', '⁻⁰¹²³⁴⁵⁶⁷⁸⁹'))}"


def _number(text: str) -> int:
    return int(text.replace(" ", ""))
