"""The law of scale: bytes of a run by kind of message, from the protocol's records and the federation's shape.

``docs/scale.md`` states it, ``make bench ARGS=scale-law`` holds it against runs, and a test against small ones.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from fedchain.chain.encoding import BYTES_PER_ITEM, ITEMS_FREE
from fedchain.chain.genesis import GENESIS_SIZE_MAX, FaultModel
from fedchain.chain.knowledge import Occasion
from fedchain.chain.membership.turnout import MARKS_SIZE_MAX
from fedchain.chain.state import STATE_ITEMS_MAX, STATE_SIZE_MAX
from fedchain.crypto.keys import PublicKey
from fedchain.learning.executors.executor import Answer, Job, Question
from fedchain.learning.executors.inline import Done
from fedchain.network.limits import Limits
from fedchain.network.messages import BITMAP_SIZE_MAX, CHUNK_SIZE, MESSAGE_SIZE_MAX
from fedchain.node.core.following.announcing import GREETED_PEERS, STATUS_PEERS
from fedchain.simulator.engine.outcome import Outcome
from fedchain.simulator.engine.simulation import Simulation
from fedchain.simulator.scenario import Scenario
from tests.support.simulator.trivial import TrivialExecutor, TrivialRules, contribution, trivial_simulation

CONTENT_SIZE = 12
"""Bytes of a payload of the trivial task."""

FOUNDER_SIZE = 34
"""Bytes of a member in the genesis document: its key, and two more."""

RECORD_SIZE = 50
"""Bytes of a member's record in a state, if nothing but its founding has happened to it."""

RECORD_ITEMS = 18
"""Items of this record to a decoder: a list of 14 values, of which two are empty lists."""

AWAITED = 0.65
"""Bytes of marks of members that a voter waited for ÷ bytes of its other marks. Fitted."""

VOTING_S = 0.1
"""Seconds of a round in which a status also lists a candidate, its quorum and both kinds of votes. Fitted."""

REPEATS = 0.005
"""Share of posts that a member gets once more, because a status told of them before they came. Fitted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """A federation, as far as bytes depend on it."""

    members: int
    """n."""
    contributors: int
    """m: members that post in a round."""
    committee: int
    """c: members that vote on a block."""
    payload: int
    """p: bytes of a post's payload."""
    inline: int = 64 * 2**10
    """Most bytes of a payload that travels inside its post."""
    degree: float = 0.0
    """d: mean number of neighbours in the gossip mesh; 0: everybody is everybody's neighbour."""
    blocks: float = 1.0
    """Candidates of a round."""

    @property
    def copies(self) -> float:
        """Copies of a gossip message: its author sends d of them, and each other peer passes on d − 1."""
        n = self.members
        return n * (self.degree - 1) + 1 if self.degree else n - 1

    @property
    def greeted(self) -> float:
        """Neighbours that a peer greets with its status and its session when it starts."""
        return min(GREETED_PEERS, self.degree or self.members - 1)

    @property
    def told_at_once(self) -> float:
        """Neighbours that it tells its status at its first tick, beside those at any tick."""
        enough = FaultModel.BYZANTINE.faulty(self.members) + 1
        return min(enough, self.degree or self.members - 1) - STATUS_PEERS if enough > GREETED_PEERS else 0

    @property
    def bitmap(self) -> int:
        """Bytes of a bitmap of the members, with their length."""
        size = math.ceil(self.members / 8)
        return _head(size) + size


def post_size(payload: int, inline: int = 64 * 2**10) -> int:
    """Bytes of a post's message; its payload is in it if it has at most ``inline`` bytes."""
    return 4 + _record_size(payload) + (_head(payload) + payload if payload <= inline else 0)


def prevote_size() -> int:
    """Bytes of a prevote's message."""
    return 143


def turnout_size(members: int, awaited: float = AWAITED) -> float:
    """Bytes of a voter's account of a phase: two times and two sets of marks, the second with a share of the first."""
    marks = min(math.ceil(members / 8), MARKS_SIZE_MAX)
    return 6 + _head(marks) + marks + 2 + awaited * marks


def precommit_size(members: int) -> float:
    """Bytes of a precommit's message: the voter's clock, how long the block was mined, and the turnout."""
    return 153 + turnout_size(members)


def block_size(members: int, posts: int, votes: int, payload: int) -> float:
    """Bytes of a candidate's message, with ``votes`` in its parent's certificate; none: the first block."""
    body = 398 + _length(posts) + _record_size(payload) * posts
    return body + (certificate_size(members, votes) if votes else 0)


def certificate_size(members: int, votes: int) -> float:
    """Bytes of a certificate."""
    return 38 + _length(votes) + (113 + turnout_size(members)) * votes


def final_size(members: int, posts: int, votes: int, payload: int) -> float:
    """Bytes of the message that hands out a final block with its own certificate beside its parent's."""
    return block_size(members, posts, votes, payload) + certificate_size(members, votes)


def longest_final_size(members: int) -> float:
    """The same where all post and vote, and the votes of all that may lie have the longest marks."""
    votes, longest = quorum(members), 6 + 2 * (3 + MARKS_SIZE_MAX)
    more = FaultModel.BYZANTINE.faulty(members) * (longest - turnout_size(members))
    return final_size(members, members, votes, CHUNK_SIZE) + 2 * more


def status_size(shape: Shape) -> int:
    """Bytes of a status outside votes."""
    return 41 + shape.bitmap


def status_extra(shape: Shape) -> int:
    """Bytes that a status has more while the members vote: a candidate, its quorum, and both kinds of votes."""
    return 34 + 36 + 2 * (3 + shape.bitmap)


def chunks_size(payload: int) -> int:
    """Bytes of questions and answers by which one peer fetches a content."""
    offsets = range(0, payload, CHUNK_SIZE)
    parts = (min(CHUNK_SIZE, payload - offset) for offset in offsets)
    return sum(2 * (37 + _integer(offset)) + _head(part) + part for offset, part in zip(offsets, parts, strict=True))


def quorum(committee: int) -> int:
    """Votes of a certificate, q."""
    return FaultModel.BYZANTINE.quorum(committee)


def bytes_of_round(shape: Shape, round_s: float) -> dict[str, float]:
    """Bytes that all peers send in a round of ``round_s`` seconds, by what they are sent for."""
    n, m, c, copies = shape.members, shape.contributors, shape.committee, shape.copies
    post, prevote, precommit = post_size(shape.payload, shape.inline), prevote_size(), precommit_size(n)
    late = c - quorum(c) if shape.degree else 0  # precommits about a block that is final, which nobody passes on
    fetched = chunks_size(shape.payload) if shape.payload > shape.inline else 0
    return {
        "posts": copies * m * post,
        "payloads": (n - 1) * m * fetched,
        "votes": copies * (c * prevote + (c - late) * precommit) + shape.degree * late * precommit,
        "candidates": copies * shape.blocks * block_size(n, m, quorum(c), shape.payload),
        "statuses": STATUS_PEERS * n * (status_size(shape) * round_s + status_extra(shape) * VOTING_S),
        "repeats": REPEATS * n * (m * post + c * (prevote + precommit) / 2),
    }


def bytes_of_start(shape: Shape) -> dict[str, float]:
    """Bytes that all peers send because they start, and what the first block lacks beside the others."""
    n = shape.members
    return {
        "sessions": n * (shape.copies + shape.greeted) * 126,
        "statuses": n * (shape.greeted + shape.told_at_once) * status_size(shape),
        "candidates": -shape.copies * certificate_size(n, quorum(shape.committee)),
    }


def bytes_of_run(shape: Shape, rounds: int, virtual_s: float) -> dict[str, float]:
    """Bytes of a run from its start to its end, which comes after ``virtual_s`` seconds."""
    of_round, start = bytes_of_round(shape, virtual_s / rounds), bytes_of_start(shape)
    return {name: rounds * of_round.get(name, 0) + start.get(name, 0) for name in of_round | start}


KINDS = {
    "posts": ("PostMessage",),
    "payloads": ("GetContent", "Chunk", "GetPayloads", "Payloads"),
    "votes": ("VoteMessage",),
    "candidates": ("CandidateMessage",),
    "statuses": ("Status",),
    "sessions": ("SessionMessage",),
}
"""By name in the law: the messages that it is about. The rest are questions and their rarer answers."""


def arrivals_of_round(shape: Shape) -> tuple[float, float, float]:
    """Posts and other messages that all peers handle in a round, and copies of gossip that they drop."""
    n, posts, others = shape.members, shape.contributors, 2 * shape.committee + shape.blocks
    return (n - 1) * posts, (n - 1) * others, (shape.copies - (n - 1)) * (posts + others)


def walls() -> dict[str, int]:
    """Most members that each limit of the code allows where all of them post and vote, unless it says otherwise."""
    limits = Limits()
    return {
        "a candidate is gossiped": largest(lambda n: _all_posted(n, quorum(n)) <= limits.gossip_size_max),
        "the same where 32 vote": largest(lambda n: _all_posted(n, quorum(32)) <= limits.gossip_size_max),
        "a final block is one message": largest(lambda n: final_size(n, n, quorum(n), CHUNK_SIZE) <= MESSAGE_SIZE_MAX),
        "the same where liars' votes have the longest marks": largest(
            lambda n: longest_final_size(n) <= MESSAGE_SIZE_MAX
        ),
        "a final block that 32 vote on": largest(
            lambda n: final_size(n, n, quorum(32), CHUNK_SIZE) <= MESSAGE_SIZE_MAX
        ),
        "the members of a light block": largest(_set_is_read),
        "a bitmap marks all": 8 * BITMAP_SIZE_MAX,
        "the genesis document": GENESIS_SIZE_MAX // FOUNDER_SIZE,
        "an encoded state": min(STATE_SIZE_MAX // RECORD_SIZE, STATE_ITEMS_MAX // RECORD_ITEMS),
    }


def _all_posted(count: int, votes: int) -> float:
    """Bytes of a candidate to which all members posted."""
    return block_size(count, count, votes, CHUNK_SIZE)


def _set_is_read(count: int) -> bool:
    """Whether a decoder takes the record of so many members: two items in a list each, more than other bytes have."""
    size = 3 + sum(36 + (place > 127) + (place > 255) for place in range(count))
    return 2 + 4 * count <= ITEMS_FREE + size // BYTES_PER_ITEM


def largest(fits: Callable[[int], bool]) -> int:
    """The largest number that fits, where none above it does."""
    low, high = 1, 2
    while fits(high):
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return low


class PaddedRules(TrivialRules):
    """The trivial task with payloads of any size."""

    def __init__(self, size: int) -> None:
        self._size = size

    def check(self, occasion: Occasion, sender: PublicKey, knowledge: bytes, payload: bytes) -> None:
        if len(payload) != self._size:
            raise ValueError(f"{len(payload)} bytes found, {occasion.phase} has {self._size}")

    def aggregate(self, occasion: Occasion, knowledge: bytes, posts: Sequence[tuple[PublicKey, bytes]]) -> bytes:
        return super().aggregate(occasion, knowledge, [(sender, payload[:CONTENT_SIZE]) for sender, payload in posts])


class PaddedExecutor(TrivialExecutor):
    """Answers with what the trivial task posts, and zeros behind it."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self._size = size

    def ask(self, question: Question) -> Job[Answer]:
        made = contribution(question.client, question.round, question.knowledge)
        return Done(replace(made, payload=made.payload.ljust(self._size, b"\0")))


def padded_simulation(scenario: Scenario, payload: int = CONTENT_SIZE, **arguments: Any) -> Simulation:
    """A simulation of the protocol alone, with payloads of ``payload`` bytes."""
    return trivial_simulation(scenario, rules=PaddedRules(payload), executor=PaddedExecutor(payload), **arguments)


def shape_of(scenario: Scenario, simulation: Simulation, outcome: Outcome, payload: int = CONTENT_SIZE) -> Shape:
    """The shape of a run, with the neighbours and candidates that it had."""
    n = scenario.members
    neighbours = [len(simulation.network.neighbours(number)) for number in range(n)]
    return Shape(
        members=n,
        contributors=scenario.contributors_per_round or n,
        committee=scenario.committee_size or n,
        payload=payload,
        inline=scenario.inline_kib_max * 2**10,
        degree=sum(neighbours) / n if scenario.degree else 0.0,
        blocks=sum(row.blocks for row in outcome.rows) / len(outcome.rows),
    )


def sent_by_name(outcome: Outcome) -> dict[str, int]:
    """Bytes that a run sent, by the names of the law; "questions" are those of all other kinds."""
    left = {kind: size for kind, (_, size) in outcome.totals["messages_sent"].items()}
    found = {name: sum(left.pop(kind, 0) for kind in kinds) for name, kinds in KINDS.items()}
    return found | {"questions": sum(left.values())}


def _record_size(payload: int) -> int:
    """Bytes of a post in a block."""
    return 137 + _integer(payload)


def _integer(value: int) -> int:
    """Bytes of an encoded number."""
    return next(size for size, end in ((1, 2**7), (2, 2**8), (3, 2**16), (5, 2**32), (9, 2**64)) if value < end)


def _head(size: int) -> int:
    """Bytes before a byte string of a size."""
    return 2 if size < 2**8 else 3 if size < 2**16 else 5


def _length(items: int) -> int:
    """Bytes before the items of a list."""
    return 1 if items < 2**4 else 3 if items < 2**16 else 5
