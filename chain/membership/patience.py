"""Patience: how long a phase waits for each of its contributors. It is a budget, so that nobody sets the pace.

Beyond the time at which the posts required were in, waiting is owed by those that were waited for. Each round pays back
a share of the time that it took without waiting. A member whose debt has reached the timeout is waited for no longer;
its post counts all the same if it is in time. In the long run f members add at most ``patience_percent`` of that time
to the rounds, however they take turns.
"""

from collections.abc import Iterable, Iterator, Sequence, Set
from dataclasses import replace

from fedchain.chain.certificate import Certificate
from fedchain.chain.genesis import Genesis
from fedchain.chain.membership.member import Due, Member
from fedchain.chain.membership.turnout import Turnout, agree, is_marked


def grant_ms(genesis: Genesis, record: Member, *, is_punctual: bool) -> int:
    """How long the open phase waits for a member, in milliseconds from when the posts required are in.

    One that was late is tried again with all of its patience, once that is there, if it has given a sign of life since:
    by less, waiting for a member that always needs longer would be in vain, and the same time lost again.
    """
    # The votes that say how long it was waited for in vain are not on the chain yet.
    if record.due is Due.IN_VAIN:
        return 0
    if is_punctual or (not record.owed_ms and not record.idle):
        return max(0, genesis.phase_timeout_ms - record.owed_ms)
    return 0


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
        is_charged = record.due is not Due.NOT and is_marked(turnout.awaited, seat)
        owed_ms = max(0, record.owed_ms - paid_ms) + (turnout.waited_ms if is_charged else 0)
        yield replace(record, owed_ms=owed_ms) if owed_ms != record.owed_ms else record


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
