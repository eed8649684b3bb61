"""A newcomer: asks on its invitation until its request spreads, says how it stands, and goes on once it has a place.

A member that lost its key comes back the same way: it asks for the place that it had.
"""

import logging
from collections.abc import Awaitable, Callable, Collection, Sequence
from typing import Any, Protocol

import anyio

from fedchain.chain.encoding import decode, expect_record
from fedchain.chain.exceptions import InvalidEncoding
from fedchain.chain.membership.member import Member, Standing
from fedchain.crypto.keys import PrivateKey, PublicKey
from fedchain.node.config import NodeConfigError
from fedchain.node.core.node import Node
from fedchain.node.membership.account import approvals_text, numbers_at, plain_change
from fedchain.node.membership.invitation import REQUEST_SIZE_MAX, Invitation, request_on
from fedchain.node.membership.requests import REFUSED, TAKEN
from fedchain.wording import printable

log = logging.getLogger("fedchain.node")

LOOK_S = 1.0
"""How often a newcomer looks how its request stands."""

ASK_S = 10.0
"""How long it waits for its request to spread before it asks again."""

Knock = Callable[[PublicKey, str, bytes], Awaitable[bytes]]
"""Says something to a member at an address; returns its answer, or raises ConnectionError."""


class Coming(Protocol):
    """The part of a service that is used here."""

    @property
    def node(self) -> Node:
        """The state machine."""

    @property
    def me(self) -> PublicKey:
        """Public key of this peer."""

    @property
    def peers(self) -> Collection[PublicKey]:
        """Connected peers."""

    def admit(self, reason: str, peers: Sequence[PublicKey]) -> None:
        """Let these peers connect, though our chain does not know them yet."""


class Newcomer:
    """Brings a peer in.

    Args:
        service: of its node.
        key: its key.
        invitation: what it comes on.
        knock: speaks to a member that does not let it in yet.
    """

    def __init__(self, service: Coming, key: PrivateKey, invitation: Invitation, knock: Knock) -> None:
        self._service, self._invitation, self._knock = service, invitation, knock
        self._request = request_on(invitation, key)
        self._said = ""
        self.standing = "its place: it has not asked yet"
        """How the request stands, for people."""

    async def run(self) -> None:
        """Ask until there is a place. Raises NodeConfigError: the inviter's node refuses, or the chain is another.

        Members let go of a peer whose request is not open any more. Its own chain stands still then, and says nothing
        of that, so it asks again as long as nobody is connected.
        """
        asked_s = -ASK_S
        while self._service.me not in self._service.node.head.roster.seats:
            is_alone = not self._service.peers
            if (is_alone or self._open() is None) and anyio.current_time() - asked_s >= ASK_S:
                await self._ask()
                asked_s = anyio.current_time()
            if not is_alone:
                self._look()
            await anyio.sleep(LOOK_S)
        record = self._service.node.own_record()
        assert record is not None, "it has a place"
        number = self._service.node.head.roster.seats[self._service.me]
        recovers = bool(self._invitation.voucher.member)
        self._say(f"this is peer {number} now{_then(record, recovers=recovers)}")

    async def check_chain(self) -> None:
        """Let in the members that the invitation names until our chain knows them, since it is as long as the
        inviter's was; raises NodeConfigError if it is another one."""
        self._service.admit("they are named", [member for member, _ in self._invitation.places])
        while (node := self._service.node).head.height < self._invitation.height:
            await anyio.sleep(LOOK_S)
        self._service.admit("they are named", [])
        found = node.ledger.final(self._invitation.height)
        if found is not None and found[0].hash != self._invitation.voucher.head:
            raise NodeConfigError(
                f"block {self._invitation.height} is not the one that the invitation names: those who answer have "
                "another chain than the inviter"
            )

    def _open(self) -> dict[str, Any] | None:
        """Our request as it stands here; None if it has not come back to us."""
        node = self._service.node
        for change in node.open_changes():
            if change.hash == self._request.change.hash:
                return plain_change(node.genesis, node.head, change)
        return None

    async def _ask(self) -> None:
        """Ask the inviter and, if it cannot be asked, the others, until one takes the request."""
        failures = []
        for member, places in self._invitation.places:
            for place in places:
                try:
                    code, text = _read(await self._knock(member, place, self._request.encode()))
                except ConnectionError as error:
                    failures.append(f"{place}: {error}")
                    continue
                if code == REFUSED and member == self._invitation.voucher.inviter:
                    raise NodeConfigError(f"the member that invites refuses: {text}")
                if code == TAKEN:
                    self._say(f"its place: {text}")
                    return
                failures.append(f"{place}: {text}")
        self._say(f"its place: no member takes the request, asking again; {'; '.join(failures)}")

    def _look(self) -> None:
        if (found := self._open()) is not None:
            self._say(f"its place: {approvals_text(found, numbers_at(self._service.node.head))}")

    def _say(self, text: str) -> None:
        if text != self._said:
            log.info("%s: %s", printable(self._invitation.voucher.name), text)
            self._said = self.standing = text


def _read(answer: bytes) -> tuple[int, str]:
    try:
        code, text = expect_record(decode(answer, REQUEST_SIZE_MAX), "answer", (int, str))
    except InvalidEncoding as error:
        raise ConnectionError(str(error)) from None
    return code, printable(text)


def _then(record: Member, *, recovers: bool) -> str:
    """The consequence of having a place: a newcomer counts later, and another key of a member at once."""
    if record.is_changing:
        counts = "counts" if record.next is Standing.ACTIVE else "counts no more"
        return f", and {counts} from round {record.round} on"
    if record.standing is Standing.AWAY:
        return ", which is away until `fedchain node back`"
    return ", with another key" if recovers else ""
