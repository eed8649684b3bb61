"""Patience: how long a phase waits for each of its contributors. It is a budget, so that nobody sets the pace.

Beyond the time at which the posts required were in, waiting is owed by those that were waited for. Each round pays back
a share of the time that it took without waiting. A member whose debt has reached the timeout is waited for no longer;
its post counts all the same if it is in time. In the long run f members add at most ``patience_percent`` of that time
to the rounds, however they take turns.

Nobody is waited for much longer than its posts took lately. So a member that always came soon and then leaves costs no
more than a round without it takes, whatever budget it had.
"""

from collections.abc import Iterable, Iterator, Sequence, Set
from dataclasses import replace

from fedchain.chain.certificate import Certificate
from fedchain.chain.genesis import Genesis
from fedchain.chain.membership.member import SHORTENED_MAX, Due, Member
from fedchain.chain.membership.turnout import SEATS_MARKED, Turnout, agree, is_marked

MARGIN = 2
"""A member is waited for up to so many times as long as it was lately."""

FORGETTING = 8
"""Each phase in which a member comes sooner takes this fraction (1/8) off the longest wait for it.

Phases of one round may differ: three of them leave two thirds, which is more than the slowest one calls for. In whole
steps, a wait that once fits stays the same, and records are not written anew in each block.
"""


def grant_ms(genesis: Genesis, record: Member, *, is_punctual: bool) -> int:
    """How long the open phase waits for a member, in milliseconds from when the posts required are in.

    One that was late is tried again with all of its patience, once that is there, if it has given a sign of life since:
    by less, waiting for a member that always needs longer would be in vain, and the same time lost again.
    """
    # The votes that say how long it was waited for in vain are not on the chain yet.
    if record.due is Due.IN_VAIN:
        return 0
    if is_punctual or (not record.owed_ms and not record.idle):
        left_ms = max(0, genesis.phase_timeout_ms - record.owed_ms)
        return min(left_ms, longest_ms(genesis.phase_timeout_ms, record.shortened))
    return 0


def longest_ms(timeout_ms: int, shortened: int) -> int:
    """The longest wait for a member, in milliseconds: what is left of the timeout after so many eighths were taken."""
    left_ms: int = timeout_ms * (FORGETTING - 1) ** shortened // FORGETTING**shortened
    return left_ms


def turnout_of(genesis: Genesis, certificate: Certificate | None, electors: int, seats: int) -> Turnout | None:
    """The turnout on which a certificate's voters agree, of the phase that its block closed; None if there is none.

    Args:
        genesis: the rules of the federation.
        certificate: votes for the block; None for the founding document.
        electors: number of members that decided on the block, of whom f may lie. Members that left, or were not drawn,
            have no vote: an f of theirs, too, would be more than voters can outnumber.
        seats: number of all that were ever members.
    """
    if certificate is None:
        return None
    said = [vote.turnout for vote in certificate.votes if vote.turnout is not None]
    return agree(said, genesis.fault_model.faulty(electors), seats) if said else None


def settle_waits(
    genesis: Genesis, records: Sequence[Member], turnout: Turnout | None, mining_ms: int, active: int
) -> Iterator[Member]:
    """The records once the votes for the last block are on the chain.

    Args:
        genesis: the rules of the federation.
        records: the members' records, by seat.
        turnout: what the voters saw; None if they said nothing.
        mining_ms: how long the last block was mined.
        active: number of members that count, of whom f may be late on purpose.
    """
    if turnout is None:
        yield from records
        return
    faulty = max(1, genesis.fault_model.faulty(active))
    paid_ms = (turnout.quorum_ms + mining_ms) * genesis.patience_percent // (100 * faulty)
    for seat, record in enumerate(records):
        # Without a mark it is charged in any case: it would set the pace otherwise.
        is_awaited = is_marked(turnout.awaited, seat) or seat >= SEATS_MARKED
        is_charged = record.due is not Due.NOT and is_awaited
        owed_ms = max(0, record.owed_ms - paid_ms) + (turnout.waited_ms if is_charged else 0)
        shortened = record.shortened if record.due is Due.NOT else _shorten(genesis, record, turnout, seat)
        is_as_before = (owed_ms, shortened) == (record.owed_ms, record.shortened)
        yield record if is_as_before else replace(record, owed_ms=owed_ms, shortened=shortened)


def _shorten(genesis: Genesis, record: Member, turnout: Turnout, seat: int) -> int:
    """How often the longest wait for a member that was due is shortened: not at all if it was late, for then nobody
    knows what it needs; otherwise once more than before, as far as what is left is what it calls for.

    It is never less than what a round takes without waiting: posts that once came soon need not do so ever after.
    """
    if not is_marked(turnout.punctual, seat):
        return 0
    later_ms = turnout.waited_ms if is_marked(turnout.awaited, seat) else turnout.waited_ms // 2
    least_ms = max(genesis.phase_floor_ms, turnout.quorum_ms + genesis.target_mining_time_ms)
    needed_ms, shortened = max(MARGIN * later_ms, least_ms), min(record.shortened + 1, SHORTENED_MAX)
    while shortened and longest_ms(genesis.phase_timeout_ms, shortened) < needed_ms:
        shortened -= 1
    return shortened


def mark_due(records: Iterable[Member], due: Set[int], awaited: Set[int]) -> Iterator[Member]:
    """The records with a note of who was due in the phase that a block closes.

    Args:
        records: the members' records, by seat.
        due: seats of the contributors; none if the block says nothing of them.
        awaited: seats of those that were waited for although the block does not count them.
    """
    for seat, record in enumerate(records):
        mark = Due.NOT if seat not in due else Due.IN_VAIN if seat in awaited else Due.ONCE
        yield replace(record, due=mark) if mark is not record.due else record
