"""The costly checks of a node that goes on where its learning method's own code fails."""

import logging

from fedchain.chain.exceptions import MethodFailed
from fedchain.crypto.hashing import Hash
from fedchain.learning.exceptions import LearningError
from fedchain.node.core.checks import Checks
from fedchain.node.core.jobs import Job, Result, VerifySignatures

log = logging.getLogger("fedchain.node")


class SteadyChecks(Checks):
    """Checks that refuse what the method's own code fails on, for which nobody is to blame, and log why.

    A simulation ends there instead: whoever wrote the method looks on.
    """

    _told_at: Hash = b""
    """The head beside which a failure was logged last: one line for each, however many posts there are to try."""

    def run(self, job: Job) -> Result:
        """See :class:`Checks`."""
        try:
            return super().run(job)
        except LearningError as error:
            assert not isinstance(job, VerifySignatures), "no method is asked about signatures"
            if job.state.block_hash != self._told_at:
                self._told_at = job.state.block_hash
                log.error("the method fails after height=%d: %s", job.state.height, error)
                log.debug("where it failed", exc_info=error)
            return MethodFailed("method", str(error))
