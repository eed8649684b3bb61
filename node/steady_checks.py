"""The costly checks of a node, which goes on where its learning method's own code fails, and says so."""

import logging

from fedchain.chain.exceptions import MethodFailed
from fedchain.chain.state import State
from fedchain.crypto.hashing import Hash
from fedchain.node.core.checks import Checks
from fedchain.node.core.jobs import Job, Result, VerifySignatures

log = logging.getLogger("fedchain.node")


class SteadyChecks(Checks):
    """Checks that log why the method's own code fails; what it fails on is refused, and nobody is to blame.

    A simulation ends there instead: whoever wrote the method looks on.
    """

    _told_at: Hash = b""
    """The head beside which a failure was logged last: one line for each, however many posts there are to try."""

    def run(self, job: Job) -> Result:
        """See :class:`Checks`."""
        result = super().run(job)
        if isinstance(result, MethodFailed):
            assert not isinstance(job, VerifySignatures), "no method is asked about signatures"
            self._log(job.state, result)
        return result

    def _log(self, head: State, failure: MethodFailed) -> None:
        if head.block_hash != self._told_at:
            self._told_at = head.block_hash
            log.error("the method fails after height=%d: %s", head.height, failure)
            log.debug("where it failed", exc_info=failure)
