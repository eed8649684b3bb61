"""A map of class prototypes: their places on the plane on which they differ most, and their earlier places."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

MAP_SIZE, MAP_MARGIN = 400, 40
"""Units of the drawing."""

DOT_RADIUS = 5
"""Radius of a class's dot in the last round, in the same units."""

NAMED_MAX = 60
"""Most classes that have their names beside them; more would have no room."""

LETTER_WIDTH, LETTER_HEIGHT = 8.0, 14.0
"""Room of a letter, in the same units."""

DISTANCES, DIRECTIONS = (12.0, 18.0, 26.0, 36.0, 48.0, 62.0, 78.0), 12
"""Possible places of a name: distances from its class, and number of directions."""

Points = NDArray[np.float64]
"""(n, 2): distances from the left and from the top, in units of the drawing."""


@dataclass(frozen=True, slots=True)
class Dot:
    """A class on the map."""

    label: str
    """Its name."""
    x: float
    """Distance from the left."""
    y: float
    """Distance from the top."""
    style: int
    """Its style, from 0; see ``explorer.css``."""
    trail: str
    """Its earlier places, as the points of a polyline; empty if there are none."""
    name_x: float | None
    """Middle of its name, from the left; None if there is no room for names."""
    name_y: float | None
    """Middle of its name, from the top."""


def prototype_map(rounds: Sequence[dict[int, NDArray[np.float32]]]) -> tuple[Dot, ...]:
    """Principal components of the last round's prototypes (Pearson, 1901); earlier rounds on the same plane.

    Args:
        rounds: prototypes by class, (D,) each, from the oldest round to the newest.
    """
    if not rounds or len(rounds[-1]) < 2:
        return ()
    labels = sorted(rounds[-1])
    rows = np.stack([rounds[-1][label] for label in labels]).astype(np.float64)  # (n, D)
    middle = rows.mean(axis=0)
    _, _, axes = np.linalg.svd(rows - middle, full_matrices=False)
    axes = axes[:2]
    for axis in axes:  # one of two mirror images: the largest entry is positive
        axis *= 1.0 if axis[np.argmax(np.abs(axis))] >= 0 else -1.0
    if len(axes) < 2:
        axes = np.vstack([axes, np.zeros_like(axes[:1])])
    trails = [
        np.stack([item[label] for item in rounds if label in item and item[label].shape == middle.shape])
        for label in labels
    ]
    placed = _drawn([(trail.astype(np.float64) - middle) @ axes.T for trail in trails])  # (rounds, 2) each
    ends = np.stack([trail[-1] for trail in placed])
    names = place_names(ends, [str(label) for label in labels]) if len(labels) <= NAMED_MAX else None
    return tuple(
        Dot(
            label=str(label),
            x=float(ends[number, 0]),
            y=float(ends[number, 1]),
            style=number % 8,
            trail=" ".join(f"{x},{y}" for x, y in trail) if len(trail) > 1 else "",
            name_x=None if names is None else float(names[number, 0]),
            name_y=None if names is None else float(names[number, 1]),
        )
        for number, (label, trail) in enumerate(zip(labels, placed, strict=True))
    )


def place_names(dots: Points, names: Sequence[str]) -> Points:
    """Middles of the names, each beside its dot where it covers least of other names and dots. (n, 2)

    Names are placed one after the other, those with most dots around them first. A legend could not distinguish classes
    that share one of the eight styles, and most data sets have ten classes.
    """
    sizes = np.array([[LETTER_WIDTH * len(name) + 4, LETTER_HEIGHT] for name in names])
    crowds = (np.linalg.norm(dots[:, None] - dots[None], axis=2) < DISTANCES[3]).sum(axis=1)
    angles = np.arange(DIRECTIONS) * (2 * np.pi / DIRECTIONS)
    around = np.stack([np.cos(angles), -np.sin(angles)], axis=1)  # (directions, 2)
    offsets = np.concatenate([around * distance for distance in DISTANCES])
    farness = np.repeat(DISTANCES, DIRECTIONS)
    found, taken = dots.copy(), list[int]()
    for number in sorted(range(len(names)), key=lambda place: (-crowds[place], place)):
        size = sizes[number]
        middles = dots[number] + offsets * [1 + (size[0] - LETTER_HEIGHT) / 60, 1]  # longer names stand farther aside
        covered = _covered(middles, size, dots, np.full((len(dots), 2), 2.0 * DOT_RADIUS))
        covered += 5 * _covered(middles, size, found[taken], sizes[taken])
        beyond = np.maximum(0, np.maximum(size / 2 - middles, middles + size / 2 - MAP_SIZE)).sum(axis=1)
        found[number] = middles[np.argmin(4 * covered + 100 * (covered > 0) + 1000 * beyond + farness)]
        taken.append(number)
    return np.round(found, 1)


def _covered(middles: Points, size: Points, others: Points, other_sizes: Points) -> NDArray[np.float64]:
    """How much of ``others`` a box covers at each of its possible ``middles``: square units, (places,)."""
    reach = (size + other_sizes) / 2  # (n, 2)
    overlaps = np.maximum(0, reach[None] - np.abs(middles[:, None] - others[None]))  # (places, n, 2)
    return np.asarray(overlaps.prod(axis=2).sum(axis=1))


def _drawn(trails: Sequence[Points]) -> list[Points]:
    """The trails in units of the drawing, scaled to fill it."""
    points = np.concatenate(trails)
    low, high = points.min(axis=0), points.max(axis=0)
    scale = (MAP_SIZE - 2 * MAP_MARGIN) / max(float((high - low).max()), 1e-12)
    shift = (MAP_SIZE - (high + low) * scale) / 2
    return [np.round(np.array([0, MAP_SIZE]) + (trail * scale + shift) * [1, -1], 1) for trail in trails]
