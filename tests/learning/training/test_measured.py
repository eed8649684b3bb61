"""When models are measured, and what the means over them are."""

import pytest

from fedchain.learning.training.measured import IN_EVERY_ROUND, Evaluation, Measurements, calculate_taa, calculate_tal


@pytest.mark.parametrize(
    ("measurements", "due"),
    [
        (Measurements(every=10, last=25), [10, 20, 25, 26, 27]),
        (Measurements(every=10), [10, 20]),
        (Measurements(every=0, last=25), []),
        (IN_EVERY_ROUND, [*range(1, 28)]),
    ],
)
def test_models_are_measured_every_few_rounds_in_the_last_and_after_it(
    measurements: Measurements, due: list[int]
) -> None:
    """Rounds after the last come where members agree on more of them while a federation runs."""
    assert [number for number in range(1, 28) if measurements.is_due(number)] == due


def test_means_count_each_member_the_same() -> None:
    found = [Evaluation(accuracy, loss) for accuracy, loss in ((0.5, 2.0), (0.75, 1.0), (1.0, 0.0))]
    assert (calculate_taa(found), calculate_tal(found)) == (0.75, 1.0)
