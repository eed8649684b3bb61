"""Chains whose members come and go, and their changes."""

from collections.abc import Sequence
from typing import Any

from fedchain.chain.block import Block
from fedchain.chain.evidence import Evidence
from fedchain.chain.genesis import Admission, Genesis
from fedchain.chain.membership.amendment import amendment_of
from fedchain.chain.membership.change import (
    CHANGES_VERSION,
    Change,
    ChangeKind,
    propose_amendment,
    sign_change,
    sign_rekey,
)
from fedchain.chain.membership.rules import approvals_required
from fedchain.chain.membership.succession import place_of
from fedchain.chain.transition import judge_block
from fedchain.crypto.keys import is_valid_signature
from tests.support.chain.builders import ChainBuilder, genesis, keys

UNTIL = 50
"""Last height of these changes, unless another one is asked for."""


def living_genesis(count: int = 5, **fields: Any) -> Genesis:
    """A founding document whose members may change by a quorum's approval, or as ``fields`` say."""
    said: dict[str, Any] = {"version": CHANGES_VERSION, "admission": Admission.QUORUM} | fields
    return genesis(count, **said)


def living(count: int = 5, **fields: Any) -> ChainBuilder:
    """A chain from such a document."""
    return ChainBuilder(living_genesis(count, **fields))


def joining(chain: ChainBuilder, number: int, approvers: int | None = None, **fields: Any) -> Change:
    """A change by which a key joins, approved by the first members that are required, or by as many as given."""
    said: dict[str, Any] = {"text": f"peer {number}", "until": UNTIL} | fields
    change = sign_change(keys(number + 1)[number], chain.genesis.chain_id, ChangeKind.JOIN, **said)
    return approved(chain, change, approvers)


def approved(chain: ChainBuilder, change: Change, approvers: int | None = None) -> Change:
    """The change with approvals of the first active members, its subject left out."""
    roster = chain.state.roster
    count = approvals_required(chain.genesis, chain.state, change.kind) if approvers is None else approvers
    own = place_of(roster, chain.state.records, change)
    active = [member for place, member in enumerate(roster.members) if roster.is_active(member) and place != own]
    for member in active[:count]:
        change = change.approved(chain.key(member), chain.genesis.chain_id)
    return change


def own(chain: ChainBuilder, number: int, kind: ChangeKind = ChangeKind.LEAVE, **fields: Any) -> Change:
    """A member's own change."""
    said: dict[str, Any] = {"sequence": chain.state.records[number].sequence, "until": UNTIL} | fields
    return sign_change(keys(number + 1)[number], chain.genesis.chain_id, kind, **said)


def play(chain: ChainBuilder, count: int) -> list[Block]:
    """Extend the chain by blocks that every rule lets pass."""
    blocks = []
    for _ in range(count):
        before = chain.state
        blocks.append(chain.extend())
        judge_block(chain.genesis, before, blocks[-1], blocks[-1].header.knowledge_root, is_valid_signature)
    return blocks


def silent_for(chain: ChainBuilder, number: int, blocks: int, evidence: Sequence[Evidence] = ()) -> None:
    """Extend the chain by blocks that count neither a post nor a vote of a member; each holds the evidence."""
    for _ in range(blocks):
        member = chain.state.roster.members[number]
        others = [item for item in chain.state.roster.contributors if item != member]
        certificate = None
        if chain.state.height:
            voters = sorted(item for item in chain.state.deciders if item != member)
            certificate = chain.certificate(chain.tip, voters)
        posts = chain.posts(members=others)
        chain.extend(posts=posts, certificate=certificate, evidence=evidence, miner=keys(1)[0])


def standing(chain: ChainBuilder, number: int) -> str:
    """The standing of a member in its record."""
    return chain.state.records[number].standing.name.lower()


def handing(chain: ChainBuilder, place: int, begin: int = 0) -> Change:
    """An amendment by which a place gets the role, with all approvals."""
    count = chain.state.amendments.count
    return approved(
        chain, propose_amendment(amendment_of({"aggregator": place}, begin), "", sequence=count, until=UNTIL)
    )


def twice_rekeyed() -> ChainBuilder:
    """Member 2 of five takes key 9 in block 1 and key 10 in block 4; behind block 6 its state has forgotten key 9."""
    chain = living(5)
    for sequence, following in enumerate(keys(11)[9:]):
        had = chain.key(chain.state.roster.members[2])
        chain.extend(changes=[sign_rekey(had, following, chain.genesis.chain_id, sequence=sequence, until=20)])
        chain.extend_many(2)
    return chain
