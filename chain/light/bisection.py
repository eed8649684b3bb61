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


class Provider(Protocol):
    """A source of light blocks, which may lie."""

    def light_block(self, height: int, *, with_proof: bool) -> LightBlock:
        """The final block of a height, with what proves its electors to anybody, if asked for. Raises NotFound."""


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


def bisect(
    genesis: Genesis, trusted: Trusted, provider: Provider, height: int, is_valid_signature: SignatureCheck
) -> Verified:
    """Verify the block of a height by as few blocks between as the chain allows.

    The height is skipped to at once if possible. Where too few trusted members signed it, the height in the middle is
    asked for first, and so on down to the next one, which is always decided by known electors.

    Args:
        genesis: the founding document.
        trusted: the block to begin at; check its age with :func:`validate_period`.
        provider: the source of light blocks.
        height: the height that is wanted.
        is_valid_signature: checks signatures.

    Raises:
        OutOfWindow: the height is below the trusted one.
        NotFound: the provider has no such block.
        Invalid: it lies.
    """
    if height < trusted.height:
        raise OutOfWindow("height", f"{height} is asked for, {trusted.height} is trusted and only later ones are taken")
    begin, path = trusted.height, list[LightBlock]()
    waiting: list[LightBlock] = []  # blocks that are verified once one below is trusted, the lowest last
    wanted = height
    while trusted.height < height:
        if not waiting or waiting[-1].header.height != wanted:
            waiting.append(_ask(provider, wanted, with_proof=wanted > trusted.height + 1))
        block = waiting[-1]
        try:
            if block.header.height == trusted.height + 1:
                block = block.alone()
                trusted = verify_adjacent(genesis, trusted, block, is_valid_signature)
            else:
                trusted = verify_skipping(genesis, trusted, block, is_valid_signature)
        except UnknownParent:
            wanted = (trusted.height + block.header.height) // 2
            continue
        waiting.pop()
        path.append(block)
        wanted = waiting[-1].header.height if waiting else height
    signatures = sum(len(block.certificate.votes) for block in path)
    return Verified(trusted, path[-1] if path else None, len(path), signatures, height - begin - len(path), tuple(path))


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

    def light_block(self, height: int, *, with_proof: bool) -> LightBlock:
        """The held block at its height, and the provider's elsewhere."""
        if height == self.held.header.height:
            return self.held
        return self.provider.light_block(height, with_proof=with_proof)


def _ask(provider: Provider, height: int, *, with_proof: bool) -> LightBlock:
    block = provider.light_block(height, with_proof=with_proof)
    expect(block.header.height == height, "height", f"{block.header.height} found", f"{height}, which was asked for,")
    # Without it no height is skipped, so a provider that leaves it out would have every block asked for.
    is_lacking = with_proof and block.is_alone and (block.members is None or height > 1)
    name = "state" if block.members is None else "header below"
    expect(not is_lacking, name, f"none found with height {height}", "the one below it")
    return block
