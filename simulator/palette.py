"""Styles of pictures: colours for colour-blind readers, and lines that stay visible where they coincide.

Colours: Okabe and Ito, "Color Universal Design", 2008, without its yellow, which is faint on white, and with grey for
its black, which is reserved for the papers' numbers.
"""

from typing import Any

from fedchain.simulator.scenario import Scenario
from fedchain.wording import counted

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#666666")
"""Colours of lines, bars and boxes, in this order."""

LINES: tuple[Any, ...] = ("-", "--", "-.", ":", (0, (5, 1)), (0, (3, 1, 1, 1)), (0, (1, 1)))
MARKERS = ("o", "s", "^", "D", "v", "P", "X")
HATCHES = ("", "///", "...", "xxx", "\\\\\\", "---", "+++")

WIDTHS = (1.2, 3.4)
"""Widths of the last and of the first line, in points: a line on top of another one leaves its edges visible."""


def line_style(place: int, count: int, rank: int | None = None) -> dict[str, Any]:
    """Matplotlib's settings for a line: no two of the first 49 lines are alike.

    Args:
        place: number of the line, the same in all pictures.
        count: number of lines in the picture.
        rank: order of the line in the picture, from the lowest; None: ``place``.
    """
    rank = place if rank is None else rank
    thin, thick = WIDTHS
    return {
        "color": colour(place),
        "linestyle": LINES[(place + place // len(COLOURS)) % len(LINES)],
        "marker": MARKERS[(place + place // len(COLOURS)) % len(MARKERS)],
        "markersize": 4,
        "linewidth": thin if count < 2 else thick - (thick - thin) * rank / (count - 1),
    }


def bar_style(place: int) -> dict[str, Any]:
    """Matplotlib's settings for a bar or box."""
    hatch = HATCHES[(place + place // len(COLOURS)) % len(HATCHES)]
    return {"facecolor": colour(place), "hatch": hatch, "edgecolor": "white", "linewidth": 0}


def colour(place: int) -> str:
    """The colour of the line, bar or box with number ``place``."""
    return COLOURS[place % len(COLOURS)]


def title_of(scenario: Scenario) -> str:
    """Title of the pictures of one run: method, data, peers and seed."""
    return f"{scenario.method} on {scenario.dataset}: {counted(scenario.peers, 'peer')}, seed {scenario.seed}"
