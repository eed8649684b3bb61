"""The voting on a height, as far as certificates and the votes that nodes keep tell it.

A certificate has the precommits that made a quorum, each with its voter's clock. Prevotes, votes for no block, failed
attempts and late votes are in no certificate: only the store of the node that signed them keeps them, or one whose
own votes rest on them. A vote that precommits no block has no clock.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, groupby

from fedchain.chain.exceptions import ChainError
from fedchain.chain.explorer.columns import Line
from fedchain.chain.explorer.views import BlockView, CertificateView, Voter
from fedchain.chain.vote import NIL, Vote, VoteKind
from fedchain.crypto.address import address
from fedchain.crypto.hashing import Hash
from fedchain.web.chains import Chain
from fedchain.web.charts import WIDTH

WRONG_CLOCK_MS = 2_000
"""A clock further than this from the median is not drawn: it would squeeze all others."""


@dataclass(frozen=True, slots=True)
class Ballot:
    """All votes of a member on a height that are known."""

    member: str
    """Address of the voter."""
    prevotes: tuple[str, ...]
    """Its prevotes, attempt by attempt, for people."""
    precommits: tuple[str, ...]
    """Its precommits, attempt by attempt, for people."""
    ahead_ms: int | None
    """Its clock when it precommitted the final block, after the certificate's median; None: not known."""
    mined_ms: int | None
    """How long it saw the block being mined; None: not known."""
    counts: bool
    """Whether the certificate has its precommit."""


@dataclass(frozen=True, slots=True)
class Voting:
    """The voting on a height."""

    ballots: tuple[Ballot, ...]
    """Members of which a vote is known, in the order of their numbers."""
    unknown: tuple[str, ...]
    """Addresses of the others that could vote; empty if there are none, or if it is not known who could."""
    watched: int
    """Nodes whose votes on the height are kept here."""
    first_ms: int
    """The clock of the first precommit that is drawn, after the certificate's median."""
    places: tuple[float, ...]
    """Clocks of the precommits, in thousandths of the time from the first to the last that is drawn."""
    drawn_ms: int
    """That time."""


def voting(chain: Chain, view: BlockView, places: Mapping[str, int]) -> Voting:
    """The voting on a final block; ``places`` are the members' numbers."""
    assert view.certificate is not None, "a final block has a certificate"
    kept, nodes = _kept_votes(chain, view.summary.height)
    certified = {voter.member: voter for voter in view.voters}
    found = [
        _ballot(member, certified.get(member), kept.get(member, ()), view.summary.hash, view.certificate)
        for member in sorted({*certified, *kept}, key=lambda name: places.get(name, -1))
    ]
    clocks = sorted(ballot.ahead_ms for ballot in found if ballot.ahead_ms is not None)
    drawn = [clock_ms for clock_ms in clocks if abs(clock_ms) <= WRONG_CLOCK_MS] or [0]
    since_ms, span_ms = drawn[0], drawn[-1] - drawn[0]
    unknown = {*(view.could_vote or ())} - {*certified, *kept}
    return Voting(
        ballots=tuple(found),
        unknown=tuple(sorted(unknown, key=lambda name: places.get(name, -1))),
        watched=nodes,
        first_ms=since_ms,
        places=tuple(round(WIDTH * (clock_ms - since_ms) / max(1, span_ms), 1) for clock_ms in drawn),
        drawn_ms=span_ms,
    )


def _kept_votes(chain: Chain, height: int) -> tuple[dict[str, list[Vote]], int]:
    """The votes that folders keep, by their voters' addresses, and the number of nodes that keep any.

    A node keeps its own, and those of others on which they rest: one vote may be in several folders.
    """
    found, nodes = dict[str, dict[Vote, None]](), set[str]()
    for holder in chain.holders:
        try:
            store, _ = holder.look()
            for vote in store.votes(height):
                found.setdefault(address(vote.voter), {})[vote] = None
                nodes.add(holder.address or str(holder.place.folder))
        except ChainError:
            continue
    return {voter: sorted(votes, key=lambda vote: vote.slot) for voter, votes in found.items()}, len(nodes)


def _ballot(
    member: str, certified: Voter | None, own: Sequence[Vote], block: Hash, certificate: CertificateView
) -> Ballot:
    prevotes = [_text(vote.block_hash, vote.attempt, block) for vote in own if vote.kind == VoteKind.PREVOTE]
    precommitted = [vote for vote in own if vote.kind == VoteKind.PRECOMMIT]
    precommits = [_text(vote.block_hash, vote.attempt, block) for vote in precommitted]
    ahead_ms, mined_ms = None, None
    for vote in precommitted:
        if vote.block_hash == block:
            ahead_ms, mined_ms = vote.clock_ms - certificate.clock_ms, vote.mining_ms
    if certified is not None:
        ahead_ms, mined_ms = certified.clock_offset_ms, certified.mining_time_ms
        text = _text(block, certificate.attempt, block)
        precommits += [text] if text not in precommits else []
    return Ballot(member, tuple(prevotes), tuple(precommits), ahead_ms, mined_ms, counts=certified is not None)


def _text(voted: Hash, attempt: int, block: Hash) -> str:
    name = {block: "this block", NIL: "no block"}.get(voted, f"block {voted.hex()[:10]}…")
    return f"{name} in attempt {attempt + 1}" if attempt else name


@dataclass(frozen=True, slots=True)
class Turnout:
    """How often certificates have a member's vote."""

    marks: tuple[str, ...]
    """For each block, voted or absent: names for a strip of small fields."""
    longest: tuple[int, int] | None
    """First and last height of the longest run of blocks without its vote; None if there is none."""
    current: int
    """Blocks up to the last one without its vote."""

    @property
    def voted(self) -> int:
        """Blocks with its vote."""
        return self.marks.count("voted")


def turnout(lines: Sequence[Line], place: int) -> Turnout:
    """Count a member's votes in the certificates of blocks, oldest first."""
    marks = tuple("voted" if place in line.voters else "absent" for line in lines)
    ends = [(mark, len([*run])) for mark, run in groupby(marks)]
    starts = accumulate((count for _, count in ends), initial=0)
    runs = [(count, start) for (mark, count), start in zip(ends, starts, strict=False) if mark == "absent"]
    count, start = max(runs, key=lambda run: run[0], default=(0, 0))
    return Turnout(
        marks=marks,
        longest=(lines[start].height, lines[start + count - 1].height) if count else None,
        current=ends[-1][1] if ends and ends[-1][0] == "absent" else 0,
    )
