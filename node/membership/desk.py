"""The desk: a running node's operator asks for changes of the membership, and approves of others'.

Each answer says in words what follows and when. Asked for the same again, it says so, and does nothing.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Protocol

from fedchain.chain.exceptions import InvalidGenesis, Refused
from fedchain.chain.genesis import Admission, Genesis
from fedchain.chain.membership.amendment import AGGREGATOR, LEARNING, Amendment, amendment_of
from fedchain.chain.membership.change import (
    CHANGES_VERSION,
    TEXT_SIZE_MAX,
    Change,
    ChangeKind,
    propose_amendment,
    propose_removal,
    sign_change,
    sign_rekey,
)
from fedchain.chain.membership.in_force import rules_of
from fedchain.chain.membership.member import Member, Standing
from fedchain.chain.membership.rules import approvals_required
from fedchain.chain.membership.succession import place_of
from fedchain.chain.state import State
from fedchain.crypto.address import address, public_key_from_address
from fedchain.crypto.exceptions import CryptoError, InvalidAddress
from fedchain.crypto.keys import PrivateKey, PublicKey
from fedchain.learning.exceptions import ConfigurationError
from fedchain.node.config import NodeConfigError
from fedchain.node.core.node import Node
from fedchain.node.custody.dealing import dealt_key
from fedchain.node.founding.amending import amended_values, expect_of_use
from fedchain.node.founding.task import learning_from_genesis, read_settings
from fedchain.node.membership.account import (
    PURPOSES,
    SHOWN_HASH,
    account,
    approvals_text,
    follows_text,
    numbers_at,
    plain_change,
    proposed,
)
from fedchain.node.membership.invitation import Invitation
from fedchain.wording import counted, printable

HEIGHTS_VALID = 1_000
"""Blocks that may count a change, from the one on at which it was proposed."""

HASH_PREFIX_MIN = 4
"""Fewest characters that stand for the hash of a change."""


_OWN_CASES = {
    ChangeKind.REMOVE: "removal; a member leaves with: fedchain node leave FOLDER",
    ChangeKind.RECOVER: "recovery; a member that has its key says: fedchain node rekey FOLDER",
}
"""Decisions of others about a member, and the command by which the member acts itself."""


class Submitting(Protocol):
    """The part of a service that is used here."""

    @property
    def node(self) -> Node:
        """The state machine."""

    @property
    def genesis(self) -> Genesis:
        """The rules that the federation agreed on."""

    def submit(self, change: Change, *, approves: bool) -> Refused | None:
        """Have the node take a change from its operator; returns why it was refused."""


class Host(Protocol):
    """Hands out invitations, and keeps requests."""

    def invite(self, name: str, lost: tuple[PublicKey, int] | None = None) -> Invitation:
        """Make an invitation for a newcomer of this name, or for the next key of a member, whose key and number of
        changes are given. Raises NodeConfigError."""

    def waiting(self) -> Sequence[Change]:
        """Requests to join that no member approves of yet."""


class Desk:
    """Answers the operator's questions about members.

    Args:
        service: of the node.
        key: its key.
        host: hands out invitations, and keeps requests that no member approves of yet.
        make_key: makes this member's next key, or reads it if it is there. Raises CryptoError or NodeConfigError.
    """

    def __init__(
        self, service: Submitting, key: PrivateKey, host: Host, make_key: Callable[[], PrivateKey] = PrivateKey.generate
    ) -> None:
        self._service, self._key, self._host, self._make_key = service, key, host, make_key

    def answer(self, asked: Mapping[str, Any]) -> dict[str, Any] | None:
        """The answer to a question as plain values; None to one that is not about members. Raises NodeConfigError."""
        match asked:
            case {"ask": "members"}:
                node = self._service.node
                return account(self._service.genesis, node.head, node.open_changes(), self._host.waiting())
            case {"ask": "changes"}:
                node = self._service.node
                return proposed(self._service.genesis, node.head, node.open_changes(), self._host.waiting())
            case {"ask": "approve", "which": str(which)}:
                return {"said": self._approve(which)}
            case {"ask": "remove", "member": str(member), "reason": str(reason)}:
                return {"said": self._remove(member, reason)}
            case {"ask": "invite", "name": str(name)}:
                return self._invite(name)
            case {"ask": "recover", "member": str(member), "name": str(name)}:
                return self._recover(member, name)
            case {"ask": "amend", "values": list(values)}:
                return {"said": self._amend([str(value) for value in values])}
            case {"ask": "leave"}:
                return {"said": self._change_own(ChangeKind.LEAVE)}
            case {"ask": "back"}:
                return {"said": self._change_own(ChangeKind.BACK)}
            case {"ask": "away"}:
                return {"said": self._change_own(ChangeKind.AWAY)}
            case {"ask": "rekey"}:
                return {"said": self._rekey()}
        return None

    def _approve(self, which: str) -> str:
        waits = any(change.amendment is not None for change in self._service.node.open_changes())
        self._expect_a_say(about_members=not waits)
        return self._consent(self._find(which))

    def _amend(self, settings: Sequence[str]) -> str:
        self._expect_a_say(about_members=False)
        named = [self._numbered(setting) for setting in settings]
        node, amendment = self._service.node, amendment_of(_read_values(self._service.genesis, named))
        _expect_another(self._service.genesis, node.head, amendment)
        for change in node.open_changes():  # approvals of two amendments would not add up
            if change.amendment == amendment:
                return self._consent(change)
        until = node.head.height + HEIGHTS_VALID
        return self._consent(propose_amendment(amendment, "", sequence=node.head.amendments.count, until=until))

    def _numbered(self, setting: str) -> str:
        """A setting of an amendment; the member that is to have the role of the aggregator may be named by address."""
        name, separator, member = setting.partition("=")
        return setting if name.strip() != AGGREGATOR else f"{AGGREGATOR}{separator}{self._number(member.strip())}"

    def _invite(self, name: str) -> dict[str, Any]:
        self._expect_a_say()
        return self._hand_out(self._host.invite(name), ChangeKind.JOIN, name)

    def _recover(self, member: str, name: str) -> dict[str, Any]:
        """Invite the owner of a lost key to come back with another one."""
        self._expect_a_say()
        head, number = self._service.node.head, self._number(member)
        record = head.records[number]
        self._expect_of_others(ChangeKind.RECOVER, number)
        if record.key in head.roster.culprits or record.standing.is_for_good or record.next is Standing.REMOVED:
            raise NodeConfigError(f"peer {number} was convicted, or is gone for good: no key brings it back")
        made = self._host.invite(name, (record.came_with, record.decided))
        return self._hand_out(made, ChangeKind.RECOVER, f"peer {number} from the next height on")

    def _hand_out(self, made: Invitation, kind: ChangeKind, who: str) -> dict[str, Any]:
        lacks = approvals_required(self._service.genesis, self._service.node.head, kind) - 1
        then = f"it takes {counted(lacks, 'more approval')}" if lacks else "it takes no other approval"
        said = (
            f"the first key that asks on it is approved of here, as {who}, up to height {made.voucher.until}; {then}. "
            "Keep the file secret until then"
        )
        return {"said": said, "invitation": made.encode().hex()}

    def _remove(self, member: str, reason: str) -> str:
        self._expect_a_say()
        node, number = self._service.node, self._number(member)
        if not reason.strip() or len(reason.encode()) > TEXT_SIZE_MAX or not reason.isprintable():
            raise NodeConfigError(f"a reason has 1 to {TEXT_SIZE_MAX} printable bytes, not blanks alone")
        self._expect_of_others(ChangeKind.REMOVE, number)
        record = node.head.records[number]
        if (fate := self._fate(record)) is not None:
            raise NodeConfigError(f"peer {number} {fate}: it takes no part any more")
        for change in node.open_changes():  # approvals of two removals would not add up
            if change.kind is ChangeKind.REMOVE and change.member == record.came_with:
                return self._consent(change)
        until = node.head.height + HEIGHTS_VALID
        return self._consent(propose_removal(record.came_with, reason, sequence=record.decided, until=until))

    def _change_own(self, kind: ChangeKind) -> str:
        """Sign and spread a change of this member itself."""
        record, node = self._own_record(), self._service.node
        if (said := self._asked_before(kind)) is not None:
            return said
        if kind is ChangeKind.BACK and record.standing is not Standing.AWAY:
            so_far = self._so_far() if record.standing is Standing.ACTIVE else ""
            raise NodeConfigError(f"this member is {record.standing.name.lower()}, and not away{so_far}")
        if kind is ChangeKind.AWAY and record.standing is Standing.AWAY:
            raise NodeConfigError("this member is away already, until: fedchain node back FOLDER")
        until = node.head.height + HEIGHTS_VALID
        change = sign_change(self._key, self._service.genesis.chain_id, kind, sequence=record.sequence, until=until)
        self._take(change, approves=False)
        text = follows_text(self._service.genesis, node.head, change)
        return text if kind is ChangeKind.BACK else f"{text}; let the node run until then"

    def _rekey(self) -> str:
        """Make another key and have it take this one's place."""
        record, node = self._own_record(), self._service.node
        if (said := self._asked_before(ChangeKind.REKEY)) is not None:
            return said
        try:
            following = self._make_key()
        except CryptoError as error:
            raise NodeConfigError(str(error)) from None
        until, chain_id = node.head.height + HEIGHTS_VALID, self._service.genesis.chain_id
        change = sign_rekey(self._key, following, chain_id, sequence=record.sequence, until=until)
        self._take(change, approves=False)
        follows = follows_text(self._service.genesis, node.head, change)
        return (
            f"{address(following.public_key)} is the member's next key; {follows}; let the node run until then: it "
            "goes on with that key by itself"
        )

    def _own_record(self) -> Member:
        """This member's record; raises NodeConfigError unless a change of it can be asked for."""
        self._expect_records()
        if (record := self._service.node.own_record()) is None:
            raise NodeConfigError("this peer is no member yet")
        if (fate := self._fate(record)) is not None:
            raise NodeConfigError(f"this member {fate}: it takes no part any more")
        if record.is_changing:
            then = "takes no part any more" if record.next.is_for_good else f"is {record.next.name.lower()}"
            said = f"from round {record.round} on it {then}"
            raise NodeConfigError(f"a change of this member is on its way already: {said}")
        return record

    def _fate(self, record: Member) -> str | None:
        """The end of a member that takes no part any more, in words; None if it may take part."""
        if record.key in self._service.node.head.roster.culprits:
            return "was convicted"
        fates = {Standing.LEFT: "left", Standing.REMOVED: "was removed"}
        return fates.get(record.standing)

    def _so_far(self) -> str:
        """The words of an answer that holds here, while others may have blocks that count our silence."""
        node = self._service.node
        if not node.is_silent() and not node.catching_up_to():
            return ""
        return f", at height {node.head.height}; others may be further: ask again once this node has caught up"

    def _asked_before(self, kind: ChangeKind) -> str | None:
        """The answer where a change of this kind is open already; raises NodeConfigError where another one is."""
        node = self._service.node
        for change in node.open_changes():
            if change.member == self._key.public_key and not change.kind.needs_approval:
                follows = follows_text(self._service.genesis, node.head, change)
                if change.kind is kind:
                    return f"it was asked for before: {follows}"
                if kind is ChangeKind.REKEY:  # it takes the place of the other one
                    return None
                raise NodeConfigError(
                    f"one change of a member at a time: it was asked before that this one {PURPOSES[change.kind]}, "
                    f"until height {change.until}; {follows}"
                )
        return None

    def _consent(self, change: Change) -> str:
        """Approve of a change, unless this member did so before; what follows."""
        genesis, node = self._service.genesis, self._service.node
        self._expect_of_others(change.kind, place_of(node.head.roster, node.head.records, change))
        if change.amendment is not None:
            _expect_of_use(genesis, node.head, change.amendment)
            _expect_no_absent_heir(node.head, change.amendment)
        if change.kind is ChangeKind.REMOVE:
            _expect_shares_left(genesis, node.head, change.member)
        had = any(approval.approver == self._key.public_key for approval in change.approvals)
        if not had:
            self._take(change, approves=True)
            change = next(item for item in node.open_changes() if item.hash == change.hash)
        shown, numbers = plain_change(genesis, node.head, change), numbers_at(node.head)
        about = f"{change.kind.name.lower()} {shown['hash'][:SHOWN_HASH]} of {_subject(shown)}"
        again = "it was approved of here before" if had else "approved"
        follows = follows_text(genesis, node.head, change) + _rivals_text(change, node.open_changes())
        return f"{again}, {about}: {approvals_text(shown, numbers)}; {follows}"

    def _expect_of_others(self, kind: ChangeKind, number: int | None) -> None:
        """Raise NodeConfigError if a change of the member with this number is this member's own case."""
        if number is not None and number == self._service.node.head.roster.seats.get(self._key.public_key):
            raise NodeConfigError(f"nobody approves of its own {_OWN_CASES[kind]}")

    def _take(self, change: Change, *, approves: bool) -> None:
        if (refused := self._service.submit(change, approves=approves)) is not None:
            raise NodeConfigError(str(refused))

    def _find(self, which: str) -> Change:
        """The change that waits for approval with this hash, or its beginning, address, number or newcomer's name.

        A reason names nothing: a liar's would be approved of by all that name the newcomer once its change was counted.
        """
        node, low = self._service.node, which.lower()
        waiting = [change for change in (*node.open_changes(), *self._host.waiting()) if change.kind.needs_approval]
        found = [
            change
            for change in waiting
            if (which and change.kind is ChangeKind.JOIN and change.text == which)  # other texts are reasons
            or (len(low) >= HASH_PREFIX_MIN and change.hash.hex().startswith(low))
            or self._is_about(which, change)
        ]
        if len(found) != 1:
            if not waiting:
                raise NodeConfigError("nothing waits for approval; `fedchain node members` shows what does")
            named = f"{len(found)} changes are called {which!r}" if found else f"nothing that waits is called {which!r}"
            shown = [plain_change(self._service.genesis, node.head, change) for change in found or waiting]
            choices = ", ".join(f"{item['hash'][:SHOWN_HASH]} ({item['kind']} {_subject(item)})" for item in shown)
            raise NodeConfigError(f"{named}; these wait for approval, choose by hash: {choices}")
        return found[0]

    def _is_about(self, which: str, change: Change) -> bool:
        """Whether a change is about the member with this number or address: by its next key, or the one that it has."""
        roster = self._service.node.head.roster
        place = place_of(roster, self._service.node.head.records, change)
        known = {change.key_afterwards} if place is None else {change.key_afterwards, roster.members[place]}
        return any(_is_called(which, key, place) for key in known)

    def _number(self, member: str) -> int:
        """The number of the member that is named by its address or number."""
        roster = self._service.node.head.roster
        for number, key in enumerate(roster.members):
            if _is_called(member, key, number):
                return number
        raise NodeConfigError(f"{member} is no member: name one by number, 0 to {len(roster) - 1}, or by address")

    def _expect_records(self) -> None:
        if not self._service.node.head.records:
            raise NodeConfigError(
                "members of this federation are the same for ever: changes begin with version "
                f"{CHANGES_VERSION} of the founding document"
            )
        if self._service.node.head.finished:
            raise NodeConfigError("the last round is closed, and no block counts a change any more")

    def _expect_a_say(self, *, about_members: bool = True) -> None:
        """Raise NodeConfigError unless this member may approve of changes now."""
        self._expect_records()
        node = self._service.node
        if about_members and self._service.genesis.admission is Admission.CLOSED:
            raise NodeConfigError("this federation is closed: nobody joins or is removed")
        if not node.head.roster.is_active(self._key.public_key):
            raise NodeConfigError("this member does not count now, so it approves of nothing")
        if node.is_contradicted():
            raise NodeConfigError("a quorum disagrees with what this node computes, so it approves of nothing any more")
        if node.is_silent():
            raise NodeConfigError("this node signs nothing yet, as `fedchain node status` says; ask again later")


def _read_values(genesis: Genesis, settings: Sequence[str]) -> dict[str, int | str]:
    """Read ``NAME=VALUE`` settings; raises NodeConfigError, also if two of them are of one name."""
    names = [setting.partition("=")[0].strip() for setting in settings]
    if twice := [name for name in names if names.count(name) > 1]:
        raise NodeConfigError(f"{twice[0]} is given more than once")
    try:
        return amended_values(genesis, read_settings(settings))
    except ConfigurationError as error:
        raise NodeConfigError(str(error).removeprefix("--set ")) from None


def _expect_another(genesis: Genesis, head: State, amendment: Amendment) -> None:
    """Raise NodeConfigError for values that are in force already, while no others are on their way.

    A role that is handed on is no value of the rules.
    """
    known, values = head.amendments, dict(amendment.values)
    if known.coming or AGGREGATOR in values:
        return
    try:
        following = rules_of(genesis, tuple(sorted((dict(known.in_force) | values).items())))
    except InvalidGenesis:  # whoever submits it is told so
        return
    if following == head.rules:
        said = ", ".join(f"{name.removeprefix(LEARNING)} is {value}" for name, value in values.items())
        raise NodeConfigError(f"nothing would change: {said} already")


def _expect_of_use(genesis: Genesis, head: State, amendment: Amendment) -> None:
    """Raise NodeConfigError for values that this member's learning method cannot take."""
    try:
        expect_of_use(genesis, head.amendments, amendment.values)
    except ConfigurationError as error:
        raise NodeConfigError(str(error)) from None


def _expect_no_absent_heir(head: State, amendment: Amendment) -> None:
    """Raise NodeConfigError for an amendment that hands the aggregator's role to a member that is away: it would be
    passed over. A place that is nobody's is refused behind this."""
    place = dict(amendment.values).get(AGGREGATOR)
    if isinstance(place, int) and place < len(head.records) and head.records[place].next is Standing.AWAY:
        raise NodeConfigError(
            f"peer {place} is away, and would be passed over as the aggregator: it has to be back before, by: "
            "fedchain node back FOLDER"
        )


def _expect_shares_left(genesis: Genesis, head: State, member: PublicKey) -> None:
    """Raise NodeConfigError if too few members that count would have a share of the decryption key without this one.

    A share is sealed to a founder's key: a member that got another one for it has lost its share.
    """
    key = dealt_key(learning_from_genesis(genesis))
    if key is None:
        return
    holders = [founder for founder in genesis.members if head.roster.is_active(founder)]
    left = len([holder for holder in holders if holder != member])
    if member in holders and left < key.threshold:
        raise NodeConfigError(
            f"peer {head.roster.seats[member]} has a share of the decryption key: without it {left} members that count "
            f"have one, and {key.threshold} together open a sum; shares are dealt at the founding alone"
        )


def _rivals_text(change: Change, opened: Iterable[Change]) -> str:
    """The words about amendments that are open beside one: all are for the same number of amendments before."""
    rivals = [other for other in opened if other.amendment is not None and other.hash != change.hash]
    if change.amendment is None or not rivals:
        return ""
    names = ", ".join(other.hash.hex()[:SHOWN_HASH] for other in rivals)
    return f"; also open: {names}; the amendment that is counted first ends all others"


def _is_called(name: str, key: PublicKey, number: int | None) -> bool:
    if name.isdecimal():
        return name == str(number)
    try:
        return public_key_from_address(name) == key
    except InvalidAddress:
        return False


def _subject(shown: Mapping[str, Any]) -> str:
    text = printable(shown["text"])
    if shown["kind"] == "amend":
        return f"parameters ({text})"
    who = shown["address"] if shown["number"] is None else f"peer {shown['number']}"
    who = f"{who}, which gets {shown['key']}" if shown["key"] else who
    return f"{text} ({who})" if shown["kind"] == "join" and text else who
