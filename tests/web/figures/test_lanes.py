"""Lanes of members over the rounds: where bars and signs stand, and what they say."""

import pytest

from fedchain.chain.explorer.lives import Life, LivesView, OtherKey, OtherRules, Span
from fedchain.web.figures.lanes import Bar, Sign, lanes, lanes_files

LIVES = (
    Life(0, "zero", (Span("active", 1, 4), Span("convicted", 4, None)), ()),
    Life(1, "one", (Span("active", 1, None),), (OtherKey("recover", 3, 3), OtherKey("rekey", 5, 6))),
    Life(2, "two", (Span("coming", 2, 2), Span("active", 3, 3), Span("away", 4, None)), ()),
)
VIEW = LivesView(9, 8, LIVES, (OtherRules(5, 5, (("rounds", 9), ("away_after", 2))),))


def test_rounds_have_equal_widths_and_the_open_one_too() -> None:
    found = lanes(VIEW, 9)
    assert found is not None
    assert [lane.bars for lane in found.lanes] == [
        (Bar("active", 0, 50, "counts in rounds 1 to 4"), Bar("convicted", 37.5, 62.5, "convicted since round 4")),
        (Bar("active", 0, 100, "counts since round 1"),),
        (
            Bar("coming", 12.5, 12.5, "comes, and does not count yet in round 2"),
            Bar("active", 25, 12.5, "counts in round 3"),
            Bar("away", 37.5, 62.5, "away since round 4"),
        ),
    ]
    assert found.lanes[1].signs == (
        Sign("◇", 25, "got another key from the others in round 3"),
        Sign("◆", 50, "took another key in round 5"),
    )
    assert found.lines == ((50, "from round 5 on: rounds 9, away_after 2"),)
    assert [standing for standing, _ in found.standings] == ["active", "coming", "away", "convicted"]
    assert [sign for sign, _ in found.signs] == ["◆", "◇"]
    assert [(tick.text, tick.place) for tick in found.ticks][:3] == [("1", 0.0), ("2", 12.5), ("3", 25.0)]
    assert (found.ticks[-1].text, found.ticks[-1].place) == ("8", 87.5)
    assert found.lanes[2].text.endswith("counts in round 3; away since round 4")


def test_the_lanes_of_a_finished_chain_end_with_its_last_round() -> None:
    found = lanes(VIEW, 9, is_finished=True)
    assert found is not None
    assert found.lanes[0].bars[0].width == pytest.approx(100 * 4 / 7, abs=0.001)
    assert found.lanes[0].bars[1].x + found.lanes[0].bars[1].width == 100
    assert found.ticks[-1].text == "7"
    assert found.ticks[-1].place == pytest.approx(100 * 6 / 7, abs=0.01)
    only = lanes(LivesView(8, 8, (Life(0, "zero", (Span("active", 8, None),), ()),), ()), 9, is_finished=True)
    assert only is not None
    assert only.lanes[0].bars == (Bar("active", 0, 100, "counts since round 8"),)


def test_of_many_places_the_first_are_drawn_and_the_file_has_all() -> None:
    found = lanes(VIEW, 1)
    assert found is not None
    assert [lane.number for lane in found.lanes] == [0]
    assert found.signs == ()
    lines = lanes_files(VIEW)["lives.csv"]().splitlines()
    assert lines[0] == "place,address,standing,first round,last round"
    assert lines[1:3] == ["0,zero,active,1,4", "0,zero,convicted,4,"]
    assert lines[3:6] == ["1,one,active,1,", "1,one,recover,3,3", "1,one,rekey,5,5"]
    assert len(lines) == 9


def test_members_that_never_change_have_no_lanes() -> None:
    assert lanes(LivesView(3, 3, (), ()), 9) is None


def test_the_first_round_alone_fills_the_width() -> None:
    found = lanes(LivesView(1, 1, (Life(0, "zero", (Span("active", 1, None),), ()),), ()), 9)
    assert found is not None
    assert found.lanes[0].bars[0].width == 100
    assert [tick.text for tick in found.ticks] == ["1"]
