"""Succession: the members' records after a block follow from those before it, and from what the block counts."""

from collections.abc import Iterable, Iterator, Sequence, Set
from dataclasses import replace

from fedchain.chain.block import Block
from fedchain.chain.genesis import Contributor, FaultModel, Genesis, PhaseRule
from fedchain.chain.membership.change import ROUNDS_AHEAD, Change, ChangeKind
from fedchain.chain.membership.member import FormerKey, Member, Standing
from fedchain.chain.membership.weights import reweigh, weight_of_newcomers
from fedchain.chain.roster import Roster
from fedchain.crypto.keys import PublicKey

START_TIMEOUTS = 4
"""Phase timeouts during which the silence of a member that begins to count is forgiven: one for the start of its
processes, one for a first training, and as many again, since what comes late is in no block."""

_STANDING_AFTER = {
    ChangeKind.JOIN: Standing.ACTIVE,
    ChangeKind.LEAVE: Standing.LEFT,
    ChangeKind.REMOVE: Standing.REMOVED,
    ChangeKind.BACK: Standing.ACTIVE,
    ChangeKind.AWAY: Standing.AWAY,
}
"""Standing of a member once a change holds."""


def succeed(
    genesis: Genesis,
    roster: Roster,
    records: Sequence[Member],
    block: Block,
    *,
    closes_round: bool,
    now_ms: int,
) -> tuple[Member, ...]:
    """The members' records after a block: its changes are on their way, and those that are due hold.

    Args:
        genesis: the rules of the federation.
        roster: the members before the block.
        records: their records; empty where they are the same for ever.
        block: the block, which is valid.
        closes_round: whether it closes its round.
        now_ms: time of the chain, once the block's certificate counts.
    """
    if not records:
        return ()
    after, round_number = _count_idle(genesis, roster, records, block), block.header.round
    active = frozenset(roster.counting)
    if not genesis.centralized:  # one member mines there, and would make nobody's blocks harder but its own
        after = reweigh(after, active, block.header.miner)
    weight = weight_of_newcomers(after, active)  # before keys are replaced, by which it knows the active ones
    culprits = _culprits_behind(roster, block)
    for change in block.changes:
        if change.kind is ChangeKind.AMEND:
            continue  # it is about no member
        if change.kind is ChangeKind.JOIN:
            due = round_number + ROUNDS_AHEAD
            after.append(Member(change.member, Standing.COMING, Standing.ACTIVE, due, 1, decided=1))
        else:
            place = place_of(roster, records, change)
            assert place is not None, "the change is valid"
            if after[place].key not in culprits:  # a convicted member is out for good, and known by this key
                after[place] = _changed(after[place], change, block.header.height, round_number)
    if closes_round:
        after = [
            record
            if record.is_settled
            else record.at(round_number + 1, weight, now_ms, is_convicted=record.key in culprits)
            for record in _send_away(genesis, roster, after, culprits, round_number, now_ms)
        ]
    return tuple(after)


def role_after(roster: Roster, records: Sequence[Member], block: Block) -> int | None:
    """The place with the role of a fixed or dedicated aggregator once a round is closed; None if there is no such role.

    A member keeps it until it goes, or fails in it: then the next one has it, and keeps it when the first one is back.

    Args:
        roster: the members before the block.
        records: their records after it.
        block: the last one of the round, which is valid.
    """
    if roster.holder is None:
        return None
    seat = roster.seats[roster.holder]
    culprits = _culprits_behind(roster, block)
    stay = {key for key, record in zip(roster.members, records, strict=False) if record.standing is Standing.ACTIVE}
    without = (frozenset(roster.members) - stay) | culprits
    if roster.is_active(roster.holder) and records[seat].round > block.header.round:  # it leaves, or has failed
        without |= {roster.holder}
    heir = roster.heir(without, seat)
    return seat if heir is None else heir


def _culprits_behind(roster: Roster, block: Block) -> frozenset[PublicKey]:
    """The members that are convicted once the block counts, by the keys that they had before it."""
    return roster.culprits | {roster.current(crime.culprit) for crime in block.evidence}


def _changed(record: Member, change: Change, height: int, round_number: int) -> Member:
    """A member's record once a block counts a change of it: another key holds at once, all else later."""
    due, decided = round_number + ROUNDS_AHEAD, record.decided + change.kind.needs_approval
    record = replace(record, sequence=record.sequence + 1, decided=decided)
    if not change.kind.gives_key:
        return replace(record, next=_STANDING_AFTER[change.kind], round=due)
    former = FormerKey(record.key, height, due, is_liable=change.kind is ChangeKind.REKEY)
    if change.kind is ChangeKind.RECOVER and record.next is Standing.LEFT:
        record = replace(record, next=record.standing, round=round_number)  # whoever stole the key may have signed that
    first = b"" if change.key == record.came_with else record.came_with
    return replace(record, key=change.key, former=former, first=first)


def place_of(roster: Roster, records: Sequence[Member], change: Change) -> int | None:
    """The place of the member that a change is about; None if it has none.

    A member's own changes name it by the key that it has. Changes that others approve of name it by the key with which
    it came: otherwise it would get out of their way by taking another one, as often as it likes.
    """
    if not change.kind.needs_approval:
        return roster.seats.get(change.member)
    return next((place for place, record in enumerate(records) if record.came_with == change.member), None)


def successor_of(roster: Roster, records: Sequence[Member], key: PublicKey) -> PublicKey | None:
    """The key that a member has in place of this one, which it had lately or came with; None if nobody has."""
    if key in roster.seats:
        return roster.successors.get(key)
    return next((record.key for record in records if record.came_with == key), None)


def amended_end(rounds: int, ends: Iterable[tuple[int, int, int]]) -> int:
    """The last round if blocks count all amendments of it at once; 0 if there is none.

    Args:
        rounds: the last round without amendments.
        ends: of each, its round, the round from which on it holds (0: the second one after), and the last one that it
            states.
    """
    held = sorted((begin or number + ROUNDS_AHEAD, number, end) for number, begin, end in ends)
    for begin, _, end in held:
        if 0 < rounds < begin:  # it is over before
            break
        rounds = end
    return rounds


def churn_max(active: int) -> int:
    """Most members that are added in one round, and most that are taken out: a quarter, and one in any case."""
    return max(1, active // 4)


def spare(genesis: Genesis, active: int, records: Sequence[Member]) -> int:
    """Number of ``active`` members that may still go, once those have gone that are on their way; may be negative."""
    leaving = sum(record.is_changing and record.standing is Standing.ACTIVE for record in records)
    return active - leaving - members_min(genesis, len(records))


def members_min(genesis: Genesis, places: int) -> int:
    """Fewest active members that changes may leave behind: four tolerate a liar, if there were ever as many."""
    return 4 if genesis.fault_model is FaultModel.BYZANTINE and places >= 4 else 1


def _count_idle(genesis: Genesis, roster: Roster, records: Sequence[Member], block: Block) -> list[Member]:
    """Count who owed a post to a block, and gave no sign of life.

    A vote is a sign of life, and to be in no certificate is no silence: a quorum's votes are enough for one, and those
    that are slower than a quorum, or than liars and others together, are in none. A post that came in time is counted.
    Where one member writes the chain, to have written a block with posts is a sign of life as well: a dedicated
    aggregator without phases of its own posts nothing.
    A fixed or dedicated aggregator of phases of its own is judged by those alone, if another could have its role: all
    others wait for its work, not for its vote.
    """
    below, posted = block.header.height - 1, {post.sender for post in block.transactions}
    if genesis.centralized and roster.holder is not None and posted:
        posted.add(roster.holder)
    voted = {vote.voter for vote in block.certificate.votes} if block.certificate is not None else set()
    phases = genesis.phases_of(block.header.round)
    holder = roster.holder if any(map(_is_aggregators, phases)) and _can_be_followed(roster) else None
    after, due = list(records), _owing(genesis, roster, block)
    concerned = posted | voted | due  # few, where few are drawn
    if holder is not None:
        concerned.add(holder)
    for seat in {roster.seats[key] for key in concerned if key in roster.seats}:
        record = records[seat]
        if record.key == holder:
            is_due = _is_aggregators(phases[block.header.phase])
            idle = 0 if record.key in posted else record.idle + _posts_of_round(genesis)
            after[seat] = replace(record, idle=idle) if is_due else record
        elif record.key in posted or record.key_at(below) in voted:
            after[seat] = replace(record, idle=0) if record.idle else record
        elif record.key in due:
            after[seat] = replace(record, idle=record.idle + 1)
    return after


def _owing(genesis: Genesis, roster: Roster, block: Block) -> Set[PublicKey]:
    """Members that a block shows to be silent if it has nothing of them.

    One without posts says nothing of its contributors: those that posted were too few. Where one member writes the
    chain, it shows that this one did not.
    """
    if block.transactions:
        return roster.contributors
    return {roster.holder} if genesis.centralized and roster.holder is not None else frozenset()


def _posts_of_round(genesis: Genesis) -> int:
    """Posts that a member owes in a round in which it contributes."""
    return max(1, sum(not _is_aggregators(phase) for phase in genesis.phases))


def _can_be_followed(roster: Roster) -> bool:
    if roster.holder is None:
        return False
    return roster.heir(roster.absent | roster.culprits | {roster.holder}, 0) is not None


def _is_aggregators(phase: PhaseRule) -> bool:
    return phase.by is Contributor.AGGREGATOR


def _send_away(
    genesis: Genesis,
    roster: Roster,
    records: list[Member],
    convicted: Set[PublicKey],
    round_number: int,
    now_ms: int,
) -> Iterator[Member]:
    """Let members that were silent for too long count no more, the longest silent first, while enough are left.

    ``records`` and ``convicted`` are those behind the block: nobody counts on a member that it convicts. Rounds may be
    shorter than a start takes, so a member that just began, a newcomer or one that is back, has time for that. A fixed
    or dedicated aggregator that may not go loses its role alone, as if it began to count now.
    """
    if not genesis.away_after:
        yield from records
        return
    patience = genesis.away_after * _posts_of_round(genesis)
    begun_ms = now_ms - START_TIMEOUTS * genesis.phase_timeout_ms
    counting = (record for record in records if record.standing is Standing.ACTIVE and not record.is_changing)
    silent = [record for record in counting if record.idle >= patience and record.since_ms <= begun_ms]
    silent.sort(key=lambda record: -record.idle)
    active = sum(record.standing is Standing.ACTIVE and record.key not in convicted for record in records)
    room = max(0, min(churn_max(active), spare(genesis, active, records)))
    away = {record.key for record in [item for item in silent if item.key not in convicted][:room]}
    aggregator = None if roster.holder is None else roster.seats[roster.holder]
    for seat, record in enumerate(records):
        if record.key in away:
            yield replace(record, next=Standing.AWAY, round=round_number + 1)
        elif seat == aggregator and record in silent:
            yield replace(record, round=round_number + 1)
        else:
            yield record
