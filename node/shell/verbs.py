"""Verbs: what a shell does about each effect of its node, whatever the shell."""

from collections.abc import Awaitable, Callable, Collection, Sequence
from dataclasses import dataclass
from typing import assert_never

from fedchain.chain.block import Header
from fedchain.chain.exceptions import Refused
from fedchain.chain.storage.store import Record
from fedchain.crypto.hashing import Hash
from fedchain.crypto.keys import PublicKey
from fedchain.network.messages import GossipMessage, Message
from fedchain.node.core import effects
from fedchain.node.core.jobs import Job
from fedchain.node.core.notices import Notice
from fedchain.node.core.voting.journal import Journal

Done = Awaitable[object] | None
"""None if an effect is carried out; otherwise the shell waits for it before the next one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Verbs:
    """One function for each kind of effect."""

    store: Callable[[Sequence[Record], Journal | None], Done]
    """Makes records, and then the journal, durable."""
    retain: Callable[[Collection[Hash]], Done]
    """Drops all other stored contents."""
    keep_parts: Callable[[frozenset[Hash]], Done]
    """Drops all other parts."""
    publish: Callable[[GossipMessage], Done]
    send: Callable[[PublicKey, Message], Done]
    train: Callable[[effects.Contribute], Done]
    mine: Callable[[Header], Done]
    compute: Callable[[Job], Done]
    wake: Callable[[int], Done]
    """Ticks at a time in milliseconds."""
    blame: Callable[[PublicKey, Refused], Done]
    tell: Callable[[Notice], Done]
    stop: Callable[[str], Done]

    def carry_out(self, effect: effects.Effect) -> Done:
        """Carry out an effect; a refusal is the network's, which gets the verdict."""
        match effect:
            case effects.Send(peer, message):  # most are
                return self.send(peer, message)
            case effects.Persist(records):
                return self.store(records, None)
            case effects.WriteJournal(journal):
                return self.store((), journal)
            case effects.Retain(needed):
                return self.retain(needed)
            case effects.KeepParts(needed):
                return self.keep_parts(needed)
            case effects.Publish(message):
                return self.publish(message)
            case effects.Contribute():
                return self.train(effect)
            case effects.Mine(header):
                return self.mine(header)
            case effects.Compute(job):
                return self.compute(job)
            case effects.Wake(at_ms):
                return self.wake(at_ms)
            case effects.Blame(member, error):
                return self.blame(member, error)
            case effects.Tell(notice):
                return self.tell(notice)
            case effects.Stop(reason):
                return self.stop(reason)
            case effects.Refuse():
                return None
            case _:
                assert_never(effect)
