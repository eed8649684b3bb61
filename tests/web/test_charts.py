"""Charts: lines and areas between axes, and the parts of them that a reader asks for."""

import pytest

from fedchain.web.charts import STYLES, Chart, line_chart, thin


@pytest.mark.parametrize(
    ("values", "unit", "low", "labels"),
    [
        ((0.76, 0.986), "%", 0.0, ("100 %", "50 %", "0 %")),
        ((0.19, 0.274), "%", None, ("27.5 %", "25.0 %", "22.5 %", "20.0 %", "17.5 %")),
        ((0.1, 1.09), "", 0.0, ("1.20", "0.600", "0.000")),
        ((-0.019, 0.025), "s", None, ("0.025 s", "0.000 s", "-0.025 s")),
        ((5_937.0, 6_700.0), "B", None, ("6,750 B", "6,500 B", "6,250 B", "6,000 B", "5,750 B")),
        ((0.5, 0.5), "", None, ("0.600", "0.500", "0.400")),
        ((0.0, 0.0), "", 0.0, ("0.001", "0.000", "-0.001")),
        ((0.9, 0.97), "%", None, ("97.5 %", "95.0 %", "92.5 %", "90.0 %")),
        ((0.203, 1.0), "%", None, ("100 %", "80 %", "60 %", "40 %", "20 %")),
        ((1.0, 1.0), "%", None, ("100.0 %", "97.5 %", "95.0 %")),
    ],
)
def test_the_vertical_axis_has_round_numbers_around_all_values(
    values: tuple[float, float], unit: str, low: float | None, labels: tuple[str, ...]
) -> None:
    chart = line_chart("a", [("b", [(1, values[0]), (2, values[1])])], x_name="round", unit=unit, low=low)
    assert chart is not None
    assert chart.y_labels == labels
    heights = [float(point.split(",")[1]) for point in chart.lines[0].points.split()]
    assert all(0 <= height <= 300 for height in heights)


@pytest.mark.parametrize(
    ("first", "last", "texts"),
    [
        (1, 8, ["1", "2", "3", "4", "5", "6", "7", "8"]),
        (1, 10, ["1", "2", "4", "6", "8", "10"]),
        (1, 100, ["1", "20", "40", "60", "80", "100"]),
        (9_501, 10_000, ["9,501", "9,800", "10,000"]),
        (1, 330, ["1", "50", "100", "150", "200", "250", "330"]),  # 300 stood in 330 on a telephone
        (1, 2, ["1", "2"]),
        (7, 7, ["7"]),
    ],
)
def test_the_horizontal_axis_has_round_numbers_where_they_belong(first: int, last: int, texts: list[str]) -> None:
    chart = line_chart("a", [("b", [(first, 1.0), (last, 2.0)])], x_name="round")
    assert chart is not None
    assert [tick.text for tick in chart.ticks] == texts
    for tick in chart.ticks if first < last else ():
        value = int(tick.text.replace(",", ""))
        assert tick.place == pytest.approx(100 * (value - first) / (last - first), abs=0.01)


def test_lines_that_could_not_be_told_apart_are_left_out_and_counted() -> None:
    chart = line_chart("a", [(str(number), [(1.0, number)]) for number in range(11)], x_name="round")
    assert chart is not None
    assert [line.style for line in chart.lines] == list(range(STYLES))
    assert chart.left_out == 11 - STYLES
    series = [("low", [(1.0, 0.0), (2.0, 0.0)]), ("high", [(1.0, 2.0), (2.0, 3.0)])]
    chart = line_chart("a", series, x_name="round")
    assert chart is not None
    logarithmic = chart.seen({"a.log": "on"})
    assert [line.label for line in logarithmic.lines] == ["high"]
    assert (logarithmic.left_out, logarithmic.below) == (0, 2), "it could be told apart, and has nothing to show"


@pytest.mark.parametrize("count", [400, 401, 402, 403, 1201, 5000])
def test_a_long_line_ends_with_its_last_point_once(count: int) -> None:
    points = thin([(float(x), 0.0) for x in range(count)])
    places = [x for x, _ in points]
    assert len(places) <= 401
    assert (places[0], places[-1]) == (0, count - 1)
    assert places == sorted(set(places))


def test_an_area_lies_between_its_limits_and_within_the_axes() -> None:
    areas = [("all", [(1.0, 0.25, 1.0), (2.0, 0.5, 0.75)])]
    chart = line_chart("a", [("b", [(1.0, 0.5), (2.0, 0.6)])], x_name="round", unit="%", areas=areas)
    assert chart is not None
    assert chart.y_labels == ("100 %", "75 %", "50 %", "25 %")
    (band,) = chart.bands
    assert band.points == "0.0,0.0 1000.0,100.0 1000.0,200.0 0.0,300.0"
    assert band.last == "50.0 % – 75.0 %"


def test_marks_stand_where_their_moments_are_and_one_place_has_one() -> None:
    moments = [
        (0.0, "too early"),
        (2.0, "peer 1 crashes"),
        (2.0, "peer 2 crashes"),
        (5.0, "peer 1 returns"),
        (9.0, "late"),
    ]
    chart = line_chart("a", [("b", [(1.0, 0.5), (5.0, 0.6)])], x_name="round", marks=moments)
    assert chart is not None
    assert [(mark.place, mark.text) for mark in chart.marks] == [
        (25.0, "round 2: peer 1 crashes; peer 2 crashes"),
        (100.0, "round 5: peer 1 returns"),
    ]


def drawn(**question: str) -> Chart:
    points = [(float(x), y) for x, y in ((1, 0.0), (2, 10.0), (3, 1_000.0), (4, 20.0))]
    chart = line_chart("sent, kept", [("a", points), ("b", points[2:])], x_name="round", unit="B")
    assert chart is not None
    assert chart.name == "sent-kept"
    return chart.seen({f"sent-kept.{name}": value for name, value in question.items()})


def test_a_reader_is_shown_the_part_that_the_address_asks_for() -> None:
    part = drawn(first="2", last="3")
    assert [line.points.split()[0] for line in part.lines] == ["0.0,297.0", "1000.0,0.0"]
    assert [(line.readings.x, line.readings.y) for line in part.lines] == [("2;3", "10.00 B;1,000 B"), ("3", "1,000 B")]
    assert [row[0] for row in part.rows] == ["2", "3"]
    assert (part.view.first, part.view.last) == (2, 3)


@pytest.mark.parametrize("question", [{}, {"first": "x"}, {"first": "-3"}, {"last": "9" * 99}, {"log": "off"}])
def test_what_does_not_name_a_part_shows_all(question: dict[str, str]) -> None:
    assert drawn(**question) == drawn()
    assert drawn(first="90").lines == drawn().lines


def test_a_line_keeps_its_style_where_others_have_no_points() -> None:
    assert [line.style for line in drawn(first="3").lines] == [0, 1]
    whole = line_chart("a", [("b", [(1.0, 1.0)]), ("c", [(5.0, 1.0)])], x_name="round")
    assert whole is not None
    assert [line.style for line in whole.seen({"a.first": "4"}).lines] == [1]


def test_a_logarithmic_chart_leaves_out_and_counts_what_it_cannot_show() -> None:
    chart = drawn(log="on")
    assert chart.view.is_log
    assert chart.y_labels == ("1,000 B", "100 B", "10 B")
    assert chart.lines[0].readings.x == "2;3;4"
    assert chart.below == 1
    nothing = line_chart("a", [("b", [(1.0, 0.0), (2.0, -1.0)])], x_name="round")
    assert nothing is not None
    assert not nothing.seen({"a.log": "on"}).view.is_log


def test_a_part_in_which_only_lines_have_points_that_are_not_drawn_shows_all() -> None:
    series = [(str(number), [(1.0, 1.0)]) for number in range(STYLES)] + [("longer", [(9.0, 1.0)])]
    chart = line_chart("a", series, x_name="round")
    assert chart is not None
    assert chart.seen({"a.first": "5"}).lines == chart.lines


def test_an_area_of_which_a_part_has_one_place_is_not_drawn_there() -> None:
    areas = [("all", [(1.0, 0.25, 1.0), (2.0, 0.5, 0.75), (3.0, 0.5, 0.75)])]
    chart = line_chart("a", [("b", [(1.0, 0.5), (3.0, 0.6)])], x_name="round", areas=areas)
    assert chart is not None
    assert [len(chart.seen({"a.first": first}).bands) for first in ("1", "2", "3")] == [1, 1, 0]


def test_a_moment_at_the_beginning_has_a_mark_and_one_of_a_single_place_has_none() -> None:
    chart = line_chart("a", [("b", [(1.0, 0.5), (5.0, 0.6)])], x_name="round", marks=[(1.0, "peer 1 crashes")])
    assert chart is not None
    assert [mark.place for mark in chart.marks] == [0.0]
    assert chart.seen({"a.last": "4"}).marks == ()
