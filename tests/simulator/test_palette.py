"""Colours and strokes of pictures."""

import numpy as np

from fedchain.simulator.palette import COLOURS, bar_style, line_style


def test_no_two_lines_or_bars_are_alike() -> None:
    lines = [line_style(place, 49) for place in range(49)]
    assert len({(str(line["color"]), str(line["linestyle"]), line["marker"]) for line in lines}) == 49
    assert len({(bar["facecolor"], bar["hatch"]) for bar in map(bar_style, range(49))}) == 49


def test_colours_are_told_apart_by_colour_blind_readers() -> None:
    """Each pair of the first six differs clearly as a deuteranope or a protanope sees it (Viénot et al., 1999)."""
    colours = [[int(text[place : place + 2], 16) / 255 for place in (1, 3, 5)] for text in COLOURS[:6]]
    linear = np.array(colours) ** 2.2
    for matrix in (
        [[0.29275, 0.70725, 0.0], [0.29275, 0.70725, 0.0], [-0.02234, 0.02234, 1.0]],
        [[0.11238, 0.88762, 0.0], [0.11238, 0.88762, 0.0], [0.00401, -0.00401, 1.0]],
    ):
        seen = np.clip(linear @ np.array(matrix).T, 0, 1) ** (1 / 2.2)
        distances = np.linalg.norm(seen[:, None] - seen[None], axis=2)[np.triu_indices(len(seen), 1)]
        assert distances.min() > 0.12, distances
