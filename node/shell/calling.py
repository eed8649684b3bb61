"""Calling: the key under which a node calls the others while its member waits for another one.

The block that counts the change may be made while the node is down or cut off. Two rounds later nobody lets the former
key in any more, and the node would never hear of that block. So where too few let it in, it calls under its next key,
then under its own again, and so by turns, also where its chain stands while it calls under the next one. It signs
nothing with that one before its chain names it.

Or the node is the only one that has that block: its key is unknown to those that did not hear of the change, or lost
what they heard. So by turns it calls them under its former key, which they know, until they have the block.

Or a member is back that was away for longer. It knows none of the keys that the others took meanwhile, and lets nobody
in, while the chain stands still, as the others are too few. So a node that has waited for long calls under its older
keys, too.
"""

import logging
from collections.abc import Callable, Collection
from typing import Protocol

import anyio

from fedchain.chain.state import State
from fedchain.crypto.address import address
from fedchain.crypto.exceptions import KeyFileError
from fedchain.crypto.keys import PrivateKey, PublicKey
from fedchain.node.core.node import Node
from fedchain.node.shell.service import NodeStopped
from fedchain.node.shell.threads import in_thread

log = logging.getLogger("fedchain.node")

LOOK_S = 1.0
"""How often a node looks who has let it in."""

ALONE_S = 60.0
"""How long so few let it in before it calls under the other key."""

STANDS_S = 600.0
"""How long the chain stands, with too few here for a block, before it calls under a key that the chain knows no more.
Others do so, too: all have to be here under their own keys for most of the time."""


class Following(Protocol):
    """A node's keys beside its own: the next one, and the former one. To read one behind a passphrase takes a second on
    purpose, in which the node has to vote: that is done in a thread."""

    @property
    def written(self) -> tuple[int, int] | None:
        """Tells the next key's file from another one that takes its place later; None if there is none."""

    def read(self) -> PrivateKey | None:
        """The next key; None if there is none."""

    def read_former(self, former: PublicKey) -> PrivateKey | None:
        """The key that this one replaced; None if it is not here, or cannot be opened."""

    def read_all_former(self) -> list[PrivateKey]:
        """All keys that this one and those before it replaced, as far as they are here and can be opened."""


class Connected(Protocol):
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


class Caller:
    """Chooses between a member's key and another one of it, the next or the former.

    Args:
        own: the member's key, as far as the node knows.
        files: where its other keys are kept.
    """

    def __init__(self, own: PrivateKey, files: Following) -> None:
        self._own, self._files, self._is_due = own, files, False
        self._next: PrivateKey | None = None  # once it was read: to open one behind a passphrase takes a while
        self._read: tuple[int, int] | None = None  # the file that it was read from
        self._former: dict[PublicKey, PrivateKey | None] = {}  # once it was looked for
        self.key = own
        """The key under which the node calls the others."""
        self._other: PrivateKey | None = None  # whose turn comes after the own key's
        self._older: list[PrivateKey] | None = None  # former keys by turns, once they were looked for
        self._stands_s = 0.0  # how long the chain has stood under the own key, with too few here
        self._is_known = False

    def turn(self) -> bool:
        """Take the other key if its turn has come; returns whether it had."""
        is_due, self._is_due = self._is_due, False
        if is_due:
            self.key = self._own if self._other is None or self.key is not self._own else self._other
            under = address(self.key.public_key)
            if self._is_known:
                log.info("the others have the block of this node's key: it calls them under the key %s", under)
            else:
                log.info("too few members let this node in: it calls them under the key %s", under)
        return is_due

    async def wait(self, service: Connected, leave: Callable[[], object], wanted: int) -> None:
        """Wait until the other key's turn comes, and call ``leave``.

        Args:
            service: the node and those that are connected.
            leave: ends the calls under this key.
            wanted: peers with which the node is content; where members are many, it looks for no more.

        Raises NodeStopped: the next key is the member's now.
        """
        alone_s, height, self._is_known = 0.0, -1, False
        while alone_s < ALONE_S:
            await anyio.sleep(LOOK_S)
            following = await self._following(service.node.head)
            before, height = height, service.node.head.height
            is_other, is_alone = self.key is not self._own, _is_alone(service)
            have_it = -1 < before < height or not (is_alone or service.node.lagging(height))
            if is_other and self.key is not self._next and have_it:
                self._is_known = True
                break
            # Those that do not know the next key yet let it in as well, as a guest's, whose word they do not count.
            is_in_vain = (is_other and height == before) or is_alone
            if is_in_vain and not is_other:
                self._other = await self._former_at(service) or following
            alone_s = alone_s + LOOK_S if is_in_vain and self._other is not None else 0.0
            if not is_other and self._has_stood_for_long(service, wanted, moved=before not in (-1, height)):
                self._other = await self._next_older()
                if self._other is not None:
                    break
        self._is_due = True
        leave()

    async def _following(self, head: State) -> PrivateKey | None:
        """The next key; None if there is none, or if another member's or a copy of the own one lies in its place.

        Raises NodeStopped: it is the member's now.
        """
        if (written := self._files.written) not in (None, self._read):
            self._next, self._read = await self._newest(), written
        if self._next is None or self._next.public_key not in head.roster.members:
            return self._next
        if has_replaced(self._next.public_key, self._own.public_key, head):
            raise NodeStopped(f"this key was replaced by {address(self._next.public_key)}")
        return None

    async def _newest(self) -> PrivateKey | None:
        """The next key as it is now; the one read before, if it is the same, was encrypted anew, or is gone."""
        known = self._next
        try:
            found = await in_thread(self._files.read)
        except KeyFileError:
            if known is None:
                raise
            return known
        is_other = found is not None and (known is None or found.public_key != known.public_key)
        return found if is_other else known

    def _has_stood_for_long(self, service: Connected, wanted: int, *, moved: bool) -> bool:
        """Whether no block can be made by those that are here, and that has lasted."""
        self._stands_s = 0.0 if moved or not _are_too_few(service, wanted) else self._stands_s + LOOK_S
        is_over = self._stands_s >= STANDS_S
        if is_over:
            self._stands_s = 0.0
        return is_over

    async def _next_older(self) -> PrivateKey | None:
        """A former key, each in its turn; None if there is none."""
        if self._older is None:
            self._older = await in_thread(self._files.read_all_former)
        if self._older:
            self._older.append(self._older.pop(0))
        return self._older[-1] if self._older else None

    async def _former_at(self, service: Connected) -> PrivateKey | None:
        """The key that the own one replaced lately, as those that lack the block of it know it."""
        successors, own = service.node.head.roster.successors, self._own.public_key
        former = next((old for old, new in successors.items() if new == own), None)
        if former is not None and former not in self._former:
            self._former[former] = await in_thread(self._files.read_former, former)
        return None if former is None else self._former[former]


def has_replaced(following: PublicKey, own: PublicKey, head: State) -> bool:
    """Whether a head counts the key that is in the next one's file in place of the own one.

    While the own one counts, a member that has the other one is somebody else, or the file is an old copy of the own
    key's: it would be taken for a new one, which has signed nothing.
    """
    return following in head.roster.members and own not in head.roster.members


def _are_too_few(service: Connected, wanted: int) -> bool:
    """Whether the members that are connected cannot decide a height, and more are wanted."""
    head = service.node.head
    here = head.roster.electors.intersection((service.me, *service.peers))
    return not head.finished and len(here) < service.node.votes_required() and len(service.peers) < wanted


def _is_alone(service: Connected) -> bool:
    """Whether no honest member need be among those that let this node in. One that needs nobody is never alone."""
    head = service.node.head
    others = set(head.roster.counting) - {service.me}
    faulty = head.rules.fault_model.faulty(head.roster.active)
    return len(others.intersection(service.peers)) <= min(faulty, len(others) - 1)
