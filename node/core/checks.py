"""The costly checks, each done once: signatures, payloads, aggregates.

The checks are pure functions, so a result can be kept by the hash of its input. A node has a cache of its own. The
simulator may share one cache between many peers, which changes nothing but the time it takes.
"""

from collections import OrderedDict
from collections.abc import Hashable
from typing import Protocol, assert_never

from fedchain.chain.applying import apply_block
from fedchain.chain.block import Block
from fedchain.chain.exceptions import MethodFailed, Refused
from fedchain.chain.genesis import Genesis
from fedchain.chain.knowledge import Rules, check_part, check_use, recompute
from fedchain.chain.post import Post
from fedchain.chain.signatures import count_valid
from fedchain.chain.state import State, phase_rule
from fedchain.chain.transition import judge_block
from fedchain.chain.validation import validate_content, validate_vote
from fedchain.chain.vote import Vote
from fedchain.crypto.hashing import Hash, sha256
from fedchain.crypto.keys import PublicKey
from fedchain.crypto.signature_memory import SignatureMemory
from fedchain.node.core.contents.content_cache import OWN_COPIES, Intern
from fedchain.node.core.jobs import (
    CheckPost,
    Job,
    JobKey,
    KeepPart,
    Knowledge,
    Recompute,
    Result,
    Verified,
    VerifySignatures,
)

CHECKED_MAX = 2**16
"""Most passed checks that are remembered."""

MARKS_SIZE_KEPT = 512
"""Most bytes of marks of a vote whose check is remembered: a member may sign any number of precommits of one block."""

RECOMPUTED_MAX = 8
"""Most recomputed knowledges that are kept, one for each set of posts of the open height."""

JUDGED_MAX = 16
"""Most blocks that are remembered, since they obeyed every rule."""

RECOMPUTED_SIZE_MAX = 64 * 2**20
"""Most bytes of all kept knowledges together; the newest one alone may exceed it."""


class Failures(Protocol):
    """Notes failures of the learning method's own code."""

    def note(self, head: State, failure: MethodFailed) -> None:
        """The method's own code failed on input for the block after ``head``."""

    def after(self, head: State) -> str:
        """Why the method's own code failed on input for the block after ``head``; empty if it did not."""


class NoFailures:
    """Notes nothing."""

    def note(self, head: State, failure: MethodFailed) -> None:
        """See :class:`Failures`."""

    def after(self, head: State) -> str:
        """See :class:`Failures`."""
        return ""


class PassedChecks:
    """The newest passed checks, and the newest recomputed knowledges."""

    def __init__(self) -> None:
        self.signatures = SignatureMemory()
        """Signatures that were found valid."""
        self._checked: OrderedDict[Hashable, None] = OrderedDict()
        self._knowledge: OrderedDict[JobKey, Knowledge] = OrderedDict()
        self._judged: OrderedDict[tuple[int, Hash], Block] = OrderedDict()

    def has(self, identity: Hashable) -> bool:
        """Whether a post or vote has passed."""
        return identity in self._checked

    def keep(self, identity: Hashable) -> None:
        """Note that a post or vote has passed. Beyond ``CHECKED_MAX``, the oldest is forgotten."""
        self._checked[identity] = None
        if len(self._checked) > CHECKED_MAX:
            self._checked.popitem(last=False)

    def knowledge(self, key: JobKey) -> Knowledge | None:
        """A recomputed knowledge; None if it is not remembered."""
        return self._knowledge.get(key)

    def keep_knowledge(self, key: JobKey, knowledge: Knowledge) -> None:
        """Note a recomputed knowledge. Beyond their number or size, the oldest are forgotten, but never the newest."""
        self._knowledge[key] = knowledge
        while len(self._knowledge) > 1 and (len(self._knowledge) > RECOMPUTED_MAX or self._is_large()):
            self._knowledge.popitem(last=False)

    def has_block(self, state: State, block: Block) -> bool:
        """Whether a block was judged on an equal state, and obeys every rule.

        It is found by the object itself: two blocks with one hash may have different signatures and bodies.
        """
        return (id(block), state.root) in self._judged

    def keep_block(self, state: State, block: Block) -> None:
        """Note that a block obeys every rule on a state. Beyond ``JUDGED_MAX``, the oldest is forgotten."""
        self._judged[id(block), state.root] = block  # as long as the block is held, its id is nobody else's
        if len(self._judged) > JUDGED_MAX:
            self._judged.popitem(last=False)

    def _is_large(self) -> bool:
        held = [*self._knowledge.values()]  # at once: another thread, which computes a job, may add one
        return sum(len(known.data) for known in held) > RECOMPUTED_SIZE_MAX


class Checks:
    """Runs the rules of :mod:`fedchain.chain.validation` and remembers passed checks, but not failed ones.

    Args:
        genesis: the rules of the federation.
        rules: the rules of the learning method.
        intern: returns the copy of a recomputed knowledge to hold.
        failures: notes failures of the method's own code.
    """

    def __init__(
        self,
        genesis: Genesis,
        rules: Rules,
        intern: Intern = OWN_COPIES.intern,
        failures: Failures | None = None,
    ) -> None:
        self._genesis = genesis
        self.rules = rules
        self._intern = intern
        self.failures: Failures = failures or NoFailures()
        self._passed = PassedChecks()
        self.signatures = self._passed.signatures
        """Verifies signatures, each once."""

    def vote(self, electors: frozenset[PublicKey], vote: Vote) -> None:
        """Check a vote on its own; raises as ``validate_vote``."""
        identity = electors, vote
        if not self._passed.has(identity):
            validate_vote(self._genesis, electors, vote, self.signatures)
            if vote.turnout is None or vote.turnout.size <= MARKS_SIZE_KEPT:
                self._passed.keep(identity)

    def block(self, state: State, block: Block) -> State:
        """The state after a block whose knowledge is judged apart; raises as ``judge_block``.

        The result depends on genesis, state and block alone, so a block that was judged on an equal state is judged.
        """
        if self._passed.has_block(state, block):
            return apply_block(self._genesis, state, block)
        after = judge_block(self._genesis, state, block, None, self.signatures)
        self._passed.keep_block(state, block)
        return after

    def has_passed(self, state: State, post: Post) -> bool:
        """Whether the payload of a post of the open phase has passed its check."""
        return self._passed.has((state.block_hash, post.hash))

    def is_slow(self, job: CheckPost | KeepPart | Recompute) -> bool:
        """Whether a job takes long however few bytes it reads, because posts of its phase are slow to check."""
        return self.rules.is_slow_to_check(phase_rule(self._genesis, job.state).name)

    def run(self, job: Job) -> Result:
        """Do a job."""
        try:
            match job:
                case CheckPost(state, knowledge, posted, payload):
                    self._check_use(state, knowledge, posted, payload)
                    return None
                case KeepPart(_, post, payload, part_hash, data):
                    assert data is not None, "the caller has read a part that is here already"
                    if post is not None:
                        check_part(self._genesis, self.rules, post, payload, part_hash, data)
                    return None
                case Recompute():
                    return self.recompute(job)
                case VerifySignatures(_, signed):
                    return Verified(count_valid(signed))
                case _:
                    assert_never(job)
        except MethodFailed as error:
            assert not isinstance(job, VerifySignatures), "no method is asked about signatures"
            self.failures.note(job.state, error)
            return error
        except Refused as error:
            return error

    def recompute(self, job: Recompute) -> Knowledge:
        """The knowledge after a block of some posts; raises Refused."""
        known = self._passed.knowledge(job.key)
        if known is None:
            known = self._recompute(job)
            self._passed.keep_knowledge(job.key, known)
        return known

    def _recompute(self, job: Recompute) -> Knowledge:
        check = self._check_post
        data = recompute(self._genesis, self.rules, job.state, job.transactions, job.contents.get, check)
        root = sha256(data)
        return Knowledge(root, self._intern(root, data))

    def _check_post(
        self, genesis: Genesis, rules: Rules, state: State, knowledge: bytes, post: Post, payload: bytes
    ) -> None:
        if not self.has_passed(state, post):  # the post names its payload by hash
            validate_content(post.payload_hash, post.payload_size, payload)
            self._check_use(state, knowledge, post, payload)

    def _check_use(self, state: State, knowledge: bytes, post: Post, payload: bytes) -> None:
        """Have the method check a payload, which the caller has compared with its post."""
        identity = state.block_hash, post.hash
        if not self._passed.has(identity):
            check_use(self._genesis, self.rules, state, knowledge, post, payload)
            self._passed.keep(identity)
