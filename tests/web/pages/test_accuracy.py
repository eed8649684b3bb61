"""Accuracies on the pages: means over nodes that measured different things, and areas over members."""

from types import SimpleNamespace
from typing import Any

from fedchain.web.measured import Measured
from fedchain.web.pages.accuracy import accuracy_chart, measured_of


def holder(rounds: dict[int, dict[str, float]], members: dict[int, dict[int, float]] | None = None) -> SimpleNamespace:
    """A folder with these measurements, and accuracies of members by round."""
    own = {number: Measured(number, values) for number, values in rounds.items()}
    of_members = {
        member: {number: Measured(number, {"taa": accuracy}) for number, accuracy in accuracies.items()}
        for member, accuracies in (members or {}).items()
    }
    return SimpleNamespace(measured=SimpleNamespace(rounds=own, members=of_members))


def chain(*holders: SimpleNamespace) -> Any:
    return SimpleNamespace(holders=holders, scenario=None)


def test_a_mean_is_over_the_nodes_that_measured() -> None:
    one, other = holder({1: {"taa": 0.75, "epsilon": 2.0}, 2: {"taa": 0.5}}), holder({1: {"taa": 0.25}})
    found = measured_of(chain(one, other, holder({})))
    assert {number: item.values for number, item in found.items()} == {
        1: {"taa": 0.5, "epsilon": 2.0},
        2: {"taa": 0.5},
    }
    assert measured_of(chain(holder({}), one)) == one.measured.rounds
    assert measured_of(chain()) == {}


def test_areas_reach_from_the_worst_member_to_the_best_and_over_the_middle_half() -> None:
    members = {member: {1: 0.5, 2: accuracy} for member, accuracy in enumerate((0.1, 0.2, 0.4, 0.6, 1.0))}
    chart = accuracy_chart(chain(holder({1: {"taa": 0.5}, 2: {"taa": 0.46}}, members)), None)  # type: ignore[arg-type]
    assert chart is not None
    assert [(band.label, band.last) for band in chart.bands] == [
        ("worst to best member", "10.0 % – 100.0 %"),
        ("middle half of the members", "20.0 % – 60.0 %"),
    ]
