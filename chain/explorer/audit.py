"""The audit: every final block is judged again, as a member that sees it for the first time would.

It begins with the state that founded the chain, or with the first one that is held. Each block must carry the
certificate of its parent, and its own certificate must make it final.
"""

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass

from fedchain.chain.block import Block
from fedchain.chain.certificate import Certificate
from fedchain.chain.exceptions import ChainError, MethodFailed, Refused
from fedchain.chain.explorer.ahead import SignaturesAhead
from fedchain.chain.explorer.history import follow
from fedchain.chain.knowledge import EMPTY_ROOT, ContentLookup, Rules, missing_contents, recompute
from fedchain.chain.state import EMPTY_KNOWLEDGE, State, genesis_state
from fedchain.chain.storage.sqlite import Store
from fedchain.chain.transition import judge_final
from fedchain.chain.validation import validate_knowledge
from fedchain.crypto.hashing import Hash, sha256


@dataclass(frozen=True, slots=True)
class BlockCheck:
    """The audit's verdict on one block."""

    height: int
    """The block's height."""
    hash: Hash
    """32 bytes: the block."""
    verdict: str
    """``ok``; ``unchecked``: its knowledge could not be recomputed, or the state before it is unknown; ``invalid``."""
    missing: tuple[Hash, ...]
    """Payloads or knowledge that recomputing needs but that are not kept."""
    error: str
    """The rule that it breaks, by the name of its error; or the reason why the method's code failed; or empty."""


@dataclass(frozen=True, slots=True)
class ChainAudit:
    """The audit's findings about a chain."""

    chain_id: Hash
    """32 bytes: hash of the genesis document."""
    is_valid: bool
    """Whether nothing is invalid or damaged; blocks may still be unchecked."""
    base: int
    """Lowest height from which on every block is held."""
    height: int
    """Height of the head."""
    blocks: tuple[BlockCheck, ...]
    """Verdicts on the blocks, from the base to the head."""
    records: int
    """Stored records that were compared with their checksums: the genesis document, blocks with their certificates,
    states, candidates, votes and posts, in blocks or not."""
    contents: int
    """Stored payloads and knowledge that were compared with their hashes, whether a block needs them or not."""
    damaged: tuple[str, ...]
    """Rows and files that are not as they were written."""
    path_certificates: int = 0
    """Certificates by which the head was verified from the founding document on, where members may change; 0: there
    are no blocks, or members are the same for ever. The hash of each block stands in the one above it, so they prove
    the lowest block that is held, too."""


def audit_store(store: Store, rules: Rules) -> ChainAudit:
    """Judge all final blocks of a store. Unlike an explorer, this works even if the head is damaged."""

    def content(content_hash: Hash) -> bytes | None:
        return EMPTY_KNOWLEDGE if content_hash == EMPTY_ROOT else store.content(content_hash)

    return audit_chain(store, store.base(), store.height(), rules, content)


def audit_chain(store: Store, base: int, height: int, rules: Rules, content: ContentLookup) -> ChainAudit:
    """Judge the final blocks from ``base`` to ``height`` with the payloads that ``content`` holds."""
    checks = tuple(_Audit(store, rules, content).check_all(base, height))
    (records, contents), damaged = store.counts(), tuple(store.damage())
    path = 0
    with suppress(Refused):  # then the damage says so
        path = store.path_certificates(height)
    is_valid = not damaged and all(check.verdict != "invalid" for check in checks)
    return ChainAudit(store.genesis.chain_id, is_valid, base, height, checks, records, contents, damaged, path)


class _Audit:
    def __init__(self, store: Store, rules: Rules, content: ContentLookup) -> None:
        self._store = store
        self._genesis = store.genesis
        self._rules = rules
        self._content = content
        self._signatures = SignaturesAhead(store.genesis)
        self._state: State | None = None
        self._knowledge = EMPTY_KNOWLEDGE  # of the last block for which it could be recomputed

    def check_all(self, base: int, height: int) -> Iterator[BlockCheck]:
        """The verdict on each block, oldest first."""
        if base == 1:
            self._state = genesis_state(self._genesis)
        heights = range(base, height + 1)
        blocks = self._signatures.read(map(self._store.final, heights), len(heights))
        for place, found in zip(heights, blocks, strict=True):
            if self._state is None:
                self._state = self._store.stored_state(place)
            if found is None:
                # Later blocks are judged from the next stored state on.
                self._state = None
                yield BlockCheck(place, b"", "invalid", (), "StoreCorrupt: it is damaged, and not held any more")
            else:
                yield self._check(*found)

    def _check(self, block: Block, certificate: Certificate) -> BlockCheck:
        height, state, self._state = block.header.height, self._state, None
        if state is None:
            return BlockCheck(height, block.hash, "unchecked", (), "")
        try:
            self._state = judge_final(self._genesis, state, block, certificate, None, self._signatures.is_valid)
            missing = self._recompute(state, block)
        except MethodFailed as error:  # that says nothing about the block
            return BlockCheck(height, block.hash, "unchecked", (), str(error))
        except ChainError as error:
            # It leads to a state all the same, and the blocks after it are judged by that.
            self._state = self._state or follow(self._genesis, state, block)
            return BlockCheck(height, block.hash, "invalid", (), f"{type(error).__name__}: {error}")
        return BlockCheck(height, block.hash, "unchecked" if missing else "ok", missing, "")

    def _recompute(self, state: State, block: Block) -> tuple[Hash, ...]:
        """Compare the recomputed knowledge with the header's; return contents that it lacks. Raises as rules do."""
        before = self._knowledge
        # Each content is read once, though two functions ask for it: one looks for missing contents, one recomputes.
        read: dict[Hash, bytes | None] = {sha256(before): before}

        def held(content_hash: Hash) -> bytes | None:
            if content_hash not in read:
                read[content_hash] = self._content(content_hash)
            return read[content_hash]

        if missing := missing_contents(state, block.transactions, held):
            return tuple(missing)
        after = recompute(self._genesis, self._rules, state, block.transactions, held)
        validate_knowledge(block.header, sha256(after))
        self._knowledge = after
        return ()
