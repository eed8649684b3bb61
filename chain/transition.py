"""The transition: one function judges a block and returns the state after it.

Node, audit and the simulator's checker call it; nothing else turns a state into the next one.
"""

from dataclasses import replace
from functools import lru_cache

from fedchain.chain.applying import apply_block, members_behind
from fedchain.chain.block import Block, Header, evidence_root, transactions_root
from fedchain.chain.certificate import Certificate, certificate_root
from fedchain.chain.evidence import Evidence
from fedchain.chain.exceptions import UnknownParent
from fedchain.chain.genesis import Genesis
from fedchain.chain.membership.change import CHANGES_VERSION, Change, changes_root
from fedchain.chain.post import Post
from fedchain.chain.state import State, decode_state, liars_left, votes_required
from fedchain.chain.validation import (
    validate_body,
    validate_certificate,
    validate_header,
    validate_knowledge,
    validate_member_set,
    validate_parent,
    validate_state,
)
from fedchain.chain.vote import VoteKind
from fedchain.crypto.hashing import Hash
from fedchain.crypto.keys import PublicKey
from fedchain.crypto.signatures import SignatureCheck

Body = tuple[tuple[Post, ...], Certificate | None, tuple[Evidence, ...], tuple[Change, ...]]
"""All that a block holds beside its header and its miner's signature, in the order of its fields."""

DRAFTS_MAX = 8
"""Most drafts that are remembered with the root of the members behind: peers of a simulation mine the same."""


def judge_block(
    genesis: Genesis, state: State, block: Block, knowledge_root: Hash | None, is_valid_signature: SignatureCheck
) -> State:
    """The state after ``block``, if every rule holds. (execution-specs: state_transition)

    Args:
        genesis: the rules of the federation.
        state: the state that the block has to stand on.
        block: the block to judge.
        knowledge_root: hash of the knowledge that was recomputed from the block's posts. None if its payloads are not
            held: then only a certificate can vouch for it (:func:`judge_final`).
        is_valid_signature: checks signatures.

    Raises:
        UnknownParent: the block stands on something else.
        OutOfWindow: this program does not speak the version in force.
        Invalid: it breaks a rule for ever.
    """
    validate_header(genesis, state, block, is_valid_signature)
    validate_body(genesis, state, block, is_valid_signature)
    if knowledge_root is not None:
        validate_knowledge(block.header, knowledge_root)
    after = apply_block(genesis, state, block)
    if genesis.version >= CHANGES_VERSION:
        validate_member_set(block.header, after)
    return after


def unsealed_header(genesis: Genesis, state: State, knowledge_root: Hash, miner: PublicKey, body: Body) -> Header:
    """The header of a member's block on ``state`` that has no nonce yet."""
    transactions, certificate, evidence, changes = body
    header = Header(
        version=state.rules.version,
        parent_hash=state.block_hash,
        height=state.height + 1,
        round=state.round,
        phase=state.phase,
        transactions_root=transactions_root(transactions),
        certificate_root=certificate_root(certificate),
        evidence_root=evidence_root(evidence),
        state_root=state.root,
        knowledge_root=knowledge_root,
        bits=state.bits_of(miner),
        miner=miner,
        nonce=0,
        changes_root=changes_root(changes),
    )
    return naming_members(genesis, state, Block(header, b"", *body))


def naming_members(genesis: Genesis, state: State, draft: Block) -> Header:
    """The header of a block on ``state`` that has neither nonce nor signature yet, with the root of the members behind.

    Only headers of version 3 have that root.
    """
    if genesis.version < CHANGES_VERSION:
        return draft.header
    return replace(draft.header, members_root=_root_behind(_Draft(genesis, state, draft)))


class _Draft:
    """A draft on a state. It equals one of another miner that holds the same.

    Its header says no more about the members behind it: the miner moves weights alone, which no set has, and knowledge
    and difficulty no member. The block that comes of it is applied by all that judge it.
    """

    __slots__ = ("block", "genesis", "key", "state")

    def __init__(self, genesis: Genesis, state: State, block: Block) -> None:
        self.genesis, self.state, self.block = genesis, state, block
        header, posts = block.header, tuple([post.hash for post in block.transactions])
        body = posts, block.certificate, block.evidence, block.changes
        self.key = (genesis.chain_id, state.root, header.height, header.round, header.phase, *body)

    def __hash__(self) -> int:
        return hash(self.key)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Draft) and self.key == other.key


@lru_cache(maxsize=DRAFTS_MAX)
def _root_behind(draft: _Draft) -> Hash:
    return members_behind(draft.genesis, draft.state, draft.block).root


def judge_final(
    genesis: Genesis,
    state: State,
    block: Block,
    certificate: Certificate,
    knowledge_root: Hash | None,
    is_valid_signature: SignatureCheck,
) -> State:
    """The state after a block that precommits of a quorum made final; raises as :func:`judge_block` does.

    Raises:
        InvalidCertificate: the votes do not make the block final.
        InvalidSignature: the body was replaced on the way.
        Invalid: any other one means that a quorum finalized an invalid block.
    """
    validate_parent(state, block)
    electors, height = state.roster.electors, state.height + 1
    validate_certificate(genesis, electors, certificate, VoteKind.PRECOMMIT, height, block.hash, is_valid_signature)
    return judge_block(genesis, state, block, knowledge_root, is_valid_signature)


def judge_joined(
    genesis: Genesis,
    data: bytes,
    block: Block,
    certificate: Certificate,
    is_valid_signature: SignatureCheck,
    *,
    is_confirmed: bool = False,
    proven: Hash | None = None,
) -> State:
    """The state after a final block, for a peer that joins and holds no older one.

    The header commits to the state before the block, the votes vouch for the header, and the state says who votes. Two
    things end the circle: the members' keys, which the genesis document holds, and the signatures of convicted members.
    By them an honest member is among the voters, and it voted for a block that stands on the real state.

    Args:
        genesis: the rules of the federation.
        data: the encoded state before the block.
        block: the block that is final.
        certificate: precommits that made it so.
        is_valid_signature: checks signatures.
        is_confirmed: whether more peers than may lie hand out the same block.
        proven: where members change, hash of the block that a light client verified (``chain/light/``); nothing else
            says who the members are.

    Raises:
        Invalid: state, block or certificate is invalid, or they do not belong together.
        UnknownParent: so few members are drawn to vote that the sender could have chosen them by inventing a parent, or
            the members may have changed; only other peers, or the whole chain, can tell.
    """
    state = decode_state(genesis, data)
    if genesis.version >= CHANGES_VERSION:
        if proven != block.hash:  # the state would vouch for the members that vouch for it
            raise UnknownParent("state", "only certificates from the founding on say who the members are")
        return judge_final(genesis, state, block, certificate, None, is_valid_signature)
    validate_state(genesis, state, is_valid_signature)
    required = votes_required(genesis, state.roster.electors)
    liars = liars_left(genesis, state)
    if required <= liars and not is_confirmed:
        raise UnknownParent("state", f"{required} drawn electors vouch for it, {liars} members may lie")
    return judge_final(genesis, state, block, certificate, None, is_valid_signature)


def judge_stored(
    genesis: Genesis, state: State, block: Block, certificate: Certificate, is_valid_signature: SignatureCheck
) -> State:
    """The state after the head of a store. Anybody that can write to the disk may have altered the store.

    The head is judged like a final block from the network, and so are the crimes in the state that it stands on: they
    decide who votes. A node that joined at this block asked enough others then whether they have it, and does not ask
    again.

    Raises:
        Refused: the store does not prove that its head is final.
    """
    validate_state(genesis, state, is_valid_signature)
    return judge_final(genesis, state, block, certificate, None, is_valid_signature)
