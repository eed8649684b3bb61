"""Checks of a run that is repeated: a check that passed for one peer need not be computed for the others.

Each peer still remembers for itself what it has checked, since its behaviour depends on that; only the computing is
saved. If the peers shared one memory, the trace would be the same in fewer events, as a peer that finds an aggregate
there does not ask for one. The results of a resumed run would then differ from those of an uninterrupted run.
"""

from collections import OrderedDict
from collections.abc import Hashable

from fedchain.chain.genesis import Genesis
from fedchain.chain.knowledge import Rules, missing_contents
from fedchain.chain.post import Post
from fedchain.chain.state import State
from fedchain.chain.validation import validate_content
from fedchain.crypto.keys import PublicKey, Signature
from fedchain.node.core.checks import CHECKED_MAX, KNOWLEDGE_MAX, KNOWLEDGE_SIZE_MAX, Checks
from fedchain.node.core.contents.content_cache import Intern
from fedchain.node.core.jobs import JobKey, Knowledge, Recompute


class Remembered:
    """The newest results of checks by any peer of a simulation."""

    def __init__(self) -> None:
        self._checked: OrderedDict[Hashable, None] = OrderedDict()  # signatures and posts that are good
        self._knowledge: OrderedDict[JobKey, Knowledge] = OrderedDict()

    def has(self, identity: Hashable) -> bool:
        """Whether some peer has found a signature or post to be good."""
        return identity in self._checked

    def keep(self, identity: Hashable) -> None:
        """Note that some peer has found it to be good."""
        self._checked[identity] = None
        if len(self._checked) > CHECKED_MAX:
            self._checked.popitem(last=False)

    def knowledge(self, key: JobKey) -> Knowledge | None:
        """A knowledge that some peer has recomputed; None if nobody has."""
        return self._knowledge.get(key)

    def keep_knowledge(self, key: JobKey, knowledge: Knowledge) -> None:
        """Note a recomputed knowledge."""
        self._knowledge[key] = knowledge
        while len(self._knowledge) > 1 and (len(self._knowledge) > KNOWLEDGE_MAX or self._is_large()):
            self._knowledge.popitem(last=False)

    def _is_large(self) -> bool:
        return sum(len(known.data) for known in self._knowledge.values()) > KNOWLEDGE_SIZE_MAX


class RememberedChecks(Checks):
    """One peer's checks, which use the results of all peers.

    Args:
        genesis: the federation's founding document.
        rules: the learning method's rules.
        intern: finds the copy of a recomputed knowledge to hold.
        remembered: results of all peers.
    """

    def __init__(self, genesis: Genesis, rules: Rules, intern: Intern, remembered: Remembered) -> None:
        super().__init__(genesis, rules, intern)
        self._remembered = remembered

    def recompute(self, job: Recompute) -> Knowledge:
        """See :class:`Checks`. Posts that this peer has not checked are checked as if it had to recompute."""
        known = self._remembered.knowledge(job.key)
        if known is None or missing_contents(job.state, job.transactions, job.contents.get):
            known = super().recompute(job)
            self._remembered.keep_knowledge(job.key, known)
            return known
        before = job.contents.get(job.state.knowledge_root, b"")
        for post in job.transactions:
            payload = job.contents[post.payload_hash]
            self._check_post(self._genesis, self._rules, job.state, before, post, payload)
        return known

    def _check_post(
        self, genesis: Genesis, rules: Rules, state: State, knowledge: bytes, post: Post, payload: bytes
    ) -> None:
        identity = state.block_hash, post.hash
        if identity in self._checked:
            return
        if self._remembered.has(identity):
            validate_content(post.payload_hash, post.payload_size, payload)
            self._pass(identity)
            return
        super()._check_post(genesis, rules, state, knowledge, post, payload)
        self._remembered.keep(identity)

    def _is_valid_signature(self, public_key: PublicKey, signature: Signature, message: bytes) -> bool:
        identity = public_key, signature, message
        if identity not in self._checked and self._remembered.has(identity):
            self._pass(identity)
            return True
        valid = super()._is_valid_signature(public_key, signature, message)
        if valid:
            self._remembered.keep(identity)
        return valid
