"""Requests: a member hands out invitations, and takes what newcomers ask on one, its own or another member's.

An invitation is its member's approval in advance: the inviter's node approves of the first key that asks on it. Another
member's node keeps the request for its operator, who may approve. Until some member approves, nothing of it spreads.
"""

import json
import logging
from collections.abc import Callable, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any, Protocol

from fedchain.chain.encoding import encode
from fedchain.chain.exceptions import AlreadyKnown, Refused
from fedchain.chain.genesis import Admission, Genesis
from fedchain.chain.membership.change import TEXT_SIZE_MAX, Change, ChangeKind
from fedchain.chain.membership.rules import validate_change
from fedchain.crypto.address import address
from fedchain.crypto.durable import write_file
from fedchain.crypto.keys import PrivateKey, PublicKey
from fedchain.crypto.signatures import SignatureCheck, is_valid_signature
from fedchain.files.layout import INVITATIONS_FILE, read_found
from fedchain.network.libp2p.log import Limit
from fedchain.node.config import NodeConfigError
from fedchain.node.core.membership.change_pool import OPEN_MAX
from fedchain.node.core.node import Node
from fedchain.node.membership.invitation import PLACES_MAX, Invitation, Place, Request, vouch
from fedchain.wording import printable

log = logging.getLogger("fedchain.node.requests")
log.addFilter(Limit())  # strangers decide how often they ask

HEIGHTS_VALID = 10_000
"""Blocks from the inviter's head on for which an invitation holds."""

REFUSED, TAKEN, LATER = range(3)
"""How a request is answered: never, yes, or perhaps if it comes again."""


class Hosting(Protocol):
    """The part of a service that is used here."""

    @property
    def node(self) -> Node:
        """The state machine."""

    @property
    def genesis(self) -> Genesis:
        """The rules that the federation agreed on."""

    def submit(self, change: Change, *, approves: bool) -> Refused | None:
        """Have the node take a change from its operator; returns why it was refused."""

    def admit(self, reason: str, peers: Sequence[PublicKey]) -> None:
        """Let these peers connect, though they are no members."""

    async def next_head(self) -> None:
        """Wait until the head moves."""


class Requests:
    """Invitations of a member, and requests on invitations.

    Args:
        service: of the node.
        key: its key.
        folder: the node's, in which open invitations are remembered.
        places: where members can be reached, ours included.
        places_max: most members that may ever be: one without a part of the data could not train.
    """

    def __init__(
        self,
        service: Hosting,
        key: PrivateKey,
        folder: Path,
        places: Callable[[], Mapping[PublicKey, Sequence[str]]],
        places_max: int,
    ) -> None:
        self._service, self._key, self._path, self._places = service, key, folder / INVITATIONS_FILE, places
        self._places_max = places_max
        self._issued = _read(self._path)  # by the voucher's key: the address of the key that asked on it, or ""
        self._waiting: dict[PublicKey, dict[PublicKey, Change]] = {}  # by inviter and newcomer

    def invite(self, name: str, lost: tuple[PublicKey, int] | None = None) -> Invitation:
        """Make an invitation for a newcomer of this name, or for a member's next key. Raises NodeConfigError.

        ``lost`` is the key with which the member came, and the number of its changes that others approved of.
        """
        node, genesis = self._service.node, self._service.genesis
        if not name.isprintable() or not name.strip() or len(name.encode()) > TEXT_SIZE_MAX:
            raise NodeConfigError(f"a name has 1 to {TEXT_SIZE_MAX} printable bytes, not blanks alone")
        if lost is None and len(node.head.roster) >= self._places_max:
            parts = self._places_max - (node.head.roster.dataless is not None)
            raise NodeConfigError(
                f"the data have {parts} parts, and each has its member: a federation that is to grow is founded "
                "with more"
            )
        me = self._key.public_key
        places = self._places()
        own = [place for place in places.get(me, ()) if not place.startswith(("/ip4/0.0.0.0/", "/ip6/::/"))]
        if not own:
            raise NodeConfigError("nobody can dial the address that this node listens on; set announce, start it again")
        others = [(member, tuple(known)) for member, known in places.items() if member != me]
        found: list[Place] = [(me, tuple(own)), *others]
        head = node.ledger.final(node.head.height)
        secret = PrivateKey.generate()
        voucher = vouch(
            self._key,
            genesis.chain_id,
            secret.public_key,
            name=name,
            until=node.head.height + HEIGHTS_VALID,
            head=node.head.block_hash,
            lost=lost,
        )
        self._issued[secret.public_key.hex()] = ""
        self._save()
        proven = None if head is None else (head[0].header, head[1])
        return Invitation(genesis, voucher, secret, proven, tuple(found[:PLACES_MAX]))

    def waiting(self) -> tuple[Change, ...]:
        """Requests on others' invitations that no member approves of yet, those that no block can count left out."""
        self.forget_ended()
        spread = {change.hash for change in self._service.node.open_changes()}
        kept = chain.from_iterable(changes.values() for changes in self._waiting.values())
        return tuple(change for change in kept if change.hash not in spread)

    def forget_ended(self) -> None:
        """Let go of requests that no block can count any more, or whose inviter does not count, and of the peers that
        made them.

        A member that takes other keys could otherwise fill the room of each key. Signatures are not looked at again:
        they were when the request was taken, and it is the same since.
        """
        is_active, before = self._service.node.head.roster.is_active, sum(map(len, self._waiting.values()))
        kept = (
            (inviter, {newcomer: change for newcomer, change in changes.items() if self._is_possible(change)})
            for inviter, changes in self._waiting.items()
            if is_active(inviter)
        )
        self._waiting = {inviter: changes for inviter, changes in kept if changes}
        if sum(map(len, self._waiting.values())) < before:
            self._admit()

    async def follow(self) -> None:
        """Let go of what has ended at each head, until cancelled."""
        while True:
            await self._service.next_head()
            self.forget_ended()

    def take(self, peer: PublicKey, said: bytes) -> bytes:
        """Answer a stranger that knocks."""
        code, text = self._take(peer, said)
        if code != TAKEN:
            log.info("%s asks for a place: %s", address(peer), text)
        return encode([code, text])

    def _take(self, peer: PublicKey, said: bytes) -> tuple[int, str]:
        node, genesis = self._service.node, self._service.genesis
        try:
            request = Request.decode(said)
        except Refused:
            return REFUSED, "this is no request for a place"
        voucher, change = request.voucher, request.change
        kind = ChangeKind.RECOVER if voucher.member else ChangeKind.JOIN
        if change.key_afterwards != peer or change.kind is not kind:
            return REFUSED, "a request is made by the key that gets the place, and by no other"
        if genesis.admission is Admission.CLOSED:
            return REFUSED, "this federation is closed: nobody joins"
        if not request.is_vouched_for(genesis.chain_id):
            return REFUSED, "the invitation is of another federation, or nobody's"
        asked = (change.text, change.until, change.member, change.sequence)
        if asked != (voucher.name, voucher.until, voucher.member or peer, voucher.sequence):
            return REFUSED, "the request is not the one that the invitation allows"
        if peer in node.head.roster.seats:
            return TAKEN, "this key has its place already"
        # Nobody should ask again on an invitation that has ended, whether its inviter counts or not.
        if node.head.height >= voucher.until:
            return REFUSED, f"the invitation held until height {voucher.until}, and this is height {node.head.height}"
        if not node.head.roster.is_active(voucher.inviter):
            return self._without_inviter(voucher.inviter)
        try:
            self._validate(change)
        except Refused as error:
            return REFUSED, str(error)
        return self._approve(request) if voucher.inviter == self._key.public_key else self._keep(request)

    def _without_inviter(self, inviter: PublicKey) -> tuple[int, str]:
        """Answer a request on an invitation of a key that does not count, or that is not known here."""
        head = self._service.node.head
        seat = head.roster.seats.get(inviter)
        # A former key is known for some rounds alone, so it cannot be told from one that this node does not know yet.
        if seat is None or inviter in head.roster.successors:
            return LATER, "the key that invites is no member's now: a member that took another key has to invite again"
        if head.records[seat].standing.is_for_good or inviter in head.roster.culprits:
            return REFUSED, "the member that invites is gone for good: another member has to invite"
        return LATER, "the member that invites does not count now"

    def _approve(self, request: Request) -> tuple[int, str]:
        """Approve of a request on our own invitation, which is worth one key."""
        holder, newcomer = request.voucher.holder.hex(), address(request.change.key_afterwards)
        used = self._issued.get(holder)
        if used is None or used not in ("", newcomer):
            return REFUSED, f"the invitation was used by {used}" if used else "the invitation is not known any more"
        if self._service.node.is_silent():
            return LATER, "the inviter's node signs nothing yet"
        try:
            self._use(holder, newcomer)  # before others hear of it: after a crash, no other key comes in on it
            refused = self._service.submit(request.change, approves=True)
            if refused is not None and not isinstance(refused, AlreadyKnown):
                self._use(holder, used)
                return LATER, str(refused)
        except NodeConfigError as error:
            log.error("%s", error)
            return LATER, "the inviter's node cannot write it down"
        log.info("%s asks for a place on our invitation, as %s: approved", newcomer, printable(request.change.text))
        return TAKEN, "the inviter approves"

    def _keep(self, request: Request) -> tuple[int, str]:
        """Keep a request on another member's invitation for our operator."""
        change, inviter = request.change, request.voucher.inviter
        asks = change.key_afterwards
        self.forget_ended()
        kept = self._waiting.setdefault(inviter, {})
        if asks not in kept and len(kept) >= OPEN_MAX:
            return LATER, f"{OPEN_MAX} others ask on invitations of this member"
        kept[asks] = change
        self._admit()
        log.info("%s asks for a place, as %s: kept for our operator", address(asks), printable(change.text))
        return TAKEN, "it is shown to the operator of this node"

    def _admit(self) -> None:
        self._service.admit("they ask", [newcomer for changes in self._waiting.values() for newcomer in changes])

    def _validate(self, change: Change, signatures: SignatureCheck = is_valid_signature) -> None:
        validate_change(self._service.genesis, self._service.node.head, change, signatures)

    def _is_possible(self, change: Change) -> bool:
        try:
            self._validate(change, lambda *signed: True)
        except Refused:
            return False
        return True

    def _use(self, holder: str, newcomer: str) -> None:
        """Write down which key uses an invitation, or that none does; changes nothing if it raises NodeConfigError."""
        before = self._issued[holder]
        if newcomer == before:
            return
        self._issued[holder] = newcomer
        try:
            self._save()
        except NodeConfigError:
            self._issued[holder] = before
            raise

    def _save(self) -> None:
        try:
            write_file(self._path, json.dumps(self._issued, indent=1).encode())
        except OSError as error:
            raise NodeConfigError(f"{self._path} cannot be written: {error.strerror}") from None


def _read(path: Path) -> dict[str, str]:
    """The invitations that were handed out; a damaged file holds none, and no invitation of before is known."""
    try:
        found: Any = json.loads(read_found(path).decode())
    except (OSError, ValueError, RecursionError):
        return {}
    return {str(holder): str(used) for holder, used in found.items()} if isinstance(found, dict) else {}
