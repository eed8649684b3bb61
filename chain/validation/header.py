"""Rules of a block's header."""

from fedchain.chain.block import Block, Header, block_signing_message
from fedchain.chain.exceptions import (
    InvalidBlock,
    InvalidSignature,
    OutOfWindow,
    UnknownParent,
    check,
)
from fedchain.chain.genesis import NEWEST_VERSION, Genesis
from fedchain.chain.proof_of_work import is_sealed
from fedchain.chain.state import State
from fedchain.crypto.hashing import Hash
from fedchain.crypto.signatures import SignatureCheck


def validate_parent(state: State, block: Block) -> None:
    """Check that a block is for the open height: closed heights are final. Raises UnknownParent."""
    parent = block.header.parent_hash
    check(
        parent == state.block_hash,
        UnknownParent,
        "parent",
        f"{parent.hex()} found, the block at height {state.height} is {state.block_hash.hex()}",
    )


def validate_header(genesis: Genesis, state: State, block: Block, is_valid_signature: SignatureCheck) -> None:
    """Check that a block is worth a closer look: it stands on ``state``, a member signed it, and work was spent on it.

    Raises:
        UnknownParent: it does not stand on ``state``, so nothing else can be said of it.
        InvalidSignature: its miner did not sign it, or is no active member.
        InvalidBlock: it breaks a rule for ever.
    """
    header = block.header
    validate_parent(state, block)
    # A bad block costs a member its reputation; strangers have none to lose.
    check(state.roster.is_active(header.miner), InvalidSignature, "miner", f"{header.miner.hex()} is no active member")
    validate_miner_signature(genesis, block, is_valid_signature)
    # A later format may mean anything.
    version = state.rules.version
    check(header.version == version, InvalidBlock, "version", f"{header.version} found, {version} expected")
    # A later version's blocks may obey other rules.
    beyond = f"{version} begins with round {state.round}, this program speaks {NEWEST_VERSION}"
    check(version <= NEWEST_VERSION, OutOfWindow, "version", beyond)
    # Nothing follows the last round.
    check(not state.finished, InvalidBlock, "end", f"round {header.round} found, the last is {state.rules.rounds}")
    # Height, round and phase continue those of the parent: each phase is closed exactly once.
    for name, found, expected in (
        ("height", header.height, state.height + 1),
        ("round", header.round, state.round),
        ("phase", header.phase, state.phase),
    ):
        check(found == expected, InvalidBlock, name, f"{found} found, {expected} expected")
    # A peer that joins takes the state from others, by this hash.
    check(
        header.state_root == state.root,
        InvalidBlock,
        "state root",
        f"{header.state_root.hex()} found, {state.root.hex()} expected",
    )
    # The retarget, and what the miner won before, set the difficulty; the miner does not.
    expected_bits = state.bits_of(header.miner)
    check(header.bits == expected_bits, InvalidBlock, "bits", f"{header.bits:#x} found, {expected_bits:#x} expected")
    # Work was spent on exactly this header.
    check(
        is_sealed(genesis.proof_function, header),
        InvalidBlock,
        "proof of work",
        f"nonce {header.nonce} does not bring the hash to the target {header.bits:#x}",
    )


def validate_miner_signature(genesis: Genesis, block: Block, is_valid_signature: SignatureCheck) -> None:
    """Check that the named miner made this block: otherwise anyone could mine in the aggregator's name.

    Raises InvalidSignature.
    """
    header = block.header
    check(
        is_valid_signature(header.miner, block.signature, block_signing_message(genesis.chain_id, header.hash)),
        InvalidSignature,
        "miner signature",
        f"{block.signature.hex()[:16]}… is not {header.miner.hex()[:16]}…'s over block {header.hash.hex()[:16]}…",
    )


def validate_knowledge(header: Header, root: Hash) -> None:
    """Check the hash of the recomputed knowledge against the header, exactly: a tolerance would let miners drift.

    Raises:
        InvalidBlock: the miner computed something else.
    """
    check(
        root == header.knowledge_root,
        InvalidBlock,
        "knowledge root",
        f"{header.knowledge_root.hex()} found, recomputed {root.hex()}",
    )


def validate_member_set(header: Header, after: State) -> None:
    """Check that a header names the members behind its block, whom the state ``after`` it has. Raises InvalidBlock."""
    root = after.member_set.root
    # Light clients learn from it who decides the next height.
    check(
        header.members_root == root,
        InvalidBlock,
        "members root",
        f"{header.members_root.hex()} found, {root.hex()} expected",
    )
