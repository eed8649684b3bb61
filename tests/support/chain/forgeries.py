"""Certificates that make a block final for nobody, by a liar that holds all that members ever signed, and f keys."""

from collections.abc import Callable
from dataclasses import replace

from fedchain.chain.block import Block
from fedchain.chain.certificate import Certificate, certify
from fedchain.chain.vote import NIL, Vote, VoteKind, sign_vote
from fedchain.crypto.hashing import Hash
from fedchain.crypto.keys import PrivateKey
from tests.support.chain.builders import ChainBuilder, genesis, keys

Forge = Callable[[ChainBuilder, Block], Certificate]


def _votes(chain: ChainBuilder, block: Block) -> tuple[Vote, ...]:
    """The precommits that do make it final."""
    return chain.certificate(block).votes


def _with_votes(certificate: Certificate, *votes: Vote) -> Certificate:
    """The certificate with other votes, in the order in which a valid one has them."""
    return replace(certificate, votes=tuple(sorted(votes, key=lambda vote: vote.voter)))


def _signed_by(chain: ChainBuilder, key: PrivateKey, block: Block, *, chain_id: Hash = b"") -> Vote:
    seen = _votes(chain, block)[0]
    return sign_vote(
        key,
        chain_id or chain.genesis.chain_id,
        (block.header.height, 0, VoteKind.PRECOMMIT),
        block.hash,
        clock_ms=seen.clock_ms,
        mining_ms=seen.mining_ms,
    )


def _prevotes(chain: ChainBuilder, block: Block) -> Certificate:
    return chain.certificate(block, kind=VoteKind.PREVOTE)


def _relabelled(chain: ChainBuilder, block: Block) -> Certificate:
    return certify(replace(vote, kind=VoteKind.PRECOMMIT) for vote in _prevotes(chain, block).votes)


def _half_relabelled(chain: ChainBuilder, block: Block) -> Certificate:
    honest, last = chain.certificate(block), _relabelled(chain, block).votes[-1]
    return _with_votes(honest, *honest.votes[:-1], last)


def _other_height(chain: ChainBuilder, block: Block) -> Certificate:
    certificate = chain.certificate(block)
    votes = tuple(replace(vote, height=vote.height + 1) for vote in certificate.votes)
    return replace(certificate, height=certificate.height + 1, votes=votes)


def _parents(chain: ChainBuilder, block: Block) -> Certificate:
    return chain.certificate(block.header.parent_hash)


def _nil(chain: ChainBuilder, block: Block) -> Certificate:
    height, chain_id = block.header.height, chain.genesis.chain_id
    signers = (chain.key(vote.voter) for vote in _votes(chain, block))
    return certify(sign_vote(key, chain_id, (height, 0, VoteKind.PRECOMMIT), NIL) for key in signers)


def _nil_renamed(chain: ChainBuilder, block: Block) -> Certificate:
    return certify(replace(vote, block_hash=block.hash) for vote in _nil(chain, block).votes)


def _rivals(chain: ChainBuilder, block: Block) -> Certificate:
    return chain.certificate(chain.remake(block, key=chain.key(chain.genesis.members[-1])))


def _rivals_renamed(chain: ChainBuilder, block: Block) -> Certificate:
    return certify(replace(vote, block_hash=block.hash) for vote in _rivals(chain, block).votes)


def _mixed_attempts(chain: ChainBuilder, block: Block) -> Certificate:
    honest, later = chain.certificate(block), chain.certificate(block, attempt=1).votes[-1]
    return _with_votes(honest, *honest.votes[:-1], replace(later, attempt=0))


def _doubled(chain: ChainBuilder, block: Block) -> Certificate:
    honest = chain.certificate(block)
    return _with_votes(honest, *honest.votes[:-1], honest.votes[0])


def _too_few(chain: ChainBuilder, block: Block) -> Certificate:
    honest = chain.certificate(block)
    return _with_votes(honest, *honest.votes[:-1])


def _stranger(chain: ChainBuilder, block: Block) -> Certificate:
    honest, stranger = chain.certificate(block), keys(len(chain.genesis.members) + 1)[-1]
    return _with_votes(honest, *honest.votes[:-1], _signed_by(chain, stranger, block))


def _in_anothers_name(chain: ChainBuilder, block: Block) -> Certificate:
    honest = chain.certificate(block)
    forged = replace(_signed_by(chain, chain.key(honest.votes[0].voter), block), voter=honest.votes[-1].voter)
    return _with_votes(honest, *honest.votes[:-1], forged)


def _of_another_chain(chain: ChainBuilder, block: Block) -> Certificate:
    other = genesis(len(chain.genesis.members), name="other").chain_id
    return certify(_signed_by(chain, chain.key(vote.voter), block, chain_id=other) for vote in _votes(chain, block))


def _other_clock(chain: ChainBuilder, block: Block) -> Certificate:
    honest = chain.certificate(block)
    return replace(honest, votes=tuple(replace(vote, clock_ms=vote.clock_ms + 1) for vote in honest.votes))


FORGED: dict[str, Forge] = {
    "prevotes": _prevotes,
    "prevotes, relabelled": _relabelled,
    "one prevote among them, relabelled": _half_relabelled,
    "of another height": _other_height,
    "of the parent": _parents,
    "for no block": _nil,
    "for no block, renamed": _nil_renamed,
    "for another block": _rivals,
    "for another block, renamed": _rivals_renamed,
    "of several attempts": _mixed_attempts,
    "a vote twice": _doubled,
    "fewer than a quorum": _too_few,
    "of a stranger": _stranger,
    "in another's name": _in_anothers_name,
    "of another chain": _of_another_chain,
    "with another clock": _other_clock,
}
"""Each by what is wrong with it."""
