"""Times and sizes as people read them."""

import pytest

from fedchain.chain.explorer.units import duration, signed, size


@pytest.mark.parametrize(
    ("time_ms", "text"),
    [
        (0, "0.0 s"),
        (899_999, "900.0 s"),
        (900_000, "0:15:00"),
        (3_600_000, "1:00:00"),
        (90_061_000, "1 d 1:01:01"),
        (-1_500, "-1.5 s"),
        (-1_000_000, "-0:16:40"),
        (-90_061_000, "-1 d 1:01:01"),
    ],
)
def test_a_time_is_in_seconds_below_a_quarter_of_an_hour(time_ms: int, text: str) -> None:
    assert duration(time_ms) == text


def test_how_long_after_a_moment_another_was_has_its_sign() -> None:
    assert [signed(time_ms) for time_ms in (0, 1_500, -1_500, 900_000, -900_000)] == [
        *("+0.0 s", "+1.5 s", "-1.5 s", "+0:15:00", "-0:15:00")
    ]


@pytest.mark.parametrize(
    ("count", "text"),
    [(0, "0 B"), (1023, "1023 B"), (1024, "1.0 KiB"), (3 << 20, "3.0 MiB"), (5 << 40, "5120.0 GiB")],
)
def test_a_size_has_the_largest_unit_of_which_it_has_one(count: int, text: str) -> None:
    assert size(count) == text
