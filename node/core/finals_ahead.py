"""Final blocks that came before those below them: kept until it is their turn."""

from collections.abc import Container, Iterator
from dataclasses import dataclass

from fedchain.chain.block import Block
from fedchain.chain.certificate import Certificate
from fedchain.chain.evidence import EVIDENCE_MAX
from fedchain.chain.exceptions import InvalidBlock, OutOfWindow, Refused
from fedchain.crypto.hashing import Hash
from fedchain.crypto.keys import PublicKey
from fedchain.node.core.context import Context
from fedchain.node.core.effects import Refuse

AHEAD_MAX = 32
"""Blocks above the head that are kept."""


@dataclass(frozen=True, slots=True)
class HandedOut:
    """A final block, as a peer says."""

    peer: PublicKey
    """32 bytes: who handed it out."""
    block: Block
    certificate: Certificate


class FinalsAhead:
    """Blocks near the head, one of each peer and height. Whether they are final is judged when their turn comes."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._kept: dict[int, dict[PublicKey, HandedOut]] = {}  # by height, and by who handed it out

    def keep(self, found: HandedOut) -> None:
        """Keep a block that its peer was asked for. Raises OutOfWindow and InvalidBlock."""
        context, height = self._context, found.block.header.height
        if not context.catch_up.was_asked(found.peer, height) or not 0 < height - context.head.height <= AHEAD_MAX:
            raise OutOfWindow("final block", f"height {height} found, our head is {context.head.height}")
        # Nothing else is checked until its turn comes, and a message has room for far more.
        block, members = found.block, len(context.head.members)
        votes = len(found.certificate.votes) + (len(block.certificate.votes) if block.certificate else 0)
        for name, count, limit in (
            ("posts", len(block.transactions), members),
            ("votes", votes, 2 * members),
            ("evidence", len(block.evidence), EVIDENCE_MAX),
        ):
            if count > limit:
                raise InvalidBlock(name, f"{count} found, {members} members make at most {limit}")
        self._kept.setdefault(height, {})[found.peer] = found

    def of(self, peer: PublicKey, height: int) -> HandedOut | None:
        """What a peer handed out at a height."""
        return self._kept.get(height, {}).get(peer)

    def next(self, unready: Container[Hash] = ()) -> HandedOut | None:
        """Of the blocks on the head the first that is final; who handed out another one is to blame.

        ``unready`` are blocks that are not to be judged yet.
        """
        context = self._context
        for found in list(self._kept.get(context.head.height + 1, {}).values()):
            if found.block.hash in unready:
                continue
            try:
                context.checks.final(context.head, found.block, found.certificate)
            except Refused as error:
                del self._kept[context.head.height + 1][found.peer]
                context.emit(Refuse(found.peer, error))
            else:
                return found
        return None

    def forget_up_to(self, height: int) -> None:
        """Our head is at ``height``."""
        self._kept = {above: items for above, items in self._kept.items() if above > height}

    def __iter__(self) -> Iterator[HandedOut]:
        return (found for items in self._kept.values() for found in items.values())
