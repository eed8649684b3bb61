"""Words for people."""

import numpy as np

from fedchain.wording import bearable, counted, first_error, nearest_name, printable, shown_epsilon, some_of


def test_one_thing_is_told_without_a_plural() -> None:
    assert [counted(count, "post") for count in (0, 1, 2)] == ["0 posts", "1 post", "2 posts"]


def test_members_that_left_may_lie_as_well_where_other_sets_led_to_this_one() -> None:
    assert bearable(1, 4, earlier=False) == "at most 1 of 4 members lie"
    assert bearable(0, 3, earlier=False) == "no member lies"
    assert bearable(1, 5, earlier=True).startswith("at most 1 of 5 members lie, and as few in each earlier set")


def test_what_could_steer_a_terminal_is_replaced() -> None:
    assert printable("a\x1b[2J\nü") == "a\ufffd[2J\ufffdü"
    assert printable("a\tb", "?") == "a?b"


def test_the_only_name_that_begins_so_is_meant_or_the_one_most_like_it() -> None:
    names = ["fedavg", "fedprox", "fedproto"]
    assert nearest_name("feda", names) == "fedavg"
    assert nearest_name("fedprx", names) == "fedprox"
    assert [nearest_name(word, names) for word in ("", "zzzz")] == [None, None]


def test_an_epsilon_is_never_told_to_be_smaller_than_it_is() -> None:
    shown = [shown_epsilon(value) for value in (1.00001, 0.92626, 8.0, 1234.5, np.float64(0.1))]
    assert shown == ["1.001", "0.9263", "8.0", "1235", "0.1"]


def test_a_line_names_some_and_counts_the_others() -> None:
    assert some_of([]) == ""
    assert some_of(["a", "b"], most=2) == "a, b"
    assert some_of(["a", "b", "c", "d"], most=2) == "a, b and 2 more"


def test_of_errors_in_groups_the_first_is_told() -> None:
    one, other = ValueError("one"), KeyError("other")
    assert first_error(one) is one
    assert first_error(ExceptionGroup("", [ExceptionGroup("", [one]), other])) is one
