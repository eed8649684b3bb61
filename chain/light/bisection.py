"""Bisection: a height is verified by as few blocks between as the chain allows, and two servers are compared."""

from dataclasses import dataclass
from typing import Protocol

from fedchain.chain.evidence import evidence_of, excludes
from fedchain.chain.exceptions import (
    ChainError,
    OutOfWindow,
    UnknownParent,
)
from fedchain.chain.genesis import Genesis
from fedchain.chain.light.light_block import LightBlock, expect
from fedchain.chain.light.verification import Trusted, trust_genesis, verify_adjacent, verify_skipping
from fedchain.crypto.signatures import SignatureCheck

PIVOTS_MAX = 64
"""Blocks that wait for one below them: halves of a gap between heights of 63 bits."""

PIVOTS_SIZE_MAX = 2**17
"""Members and votes of these blocks together, which bound their bytes: 64 blocks of a thousand members that vote."""

MARKS_UNIT = 512
"""Bytes of marks in a vote that count as much as another vote."""


Gap = tuple[int, int]
"""Two heights between which a block leads on; neither of the two does."""


class Provider(Protocol):
    """A source of light blocks, which may lie."""

    def light_block(self, height: int, *, with_proof: bool, gap: Gap | None = None) -> LightBlock:
        """The final block of a height, with what proves its electors to anybody, if asked for.

        Where that one is not held, another block between the heights of ``gap`` is as good, with its proof: a peer that
        joined has the blocks that led it to its head, and none of those beside them at first. Raises NotFound.
        """


@dataclass(frozen=True, slots=True)
class Verified:
    """The result of a verification."""

    trusted: Trusted
    """The block that was asked for."""
    block: LightBlock | None
    """The same with its certificate; None if it was trusted from the beginning."""
    certificates: int
    """Certificates that were verified on the way."""
    signatures: int
    """Votes in them."""
    skipped: int
    """Heights between that were not looked at."""
    path: tuple[LightBlock, ...]
    """The blocks on the way, the lowest first, each with no more than its verification needs."""


class ConflictingBlocks(ChainError):
    """Two blocks of one height have valid certificates, so more members lie than the federation bears.

    Args:
        first: one of them.
        second: the other.
    """

    def __init__(self, first: LightBlock, second: LightBlock) -> None:
        self.blocks = first, second
        """The two blocks, each with its certificate: they prove it to anybody that knows the electors."""
        votes = {vote.voter: vote for vote in first.certificate.votes}
        both = [(votes[vote.voter], vote) for vote in second.certificate.votes if vote.voter in votes]
        self.signers = tuple(one.voter for one, _ in both)
        """Members that signed both certificates."""
        self.crimes = tuple(evidence_of(one, other) for one, other in both if excludes(one, other))
        """Evidence against those that did so in one attempt. Votes in two attempts prove a crime together with the
        prevotes alone, which certificates do not hold."""
        height, hashes = first.header.height, f"{first.header.hash.hex()} and {second.header.hash.hex()}"
        super().__init__(f"height {height} has two certified blocks, {hashes}: {len(both)} members signed both")


class Bisection:
    """The way from a trusted block to a height, by as few blocks between as the chain allows.

    The height is skipped to at once if possible. Where too few trusted members signed it, the height in the middle is
    asked for first, and so on down to the next one, which is always decided by known electors. The caller hands each
    answer to :meth:`take`; a block between the two heights of ``gap`` is as good as the one that is wanted.

    Args:
        genesis: the founding document.
        trusted: the block to begin at; check its age with :func:`validate_period`.
        height: the height that is wanted.
        is_valid_signature: checks signatures.

    Raises OutOfWindow: the height is below the trusted one.
    """

    def __init__(self, genesis: Genesis, trusted: Trusted, height: int, is_valid_signature: SignatureCheck) -> None:
        if height < trusted.height:
            words = f"{height} is asked for, {trusted.height} is trusted and only later ones are taken"
            raise OutOfWindow("height", words)
        self._genesis, self._is_valid_signature = genesis, is_valid_signature
        self.height = height
        """The height that is wanted in the end."""
        self.trusted = trusted
        """The highest block that is verified."""
        self.path: list[LightBlock] = []
        """Blocks that were verified on the way, the lowest first, as they came."""
        self._waiting: list[LightBlock] = []  # verified once one below is trusted, the lowest last

    @property
    def is_done(self) -> bool:
        """Whether the height is verified."""
        return self.trusted.height >= self.height

    @property
    def wanted(self) -> int:
        """The height to ask for next."""
        return (self.trusted.height + self._waiting[-1].header.height) // 2 if self._waiting else self.height

    @property
    def gap(self) -> Gap:
        """Heights between which a block leads on; neither of the two does."""
        return self.trusted.height, self._waiting[-1].header.height if self._waiting else self.height + 1

    def take(self, block: LightBlock) -> None:
        """Verify what can be verified now. Raises Invalid: the block leads nowhere, so its sender lies."""
        low, high = self.gap
        expect(low < block.header.height < high, "height", f"{block.header.height} found", f"{low + 1} to {high - 1}")
        self._waiting.append(block)
        size = sum(_size_of_votes(other) + _size_of_set(other) for other in self._waiting)
        pivots = len(self._waiting)
        expect(pivots <= PIVOTS_MAX, "light path", f"{pivots} blocks wait", f"at most {PIVOTS_MAX}")
        expect(size <= PIVOTS_SIZE_MAX, "light path", f"{size} members and votes wait", f"at most {PIVOTS_SIZE_MAX}")
        while self._waiting and self._verify(self._waiting[-1]):
            self._waiting.pop()

    def _verify(self, block: LightBlock) -> bool:
        """Whether a block is verified from the trusted one; False if only those between can tell. Raises Invalid."""
        genesis, trusted = self._genesis, self.trusted
        try:
            if block.header.height == trusted.height + 1:
                self.trusted = verify_adjacent(genesis, trusted, block, self._is_valid_signature)
            else:
                self.trusted = verify_skipping(genesis, trusted, block, self._is_valid_signature)
        except UnknownParent:
            return False
        self.path.append(block)
        return True


def bisect(
    genesis: Genesis, trusted: Trusted, provider: Provider, height: int, is_valid_signature: SignatureCheck
) -> Verified:
    """Verify the block of a height by :class:`Bisection`, from one provider.

    Raises:
        OutOfWindow: the height is below the trusted one.
        NotFound: the provider has no such block.
        Invalid: it lies.
    """
    way, begin = Bisection(genesis, trusted, height, is_valid_signature), trusted.height
    while not way.is_done:
        wanted = way.wanted
        way.take(_ask(provider, wanted, with_proof=wanted > way.trusted.height + 1, gap=way.gap))
    heights = (begin, *(block.header.height for block in way.path))
    path = [
        block.alone() if below + 1 == block.header.height else block
        for below, block in zip(heights, way.path, strict=False)
    ]
    signatures = sum(len(block.certificate.votes) for block in path)
    skipped = height - begin - len(path)
    return Verified(way.trusted, path[-1] if path else None, len(path), signatures, skipped, tuple(path))


def compare(
    genesis: Genesis, before: Trusted, block: LightBlock, witness: Provider, is_valid_signature: SignatureCheck
) -> None:
    """Ask a second provider for a block that was verified from ``before``.

    Raises:
        ConflictingBlocks: it has another block of this height, which is certified as well.
        Refused: it has another one that is not, or cannot prove it.
        NotFound: it has none.
    """
    height = block.header.height
    other = _ask(witness, height, with_proof=True)
    if other.header.hash == block.header.hash:
        return
    # Another block in the place of the trusted one itself has to be proven from further down.
    begin = before if height > before.height else trust_genesis(genesis)
    bisect(genesis, begin, _Instead(witness, other), height, is_valid_signature)
    raise ConflictingBlocks(block, other)


@dataclass(frozen=True, slots=True)
class _Instead:
    """A provider whose answer for one height is held already."""

    provider: Provider
    held: LightBlock

    def light_block(self, height: int, *, with_proof: bool, gap: Gap | None = None) -> LightBlock:
        """The held block at its height, and the provider's elsewhere."""
        if height == self.held.header.height:
            return self.held
        return self.provider.light_block(height, with_proof=with_proof, gap=gap)


def expect_proof(block: LightBlock) -> None:
    """Check that a light block has what proves its electors to anybody. Raises InvalidBlock.

    Without it no height is skipped, so a provider that leaves it out would have every block asked for.
    """
    height, name = block.header.height, "state" if block.members is None else "header below"
    is_lacking = block.is_alone and (block.members is None or height > 1)
    expect(not is_lacking, name, f"none found with height {height}", "the one below it")


def _ask(provider: Provider, height: int, *, with_proof: bool, gap: Gap | None = None) -> LightBlock:
    block = provider.light_block(height, with_proof=with_proof, gap=gap)
    is_asked, low, high = block.header.height == height, *(gap or (height, height))
    is_near = low < block.header.height < high
    expect(is_asked or is_near, "height", f"{block.header.height} found", f"{height}, which was asked for,")
    if with_proof or not is_asked:
        expect_proof(block)
    return block


def _size_of_votes(block: LightBlock) -> int:
    """Number of votes, each with its marks, which a liar can make much larger than the rest of it."""
    return sum(1 + (0 if vote.turnout is None else vote.turnout.size // MARKS_UNIT) for vote in block.certificate.votes)


def _size_of_set(block: LightBlock) -> int:
    return 0 if block.members is None else len(block.members.members)
