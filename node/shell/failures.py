"""Failures of the learning method's own code: a node logs them and goes on; its input is refused, nobody is to blame.

A simulation ends at such a failure instead, since the method's author is likely to watch it.
"""

import logging

from fedchain.chain.exceptions import MethodFailed
from fedchain.chain.state import State
from fedchain.crypto.hashing import Hash

log = logging.getLogger("fedchain.node")


class LoggedFailures:
    """Logs one line for each head, however many posts fail."""

    def __init__(self) -> None:
        self._last: tuple[Hash, str] = b"", ""  # the head at which a failure was last logged, and the reason

    def after(self, head: State) -> str:
        """Why the method's own code failed on input for the block after ``head``; empty if it did not."""
        at, reason = self._last
        return reason if at == head.block_hash else ""

    def note(self, head: State, failure: MethodFailed) -> None:
        """The method's own code failed on input for the block after ``head``."""
        if not self.after(head):
            self._last = head.block_hash, str(failure)
            named = {"height": head.height, "failure": failure}
            log.error("the method fails after height=%(height)d: %(failure)s", named)
            log.debug("where it failed", exc_info=failure)
