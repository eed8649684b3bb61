"""Agreement, validity and no capture: the promises about every block that an honest member finalizes."""

from collections.abc import Callable

from fedchain.chain.applying import apply_block
from fedchain.chain.exceptions import ChainError
from fedchain.chain.genesis import Genesis
from fedchain.chain.knowledge import ContentLookup, Rules, recompute
from fedchain.chain.membership.member import Standing
from fedchain.chain.roster import draw
from fedchain.chain.state import State, genesis_state
from fedchain.chain.storage.store import Final
from fedchain.chain.transition import judge_final
from fedchain.crypto.hashing import Hash, sha256
from fedchain.crypto.keys import PublicKey, is_valid_signature
from fedchain.simulator.oracles.sets import Sets

Fail = Callable[[str], None]
"""Called with a description of a violation."""


class FinalBlocks:
    """Checks each final block when the first honest member has it, without any of the nodes' caches.

    Args:
        genesis: the federation's founding document.
        rules: the learning method's rules.
        content: finds payloads and knowledge that any honest member holds.
        traitors: members that do not follow the protocol.
        fail: called with each violation.
    """

    def __init__(
        self, genesis: Genesis, rules: Rules, content: ContentLookup, traitors: frozenset[PublicKey], fail: Fail
    ) -> None:
        self.state: State = genesis_state(genesis)
        """State after the highest block that was verified."""
        self.hashes: list[Hash] = [self.state.block_hash]
        """Hash of the block at each height, as the first honest member finalized it."""
        self._genesis, self._rules, self._content = genesis, rules, content
        self._traitors, self._fail = traitors, fail
        self._sets = Sets(genesis) if self.state.records else None

    def excuse(self, member: PublicKey) -> None:
        """A member may be convicted: it lost its journal, or a traitor has another key."""
        self._traitors |= {member}

    def on_final(self, number: int, record: Final) -> bool:
        """Peer ``number`` finalized a block; return whether it is the first one with a block at this height."""
        block, height = record.block, record.block.header.height
        if height < len(self.hashes):
            if self.hashes[height] != block.hash:
                first, other = self.hashes[height].hex()[:16], block.hash.hex()[:16]
                self._fail(f"agreement: peer {number} finalized {other} at height {height}, another peer {first}")
            return False
        if height > len(self.hashes):
            self._fail(f"agreement: peer {number} finalized height {height}, nobody height {len(self.hashes)}")
            return False
        self.hashes.append(block.hash)
        self._verify(record)
        return True

    def _verify(self, record: Final) -> None:
        """Apply every rule, and recompute the aggregate."""
        genesis, before, block = self._genesis, self.state, record.block
        height = block.header.height
        try:
            root = sha256(recompute(genesis, self._rules, before, block.transactions, self._content))
            self.state = judge_final(genesis, before, block, record.certificate, root, is_valid_signature)
        except ChainError as error:
            self._fail(f"validity: height {height} does not re-verify: {error}")
            self.state = apply_block(genesis, before, block)  # report one fault only once
            return
        # A traitor may take another key by itself, and is the same traitor.
        self._traitors |= {change.key for change in block.changes if change.key and change.member in self._traitors}
        self._check_electors(height)
        if self._sets is not None:
            self._sets.follow(before, block)
            for difference in self._sets.differences(self.state):
                self._fail(f"set: after height {height} {difference}")

    def _check_electors(self, height: int) -> None:
        """Check that the next voters are drawn from all members that count but convicted traitors."""
        state = self.state
        current = {item.former.key: item.key for item in state.records if item.former is not None}
        culprits = {current.get(crime.culprit, crime.culprit) for crime in state.convicted}
        for member in sorted(culprits - self._traitors):
            self._fail(f"capture: height {height} convicts {member.hex()[:16]}, which is honest")
        without = culprits | {item.key for item in state.records if item.standing is not Standing.ACTIVE}
        active = tuple(member for member in state.roster.members if member not in without)
        places = {item.key: place for place, item in enumerate(state.records)} or None
        # From version 3 on a draw depends on nothing that a member does.
        by_height = self._genesis.chain_id + b"committee" + (height + 1).to_bytes(8, "big")
        seed = by_height if state.records else state.block_hash + b"committee"
        if state.roster.electors != draw(active, state.rules.committee_size, seed, places):
            votes = len(state.roster.electors)
            self._fail(f"capture: after height {height} {votes} vote, of {len(active)} active members")
