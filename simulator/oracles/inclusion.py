"""Inclusion: a block that leaves out a post that all honest members held in time is final only after a long wait.

A member that does not read all parts that a post lists does not insist on it: it cannot tell whether others have them.
"""

from array import array
from collections.abc import Iterable, Sequence

from fedchain.chain.block import Block
from fedchain.chain.genesis import Genesis
from fedchain.chain.post import Post
from fedchain.chain.state import State, posts_required
from fedchain.crypto.hashing import Hash
from fedchain.crypto.keys import PublicKey
from fedchain.network.messages import CandidateMessage, Message, PostMessage
from fedchain.node.core.deadlines import forgiven_after_ms
from fedchain.node.core.effects import Effect, Publish, Refuse
from fedchain.node.core.events import Computed, Event, MessageReceived
from fedchain.node.core.jobs import CheckPost, KeepPart
from fedchain.simulator.engine.peer import SimulatedPeer
from fedchain.simulator.oracles.agreement import Fail

PhaseKey = tuple[int, int]
"""(round, phase)."""


NEVER = -1
"""Stands for the time of an arrival that was none."""


class Inclusion:
    """Notes when posts and candidates arrive at honest members, and judges every final block by that.

    Args:
        genesis: the federation's founding document.
        honest: numbers of the peers that follow the protocol.
        fail: called with each violation.
    """

    def __init__(self, genesis: Genesis, honest: Sequence[int], fail: Fail) -> None:
        self.posts_lost = self.posts_due = 0
        """Posts that honest members had sent when their phase was closed: uncounted ones, and all."""
        self._genesis, self._fail = genesis, fail
        self._candidates: dict[int, dict[Hash, int]] = {number: {} for number in honest}  # times of arrival, by peer
        # Times of posts' arrival since a peer's last start, in virtual milliseconds, by phase, author and peer.
        self._posts: dict[PhaseKey, dict[PublicKey, array[int]]] = {}
        self._row = array("q", [NEVER]) * (1 + max(honest, default=0))
        self._floor: PhaseKey = (0, 0)  # the first phase whose posts a block may still have to count

    def on_event(self, peer: SimulatedPeer, event: Event, effects: Sequence[Effect], now_ms: int) -> None:
        """Note posts and candidates that arrived at an honest peer, and its own."""
        if isinstance(event, MessageReceived):
            self.on_message(peer, event.message, effects, now_ms)
        elif isinstance(event, Computed) and isinstance(event.job, CheckPost):
            self._note_held(peer, event.job.post, now_ms)
        elif isinstance(event, Computed) and isinstance(event.job, KeepPart) and event.job.post is not None:
            self._note_held(peer, event.job.post, now_ms)  # the last missing part may have arrived
        for effect in effects:
            if isinstance(effect, Publish):
                if isinstance(effect.message, CandidateMessage):
                    self._candidates[peer.number].setdefault(effect.message.block.hash, now_ms)
                elif isinstance(effect.message, PostMessage):
                    self.on_post((peer.number,), effect.message.post, now_ms)

    def on_post(self, numbers: Iterable[int], post: Post, now_ms: int) -> None:
        """Honest peers hold a post; its first arrival at each of them counts."""
        phase = post.round, post.phase
        if phase < self._floor:
            return
        posts = self._posts.get(phase)
        if posts is None:
            posts = self._posts[phase] = {}
        times = posts.get(post.sender)
        if times is None:
            times = posts[post.sender] = self._row[:]
        for number in numbers:
            if times[number] < 0:
                times[number] = now_ms

    def on_message(self, peer: SimulatedPeer, message: Message, effects: Sequence[Effect], now_ms: int) -> None:
        """Note a post or candidate that arrived at an honest peer."""
        if isinstance(message, PostMessage):
            self._note_held(peer, message.post, now_ms)
        elif isinstance(message, CandidateMessage) and not any(isinstance(effect, Refuse) for effect in effects):
            self._candidates[peer.number].setdefault(message.block.hash, now_ms)

    def _note_held(self, peer: SimulatedPeer, post: Post, now_ms: int) -> None:
        node = peer.node
        if node is not None and node.insists_on(post):
            self.on_post((peer.number,), post, now_ms)

    def on_crash(self, number: int) -> None:
        """A peer lost its memory of posts; it reads candidates from its storage again, as if they were new."""
        for posts in self._posts.values() if number in self._candidates else ():
            for times in posts.values():
                times[number] = NEVER

    def on_first_final(self, before: State, block: Block, now_ms: int, peers: Sequence[SimulatedPeer]) -> None:
        """The first honest member has a final block: check that it counts all posts that it had to."""
        self._judge(before, block, now_ms, peers)
        late = self._genesis.late_rounds
        self._floor = (before.round - late, 0 if late else before.phase)
        self._posts = {phase: posts for phase, posts in self._posts.items() if phase >= self._floor}

    def _judge(self, before: State, block: Block, now_ms: int, peers: Sequence[SimulatedPeer]) -> None:
        phase, keys = (before.round, before.phase), {post.key for post in block.transactions}
        counted = {sender for *of, sender in keys if tuple(of) == phase}
        drawn = before.roster.contributors | before.roster.electors
        if not before.records:  # seats are the peers' numbers: look at those few that the chain draws, not at all
            peers = [peers[seat] for seat in sorted(before.roster.seats[member] for member in drawn)]
        asked = [peer for peer in peers if peer.number in self._candidates]
        posts = self._posts.get(phase, {})
        sent = [peer for peer in asked if posts.get(peer.public_key, self._row)[peer.number] >= 0]
        due = [peer for peer in sent if peer.public_key in before.roster.contributors]
        self.posts_due += len(due)
        self.posts_lost += sum(peer.public_key not in counted for peer in due)
        uncounted = [(peer, phase) for peer in due if peer.public_key not in counted]
        for item in before.owed:
            late = (item.round, item.phase)
            owing = [peer for peer in asked if before.owed_to((*late, peer.public_key)) and item.phase == phase[1]]
            active = [peer for peer in owing if before.roster.is_active(peer.public_key)]
            uncounted += [(peer, late) for peer in active if (*late, peer.public_key) not in keys]
        slack_ms = before.rules.omission_slack_ms
        omitted = [(peer, of) for peer, of in uncounted if self._reached_all(peer, of, block, slack_ms)]
        voters = [peer for peer in asked if peer.public_key in before.roster.electors]
        came_ms = [self._candidates[peer.number].get(block.hash) for peer in voters]
        earliest_ms = min((at_ms for at_ms in came_ms if at_ms is not None), default=None)
        if not omitted or earliest_ms is None or now_ms - earliest_ms >= forgiven_after_ms(before.rules):
            return
        in_time = sum(of == phase for _, of in omitted)  # late posts do not count towards the posts required
        if not counted and (self._genesis.centralized or in_time < posts_required(self._genesis, before)):
            return  # a phase may close empty although a few members posted
        names = ", ".join(str(peer.number) for peer, _ in omitted)
        self._fail(
            f"inclusion: height {block.header.height} leaves out peers {names} and was final {now_ms - earliest_ms} ms "
            f"after it came, {forgiven_after_ms(before.rules)} ms were left for a better one"
        )

    def on_head(self, number: int) -> None:
        """A peer's open phase has changed."""
        if number in self._candidates:
            self._candidates[number].clear()

    def _reached_all(self, author: SimulatedPeer, phase: PhaseKey, block: Block, slack_ms: int) -> bool:
        """Whether a post arrived at every honest member before the block, by more than the slack."""
        times = self._posts.get(phase, {}).get(author.public_key, self._row)
        for number, candidates in self._candidates.items():
            block_ms = candidates.get(block.hash)
            if times[number] < 0 or (block_ms is not None and times[number] >= block_ms - slack_ms):
                return False
        return True
