"""The costly checks of a node, which logs failures of its learning method's own code and goes on."""

import logging

from fedchain.chain.exceptions import MethodFailed
from fedchain.chain.state import State
from fedchain.crypto.hashing import Hash
from fedchain.node.core.checks import Checks
from fedchain.node.core.jobs import Job, Result, VerifySignatures

log = logging.getLogger("fedchain.node")


class SteadyChecks(Checks):
    """Checks that log a failure of the method's own code; its input is refused, and nobody is to blame.

    A simulation ends at such a failure instead, since the method's author is likely to watch it.
    """

    _last: tuple[Hash, str] = b"", ""
    """The head at which a failure was last logged, and the reason; one line for each head, however many posts fail."""

    def failure_after(self, head: State) -> str:
        """Why the method's own code failed on input for the block after ``head``; empty if it did not."""
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
