"""A final block far above ours: the rules that can be checked before the state below it has been fetched.

A node that joins fetches that state because the header names it. A header costs nothing to invent, so the block has to
show first that it is whole, that work was spent on it, and that members signed for it. If all members vote, one of the
signers is honest. Only the state says whether the signers were the block's electors: see ``judge_joined``.
"""

from fedchain.chain.block import Block, Header, block_signing_message
from fedchain.chain.certificate import Certificate
from fedchain.chain.difficulty import is_canonical_bits
from fedchain.chain.evidence import EVIDENCE_MAX
from fedchain.chain.exceptions import InvalidBlock, InvalidSignature
from fedchain.chain.genesis import Genesis
from fedchain.chain.membership.change import CHANGES_MAX
from fedchain.chain.proof_of_work import is_sealed
from fedchain.chain.roster import Roster
from fedchain.chain.validation import validate_claim, validate_roots, validate_votes
from fedchain.chain.vote import VoteKind
from fedchain.crypto.signatures import SignatureCheck


def validate_far_final(
    genesis: Genesis, roster: Roster, block: Block, certificate: Certificate, is_valid_signature: SignatureCheck
) -> None:
    """Check a block and the votes that are said to make it final, by the members that are known here.

    Raises:
        InvalidSignature: body or signature do not belong to the header; the peer that sent the block replaced them.
        InvalidBlock: no federation of these members could have made it.
        InvalidCertificate: too few members signed that it is final.
    """
    header, members = block.header, frozenset(roster.members)
    validate_extent(genesis, roster, block, certificate)
    validate_roots(block)
    message = block_signing_message(genesis.chain_id, block.hash)
    if header.miner not in members or not is_valid_signature(header.miner, block.signature, message):
        raise InvalidSignature("miner signature", f"it is not {header.miner.hex()[:16]}…'s, or that is no member")
    validate_work(genesis, header)
    validate_claim(certificate, VoteKind.PRECOMMIT, header.height, block.hash)
    validate_votes(genesis, members, signatures_required(genesis, roster), certificate, is_valid_signature)


def validate_work(genesis: Genesis, header: Header) -> None:
    """Check that work was spent on a header, by the bits that it names itself. Raises InvalidBlock."""
    if not is_canonical_bits(header.bits) or not is_sealed(genesis.proof_function, header):
        found = f"nonce {header.nonce} does not bring the hash to the target {header.bits:#x}"
        raise InvalidBlock("proof of work", found)


def validate_extent(
    genesis: Genesis, roster: Roster, block: Block, certificate: Certificate, newcomers: int = 0
) -> None:
    """Check that there are no more posts, votes, crimes and changes than the members can make. Raises InvalidBlock.

    ``newcomers`` are members that may have come since. A message has room for far more. The check is cheap; make it
    before a block is kept or examined ahead of its turn.
    """
    members = len(roster) + newcomers
    votes = len(certificate.votes) + (len(block.certificate.votes) if block.certificate else 0)
    for name, count, limit in (
        ("posts", len(block.transactions), members * (1 + genesis.late_rounds)),
        ("votes", votes, 2 * members),
        ("evidence", len(block.evidence), EVIDENCE_MAX),
        ("changes", len(block.changes), CHANGES_MAX),
        ("approvals", max((len(change.approvals) for change in block.changes), default=0), members),
    ):
        if count > limit:
            raise InvalidBlock(name, f"{count} found, {members} members make at most {limit}")


def signatures_required(genesis: Genesis, roster: Roster) -> int:
    """Members that must have signed a certificate whose electors are not known.

    It is one more than may lie: then an honest member signed, and the block is on the chain. If so few electors are
    drawn that all of them may be liars, it is their quorum. It is not known how many members were convicted since, so
    no more signatures can be demanded.
    """
    members = len(roster)
    faulty = genesis.fault_model.faulty(members)
    electors = min(genesis.committee_size or members, members - faulty)
    return min(faulty + 1, genesis.fault_model.quorum(electors))


def may_be_drawn_by_liars(genesis: Genesis, roster: Roster) -> bool:
    """Whether so few members vote on a block that a quorum of them may consist of liars."""
    members = len(roster)
    electors = min(genesis.committee_size or members, members)
    return genesis.fault_model.quorum(electors) <= genesis.fault_model.faulty(members)
