"""The transition: one function decides a block's fate and says what follows from it.

Node, audit and the simulator's checker call it; nothing else turns a state into the next one.
"""

from fedchain.chain.block import Block
from fedchain.chain.certificate import Certificate
from fedchain.chain.exceptions import InvalidCertificate
from fedchain.chain.genesis import Genesis
from fedchain.chain.state import State, apply_block
from fedchain.chain.validation import (
    SignatureCheck,
    validate_body,
    validate_certificate,
    validate_header,
    validate_knowledge,
)
from fedchain.chain.vote import VoteKind
from fedchain.crypto.hashing import Hash


def judge_block(
    genesis: Genesis, state: State, block: Block, knowledge_root: Hash | None, is_valid_signature: SignatureCheck
) -> State:
    """The state after ``block``, if every rule holds. (execution-specs: state_transition)

    Args:
        genesis: the rules of the federation.
        state: what the block has to stand on.
        block: what is judged.
        knowledge_root: hash of the knowledge that was recomputed from the block's posts; None: its payloads are not
            held, and only a certificate can vouch for it (:func:`judge_final`).
        is_valid_signature: checks signatures.

    Raises:
        UnknownParent: the block stands on something else.
        Invalid: it breaks a rule for ever.
    """
    validate_header(genesis, state, block, is_valid_signature)
    validate_body(genesis, state, block, is_valid_signature)
    if knowledge_root is not None:
        validate_knowledge(block.header, knowledge_root)
    return apply_block(genesis, state, block)


def judge_final(
    genesis: Genesis,
    state: State,
    block: Block,
    certificate: Certificate,
    knowledge_root: Hash | None,
    is_valid_signature: SignatureCheck,
) -> State:
    """The state after a block that precommits of a quorum made final; raises as :func:`judge_block` does."""
    if certificate.kind is not VoteKind.PRECOMMIT or certificate.block_hash != block.hash:
        raise InvalidCertificate("certificate", f"it does not make block {block.hash.hex()} final")
    validate_certificate(genesis, state.electors, certificate, state.height + 1, is_valid_signature)
    return judge_block(genesis, state, block, knowledge_root, is_valid_signature)
