"""Backfill: a peer that joined late and wants the whole chain fetches older blocks in the background.

No peer has to be trusted: each block is named by the hash in the one above it, and so is its certificate.
"""

from dataclasses import dataclass

from fedchain.chain.block import Block
from fedchain.chain.exceptions import InvalidBlock, InvalidSignature, Refused
from fedchain.chain.storage.store import Final
from fedchain.chain.validation import validate_miner_signature, validate_roots
from fedchain.crypto.keys import PublicKey
from fedchain.network.messages import FINALS_MAX, GetFinal
from fedchain.network.source import STALL_MS
from fedchain.node.core.answers import finals_that_fit
from fedchain.node.core.context import Context
from fedchain.node.core.effects import Persist, Refuse


@dataclass(slots=True)
class _Question:
    """A batch that was asked for."""

    peer: PublicKey
    """The peer that was asked."""
    asked_ms: int
    last: int
    """The highest block that was asked for."""
    owed: set[int]
    """Heights whose blocks have not come."""
    came: int = 0
    """Number of blocks that have come."""


class Backfill:
    """Asks one peer after the other for the blocks below the lowest held one, a batch at a time.

    Args:
        context: the node's memory.
        is_wanted: whether older blocks are fetched at all.
    """

    def __init__(self, context: Context, *, is_wanted: bool) -> None:
        self._context, self._is_wanted = context, is_wanted
        self._base = context.storage.base()
        self._above: Block | None = None
        self._question: _Question | None = None
        self._fit = FINALS_MAX  # blocks that fit into an answer, estimated
        self._batch: dict[int, tuple[PublicKey, Block]] = {}  # with the sender of each
        self._turns: dict[PublicKey, tuple[int, int]] = {}  # questions in vain in a row, and the time of the last one

    def on_joined(self) -> None:
        """This peer joined at a head: the blocks below it are missing."""
        settled = self._context.ledger.settled
        assert settled is not None, "a peer that joined has a head"
        self._base, self._above, self._batch = settled.block.header.height, settled.block, {}
        self._question = None

    def on_tick(self) -> None:
        """Ask for a batch, if none is on its way."""
        question = self._question
        if question is not None:
            if self._context.now.ms - question.asked_ms < STALL_MS:
                return
            self._question = None
            if question.last in question.owed:
                self._find_useless(question.peer)
                # An answer begins with the lowest block: if it is cut short, it lacks the upper ones that we can use.
                self._fit = question.came or self._fit
        self._ask()

    def _ask(self) -> None:
        context, now_ms = self._context, self._context.now.ms
        if not self._is_wanted or self._base <= 1 or not context.peers:
            return
        seats = context.head.roster.seats
        self._turns = {peer: turn for peer, turn in self._turns.items() if peer in context.peers or peer in seats}
        peer = min(context.peers, key=lambda peer: self._turns.get(peer, (0, -1)))
        self._turns[peer] = self._turns.get(peer, (0, -1))[0], now_ms
        first = max(1, self._base - min(self._fit, finals_that_fit(context.head)))
        self._question = _Question(peer, now_ms, self._base - 1, set(range(first, self._base)))
        context.send([(peer, GetFinal(first, self._base - first))])

    def on_block(self, peer: PublicKey, block: Block) -> bool:
        """Take a block below the lowest held one; returns whether its peer was asked for it."""
        height, question = block.header.height, self._question
        if question is None or peer != question.peer or height not in question.owed:
            return False
        question.owed.discard(height)
        question.came += 1
        self._batch[height] = peer, block
        if self._base - 1 in self._batch:
            self._take()
        return True

    def _take(self) -> None:
        """Keep blocks that link up to the lowest held one; pass over a peer that sent another one."""
        context, records = self._context, list[Final]()
        above, liar = self._above or self._lowest(), None
        while above is not None and above.certificate is not None and self._base - 1 in self._batch:
            peer, block = self._batch.pop(self._base - 1)
            if (error := self._refusal(above, block)) is not None:
                liar = peer
                context.emit(Refuse(peer, error))
                break
            records.append(Final(block, above.certificate, b""))
            self._above = above = block
            self._base -= 1
            self._turns[peer] = 0, self._turns.get(peer, (0, -1))[1]
        if records:
            context.emit(Persist(tuple(records)))
        if liar is not None:
            self._question = None
            self._find_useless(liar)
            if any(peer not in self._turns or not self._turns[peer][0] for peer in context.peers):
                self._ask()  # among liars alone, at the next tick
        elif self._question is not None and not self._question.owed:
            self._question, self._fit = None, min(FINALS_MAX, 2 * self._fit)  # the next batch at the next tick

    def _refusal(self, above: Block, block: Block) -> Refused | None:
        """Why a block is not the one below ``above``: another block, or a wrong body for its header; None if it is."""
        if block.hash != above.header.parent_hash:
            expected = above.header.parent_hash.hex()
            return InvalidBlock("older block", f"{block.hash.hex()} found, {expected} stands below height {self._base}")
        try:  # its header is known to be right
            validate_roots(block)
            validate_miner_signature(self._context.genesis, block, self._context.signatures)
        except InvalidSignature:
            return InvalidSignature("older block", f"body or signature are not those of {block.hash.hex()}")
        return None

    def _find_useless(self, peer: PublicKey) -> None:
        """Note that a peer was asked in vain: all others come first."""
        failures, asked_ms = self._turns.get(peer, (0, -1))
        self._turns[peer] = failures + 1, asked_ms

    def _lowest(self) -> Block | None:
        found = self._context.ledger.final(self._base)
        return None if found is None else found[0]
