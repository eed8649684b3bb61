"""All signatures that a final block stands on, in the order in which they are worth a look."""

from dataclasses import replace

from fedchain.chain.signatures import count_valid, signatures_of
from tests.support.chain.records import BUILDER, GENESIS, SECOND

CERTIFICATE = BUILDER.final(SECOND).certificate


def test_every_signature_of_a_final_block_is_there_and_valid() -> None:
    signed = list(signatures_of(GENESIS, SECOND, CERTIFICATE))
    assert SECOND.certificate is not None
    parents = SECOND.certificate.votes
    assert len(signed) == len(CERTIFICATE.votes) + 1 + len(SECOND.transactions) + len(parents)
    assert [who for who, _, _ in signed[: len(CERTIFICATE.votes)]] == [vote.voter for vote in CERTIFICATE.votes]
    assert [who for who, _, _ in signed[-len(parents) :]] == [vote.voter for vote in parents]
    assert count_valid(signed) == len(signed)


def test_valid_ones_are_counted_up_to_the_first_that_is_not() -> None:
    forged = replace(SECOND, signature=bytes(64))
    assert count_valid(signatures_of(GENESIS, forged, CERTIFICATE)) == len(CERTIFICATE.votes)
