"""Accuracies on the pages: by round and by member, and their charts."""

from collections.abc import Mapping, Sequence
from statistics import quantiles

from fedchain.crypto.address import address
from fedchain.crypto.keys import PublicKey
from fedchain.web.chains import Chain, Reading
from fedchain.web.charts import Area, Chart, line_chart
from fedchain.web.measured import Measured, newest
from fedchain.web.observed.participation import Accuracies
from fedchain.web.pages.asked import marks_by_round


def measured_of(chain: Chain) -> dict[int, Measured]:
    """Measurements of the whole run by round; for several nodes the mean of each value."""
    holders = [holder.measured.rounds for holder in chain.holders if holder.measured.rounds]
    if len(holders) < 2:
        return holders[0] if holders else {}
    numbers = sorted({number for found in holders for number in found})
    return {number: _mean(number, [found[number] for found in holders if number in found]) for number in numbers}


def measured_by(chain: Chain, member: PublicKey) -> dict[int, Measured]:
    """Measurements of a member's own node, or of the member in a simulation, by round."""
    for holder in chain.holders:
        if chain.is_simulated:
            return holder.measured.members.get(chain.head.roster.seats.get(member, -1), {})
        if holder.address == address(member):
            return holder.measured.rounds
    return {}


def points_of(found: Mapping[int, Measured], name: str) -> list[tuple[float, float]]:
    """Rounds with their values of a name, as points of a line."""
    return [(float(number), item.values[name]) for number, item in sorted(found.items()) if name in item.values]


def _mean(number: int, found: Sequence[Measured]) -> Measured:
    names = {name for item in found for name in item.values}
    values = {name: [item.values[name] for item in found if name in item.values] for name in names}
    return Measured(number, {name: sum(each) / len(each) for name, each in values.items()})


def accuracy_of(chain: Chain, member: PublicKey) -> float | None:
    """The newest accuracy that a member's node reported or noted, or that a finished simulation measured."""
    for holder in chain.holders:
        if holder.status is not None and holder.status.get("address") == address(member):
            found = holder.status.get("accuracy")
            if isinstance(found, float):
                return found
    return newest(measured_by(chain, member), "taa")


def accuracies_of(chain: Chain, member: PublicKey) -> Accuracies:
    """A member's accuracies on its own test set, by round."""
    return {item.round: item.values["taa"] for item in measured_by(chain, member).values() if "taa" in item.values}


def accuracy_chart(chain: Chain, reading: Reading) -> Chart | None:
    """Chart of accuracies by round, with a line for each of several nodes."""
    if len(chain.holders) > 1:
        series = [(holder.place.label, points_of(holder.measured.rounds, "taa")) for holder in chain.holders]
        return line_chart("accuracy on each node's own test set", series, x_name="round", unit="%")
    found = measured_of(chain)
    series = [
        ("members' own test sets, mean", points_of(found, "taa")),
        ("whole test set", points_of(found, "test_accuracy")),
    ]
    areas, marks = _spread(chain.holders[0].measured.members), marks_by_round(chain, reading)
    return line_chart("accuracy", series, x_name="round", unit="%", areas=areas, marks=marks)


def _spread(members: Mapping[int, Mapping[int, Measured]]) -> list[Area]:
    """The accuracies of the members on their own test sets: from the worst to the best, and between the quartiles."""
    by_round = dict[int, list[float]]()
    for rounds in members.values():
        for number, item in rounds.items():
            by_round.setdefault(number, []).append(item.values["taa"])
    whole, middle = list[tuple[float, float, float]](), list[tuple[float, float, float]]()
    for number, values in sorted(by_round.items()):
        first, _, third = quantiles(values, n=4, method="inclusive") if len(values) > 1 else values * 3
        whole.append((float(number), min(values), max(values)))
        middle.append((float(number), first, third))
    return [("worst to best member", whole), ("middle half of the members", middle)] if len(whole) > 1 else []
