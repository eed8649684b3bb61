"""Calling: the key under which a node calls the others while its member waits for another one.

The block that counts the change may be made while the node is down or cut off. Two rounds later nobody lets the former
key in any more, and the node would never hear of that block. So where too few let it in, it calls under its next key,
then under its own again, and so by turns, also where its chain stands while it calls under the next one. It signs
nothing with that one before its chain names it.
"""

import logging
from collections.abc import Callable, Collection
from typing import Protocol

import anyio

from fedchain.crypto.address import address
from fedchain.crypto.keys import PrivateKey, PublicKey
from fedchain.node.core.node import Node
from fedchain.node.shell.service import NodeStopped

log = logging.getLogger("fedchain.node")

LOOK_S = 1.0
"""How often a node looks who has let it in."""

ALONE_S = 60.0
"""How long so few let it in before it calls under the other key."""


class Following(Protocol):
    """A node's next key, if there is one."""

    @property
    def is_there(self) -> bool:
        """Whether there is a next key."""

    def read(self) -> PrivateKey | None:
        """The next key; None if there is none."""


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
    """Chooses between a member's key and its next one.

    Args:
        own: the member's key, as far as the node knows.
        following: where its next key is kept.
    """

    def __init__(self, own: PrivateKey, following: Following) -> None:
        self._own, self._files, self._is_due = own, following, False
        self._next: PrivateKey | None = None  # once it was read: to open one behind a passphrase takes a while
        self.key = own
        """The key under which the node calls the others."""

    def turn(self) -> bool:
        """Take the other key if its turn has come; returns whether it had."""
        is_due, self._is_due = self._is_due, False
        if is_due:
            self.key = self._own if self._next is None or self.key is self._next else self._next
            log.info("too few members let this node in: it calls them under the key %s", address(self.key.public_key))
        return is_due

    async def wait(self, service: Connected, leave: Callable[[], object]) -> None:
        """Wait until the other key's turn comes, and call ``leave``.

        Raises NodeStopped: the next key is the member's now.
        """
        alone_s, height = 0.0, -1
        while alone_s < ALONE_S:
            await anyio.sleep(LOOK_S)
            if self._next is None and self._files.is_there:
                self._next = self._files.read()
            if self._next is not None and self._next.public_key in service.node.head.roster.members:
                raise NodeStopped(f"this key was replaced by {address(self._next.public_key)}")
            # Those that do not know the next key yet let it in as well, as a guest's, whose word they do not count.
            before, height = height, service.node.head.height
            is_guest = self.key is self._next and height == before
            is_in_vain = self._next is not None and (is_guest or _is_alone(service))
            alone_s = alone_s + LOOK_S if is_in_vain else 0.0
        self._is_due = True
        leave()


def _is_alone(service: Connected) -> bool:
    """Whether no honest member need be among those that let this node in. One that needs nobody is never alone."""
    head = service.node.head
    others = set(head.roster.counting) - {service.me}
    faulty = head.rules.fault_model.faulty(head.roster.active)
    return len(others.intersection(service.peers)) <= min(faulty, len(others) - 1)
