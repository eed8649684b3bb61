"""A peer reduced to the rules: it judges bytes in the order in which a node does, and keeps what holds."""

from collections.abc import Hashable

from fedchain.chain.block import Block
from fedchain.chain.certificate import Certificate
from fedchain.chain.encoding import decode, encode, expect_record
from fedchain.chain.evidence import Evidence, excludes
from fedchain.chain.exceptions import Equivocation, MissingPayload, OutOfWindow
from fedchain.chain.genesis import Genesis
from fedchain.chain.knowledge import Rules, check_post, recompute
from fedchain.chain.post import Post, PostKey
from fedchain.chain.state import EMPTY_KNOWLEDGE, State, genesis_state
from fedchain.chain.transition import judge_block, judge_final
from fedchain.chain.validation import (
    validate_evidence,
    validate_knowledge,
    validate_post,
    validate_vote,
    validate_window,
)
from fedchain.chain.vote import Slot, Vote
from fedchain.crypto.hashing import Hash, sha256
from fedchain.crypto.keys import PublicKey, is_valid_signature
from tests.support.chain.builders import SumRules

MESSAGE_SIZE_MAX = 2**20


def encode_final(block: Block, certificate: Certificate) -> bytes:
    """Encode a final block as :meth:`Peer.receive_final` reads it."""
    return encode([block.to_record(), certificate.to_record()])


class Peer:
    """Takes encoded blocks, posts with payloads, votes and evidence; each is taken whole or raises ``Refused``.

    Attributes:
        state: what follows from the final blocks.
        candidates: valid blocks of the open height, with the state after them.
        posts: one of a member for each phase.
        votes: one of a member in each slot of the open height.
        crimes: evidence against active members, by culprit.
        contents: payloads and knowledge by hash.
    """

    def __init__(self, genesis: Genesis, rules: Rules | None = None) -> None:
        self.genesis = genesis
        self.rules: Rules = rules or SumRules()
        self.state: State = genesis_state(genesis)
        self.candidates: dict[Hash, tuple[Block, State]] = {}
        self.posts: dict[PostKey, Post] = {}
        self.votes: dict[tuple[Slot, PublicKey], Vote] = {}
        self.crimes: dict[PublicKey, Evidence] = {}
        self.contents: dict[Hash, bytes] = {sha256(EMPTY_KNOWLEDGE): EMPTY_KNOWLEDGE}

    def receive_block(self, data: bytes) -> None:
        """Judge an encoded candidate and keep it."""
        block = Block.decode(data, MESSAGE_SIZE_MAX)
        after, knowledge = self.judge(block)
        self.candidates[block.hash] = block, after
        self.contents[block.header.knowledge_root] = knowledge

    def judge(self, block: Block) -> tuple[State, bytes]:
        """The state and the knowledge that a valid block leaves behind; nothing changes."""
        after = judge_block(self.genesis, self.state, block, None, is_valid_signature)
        knowledge = recompute(self.genesis, self.rules, self.state, block.transactions, self.contents.get)
        validate_knowledge(block.header, sha256(knowledge))
        return after, knowledge

    def receive_final(self, data: bytes) -> None:
        """Judge an encoded block with its certificate, and stand on it."""
        first, second = expect_record(decode(data, MESSAGE_SIZE_MAX), "final block", (list, list))
        block, certificate = Block.from_record(first), Certificate.from_record(second)
        self.state = judge_final(self.genesis, self.state, block, certificate, None, is_valid_signature)
        self.candidates.clear()
        self.votes.clear()
        self.crimes = {member: crime for member, crime in self.crimes.items() if self.state.roster.is_active(member)}

    def receive_transaction(self, data: bytes) -> None:
        """Judge an encoded post and keep it."""
        post = Post.from_record(decode(data, MESSAGE_SIZE_MAX))
        validate_window(self.state, post)
        validate_post(self.genesis, self.state, post, is_valid_signature)
        if excludes(self.posts.setdefault(post.key, post), post):
            raise Equivocation("post", f"another one is held of {post.sender.hex()}")

    def receive_payload(self, post: Post, payload: bytes) -> None:
        """Judge a payload beside a post of the open phase that is known."""
        if post.key not in self.posts:
            raise MissingPayload("post", f"{post.hash.hex()} is not among {len(self.posts)} posts")
        knowledge = self.contents[self.state.knowledge_root]
        check_post(self.genesis, self.rules, self.state, knowledge, post, payload)
        self.contents[post.payload_hash] = payload

    def receive_vote(self, data: bytes) -> None:
        """Judge an encoded vote at the open height and keep it."""
        vote = Vote.from_record(decode(data, MESSAGE_SIZE_MAX))
        if vote.height != self.state.height + 1:
            raise OutOfWindow("vote's height", f"{vote.height} found, {self.state.height + 1} is open")
        validate_vote(self.genesis, self.state.roster.electors, vote, is_valid_signature)
        if excludes(self.votes.setdefault((vote.slot, vote.voter), vote), vote):
            raise Equivocation("vote", f"another one is held of {vote.voter.hex()}")

    def receive_evidence(self, data: bytes) -> None:
        """Judge encoded evidence and keep it."""
        evidence = Evidence.from_record(decode(data, MESSAGE_SIZE_MAX))
        validate_evidence(self.genesis, self.state, evidence, is_valid_signature)
        self.crimes.setdefault(evidence.culprit, evidence)

    def snapshot(self) -> Hashable:
        """Everything that the peer holds, to be compared: two peers with equal snapshots behave the same."""
        return (
            self.state.root,
            tuple(self.candidates),
            tuple(self.posts.items()),
            tuple(self.votes.items()),
            tuple(self.crimes.items()),
            tuple(self.contents.items()),
        )
