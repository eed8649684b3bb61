"""Axes: round numbers at their ends, and where values stand between them."""

from collections.abc import Callable

import pytest

from fedchain.web.figures.axes import Axis, linear_axis, log_axis, number_text


@pytest.mark.parametrize(
    ("low", "high", "unit", "labels"),
    [
        (0.25, 0.9, "%", ("100 %", "10 %")),
        (0.02, 3.0, "", ("10", "1", "0.1", "0.01")),
        (1.0, 1.0, "", ("10", "1")),
        (10.0, 1_000.0, "s", ("1,000 s", "100 s", "10 s")),
        (1e-9, 1.0, "", ("10", "0.1", "0.001", "1e-5", "1e-7", "1e-9")),
    ],
)
def test_a_logarithmic_axis_goes_from_a_power_of_ten_to_another(
    low: float, high: float, unit: str, labels: tuple[str, ...]
) -> None:
    axis = log_axis(low, high, unit)
    assert axis.labels == labels
    assert 0 <= axis.depth(high) <= axis.depth(low) <= 1
    assert len(axis.labels) <= 7


def test_equal_ratios_are_equal_distances_and_what_has_no_logarithm_lies_at_the_end() -> None:
    axis = log_axis(1.0, 100.0, "")
    assert [axis.depth(value) for value in (100.0, 10.0, 1.0, 0.0, -5.0)] == [0.0, 0.5, 1.0, 1.0, 1.0]
    assert linear_axis(0.0, 100.0, "").depth(25.0) == 0.75


SMALL = 5e-324
"""The smallest number above 0."""


@pytest.mark.parametrize("unit", ["", "%"])
@pytest.mark.parametrize("make", [linear_axis, log_axis])
@pytest.mark.parametrize(
    ("low", "high"),
    [(0.0, SMALL), (SMALL, SMALL), (SMALL, 2 * SMALL), (1.0, 1.0 + 2**-52), (-1.0, -1.0), (1e12, 1e12), (0.0, 1e-299)],
)
def test_an_axis_of_hardly_any_span_holds_its_values(
    low: float, high: float, make: Callable[[float, float, str], Axis], unit: str
) -> None:
    if make is log_axis and low <= 0:
        return
    axis = make(low, high, unit)
    assert -0.01 <= axis.depth(high) <= axis.depth(low) <= 1.01
    assert 2 <= len(axis.labels) <= 7


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (0.5, "%", "50.0 %"),
        (1234.5, "B", "1,234 B"),
        (0.0123, "", "0.012"),
        (0.000012, "s", "1.20e-05 s"),
        (0.0, "", "0.000"),
        (-1234.5, "B", "-1,234 B"),
        (-123.45, "", "-123.5"),
        (-0.000012, "s", "-1.20e-05 s"),
    ],
)
def test_a_value_keeps_digits_that_tell_it_from_zero(value: float, unit: str, text: str) -> None:
    assert number_text(value, unit) == text
