"""Charts: axes with round numbers, bars that one long block does not squash."""

import pytest

from fedchain.web.charts import STYLES, bar, line_chart


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
        (9_501, 10_000, ["9,501", "9,600", "9,700", "9,800", "9,900", "10,000"]),
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


def test_a_bar_has_the_width_of_its_share_and_a_longer_one_all_of_it() -> None:
    assert [(item.name, item.x, item.width) for item in bar((("mine", 100), ("vote", 0), ("train", 300)), 800)] == [
        ("mine", 0.0, 125.0),
        ("train", 125.0, 375.0),
    ]
    assert [item.width for item in bar((("mine", 100), ("train", 300)), 200)] == [250.0, 750.0]


def test_lines_that_could_not_be_told_apart_are_left_out_and_counted() -> None:
    chart = line_chart("a", [(str(number), [(1.0, number)]) for number in range(11)], x_name="round")
    assert chart is not None
    assert [line.style for line in chart.lines] == list(range(STYLES))
    assert chart.left_out == 11 - STYLES


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
