"""The members that decide a height, as a light block proves them.

Where members are the same for ever, the state below the block names who was convicted and, by the hash of the block
below, who was drawn. Where members change, the header below names the set that decides the height. Either is a claim
until enough members that are known sign the header which commits to it.
"""

from dataclasses import dataclass

from fedchain.chain.block import Header
from fedchain.chain.exceptions import UnknownParent
from fedchain.chain.genesis import Genesis
from fedchain.chain.light.light_block import LightBlock, expect
from fedchain.chain.roster import draw, seed_of_electors
from fedchain.chain.state import decode_state, genesis_state, liars_left
from fedchain.chain.validation import validate_state
from fedchain.crypto.keys import PublicKey
from fedchain.crypto.signatures import SignatureCheck


@dataclass(frozen=True, slots=True)
class Electorate:
    """The members at one height."""

    members: tuple[PublicKey, ...]
    """Public keys of 32 bytes, by seat: all that count, or all, convicted ones too, where they never change."""
    culprits: frozenset[PublicKey]
    """Those of them that were convicted before."""
    electors: frozenset[PublicKey]
    """Those that decide the height."""
    liars: int
    """Most of the others that may lie."""


def named_by_state(genesis: Genesis, block: LightBlock, is_valid_signature: SignatureCheck) -> Electorate:
    """The electorate of a block whose federation never changes, by the state that it stands on.

    Raises:
        UnknownParent: the block comes without that state.
        Invalid: it is another state, or convicts members without a proof.
    """
    header = block.header
    if not block.state:
        raise UnknownParent("state", f"none came with height {header.height}: only the blocks between can tell")
    state = decode_state(genesis, block.state)
    expect(state.root == header.state_root, "state root", f"{state.root.hex()} found", header.state_root.hex())
    is_below = (state.height + 1, state.block_hash) == (header.height, header.parent_hash)
    expect(is_below, "state", f"that behind height {state.height} found", f"that behind the parent of {header.height}")
    validate_state(genesis, state, is_valid_signature)
    roster = state.roster
    return Electorate(roster.members, roster.culprits, roster.electors, liars_left(genesis, state))


def named_by_header(genesis: Genesis, block: LightBlock, below: Header | None) -> Electorate:
    """The electorate of a block whose members may change, by the header below it.

    Args:
        genesis: the founding document, which names the electorate of height 1.
        block: the block, with its member set.
        below: the header below; None for height 1.

    Raises:
        UnknownParent: the header below is not here.
        InvalidBlock: the set is not the one that it names.
    """
    header, members = block.header, block.members
    if header.height > 1 and below is None:
        raise UnknownParent("header below", f"none came with height {header.height}: only the blocks between can tell")
    parent, root = genesis.chain_id, genesis_state(genesis).member_set.root
    if header.height > 1 and below is not None:
        parent, root = below.hash, below.members_root
    expect(header.parent_hash == parent, "header below", f"{parent.hex()} found", header.parent_hash.hex())
    found = "none" if members is None else members.root.hex()
    expect(found == root.hex(), "member set", f"{found} found with height {header.height}", root.hex())
    assert members is not None  # or its root would be another one
    keys, places = members.members, dict(zip(members.members, members.places, strict=True))
    size = genesis.committee_size if members.committee_size is None else members.committee_size
    electors = draw(keys, size, seed_of_electors(genesis, header.height, parent), places, is_claim=True)
    return Electorate(keys, frozenset(), electors, genesis.fault_model.faulty(len(keys)))
