"""Accuracies on the pages: means over nodes that measured different things, and areas over members."""

from types import SimpleNamespace
from typing import Any

from fedchain.crypto.address import address
from fedchain.web.measured import Measured
from fedchain.web.pages.accuracy import accuracies_of, accuracy_chart, accuracy_of, measured_of
from tests.support.chain.builders import keys


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


def test_a_member_s_accuracies_are_of_its_own_node() -> None:
    nodes = [holder({1: {"taa": accuracy}}) for accuracy in (0.25, 0.75)]
    network, members = chain(*nodes), [key.public_key for key in keys(3)]
    network.is_simulated = False
    for node, member in zip(nodes, members, strict=False):
        node.address, node.status = address(member), None
    assert [accuracies_of(network, member) for member in members] == [{1: 0.25}, {1: 0.75}, {}]
    assert [accuracy_of(network, member) for member in members] == [0.25, 0.75, None]


def test_what_a_running_node_says_is_newer_than_what_it_noted_also_where_it_is_nothing() -> None:
    node, member = holder({1: {"taa": 0.75}}), keys(1)[0].public_key
    network = chain(node)
    network.is_simulated, node.address = False, address(member)
    said: list[tuple[Any, float]] = [(0.5, 0.5), (0.0, 0.0), (None, 0.75), ("much", 0.75)]
    for accuracy, expected in said:
        node.status = {"address": address(member), "accuracy": accuracy}
        assert accuracy_of(network, member) == expected
