"""Inclusion: a block that leaves out a post that all honest members held in time is final only after a long wait."""

from collections.abc import Sequence
from dataclasses import dataclass, field

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


@dataclass(slots=True)
class _Arrivals:
    """Times of arrival at one peer since its last start, in milliseconds of virtual time."""

    posts: dict[PhaseKey, dict[PublicKey, int]] = field(default_factory=dict)
    candidates: dict[Hash, int] = field(default_factory=dict)

    def note(self, post: Post, now_ms: int) -> None:
        """Note that a post is held; its first arrival counts."""
        phase = post.round, post.phase
        posts = self.posts.get(phase)
        if posts is None:
            posts = self.posts[phase] = {}
        posts.setdefault(post.sender, now_ms)

    def forget_before(self, phase: PhaseKey) -> None:
        """Drop posts of earlier phases, and all candidates."""
        self.posts = {key: posts for key, posts in self.posts.items() if key >= phase}
        self.candidates.clear()


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
        self._arrivals = {number: _Arrivals() for number in honest}

    def on_event(self, peer: SimulatedPeer, event: Event, effects: Sequence[Effect], now_ms: int) -> None:
        """Note posts and candidates that arrived at an honest peer, and its own."""
        arrivals = self._arrivals[peer.number]
        if isinstance(event, MessageReceived):
            self.on_message(peer, event.message, effects, now_ms)
        elif isinstance(event, Computed) and isinstance(event.job, CheckPost):
            self._note_held(peer, event.job.post, now_ms)
        elif isinstance(event, Computed) and isinstance(event.job, KeepPart) and event.job.post is not None:
            self._note_held(peer, event.job.post, now_ms)  # the last missing part may have arrived
        for effect in effects:
            if isinstance(effect, Publish):
                if isinstance(effect.message, CandidateMessage):
                    arrivals.candidates.setdefault(effect.message.block.hash, now_ms)
                elif isinstance(effect.message, PostMessage):
                    arrivals.note(effect.message.post, now_ms)

    def on_post(self, number: int, post: Post, now_ms: int) -> None:
        """An honest peer took a post, and did nothing else."""
        self._arrivals[number].note(post, now_ms)

    def on_message(self, peer: SimulatedPeer, message: Message, effects: Sequence[Effect], now_ms: int) -> None:
        """Note a post or candidate that arrived at an honest peer."""
        if isinstance(message, PostMessage):
            self._note_held(peer, message.post, now_ms)
        elif isinstance(message, CandidateMessage) and not any(isinstance(effect, Refuse) for effect in effects):
            self._arrivals[peer.number].candidates.setdefault(message.block.hash, now_ms)

    def _note_held(self, peer: SimulatedPeer, post: Post, now_ms: int) -> None:
        node = peer.node
        if node is not None and node.holds(post):
            self._arrivals[peer.number].note(post, now_ms)

    def on_crash(self, number: int) -> None:
        """A peer lost its memory of posts; it reads candidates from its storage again, as if they were new."""
        if number in self._arrivals:
            self._arrivals[number].posts.clear()

    def on_first_final(self, before: State, block: Block, now_ms: int, peers: Sequence[SimulatedPeer]) -> None:
        """The first honest member has a final block: check that it counts all posts that it had to."""
        phase, keys = (before.round, before.phase), {post.key for post in block.transactions}
        counted = {sender for *of, sender in keys if tuple(of) == phase}
        drawn = before.roster.contributors | before.roster.electors
        if not before.records:  # seats are the peers' numbers: look at those few that the chain draws, not at all
            peers = [peers[seat] for seat in sorted(before.roster.seats[member] for member in drawn)]
        asked = [peer for peer in peers if peer.number in self._arrivals]
        sent = [peer for peer in asked if peer.public_key in self._arrivals[peer.number].posts.get(phase, {})]
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
        omitted = [peer for peer, of in uncounted if self._reached_all(peer, of, block, slack_ms)]
        voters = [peer for peer in asked if peer.public_key in before.roster.electors]
        came_ms = [self._arrivals[peer.number].candidates.get(block.hash) for peer in voters]
        earliest_ms = min((at_ms for at_ms in came_ms if at_ms is not None), default=None)
        if not omitted or earliest_ms is None or now_ms - earliest_ms >= forgiven_after_ms(before.rules):
            return
        if not counted and (self._genesis.centralized or len(omitted) < posts_required(self._genesis, before)):
            return  # a phase may close empty although a few members posted
        names = ", ".join(str(peer.number) for peer in omitted)
        self._fail(
            f"inclusion: height {block.header.height} leaves out peers {names} and was final {now_ms - earliest_ms} ms "
            f"after it came, {forgiven_after_ms(before.rules)} ms were left for a better one"
        )

    def on_head(self, peer: SimulatedPeer, phase: PhaseKey) -> None:
        """A peer's open phase has changed."""
        if peer.number in self._arrivals:
            self._arrivals[peer.number].forget_before(
                (phase[0] - self._genesis.late_rounds, 0 if self._genesis.late_rounds else phase[1])
            )

    def _reached_all(self, author: SimulatedPeer, phase: PhaseKey, block: Block, slack_ms: int) -> bool:
        """Whether a post arrived at every honest member before the block, by more than the slack."""
        for arrivals in self._arrivals.values():
            post_ms = arrivals.posts.get(phase, {}).get(author.public_key)
            if post_ms is None:
                return False
            block_ms = arrivals.candidates.get(block.hash)
            if block_ms is not None and post_ms >= block_ms - slack_ms:
                return False
        return True
