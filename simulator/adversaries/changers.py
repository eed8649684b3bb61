"""Traitors that lie about who belongs to the federation: they approve of all or of nothing, forge and repeat."""

import random
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from fedchain.chain.membership.change import Change, ChangeKind, propose_recovery, sign_change, sign_rekey
from fedchain.crypto.hashing import Hash, sha256
from fedchain.crypto.keys import PrivateKey
from fedchain.network.messages import ChangeMessage
from fedchain.node.core.events import ChangeSubmitted, Event, MessageReceived
from fedchain.simulator.adversaries.adversary import Adversary, Coalition

REPEATED_MAX = 8
"""Changes that are repeated in one second."""


class ChangeLiar(Adversary):
    """Approves of every change that it hears of, repeats old ones, and proposes what it may not.

    It joins with others' keys, gives others and itself keys that are others', and proposes two changes of its own that
    exclude each other, each to half of the members.
    """

    def __init__(self, coalition: Coalition, draw: random.Random, parameters: Mapping[str, float]) -> None:
        super().__init__(coalition, draw, parameters)
        self._heard: dict[Hash, Change] = {}

    def listen(self, event: Event) -> Sequence[Event]:
        """Keep every change, and spread it with an approval of its own."""
        if isinstance(event, MessageReceived) and isinstance(event.message, ChangeMessage):
            self._heard[event.message.change.hash] = event.message.change
        return (event,)

    def act(self) -> None:
        """Approve, repeat, and forge; where members are the same for ever, there is nothing to lie about."""
        if not self.node.head.records:
            return
        changes = [*self._heard.values()]
        for change in self.draw.sample(changes, min(len(changes), REPEATED_MAX)):
            approved = change.approved(self.key, self.genesis.chain_id) if change.kind.needs_approval else change
            self.send([self.draw.choice(self.coalition.honest)], ChangeMessage(approved))
        if self.draw.random() < 0.3:
            self._forge()
        if self.draw.random() < 0.05:
            self._propose_two()

    def _forge(self) -> None:
        """A change that another member or key never signed, approved by all traitors."""
        head, chain_id = self.node.head, self.genesis.chain_id
        victim = self.member(self.draw.choice([item for item in self.coalition.honest if item < len(head.roster)]))
        record, until = head.records[head.roster.seats[victim]], self.height + 50
        said: dict[str, Any] = {"sequence": record.sequence, "until": until}
        thief = PrivateKey(sha256(self.key.seed + b"thief"))
        forged = (
            replace(sign_change(self.key, chain_id, ChangeKind.LEAVE, **said), member=victim),
            replace(sign_change(thief, chain_id, ChangeKind.JOIN, until=until), member=victim),
            replace(sign_rekey(self.key, thief, chain_id, **said), member=victim),
            replace(sign_rekey(self.key, thief, chain_id, **said), key=victim),
            propose_recovery(record.came_with, thief, chain_id, "stolen", sequence=record.decided, until=until),
        )
        change = self.draw.choice(forged)
        if change.kind.needs_approval:
            for key in self.coalition.keys:
                if head.roster.is_active(key.public_key):
                    change = change.approved(key, chain_id)
        self.send(self.coalition.honest, ChangeMessage(change))

    def _propose_two(self) -> None:
        """Two other keys of its own, each to half of the members; only the first that is counted holds."""
        head, own = self.node.head, self.key.public_key
        if not head.roster.is_active(own):
            return
        said: dict[str, Any] = {"sequence": head.records[head.roster.seats[own]].sequence, "until": self.height + 50}
        for half in range(2):
            following = PrivateKey(sha256(self.key.seed + bytes([half])))
            change = sign_rekey(self.key, following, self.genesis.chain_id, **said)
            self.send(self.coalition.honest[half::2], ChangeMessage(change))


class ChangeWithholder(Adversary):
    """Approves of nothing, and passes no change on."""

    def listen(self, event: Event) -> Sequence[Event]:
        """Leave out every change."""
        is_change = isinstance(event, MessageReceived) and isinstance(event.message, ChangeMessage)
        return () if is_change or isinstance(event, ChangeSubmitted) else (event,)
