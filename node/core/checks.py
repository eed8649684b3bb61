"""The costly checks, each done once: signatures, payloads, proofs of work, aggregates.

They are pure functions of what they check, so a result can be kept by hash. A node has a cache of its own. The
simulator may give one cache to many peers, which changes nothing but the time it takes.
"""

from collections import OrderedDict
from collections.abc import Hashable, Sequence
from functools import partial

from fedchain.chain.block import Block
from fedchain.chain.genesis import Genesis
from fedchain.chain.knowledge import ContentLookup, Rules, recompute
from fedchain.chain.state import State, apply_block
from fedchain.chain.transaction import Transaction
from fedchain.chain.validation import (
    validate_content,
    validate_payload,
    validate_sealed,
    validate_transaction,
    validate_vote,
)
from fedchain.chain.vote import Vote
from fedchain.crypto.hashing import Hash
from fedchain.crypto.keys import PublicKey, Signature, is_valid_signature

CHECKED_MAX = 2**16
"""Checked things that are remembered."""

BLOCKS_MAX = 256
"""Checked blocks that are remembered; they are kept whole, and anyone may send many."""

STATES_MAX = 1_024
"""States after blocks that are remembered. With many members, to draw from them is what a block costs most."""

KNOWLEDGE_MAX = 8
"""Recomputed knowledges that are kept: one for each open fork."""


class Verification:
    """Runs the rules of :mod:`fedchain.chain.validation` and remembers what passed. What fails is not remembered."""

    def __init__(self, genesis: Genesis, rules: Rules) -> None:
        self._genesis = genesis
        self._rules = rules
        self._checked: OrderedDict[Hashable, None] = OrderedDict()
        self._blocks: OrderedDict[Hash, Block] = OrderedDict()
        self._knowledge: OrderedDict[Hashable, bytes] = OrderedDict()
        self._states: OrderedDict[Hash, State] = OrderedDict()

    def transaction(self, transaction: Transaction) -> None:
        """A post on its own; raises InvalidTransaction."""
        if not self._is_known(transaction.hash):
            validate_transaction(self._genesis, transaction, self._is_valid_signature)
            self._remember(transaction.hash)

    def payload(self, transaction: Transaction, payload: bytes) -> None:
        """A payload beside its post; raises InvalidPayload."""
        phase = self._genesis.phases_of(transaction.round)[transaction.phase].name
        readable = phase, transaction.payload_hash
        if self._is_known(readable):
            validate_content(transaction.payload_hash, transaction.payload_size, payload)
            return
        validate_payload(transaction, payload, partial(self._rules.check, phase))
        self._remember(readable)

    def sealed(self, block: Block) -> None:
        """Everything about a block that needs no other block; raises InvalidBlock.

        What is remembered is the whole block: a forged body under a good header is another block.
        """
        known = self._blocks.get(block.hash)
        if known is not block and known != block:
            validate_sealed(self._genesis, block, self._is_valid_signature)
            self._blocks[block.hash] = block
            if len(self._blocks) > BLOCKS_MAX:
                self._blocks.popitem(last=False)

    def vote(self, vote: Vote) -> None:
        """A vote on its own; raises InvalidVote."""
        validate_vote(self._genesis, vote, self._is_valid_signature)

    def recompute(self, parent: State, transactions: Sequence[Transaction], content: ContentLookup) -> bytes:
        """The knowledge that a block over ``transactions`` leaves behind; raises as ``knowledge.recompute`` does."""
        inputs = parent.round, parent.phase, parent.knowledge_root, tuple(post.hash for post in transactions)
        if inputs not in self._knowledge:
            self._knowledge[inputs] = recompute(self._genesis, self._rules, parent, transactions, content, self.payload)
            if len(self._knowledge) > KNOWLEDGE_MAX:
                self._knowledge.popitem(last=False)
        return self._knowledge[inputs]

    def apply(self, genesis: Genesis, state: State, block: Block) -> State:
        """The state after a valid block, as :func:`apply_block` has it."""
        if block.hash not in self._states:
            self._states[block.hash] = apply_block(genesis, state, block)
            if len(self._states) > STATES_MAX:
                self._states.popitem(last=False)
        return self._states[block.hash]

    def _is_valid_signature(self, public_key: PublicKey, signature: Signature, message: bytes) -> bool:
        identity = public_key, signature, message
        if self._is_known(identity):
            return True
        valid = is_valid_signature(public_key, signature, message)
        if valid:
            self._remember(identity)
        return valid

    def _is_known(self, identity: Hashable) -> bool:
        return identity in self._checked

    def _remember(self, identity: Hashable) -> None:
        self._checked[identity] = None
        if len(self._checked) > CHECKED_MAX:
            self._checked.popitem(last=False)
