"""Validity of changes of the membership: each rule once, with its reason."""

from collections.abc import Sequence
from dataclasses import replace

from fedchain.chain.exceptions import (
    InvalidChange,
    InvalidGenesis,
    InvalidSignature,
    OutOfWindow,
    check,
    check_ascending,
)
from fedchain.chain.genesis import Admission, Genesis
from fedchain.chain.membership.amendment import AGGREGATOR, Amendment
from fedchain.chain.membership.change import (
    CHANGES_MAX,
    CHANGES_VERSION,
    PLACES_MAX,
    ROUNDS_AHEAD,
    Approval,
    Change,
    ChangeKind,
)
from fedchain.chain.membership.in_force import validate_amendment
from fedchain.chain.membership.member import Member, Standing
from fedchain.chain.membership.succession import churn_max, place_of, spare
from fedchain.chain.state import State
from fedchain.crypto.keys import PublicKey, is_valid_public_key
from fedchain.crypto.signatures import SignatureCheck


def validate_change(genesis: Genesis, state: State, change: Change, is_valid_signature: SignatureCheck) -> None:
    """Check a change and each of its approvals, of which there may be too few yet.

    Raises:
        InvalidSignature: its member or an approver did not sign it.
        InvalidChange: no block can count it any more.
        OutOfWindow: its time is over, or it was counted before.
    """
    # The founding document says whether members may change at all.
    check(bool(state.records), InvalidChange, "version", f"changes begin with version {CHANGES_VERSION}")
    # An old change would otherwise stay usable for ever.
    check(state.height < change.until, OutOfWindow, "until", f"height {change.until} is decided")
    if change.amendment is None:
        _validate_member(genesis, state, change, is_valid_signature)
    else:
        _validate_amendment(genesis, state, change, change.amendment)
    # A set of approvals has one form, and changes that nobody has to approve have none.
    check_ascending(InvalidChange, "approval order", (approval.approver for approval in change.approvals))
    if change.approvals and not change.kind.needs_approval:
        raise InvalidChange("approvals", f"{len(change.approvals)} found, nobody has to approve")
    for approval in change.approvals:
        _validate_approval(genesis, state, change, approval, is_valid_signature)


def _validate_member(genesis: Genesis, state: State, change: Change, is_valid_signature: SignatureCheck) -> None:
    member, kind = change.member, change.kind
    place, counted = place_of(state.roster, state.records, change), 0
    record = None if place is None else state.records[place]
    if record is not None:
        # A key that was replaced speaks for its member no more, whoever has it now.
        replaced = not kind.needs_approval and record.key != member
        check(not replaced, OutOfWindow, "member", f"{member.hex()} was replaced by another key")
        # No change of its own makes the others' approvals worthless: it could otherwise put them off for ever.
        counted = record.decided if kind.needs_approval else record.sequence
    _validate_sequence(change, counted)
    if record is None:
        _validate_newcomer(state, kind, member)
    else:
        _validate_standing(state, kind, record)
    if kind.gives_key:
        _validate_key(state, change.key, record)
    # The member itself wants it; whoever joins or takes another key shows that it has the key.
    signers = ((kind.needs_signature, member, change.signature), (kind.gives_key, change.key, change.proof))
    for is_needed, signer, signature in signers:
        if is_needed and not is_valid_signature(signer, signature, change.signing_message(genesis.chain_id)):
            raise InvalidSignature("signature", f"{signature.hex()[:16]}… is not {signer.hex()[:16]}…'s")


def _validate_sequence(change: Change, counted: int) -> None:
    # Each change of a member, and each amendment, is counted once, and in the order in which they were made.
    check(change.sequence >= counted, OutOfWindow, "sequence", f"{change.sequence} found, {counted} were counted")
    check(change.sequence == counted, InvalidChange, "sequence", f"{change.sequence} found, {counted} expected")


def _validate_amendment(genesis: Genesis, state: State, change: Change, amendment: Amendment) -> None:
    _validate_sequence(change, state.amendments.count)
    begin, earliest = change.begins(state.round), state.round + ROUNDS_AHEAD
    # Everybody knows a round's rules before the round begins.
    check(begin >= earliest, OutOfWindow, "amendment", f"round {begin} found, the next that it can begin is {earliest}")
    # The rules make sense in every round.
    try:
        validate_amendment(genesis, state.amendments, replace(amendment, round=begin))
    except InvalidGenesis as error:
        raise InvalidChange("amendment", str(error)) from None
    place = dict(amendment.values).get(AGGREGATOR)
    if isinstance(place, int):
        _validate_role(state, place)


def _validate_role(state: State, place: int) -> None:
    # Somebody has to do the work; others may know of a member that we do not know yet.
    members = len(state.records)
    check(place < members, OutOfWindow, "aggregator", f"place {place} found, there are {members}")
    record = state.records[place]
    is_out = record.next.is_for_good or record.key in state.roster.culprits
    check(not is_out, InvalidChange, "aggregator", f"{record.key.hex()} is gone, goes or was convicted")


def validate_approvals(genesis: Genesis, state: State, change: Change) -> None:
    """Check that enough members approve of a valid change. Raises InvalidChange."""
    required = approvals_required(genesis, state, change.kind)
    count = len(change.approvals)
    # Fewer than these must not decide who belongs to the federation.
    check(count >= required, InvalidChange, "approvals", f"{count} found, {required} required")


def approvals_required(genesis: Genesis, state: State, kind: ChangeKind) -> int:
    """Number of approvals that a change needs."""
    if not kind.needs_approval:
        return 0
    if state.rules.admission is Admission.SPONSORS and kind is not ChangeKind.AMEND:
        return state.rules.sponsors
    return genesis.fault_model.quorum(state.roster.active)


def validate_room(genesis: Genesis, state: State, changes: Sequence[Change]) -> None:
    """Check that a block's changes are not too many, for it or for the round. Raises InvalidChange."""
    count = len(changes)
    # Everybody has to check a quorum of signatures for each.
    check(count <= CHANGES_MAX, InvalidChange, "changes", f"{count} found, at most {CHANGES_MAX} fit")
    # Two changes of one member would each count as the next one.
    places = [place_of(state.roster, state.records, change) for change in changes]
    members = {change.member if place is None else place for place, change in zip(places, changes, strict=True)}
    check(len(members) == count, InvalidChange, "changes", f"{count} changes of {len(members)} members found")
    # Without a bit for each place, nobody could say which posts and votes it holds.
    joining = sum(change.kind is ChangeKind.JOIN for change in changes)
    left = PLACES_MAX - len(state.records)
    check(joining <= max(0, left), InvalidChange, "places", f"{joining} members join, {left} places are left")
    # A key has one member.
    keys = [change.key_afterwards for change in changes if change.kind.gives_key or change.kind is ChangeKind.JOIN]
    check(len(set(keys)) == len(keys), InvalidChange, "key", f"{len(keys)} members take {len(set(keys))} keys")
    # A light client that knows the members before a round's changes can tell what those after it decide.
    adds, takes = room_for_changes(genesis, state)
    added = sum(change.kind in (ChangeKind.JOIN, ChangeKind.BACK) for change in changes)
    taken = sum(
        change.kind in _TAKES_OUT and place is not None and state.roster.is_active(state.roster.members[place])
        for place, change in zip(places, changes, strict=True)
    )
    found = f"{added} members come and {taken} go, at most {adds} and {takes} may in this round"
    check(added <= adds and taken <= takes, InvalidChange, "churn", found)


def room_for_changes(genesis: Genesis, state: State) -> tuple[int, int]:
    """Members that the open round's blocks may still add, and members that they may still take out.

    In one round at most a quarter of the members, but one in any case, is added and as many are taken out: each quorum
    of those after has more than f of the members before, so that a light client may pass over the round. None is taken
    out below the fewest members that tolerate a fault, if there were ever as many.
    """
    due, limit = state.round + ROUNDS_AHEAD, churn_max(state.roster.active)
    changing = [record for record in state.records if record.is_changing]
    added = sum(record.next is Standing.ACTIVE and record.round == due for record in changing)
    taken = sum(record.standing is Standing.ACTIVE and record.round == due for record in changing)
    return max(0, limit - added), max(0, min(limit - taken, spare(genesis, state.roster.active, state.records)))


def _validate_newcomer(state: State, kind: ChangeKind, member: PublicKey) -> None:
    # Only joining is about somebody that never was a member; others may know of a key that we do not know yet.
    check(kind is ChangeKind.JOIN, OutOfWindow, "member", f"{member.hex()} is no member")
    _validate_key(state, member)


def _validate_key(state: State, key: PublicKey, member: Member | None = None) -> None:
    # A place is never reused, and what its key signs is its member's.
    check(key not in state.roster.seats, InvalidChange, "key", f"{key.hex()} has a place already")
    # Others name a member by the key with which it came, whatever it has since.
    named = any(record.first == key and record is not member for record in state.records)
    check(not named, InvalidChange, "key", f"{key.hex()} is the one with which another member came")
    # A key of small order has signatures that anybody can make.
    check(is_valid_public_key(key), InvalidChange, "key", f"{key.hex()} is no key of the full group")


def _validate_standing(state: State, kind: ChangeKind, record: Member) -> None:
    member = record.key.hex()
    # A place is never reused, and its key with it.
    check(kind is not ChangeKind.JOIN, InvalidChange, "member", f"{member} has a place already")
    # A convicted member is out for good.
    check(record.key not in state.roster.culprits, InvalidChange, "member", f"{member} was convicted")
    # One change of a member at a time; but what the others decide does not wait for its own, unless it goes for good:
    # whoever stole its key may have signed that, too.
    is_going = record.next is Standing.REMOVED or (record.next is Standing.LEFT and kind is not ChangeKind.RECOVER)
    waits = record.is_changing and (is_going or not kind.needs_approval)
    check(not waits, OutOfWindow, "member", f"another change of {member} is on its way")
    # One former key is remembered at a time: a member could leave its crimes behind by changing keys quickly.
    had = record.former is not None and kind is ChangeKind.REKEY
    check(not had, OutOfWindow, "member", f"{member} has this key since a moment ago")
    # Only who is away comes back, only who counts goes away, and only who is not gone can go.
    standing = _STANDING_BEFORE.get(kind)
    fits = record.standing is standing if standing is not None else not record.standing.is_for_good
    check(fits, InvalidChange, "standing", f"{member} is {record.standing.name.lower()}, {kind.name.lower()} found")


def _validate_approval(
    genesis: Genesis, state: State, change: Change, approval: Approval, is_valid_signature: SignatureCheck
) -> None:
    approver = approval.approver
    # In a closed federation nobody's approval lets anybody come or go; its parameters are the members' own.
    is_closed = genesis.admission is Admission.CLOSED and change.amendment is None
    check(not is_closed, InvalidChange, "admission", "the federation is closed")
    # Strangers have no say; but others may know of a key that we do not know yet, or not that it ceased to count.
    check(approver in state.roster.seats, OutOfWindow, "approver", f"{approver.hex()} is no member")
    check(state.roster.is_active(approver), OutOfWindow, "approver", f"{approver.hex()} does not count now")
    # Nobody judges its own case.
    is_own = state.roster.seats[approver] == place_of(state.roster, state.records, change)
    check(not is_own, InvalidChange, "approver", f"{approver.hex()} approves of its own change")
    if not is_valid_signature(approver, approval.signature, change.approval_message(genesis.chain_id)):
        raise InvalidSignature("approval", f"{approval.signature.hex()[:16]}… is not {approver.hex()[:16]}…'s")


_TAKES_OUT = (ChangeKind.LEAVE, ChangeKind.REMOVE, ChangeKind.AWAY)
"""Changes after which a member counts no more."""

_STANDING_BEFORE = {ChangeKind.BACK: Standing.AWAY, ChangeKind.AWAY: Standing.ACTIVE}
"""The standing that a member needs for a change, where it is one alone."""
