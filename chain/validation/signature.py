"""The rule that all signed statements share."""

from fedchain.chain.exceptions import (
    InvalidSignature,
)
from fedchain.chain.genesis import Genesis
from fedchain.chain.post import Post
from fedchain.chain.vote import Vote
from fedchain.crypto.keys import PublicKey
from fedchain.crypto.signatures import SignatureCheck


def validate_signature(
    genesis: Genesis, signer: PublicKey, statement: Post | Vote, is_valid_signature: SignatureCheck
) -> None:
    """Check that ``signer`` itself signed a statement, for this chain and slot or phase. Raises InvalidSignature."""
    if not is_valid_signature(signer, statement.signature, statement.signing_message(genesis.chain_id)):
        kind = type(statement).__name__.lower()
        found = f"{statement.signature.hex()[:16]}… is not {signer.hex()[:16]}…'s over this {kind}"
        raise InvalidSignature("signature", found)
