"""Contributing: this peer's own post for the open phase, from training until others hold it."""

from collections.abc import Callable
from dataclasses import dataclass, replace

from fedchain.chain.exceptions import Refused
from fedchain.chain.post import Post, sign_post
from fedchain.chain.state import phase_rule
from fedchain.chain.storage.store import Content
from fedchain.network.messages import PostMessage
from fedchain.node.core.attendance import Attendance
from fedchain.node.core.contents.bulk import BulkParts
from fedchain.node.core.context import Context
from fedchain.node.core.effects import Compute, Contribute, Persist, Publish
from fedchain.node.core.jobs import CheckPost
from fedchain.node.core.notices import TrainingFailed


@dataclass(frozen=True, slots=True)
class OwnPost:
    """Our post for the open phase, until it is sent. It is written down before it is sent."""

    post: Post
    payload: bytes
    is_checked: bool = False
    """Whether it passed the check, so that others would take it."""


class Contributing:
    """Contributes to each phase once."""

    def __init__(
        self, context: Context, attendance: Attendance, bulk: BulkParts, is_silent: Callable[[], bool]
    ) -> None:
        self._context, self._attendance, self._bulk, self._is_silent = context, attendance, bulk, is_silent
        self._asked: tuple[int, int] | None = None  # the phase that a Contribute effect was last emitted for
        self._failed_ms: int | None = None  # when that one failed
        self._computed: OwnPost | None = None
        self._published: tuple[int, int] | None = None  # the last phase whose own post this process has sent

    def on_head(self) -> None:
        """Another phase is open."""
        self._computed = self._failed_ms = None

    def on_contributed(self, round_number: int, phase: int, payload: bytes) -> None:
        """Our own payload is ready: sign it, and have it checked as other peers will. Only the first one counts."""
        context, knowledge = self._context, self._context.knowledge()
        if (round_number, phase) != context.phase or knowledge is None or self._computed is not None:
            return
        if not self._owes_post() or not context.journal.allows_post(round_number, phase):
            return
        post = sign_post(context.key, context.genesis.chain_id, round_number, phase, payload)
        self._computed = OwnPost(post, payload)
        context.emit(Compute(CheckPost(context.head, knowledge, post, payload)))

    def on_checked(self, job: CheckPost, result: Refused | None) -> bool:
        """A payload was checked; returns whether it is our own one that waits to be sent."""
        if self._computed is None or job.post != self._computed.post:
            return False
        if isinstance(result, Refused):  # nobody would take it
            self._computed = None
            self._fail(job.post.round, str(result))
        else:
            self._computed = replace(self._computed, is_checked=True)
        return True

    def on_not_contributed(self, round_number: int, phase: int, reason: str) -> None:
        """Training gave no payload. A phase that was over may open again for us."""
        if reason:
            self._fail(round_number, reason)
        elif self._asked == (round_number, phase):
            self._asked = None

    def _fail(self, round_number: int, reason: str) -> None:
        """Tell the operator, and try again if the phase is still open after a whole timeout: others may wait for us."""
        self._failed_ms = self._context.now.ms
        self._context.tell(TrainingFailed(round_number, reason))

    def advance(self) -> None:
        """Contribute to the open phase once, with the knowledge at the head."""
        context = self._context
        if self._published == context.phase or not self._owes_post():
            return
        own = context.journal.post(*context.phase)
        if own is not None:
            self._publish_again(own)
        elif self._attendance.opens_in_ms():
            return
        elif self._computed is not None:
            if self._computed.is_checked and not self._is_silent():
                self._say(self._computed)
        elif (self._asked != context.phase or self._may_try_again()) and not self._bulk.is_waiting():
            knowledge = context.knowledge()
            assert knowledge is not None, "advance looked for it"
            self._asked, self._failed_ms = context.phase, None
            name = phase_rule(context.genesis, context.head).name
            context.emit(Contribute(*context.phase, name, knowledge))

    def _may_try_again(self) -> bool:
        context, failed_ms = self._context, self._failed_ms
        return failed_ms is not None and context.now.ms - failed_ms >= context.head.rules.phase_timeout_ms

    def _say(self, own: OwnPost) -> None:
        """Write our post down, and only then hold and send it: peers that ask for posts get those in the mempool."""
        context, post = self._context, own.post
        # The payload comes first: losing it after the post was written down would cost the phase.
        context.emit(Persist((Content(post.payload_hash, own.payload),)))
        context.write_journal(context.journal.with_post(post))
        context.emit(Persist((post,)))
        context.mempool.add(post, context.now.ms)
        context.contents.put(post.payload_hash, own.payload)
        self._attendance.look()
        self._publish(post, own.payload)

    def _publish_again(self, own: Post) -> None:
        """After a restart: send our post again, if its payload is still there."""
        context = self._context
        payload = None if self._is_silent() else context.content(own.payload_hash)
        if payload is None:
            return
        context.mempool.add(own, context.now.ms)
        context.contents.put(own.payload_hash, payload)
        self._publish(own, payload)

    def _publish(self, post: Post, payload: bytes) -> None:
        self._published = self._context.phase
        inline = post.payload_size <= self._context.head.rules.inline_size_max
        self._context.emit(Publish(PostMessage(post, payload if inline else None)))

    def _owes_post(self) -> bool:
        """Whether we may contribute to the open phase, and no other post of our key is known for it.

        If our journal is beyond the phase, we have posted to it, even if the post itself was forgotten: then the chain
        that we hold is older than the journal.
        """
        context = self._context
        if context.head.finished or context.me not in context.head.roster.contributors:
            return False
        known, said = context.mempool.get(context.phase, context.me), context.journal.post(*context.phase)
        may_post = said is not None or context.journal.allows_post(*context.phase)
        return may_post and (known is None or known == said)
