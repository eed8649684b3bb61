"""Rules of certificates: votes of a quorum that prove a claim."""

from fedchain.chain.certificate import Certificate
from fedchain.chain.exceptions import (
    InvalidCertificate,
    Refused,
    check,
    check_ascending,
)
from fedchain.chain.genesis import Genesis
from fedchain.chain.state import State, votes_required
from fedchain.chain.validation.votes import validate_vote
from fedchain.chain.vote import NIL, VoteKind
from fedchain.crypto.hashing import Hash
from fedchain.crypto.keys import PublicKey
from fedchain.crypto.signatures import SignatureCheck


def validate_certificate(
    genesis: Genesis,
    electors: frozenset[PublicKey],
    certificate: Certificate,
    kind: VoteKind,
    height: int,
    block_hash: Hash,
    is_valid_signature: SignatureCheck,
) -> None:
    """Check for votes of ``kind`` by a quorum of ``electors`` for one block at ``height``. Raises InvalidCertificate.

    Kind, height and block are those that the caller needs proved: a quorum of prevotes locks members, but decides
    nothing.
    """
    validate_claim(certificate, kind, height, block_hash)
    validate_votes(genesis, electors, votes_required(genesis, electors), certificate, is_valid_signature)


def validate_polka(
    genesis: Genesis, state: State, certificate: Certificate, is_valid_signature: SignatureCheck
) -> None:
    """Check the prevotes of a quorum for some block of the open height. Raises InvalidCertificate."""
    electors, kind, height = state.roster.electors, VoteKind.PREVOTE, state.height + 1
    validate_certificate(genesis, electors, certificate, kind, height, certificate.block_hash, is_valid_signature)


def validate_claim(certificate: Certificate, kind: VoteKind, height: int, block_hash: Hash) -> None:
    """Check what a certificate says that it proves. Raises InvalidCertificate."""
    # Only precommits make a block final; after prevotes another block may still win.
    check(
        certificate.kind is kind,
        InvalidCertificate,
        "certificate's kind",
        f"{certificate.kind.name.lower()}s found, {kind.name.lower()}s expected",
    )
    check(
        certificate.height == height,
        InvalidCertificate,
        "certificate's height",
        f"{certificate.height} found, {height} expected",
    )
    # And only precommits for that block.
    check(
        certificate.block_hash == block_hash,
        InvalidCertificate,
        "certificate's block",
        f"{certificate.block_hash.hex()} found, {block_hash.hex()} expected",
    )


def validate_votes(
    genesis: Genesis,
    electors: frozenset[PublicKey],
    required: int,
    certificate: Certificate,
    is_valid_signature: SignatureCheck,
) -> None:
    """Check that at least ``required`` electors voted as a certificate says. Raises InvalidCertificate."""
    count = len(certificate.votes)
    # Any two quorums have an honest member in common, so no other block can have one, too.
    check(
        required <= count <= len(electors),
        InvalidCertificate,
        "quorum",
        f"{count} votes found, {required} of {len(electors)} required",
    )
    # Votes for no block prove nothing.
    check(certificate.block_hash != NIL, InvalidCertificate, "certificate's block", "votes for no block found")
    # Each voter counts once, and a set of votes has one form.
    check_ascending(InvalidCertificate, "vote order", (vote.voter for vote in certificate.votes))
    said = ((certificate.height, certificate.attempt, int(certificate.kind)), certificate.block_hash)
    for vote in certificate.votes:
        # The certificate's bytes hold the shared values once: other votes would not survive being encoded and decoded.
        if (vote.slot, vote.block_hash) != said:
            found = f"slot {vote.slot} found, {said[0]} expected, for block {said[1].hex()}"
            raise InvalidCertificate("certificate's vote", found)
        try:
            validate_vote(genesis, electors, vote, is_valid_signature)
        except Refused as error:
            raise InvalidCertificate("certificate's vote", str(error)) from None
