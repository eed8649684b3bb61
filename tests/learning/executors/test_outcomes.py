"""Forecasts are counted by their outcome."""

from fedchain.learning.executors.outcomes import Counts, Outcome


def test_each_outcome_is_counted_and_the_others_are_open() -> None:
    counts = Counts(foreseen=9)
    for outcome in (*Outcome, Outcome.READY):
        counts.add(outcome)
    assert counts == Counts(9, ready=2, running=1, overtaken=1, thrown_away=1, refused=1)
    assert counts.open == 3
