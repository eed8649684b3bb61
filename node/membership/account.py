"""The account of a federation's members: the set now, changes on their way, and requests, as plain values and lines."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from fedchain.chain.explorer.founding import plain_values, view_rules
from fedchain.chain.explorer.plain import plain
from fedchain.chain.genesis import Admission, Genesis
from fedchain.chain.membership.amendment import Amendment
from fedchain.chain.membership.change import Change, ChangeKind
from fedchain.chain.membership.member import Member, Standing
from fedchain.chain.membership.rules import approvals_required, room_for_changes
from fedchain.chain.membership.succession import amended_end, members_min, place_of, spare
from fedchain.chain.state import State
from fedchain.crypto.address import address
from fedchain.crypto.keys import PublicKey
from fedchain.wording import counted, printable

SHOWN_HASH = 8
"""Characters by which lines name a change."""

PURPOSES = {
    ChangeKind.JOIN: "joins",
    ChangeKind.LEAVE: "leaves",
    ChangeKind.REMOVE: "is removed",
    ChangeKind.BACK: "is back",
    ChangeKind.REKEY: "takes another key",
    ChangeKind.RECOVER: "gets another key in place of a lost one",
    ChangeKind.AWAY: "is away",
    ChangeKind.AMEND: "have other values",
}
"""The fate of the member of a change."""


def account(genesis: Genesis, head: State, changes: Sequence[Change], requests: Sequence[Change]) -> dict[str, Any]:
    """The members at a head, the open changes and the requests that no member approves of yet, as plain values.

    Members that are the same for ever have no records: each is active, or convicted.
    """
    return {
        "round": head.rules.rounds if head.finished else head.round,
        "active": head.roster.active,
        "quorum": genesis.fault_model.quorum(head.roster.active),
        "admission": head.rules.admission.value,
        "sponsors": head.rules.sponsors,
        "away_after": head.rules.away_after,
        "amended": plain(view_rules(genesis, head)),
        "members": [_member(head, number) for number in range(len(head.roster))],
        **proposed(genesis, head, changes, requests),
    }


def proposed(genesis: Genesis, head: State, changes: Sequence[Change], requests: Sequence[Change]) -> dict[str, Any]:
    """The open changes and the requests that no member approves of yet, as plain values."""
    return {
        "height": head.height,
        "changes": [plain_change(genesis, head, change) for change in changes],
        "requests": [plain_change(genesis, head, change) for change in requests],
    }


def _member(head: State, number: int) -> dict[str, Any]:
    key = head.roster.members[number]
    record = head.records[number] if head.records else Member(key, Standing.ACTIVE, Standing.ACTIVE, 0)
    return {
        "number": number,
        "address": address(key),
        "standing": "convicted" if key in head.roster.culprits else record.standing.name.lower(),
        "next": record.next.name.lower() if record.is_changing else "",
        "next_round": record.round if record.is_changing else 0,
        "silent_blocks": record.idle,
    }


def _amended(amendment: Amendment, reason: str) -> str:
    """The values of an amendment, and why they are proposed."""
    begin = f"from round {amendment.round} on" if amendment.round else "two rounds later"
    values = ", ".join(f"{name} {value}" for name, value in plain_values(amendment.values))
    return ": ".join(filter(None, (f"{values}, {begin}", reason)))


def plain_change(genesis: Genesis, head: State, change: Change) -> dict[str, Any]:
    """An open change as plain values, with who approves of it and who has not yet."""
    roster = head.roster
    approvers = {approval.approver for approval in change.approvals}
    required = approvals_required(genesis, head, change.kind)
    place = place_of(roster, head.records, change)
    member = change.member if place is None else roster.members[place]
    missing = (key for key in roster.members if roster.is_active(key) and key not in {*approvers, member})
    return {
        "hash": change.hash.hex(),
        "kind": change.kind.name.lower(),
        "number": place,
        "address": address(member) if member else "parameters",
        "key": address(change.key) if change.key else "",
        "text": change.text if change.amendment is None else _amended(change.amendment, change.text),
        "until": change.until,
        "required": required,
        "approved": [address(key) for key in _in_order(approvers, head)],
        "missing": [address(key) for key in missing] if required else [],
        "complete": len(approvers) >= required,
    }


def account_lines(found: dict[str, Any]) -> Iterator[str]:
    """The account for people."""
    numbers = {member["address"]: member["number"] for member in found["members"]}
    count = len(found["members"])
    away = counted(found["away_after"], "silent round")
    yield f"{'height':12}{found['height']}, round {found['round']}"
    yield f"{'members':12}{found['active']} of {count} count, a quorum is {found['quorum']}"
    yield f"{'admission':12}{admission_text(found['admission'], found['sponsors'], found['quorum'])}"
    yield f"{'away':12}{f'after {away}' if found['away_after'] else 'never'}"
    for item in found["amended"]["amended"]:
        yield f"{'amended':12}{item['name']} {item['value']}, founded with {item['founded']}"
    for item in found["amended"]["coming"]:
        values = ", ".join(f"{name} {value}" for name, value in item["values"])
        yield f"{'amended':12}{values}, from round {item['round']} on"
    for member in found["members"]:
        then = f", {member['next']} from round {member['next_round']} on" if member["next"] else ""
        yield f"{member['number']:>4}  {member['address']}  {member['standing']}{then}"
    yield from proposed_lines(found, numbers)


def proposed_lines(found: dict[str, Any], numbers: dict[str, int]) -> Iterator[str]:
    """Open changes and requests for people; nothing if there are none."""
    for title in ("changes", "requests"):
        if found[title]:
            yield from ("", "waits for a block, or for approval" if title == "changes" else "asks, nobody approves yet")
        for change in found[title]:
            yield f"{change['hash'][:SHOWN_HASH]}  {change_line(change, numbers)}, until height {change['until']}"


def admission_text(rule: str, sponsors: int, quorum: int) -> str:
    """A rule of admission in words."""
    match Admission(rule):
        case Admission.CLOSED:
            return "closed: nobody joins or is removed"
        case Admission.QUORUM:
            return f"a quorum approves, {quorum} now"
        case Admission.SPONSORS:
            return f"{counted(sponsors, 'member')} approve{'s' if sponsors == 1 else ''}"


def change_line(change: dict[str, Any], numbers: dict[str, int]) -> str:
    """An open change in one line, with its approvals where it needs any."""
    who = change["address"] if change["number"] is None else f"peer {change['number']}"
    text = f" ({printable(change['text'])})" if change["text"] else ""
    key = f", {change['key']}" if change["key"] else ""
    line = f"{who} {PURPOSES[ChangeKind[change['kind'].upper()]]}{key}{text}"
    return f"{line}: {approvals_text(change, numbers)}" if change["required"] else line


def approvals_text(change: dict[str, Any], numbers: dict[str, int]) -> str:
    """The members that approve of a change, and those that have not yet, in words."""

    def named(members: Iterable[str]) -> str:
        return ", ".join(f"peer {numbers[name]}" if name in numbers else name for name in members)

    by = f" ({named(change['approved'])})" if change["approved"] else ""
    approving, required = len(change["approved"]), change["required"]
    text = f"{approving} of {required} approve{by}" if approving <= required else f"{approving} approve{by}"
    return text if change["complete"] else f"{text}; not yet: {named(change['missing']) or 'nobody is left'}"


def follows_text(genesis: Genesis, head: State, change: Change) -> str:
    """The consequence of a change that is open at a head, and its time, in one sentence."""
    begin = change.begins(head.round)
    if not change.kind.gives_key and (last := _last_before(head, begin)):
        return f"it would hold from round {begin} on, and round {last} is the last"
    required = approvals_required(genesis, head, change.kind)
    if (lacks := required - len(change.approvals)) > 0:
        more = counted(lacks, "more approval")
        return (
            f"it takes {more}; each of the others says: fedchain node approve FOLDER {change.hash.hex()[:SHOWN_HASH]}"
        )
    if change.amendment is not None:
        return f"the next block can count it; the values hold from round {begin} on"
    if change.kind.gives_key:
        return "the next block can count it; the other key holds from the height after that on"
    adds, takes = room_for_changes(genesis, head)
    comes = change.kind in (ChangeKind.JOIN, ChangeKind.BACK)
    active, least = head.roster.active, members_min(genesis, len(head.records))
    if not comes and (left := spare(genesis, active, head.records)) <= 0:
        going = f", {number} of them on the way out" if (number := active - least - left) else ""
        return f"it waits until another member comes: {active} count{going}, and at least {least} stay"
    if not (adds if comes else takes):
        return "it waits: in this round no more members may " + ("come" if comes else "go")
    then = "counts" if comes else "counts no more"
    return f"the next block can count it; from round {begin} on the member {then}"


def _last_before(head: State, begin: int) -> int:
    """The last round, if it is closed before another one begins, by the amendments that are on their way; 0 if not."""
    values = ((item.round, dict(item.values)) for item in head.amendments.coming if item.round < begin)
    ends = [(number, number, int(of["rounds"])) for number, of in values if "rounds" in of]
    rounds = amended_end(head.rules.rounds, ends)
    return rounds if rounds < begin else 0


def numbers_at(head: State) -> dict[str, int]:
    """Numbers of members by address."""
    return {address(key): number for key, number in head.roster.seats.items()}


def _in_order(members: Iterable[PublicKey], head: State) -> list[PublicKey]:
    """Members in the order of their numbers."""
    return sorted(members, key=lambda key: head.roster.seats.get(key, len(head.roster)))
