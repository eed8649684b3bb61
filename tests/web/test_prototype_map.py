"""The map of class prototypes: classes where they are, and names that can be read."""

from itertools import combinations

import numpy as np
import pytest

from fedchain.web.prototype_map import (
    DOT_RADIUS,
    LETTER_HEIGHT,
    LETTER_WIDTH,
    MAP_SIZE,
    NAMED_MAX,
    place_names,
    prototype_map,
)


def overlaps(one: np.ndarray, other: np.ndarray, sizes: tuple[tuple[float, float], tuple[float, float]]) -> bool:
    reach = (np.array(sizes[0]) + np.array(sizes[1])) / 2
    return bool((np.abs(one - other) < reach - 0.11).all())  # places are rounded to a tenth


@pytest.mark.parametrize("spread", [0.0, 2.0, 10.0, 200.0])
def test_no_name_covers_another_or_a_dot_however_close_the_classes_are(spread: float) -> None:
    dots = 200 + spread * np.random.default_rng(1).uniform(-0.8, 0.8, (12, 2))
    names = [str(number) for number in range(12)]
    middles = place_names(dots, names)
    boxes = [(LETTER_WIDTH * len(name), LETTER_HEIGHT) for name in names]
    for one, other in combinations(range(12), 2):
        assert not overlaps(middles[one], middles[other], (boxes[one], boxes[other])), (one, other)
    for name in range(12):
        for dot in range(12):
            assert not overlaps(middles[name], dots[dot], (boxes[name], (2 * DOT_RADIUS, 2 * DOT_RADIUS))), (name, dot)
        assert (middles[name] > 0).all()
        assert (middles[name] < MAP_SIZE).all()


def test_a_class_alone_has_its_name_right_beside_it() -> None:
    dots = np.array([[100.0, 100.0], [300.0, 300.0]])
    assert (np.linalg.norm(place_names(dots, ["0", "1"]) - dots, axis=1) < 15).all()


def test_classes_are_where_their_main_directions_say() -> None:
    corners = {0: (0, 0), 1: (4, 0), 2: (0, 2), 3: (4, 2)}
    rows = {label: np.array([1.0, *place, 5.0], np.float32) for label, place in corners.items()}
    dots = prototype_map([rows])
    assert [dot.label for dot in dots] == ["0", "1", "2", "3"]
    assert {(dot.x, dot.y) for dot in dots} == {(40.0, 280.0), (360.0, 280.0), (40.0, 120.0), (360.0, 120.0)}
    assert all(dot.trail == "" for dot in dots)


def test_a_trail_ends_at_its_dot_and_shows_the_rounds_that_have_the_class() -> None:
    rng = np.random.default_rng(0)
    rounds = [{label: rng.normal(size=5).astype(np.float32) for label in range(3)} for _ in range(4)]
    del rounds[1][2]
    dots = prototype_map(rounds)
    assert [len(dot.trail.split()) for dot in dots] == [4, 4, 3]
    assert all(dot.trail.split()[-1] == f"{dot.x},{dot.y}" for dot in dots)


def test_so_many_classes_that_names_would_hide_them_have_none() -> None:
    rows = {label: np.array([label, -label], np.float32) for label in range(NAMED_MAX + 1)}
    dots = prototype_map([rows])
    assert len(dots) == NAMED_MAX + 1
    assert all(dot.name_x is None and dot.name_y is None for dot in dots)


def test_a_single_class_has_no_map() -> None:
    assert prototype_map([]) == prototype_map([{3: np.ones(4, np.float32)}]) == ()
