"""The signatures that are checked when a final block is judged, so that they can be verified before."""

from collections.abc import Iterable, Iterator

from fedchain.chain.block import Block, block_signing_message
from fedchain.chain.certificate import Certificate
from fedchain.chain.genesis import Genesis
from fedchain.crypto.signatures import Signed, is_valid_signature


def signatures_of(genesis: Genesis, block: Block, certificate: Certificate) -> Iterator[Signed]:
    """Signatures of a block and of the votes that make it final; those of the votes for its parent come last."""
    chain_id = genesis.chain_id
    for vote in certificate.votes:
        yield vote.voter, vote.signature, vote.signing_message(chain_id)
    yield block.header.miner, block.signature, block_signing_message(chain_id, block.hash)
    for post in block.transactions:
        yield post.sender, post.signature, post.signing_message(chain_id)
    for vote in block.certificate.votes if block.certificate else ():
        yield vote.voter, vote.signature, vote.signing_message(chain_id)


def count_valid(signed: Iterable[Signed]) -> int:
    """Number of valid signatures before the first invalid one: a block with that one is refused in any case."""
    count = 0
    for public_key, signature, message in signed:
        if not is_valid_signature(public_key, signature, message):
            break
        count += 1
    return count
