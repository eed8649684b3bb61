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

    _last: tuple[Hash, str] = b"", ""
    """The head beside which a failure was logged last, and why: one line for each, however many posts are tried."""

    def failure_after(self, head: State) -> str:
        """Why the method's own code failed on something that came for the block after ``head``; else empty."""
        after, reason = self._last
        return reason if after == head.block_hash else ""

    def run(self, job: Job) -> Result:
        """See :class:`Checks`."""
        result = super().run(job)
        if isinstance(result, MethodFailed):
            assert not isinstance(job, VerifySignatures), "no method is asked about signatures"
            self._log(job.state, result)
        return result

    def _log(self, head: State, failure: MethodFailed) -> None:
        if not self.failure_after(head):
            self._last = head.block_hash, str(failure)
            named = {"height": head.height, "failure": failure}
            log.error("the method fails after height=%(height)d: %(failure)s", named)
            log.debug("where it failed", exc_info=failure)
