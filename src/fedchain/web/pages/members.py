"""Pages of members."""

from dataclasses import dataclass

from fedchain.chain.explorer.member_views import PeerView
from fedchain.web.chains import Chain, Reading
from fedchain.web.charts import line_chart
from fedchain.web.course.voting import turnout
from fedchain.web.figures.lanes import lanes, lanes_files
from fedchain.web.formats import Names
from fedchain.web.observed.requests import open_requests
from fedchain.web.pages.accuracy import accuracies_of, accuracy_of, measured_by, points_of
from fedchain.web.pages.asked import (
    MEMBERS_MAX,
    Context,
    Question,
    happened,
    marks_by_round,
    member_named,
    newest_round,
    number_in,
    peer,
    troubles_of,
)
from fedchain.web.pages.rounds import cells, parts_of

HEIGHTS_SHOWN = 500
"""Blocks up to the head in the charts of a member."""


@dataclass(frozen=True, slots=True)
class Member:
    """A member in a list."""

    number: int
    """Its place, from 0."""
    view: PeerView
    """The explorer's view of it."""
    accuracy: float | None
    """Accuracy of its model after its last training, a fraction; None if it is not known."""


def members(chain: Chain, reading: Reading, question: Question) -> Context:
    """All members, each with a summary of its part in the chain."""
    explorer, everybody = reading.explorer, reading.explorer.state.roster.members
    shown = [
        Member(number, peer(reading, member), accuracy_of(chain, member))
        for number, member in enumerate(everybody[:MEMBERS_MAX])
    ]
    now = explorer.state.height + 1
    height = number_in(question, "height", now)
    is_now, is_finished = height == now, explorer.state.finished
    lives = explorer.membership.lives(height, reading.lives)
    drawn = lanes(lives, MEMBERS_MAX, is_finished=is_now and is_finished)
    return {
        "members": shown,
        "more": max(0, len(everybody) - MEMBERS_MAX),
        "places": explorer.membership.places(height)[:MEMBERS_MAX],
        "places_height": height,
        "standings": {item.number: item.standing for item in explorer.membership.places()},
        "heights": explorer.held,
        "lanes": drawn if reading.lives.height >= height - 1 else None,
        "requests": open_requests(chain),
        "is_now": is_now,
        "is_finished": is_finished,
        "files": lanes_files(lives),
    }


def member(chain: Chain, reading: Reading, name: str) -> Context:
    """One member. Raises NotFound or InvalidAddress."""
    roster = reading.explorer.state.roster
    key = member_named(reading, name)
    place, measured = roster.seats[key], measured_by(chain, key)
    lines = list(reading.columns.lines(max(1, reading.columns.height - HEIGHTS_SHOWN + 1)))
    offsets = [
        (float(line.height), line.offsets_ms[line.voters.index(place)] / 1000) for line in lines if place in line.voters
    ]
    parts = parts_of(chain, reading, {place: accuracies_of(chain, key)}, newest_round(reading))
    return cells(parts, Names(chain.genesis, chain.key, numbers=reading.numbers)) | {
        "posted": sum(part.state == "posted" for part in parts[place]),
        "member": Member(place, peer(reading, key), accuracy_of(chain, key)),
        "turnout": turnout(lines, place),
        "troubles": troubles_of(chain, reading, place),
        "has_committee": any(reading.rule("committee_size", line.height) for line in lines),
        "clock": line_chart(
            "clock ahead of the others'",
            [("clock", offsets)],
            x_name="height",
            unit="s",
            marks=[(float(line.height), text) for line, _, text in happened(chain, reading, place)],
        ),
        "accuracy": line_chart(
            "accuracy",
            [
                ("own test set", points_of(measured, "taa")),
                ("whole test set", points_of(measured, "test_accuracy")),
            ],
            x_name="round",
            unit="%",
            marks=marks_by_round(chain, reading, place),
        ),
    }
