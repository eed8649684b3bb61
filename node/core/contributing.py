"""Contributing: this peer's own post for the open phase, from training until others hold it."""

from collections.abc import Callable
from dataclasses import dataclass, replace

from fedchain.chain.exceptions import Refused
from fedchain.chain.post import Post, sign_post
from fedchain.chain.state import phase_rule
from fedchain.chain.storage.store import Contents
from fedchain.crypto.hashing import sha256
from fedchain.network.messages import GOSSIP_SIZE_MAX, POST_SIZE_MAX, PostMessage
from fedchain.node.core.attendance import Attendance
from fedchain.node.core.contents.bulk import BulkParts
from fedchain.node.core.context import Context
from fedchain.node.core.effects import Compute, Contribute, Persist, Publish
from fedchain.node.core.jobs import CheckPost
from fedchain.node.core.mempool import PhaseKey
from fedchain.node.core.notices import TrainingFailed


@dataclass(frozen=True, slots=True)
class OwnPost:
    """Our post, until it is sent. It is written down before it is sent."""

    post: Post
    payload: bytes
    is_checked: bool = False
    """Whether it passed the check, so that others would take it."""

    @property
    def phase(self) -> PhaseKey:
        """The (round, phase) that it is made for."""
        return self.post.round, self.post.phase


class Contributing:
    """Contributes to each phase once.

    Work on a phase that closes goes on if its post may be counted late: then it is posted, and the next one begins with
    the newest knowledge. There is one piece of work at a time, so what is older than that is given up. A silent node
    posts nothing late: its key may have posted to that phase, and no status shows late posts.
    """

    def __init__(
        self, context: Context, attendance: Attendance, bulk: BulkParts, is_silent: Callable[[], bool]
    ) -> None:
        self._context, self._attendance, self._bulk, self._is_silent = context, attendance, bulk, is_silent
        self._asked: PhaseKey | None = None  # the phase that a Contribute effect was last emitted for
        self._is_working = False  # whether that one is neither answered nor given up
        self._failed_ms: int | None = None  # when that one failed
        self._computed: OwnPost | None = None
        self._published: PhaseKey | None = None  # the last phase whose own post this process has sent

    def is_occupied(self) -> bool:
        """Whether there is work that would go on if the open phase closed now."""
        return bool(self._context.genesis.late_rounds) and (self._is_working or self._computed is not None)

    def on_head(self) -> None:
        """Another phase is open: give up our work, unless its post may be counted late."""
        self._failed_ms = None
        self._give_up_stale()

    def _give_up_stale(self) -> None:
        """Give up our work for a phase that can count it no more, or that our key turned out to have posted to."""
        phase = self._phase_of_work()
        if phase is None:
            return
        is_over = phase != self._context.phase and (self._late_phase() is None or self._is_silent())
        if is_over or not self._context.journal.allows_post(*phase):
            self._computed, self._is_working = None, False

    def _phase_of_work(self) -> PhaseKey | None:
        """The phase that we are at work for, or have a post for that is not sent; None if there is none."""
        return self._asked if self._is_working else None if self._computed is None else self._computed.phase

    def _late_phase(self) -> PhaseKey | None:
        """The earlier phase of our work, whose post may be counted late; None if it is the open one's, or none's."""
        phase = self._phase_of_work()
        return None if phase is None or phase == self._context.phase or not self._owes_post(phase) else phase

    def on_contributed(self, round_number: int, phase: int, payload: bytes) -> None:
        """Our own payload is ready: sign it, and have it checked as other peers will. Only the first one counts."""
        context, done = self._context, (round_number, phase)
        is_wanted = done in (context.phase, self._late_phase())
        if done == self._asked:
            self._is_working = False
        knowledge = context.base_of((*done, context.me)) if is_wanted else None
        if knowledge is None or self._computed is not None or not self._owes_post(done):
            return
        said = context.journal.post(*done)
        if said is not None:
            self._recover(said, payload)
            return
        post = sign_post(context.key, context.genesis.chain_id, round_number, phase, payload)
        context.note_own(post)
        self._computed = OwnPost(post, payload)
        context.emit(Compute(CheckPost(context.head, knowledge, post, payload)))

    def _recover(self, said: Post, payload: bytes) -> None:
        """Our key has signed a post to this phase, and its payload was lost: hold it again if this is the same one."""
        context = self._context
        if sha256(payload) == said.payload_hash:
            context.emit(Persist((Contents({said.payload_hash: payload}),)))
            context.contents.put(said.payload_hash, payload)
        elif context.content(said.payload_hash) is None:
            reason = "what this key has posted is lost, and another post is not signed"
            context.tell(TrainingFailed(said.round, said.phase, reason))

    def on_checked(self, job: CheckPost, result: Refused | None) -> bool:
        """A payload was checked; returns whether it is our own one that waits to be sent."""
        if self._computed is None or job.post != self._computed.post:
            return False
        if isinstance(result, Refused):  # nobody would take it
            self._computed = None
            self._fail(job.post.round, job.post.phase, str(result))
        else:
            self._computed = replace(self._computed, is_checked=True)
        return True

    def on_not_contributed(self, round_number: int, phase: int, reason: str) -> None:
        """Training gave no payload. A phase that was over may open again for us."""
        is_last = self._asked == (round_number, phase)
        self._is_working = self._is_working and not is_last
        if reason:
            self._fail(round_number, phase, reason)
        elif is_last:
            self._asked = None

    def _fail(self, round_number: int, phase: int, reason: str) -> None:
        """Tell the operator, and try again if the phase is still open after a whole timeout: others may wait for us."""
        self._failed_ms = self._context.now.ms
        self._context.tell(TrainingFailed(round_number, phase, reason))

    def advance(self) -> None:
        """Contribute to the open phase once, with the knowledge at the head; before it, finish what may count late."""
        context = self._context
        self._publish_owed()
        self._give_up_stale()
        if self._late_phase() is not None:
            if not self._is_ready():
                return
            self._say()
        if self._published == context.phase or not self._owes_post(context.phase):
            return
        own = context.journal.post(*context.phase)
        if own is not None and (self._is_silent() or context.content(own.payload_hash) is not None):
            self._publish_again(own)  # where its payload is lost, it is made again: others may wait for it
        elif self._attendance.opens_in_ms():
            return
        elif self._computed is not None:
            if self._is_ready():
                self._say()
        elif (self._asked != context.phase or self._may_try_again()) and not self._bulk.is_waiting():
            knowledge = context.knowledge()
            assert knowledge is not None, "advance looked for it"
            self._asked, self._failed_ms, self._is_working = context.phase, None, True
            name = phase_rule(context.genesis, context.head).name
            context.emit(Contribute(*context.phase, name, knowledge))

    def _may_try_again(self) -> bool:
        context, failed_ms = self._context, self._failed_ms
        return failed_ms is not None and context.now.ms - failed_ms >= context.head.rules.phase_timeout_ms

    def _is_ready(self) -> bool:
        """Whether our post can be sent now."""
        return self._computed is not None and self._computed.is_checked and not self._is_silent()

    def _say(self) -> None:
        """Write our post down, and only then hold and send it: peers that ask for posts get those in the mempool."""
        own, self._computed = self._computed, None
        assert own is not None, "it is ready"
        context, post = self._context, own.post
        # The payload comes first: losing it after the post was written down would cost the phase.
        context.emit(Persist((Contents({post.payload_hash: own.payload}),)))
        context.write_journal(context.journal.with_post(post, context.genesis.late_rounds))
        context.emit(Persist((post,)))
        context.mempool.add(post, context.now.ms)
        context.contents.put(post.payload_hash, own.payload)
        self._attendance.look()
        self._publish(post, own.payload)

    def _publish_owed(self) -> None:
        """After a restart: send our posts of earlier rounds again that are not counted yet, each once what it was made
        from is here."""
        context = self._context
        for own in context.journal.posts if context.head.owed else ():
            is_held = context.mempool.get((own.round, own.phase), own.sender) is not None
            is_owed = context.head.owed_to(own.key) is not None and not is_held
            if is_owed and context.base_of(own.key) is not None:
                self._publish_again(own)

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
        self._published = post.round, post.phase
        # The largest payloads that the rules let travel with a post have no room beside it in a gossip message.
        inline_max = min(self._context.head.rules.inline_size_max, GOSSIP_SIZE_MAX - POST_SIZE_MAX)
        inline = post.payload_size <= inline_max
        self._context.emit(Publish(PostMessage(post, payload if inline else None)))

    def _owes_post(self, phase: PhaseKey) -> bool:
        """Whether we may contribute to the open phase, or to an earlier one, and no other post of our key is known.

        If our journal is beyond the phase, we have posted to it, even if the post itself was forgotten: then the chain
        that we hold is older than the journal.
        """
        context, head = self._context, self._context.head
        is_late = phase != context.phase
        is_due = head.owed_to((*phase, context.me)) is not None if is_late else context.me in head.roster.contributors
        if head.finished or not is_due or not head.roster.is_active(context.me):
            return False
        known, said = context.mempool.get(phase, context.me), context.journal.post(*phase)
        may_post = said is not None or context.journal.allows_post(*phase)
        return may_post and (known is None or known == said)
