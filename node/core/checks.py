"""The costly checks, each done once: signatures, proofs of work, posts, aggregates.

The checks are pure functions, so a result can be kept by the hash of its input. A node has a cache of its own. The
simulator may share one cache between many peers, which changes nothing but the time it takes.
"""

from collections import OrderedDict
from collections.abc import Hashable, Sequence
from functools import partial
from typing import Protocol, assert_never

from fedchain.chain.block import Block, block_signing_message, evidence_root, transactions_root
from fedchain.chain.certificate import Certificate, certificate_root
from fedchain.chain.evidence import Evidence, Statement
from fedchain.chain.exceptions import MethodFailed, Refused
from fedchain.chain.far_final import validate_far_final
from fedchain.chain.genesis import Genesis
from fedchain.chain.knowledge import Part, Rules, check_post, missing_contents, recompute
from fedchain.chain.post import Post
from fedchain.chain.roster import Roster
from fedchain.chain.signatures import Signed, count_valid, signatures_of
from fedchain.chain.state import State, phase_rule
from fedchain.chain.transition import judge_block, judge_final, judge_joined
from fedchain.chain.validation import (
    validate_certificate,
    validate_content,
    validate_evidence,
    validate_part,
    validate_post,
    validate_vote,
)
from fedchain.chain.vote import Vote, VoteKind
from fedchain.crypto.hashing import Hash, sha256
from fedchain.crypto.keys import PublicKey, Signature, is_valid_signature
from fedchain.network.session import Session
from fedchain.node.core.contents.content_cache import Intern
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

KNOWLEDGE_MAX = 8
"""Most recomputed knowledges that are kept, one for each set of posts of the open height."""

KNOWLEDGE_SIZE_MAX = 64 * 2**20
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


class PassedElsewhere(Protocol):
    """Results of checks by other peers of this process, as a simulation that is repeated has them.

    Each peer still remembers for itself what it has checked, since its behaviour depends on that: a peer that has an
    aggregate does not ask for one. Only the computing is saved.
    """

    def has(self, identity: Hashable) -> bool:
        """Whether some peer has found a signature or post to be good."""

    def keep(self, identity: Hashable) -> None:
        """Note that this peer has found it to be good."""

    def knowledge(self, key: JobKey) -> Knowledge | None:
        """A knowledge that some peer has recomputed; None if nobody has."""

    def keep_knowledge(self, key: JobKey, knowledge: Knowledge) -> None:
        """Note a recomputed knowledge."""


class PassedChecks:
    """The newest passed checks, and the newest recomputed knowledges."""

    def __init__(self) -> None:
        self._checked: OrderedDict[Hashable, None] = OrderedDict()
        self._knowledge: OrderedDict[JobKey, Knowledge] = OrderedDict()

    def has(self, identity: Hashable) -> bool:
        """See :class:`PassedElsewhere`."""
        return identity in self._checked

    def keep(self, identity: Hashable) -> None:
        """See :class:`PassedElsewhere`. Beyond ``CHECKED_MAX``, the oldest is forgotten."""
        self._checked[identity] = None
        if len(self._checked) > CHECKED_MAX:
            self._checked.popitem(last=False)

    def knowledge(self, key: JobKey) -> Knowledge | None:
        """See :class:`PassedElsewhere`."""
        return self._knowledge.get(key)

    def keep_knowledge(self, key: JobKey, knowledge: Knowledge) -> None:
        """See :class:`PassedElsewhere`. Beyond their number or size, the oldest are forgotten, but never the newest."""
        self._knowledge[key] = knowledge
        while len(self._knowledge) > 1 and (len(self._knowledge) > KNOWLEDGE_MAX or self._is_large()):
            self._knowledge.popitem(last=False)

    def _is_large(self) -> bool:
        return sum(len(known.data) for known in self._knowledge.values()) > KNOWLEDGE_SIZE_MAX


class _NowhereElse:
    """There is one peer in this process, or each checks for itself."""

    def has(self, identity: Hashable) -> bool:
        """See :class:`PassedElsewhere`."""
        return False

    def keep(self, identity: Hashable) -> None:
        """See :class:`PassedElsewhere`."""

    def knowledge(self, key: JobKey) -> Knowledge | None:
        """See :class:`PassedElsewhere`."""
        return None

    def keep_knowledge(self, key: JobKey, knowledge: Knowledge) -> None:
        """See :class:`PassedElsewhere`."""


NOWHERE_ELSE = _NowhereElse()


def held_once(_: Hash, data: bytes) -> bytes:
    """Hold a content as it came: there is one node in this process."""
    return data


class Checks:
    """Runs the rules of :mod:`fedchain.chain.validation` and remembers passed checks, but not failed ones.

    Args:
        genesis: the rules of the federation.
        rules: the rules of the learning method.
        intern: returns the copy of a recomputed knowledge to hold.
        failures: notes failures of the method's own code.
        elsewhere: results that other peers of this process have found.
    """

    def __init__(
        self,
        genesis: Genesis,
        rules: Rules,
        intern: Intern = held_once,
        failures: Failures | None = None,
        elsewhere: PassedElsewhere = NOWHERE_ELSE,
    ) -> None:
        self._genesis = genesis
        self._rules = rules
        self._intern = intern
        self._elsewhere = elsewhere
        self.failures: Failures = failures or NoFailures()
        self._passed = PassedChecks()

    def post(self, state: State, post: Post) -> None:
        """Check a post on its own; raises as ``validate_post``."""
        identity = "post", state.block_hash, post.hash
        if not self._passed.has(identity):
            validate_post(self._genesis, state, post, self._is_valid_signature)
            self._passed.keep(identity)

    def vote(self, electors: frozenset[PublicKey], vote: Vote) -> None:
        """Check a vote on its own; raises as ``validate_vote``."""
        identity = electors, vote
        if not self._passed.has(identity):
            validate_vote(self._genesis, electors, vote, self._is_valid_signature)
            self._passed.keep(identity)

    def has_passed(self, state: State, post: Post) -> bool:
        """Whether the payload of a post of the open phase has passed its check."""
        return self._passed.has((state.block_hash, post.hash))

    def polka(self, electors: frozenset[PublicKey], certificate: Certificate, height: int) -> None:
        """Check the prevotes of a quorum for a block; raises InvalidCertificate."""
        check, kind = self._is_valid_signature, VoteKind.PREVOTE
        validate_certificate(self._genesis, electors, certificate, kind, height, certificate.block_hash, check)

    def evidence(self, state: State, evidence: Evidence) -> None:
        """Check the evidence of a crime; raises InvalidEvidence."""
        validate_evidence(self._genesis, state, evidence, self._is_valid_signature)

    def is_signed(self, member: PublicKey, statement: Statement | Session) -> bool:
        """Whether ``member`` signed a statement."""
        return self._is_valid_signature(member, statement.signature, statement.signing_message(self._genesis.chain_id))

    def is_whole(self, block: Block) -> bool:
        """Whether body and signature belong to the header, which is known to be right."""
        header = block.header
        found = (
            transactions_root(block.transactions),
            certificate_root(block.certificate),
            evidence_root(block.evidence),
        )
        if found != (header.transactions_root, header.certificate_root, header.evidence_root):
            return False
        message = block_signing_message(self._genesis.chain_id, header.hash)
        return self._is_valid_signature(header.miner, block.signature, message)

    def block(self, state: State, block: Block) -> State:
        """Check all of a block but its knowledge; returns the state after it; raises as ``judge_block``."""
        return judge_block(self._genesis, state, block, None, self._is_valid_signature)

    def final(self, state: State, block: Block, certificate: Certificate) -> State:
        """Check a block that a quorum finalized; returns the state after it; raises as ``judge_final``.

        A block that is held as a candidate is judged again, because its proof was not checked then. Its signatures are
        remembered one by one, so only the rules are applied twice.
        """
        return judge_final(self._genesis, state, block, certificate, None, self._is_valid_signature)

    def far_final(self, roster: Roster, block: Block, certificate: Certificate) -> None:
        """Check a final block whose state is not here; raises as ``validate_far_final``."""
        validate_far_final(self._genesis, roster, block, certificate, self._is_valid_signature)

    def unverified(self, block: Block, certificate: Certificate) -> tuple[Signed, ...]:
        """Signatures of a final block that :meth:`final` would have to verify."""
        return tuple(item for item in signatures_of(self._genesis, block, certificate) if not self._passed.has(item))

    def note_verified(self, signed: Sequence[Signed]) -> None:
        """Remember signatures that were found to be valid."""
        for item in signed:
            self._passed.keep(item)

    def joined(self, data: bytes, block: Block, certificate: Certificate, *, is_confirmed: bool) -> State:
        """The state after a final block, for a peer without the state before it; raises as ``judge_joined``."""
        check = self._is_valid_signature
        return judge_joined(self._genesis, data, block, certificate, check, is_confirmed=is_confirmed)

    def is_slow(self, job: CheckPost | KeepPart | Recompute) -> bool:
        """Whether a job takes long however few bytes it reads, because posts of its phase are slow to check."""
        return self._rules.is_slow_to_check(phase_rule(self._genesis, job.state).name)

    def lists_parts(self, phase: str) -> bool:
        """Whether posts of a phase list parts."""
        return self._rules.lists_parts(phase)

    def parts(self, post: Post, payload: bytes) -> Sequence[Part]:
        """The parts that a post lists; none if its payload cannot be read."""
        try:
            return self._rules.parts(self._name_of(post), payload)
        except ValueError:
            return ()

    def parts_known(self, knowledge: bytes) -> Sequence[tuple[int, Part, int]]:
        """The parts that the knowledge lists, as (round, part, sender's place)."""
        return self._rules.parts_known(knowledge)

    def run(self, job: Job) -> Result:
        """Do a job."""
        try:
            match job:
                case CheckPost(state, knowledge, signed, payload):
                    self._check_post(self._genesis, self._rules, state, knowledge, signed, payload)
                    return None
                case KeepPart(_, post, payload, part_hash, data):
                    assert data is not None, "the caller has read a part that is here already"
                    if post is not None:
                        validate_part(part_hash, partial(self._rules.check_part, self._name_of(post), payload), data)
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
            known = self._recomputed_elsewhere(job)
            if known is None:
                known = self._recompute(job)
                self._elsewhere.keep_knowledge(job.key, known)
            self._passed.keep_knowledge(job.key, known)
        return known

    def _recompute(self, job: Recompute) -> Knowledge:
        check = self._check_post
        data = recompute(self._genesis, self._rules, job.state, job.transactions, job.contents.get, check)
        root = sha256(data)
        return Knowledge(root, self._intern(root, data))

    def _recomputed_elsewhere(self, job: Recompute) -> Knowledge | None:
        """The knowledge, if another peer has recomputed it; posts are checked as if this peer had to recompute."""
        known = self._elsewhere.knowledge(job.key)
        if known is None or missing_contents(job.state, job.transactions, job.contents.get):
            return None
        before = job.contents.get(job.state.knowledge_root, b"")
        for post in job.transactions:
            self._check_post(self._genesis, self._rules, job.state, before, post, job.contents[post.payload_hash])
        return known

    def _name_of(self, post: Post) -> str:
        """Name of the phase of a checked post."""
        return self._genesis.phases_of(post.round)[post.phase].name

    def _check_post(
        self, genesis: Genesis, rules: Rules, state: State, knowledge: bytes, post: Post, payload: bytes
    ) -> None:
        identity = state.block_hash, post.hash
        if self._passed.has(identity):
            return
        if self._elsewhere.has(identity):  # the post names its payload by hash, so other bytes alone could be wrong
            validate_content(post.payload_hash, post.payload_size, payload)
        else:
            check_post(genesis, rules, state, knowledge, post, payload)
            self._elsewhere.keep(identity)
        self._passed.keep(identity)

    def _is_valid_signature(self, public_key: PublicKey, signature: Signature, message: bytes) -> bool:
        identity = public_key, signature, message
        if self._passed.has(identity):
            return True
        if not self._elsewhere.has(identity):
            if not is_valid_signature(public_key, signature, message):
                return False
            self._elsewhere.keep(identity)
        self._passed.keep(identity)
        return True
