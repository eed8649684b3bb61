"""Adversaries that use hash power and time: they break no rule of validity, sign nothing twice, and stay unconvicted.

A scenario gives them power by ``hash_rates``.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import ClassVar

from fedchain.chain.block import Block, Header, sign_block
from fedchain.chain.post import Post, sign_post
from fedchain.chain.roster import draw, seed_of_electors
from fedchain.chain.state import expected_contributors, patience_of, posts_required
from fedchain.crypto.hashing import Hash
from fedchain.network.messages import CandidateMessage, VoteMessage
from fedchain.node.core.deadlines import patience_ms
from fedchain.node.core.effects import Effect, Publish, Send
from fedchain.node.core.events import Contributed, Event, MessageReceived, Mined
from fedchain.node.core.ledger import preference
from fedchain.simulator.adversaries.adversary import Adversary, Parameter
from fedchain.simulator.adversaries.miners import EagerMiner, draft_header

MARGIN = Parameter(0.5, 0, 1_000)
"""Seconds before the others' patience ends at which an adversary shows what it has."""

LOOK_S = 0.2
"""Seconds after which an adversary looks again how long the others wait."""

LATE = 0.8
"""Part of the time for which an attempt gathers candidates, after which a better one splits the votes best."""


class Waiting(Adversary):
    """Knows how long the others wait for the open phase's posts, and acts shortly before they stop."""

    PARAMETERS: ClassVar[Mapping[str, Parameter]] = {"margin_s": MARGIN}

    _height: int | None = None
    _since_ms = 0
    _quorum_after_ms: int | None = None

    def listen(self, event: Event) -> Sequence[Event]:
        """Note when the head moved, and when the others had the posts that a block needs."""
        if self.is_running:
            head, now_ms = self.node.head, self.coalition.loop.now_ms()
            if head.height != self._height:  # a node that was restarted may read the same head as another object
                self._height, self._since_ms, self._quorum_after_ms = head.height, now_ms, None
            elif self._quorum_after_ms is None and not head.finished:
                shown = [post for post in self.node.open_posts() if post.sender != self.key.public_key]
                if len(shown) >= posts_required(self.genesis, head):
                    self._quorum_after_ms = now_ms - self._since_ms
        return (event,)

    def left_s(self) -> float:
        """Seconds until it is time to show everything; 0 if it is already late."""
        left_ms = self._since_ms + self._patience_ms() - self.coalition.loop.now_ms()
        return max(0.0, left_ms / 1_000 - self.parameters["margin_s"])

    def once_late(self, action: Callable[[], object]) -> None:
        """Do something when it is time. Until the posts required are in, it is not known when that is."""
        if (left_s := self.left_s()) > 0:
            self.after(min(left_s, LOOK_S), partial(self.once_late, action))
        else:
            action()

    def _patience_ms(self) -> int:
        head, quorum_after_ms = self.node.head, self._quorum_after_ms
        if not head.records:
            return patience_ms(head, quorum_after_ms)
        granted_ms = patience_of(head).get(self.key.public_key, 0)
        return granted_ms + (head.rules.phase_timeout_ms if quorum_after_ms is None else quorum_after_ms)


class HeadStart(Waiting, EagerMiner):
    """Withholds its post until the others' patience is about to end, and mines the complete block alone meanwhile."""

    _own: Post | None = None
    _kept: Contributed | None = None

    def listen(self, event: Event) -> Sequence[Event]:
        """Keep its own post from its node, which would tell the others of it, until it is time."""
        Waiting.listen(self, event)
        if isinstance(event, Contributed) and event is not self._kept and self.left_s() > 0:
            self._kept = event
            self.node.hold(event.payload)
            self._own = sign_post(self.key, self.genesis.chain_id, event.round, event.phase, event.payload)
            self.once_late(partial(self.peer.handle, event))
            return ()
        return EagerMiner.listen(self, event)

    def chosen(self) -> tuple[Post, ...]:
        """Its own post and all others', once nobody else that is expected is missing."""
        held = self.held()
        if self._own is not None and (self._own.round, self._own.phase) == self.phase:
            held[self.key.public_key] = self._own
        missing = set(expected_contributors(self.node.head)) - held.keys()
        is_enough = len(held) >= posts_required(self.genesis, self.node.head)
        return tuple(held[sender] for sender in sorted(held)) if is_enough and not missing else ()

    def _publish(self, posts: tuple[Post, ...], sealed: Header) -> None:
        self.once_late(partial(super()._publish, posts, sealed))


class SlowWalk(Waiting):
    """Posts just before the others' patience ends, as if its training took as long.

    With ``mute`` = 1 its votes say nothing of who was late, by which it would be charged.
    """

    PARAMETERS: ClassVar[Mapping[str, Parameter]] = {**Waiting.PARAMETERS, "mute": Parameter(0, 0, 1)}

    _kept: Contributed | None = None

    def say(self, effect: Effect) -> Sequence[Effect]:
        """Leave what it saw of the phase out of its votes, if it is mute."""
        match effect:
            case Publish(VoteMessage(vote)) | Send(_, VoteMessage(vote)) if self.parameters["mute"]:
                if vote.turnout is None or vote.voter != self.key.public_key:
                    return (effect,)
                unsigned = replace(vote, turnout=None)
                signature = self.key.sign(unsigned.signing_message(self.genesis.chain_id))
                return (replace(effect, message=VoteMessage(replace(unsigned, signature=signature))),)
            case _:
                return super().say(effect)

    def listen(self, event: Event) -> Sequence[Event]:
        """Keep back what was trained for the open phase until it is time."""
        super().listen(event)
        if isinstance(event, Contributed) and event is not self._kept and self.left_s() > 0:
            self._kept = event
            self.once_late(partial(self.peer.handle, event))
            return ()
        return (event,)


class HashCensor(EagerMiner):
    """Leaves the first honest members out of its blocks, which it mines before the others can hold it against them."""

    PARAMETERS: ClassVar[Mapping[str, Parameter]] = {"victims": Parameter(1, 1, 2**20)}

    def say(self, effect: Effect) -> Sequence[Effect]:
        """Withhold votes for blocks that count a victim's post."""
        match effect:
            case Publish(VoteMessage(vote)):
                entry = self.node.ledger.entries.get(vote.block_hash)
                counted = set() if entry is None else {post.sender for post in entry.block.transactions}
                return () if counted & self._victims() else (effect,)
            case _:
                return super().say(effect)

    def chosen(self) -> tuple[Post, ...]:
        """All posts but the victims', once everybody else that is expected has posted."""
        victims, held = self._victims(), self.held()
        posts = tuple(post for sender, post in held.items() if sender not in victims)
        missing = set(expected_contributors(self.node.head)) - victims - held.keys()
        return () if missing or len(posts) < posts_required(self.genesis, self.node.head) else posts

    def _victims(self) -> set[bytes]:
        return {self.member(number) for number in self.coalition.honest[: int(self.parameters["victims"])]}


class LateBetter(EagerMiner):
    """Hoards blocks, shows another one to each half of the members, and in each later attempt a better one to some."""

    PARAMETERS: ClassVar[Mapping[str, Parameter]] = {"hoard": Parameter(3, 2, 1_000)}

    def listen(self, event: Event) -> Sequence[Event]:
        """Look whether an attempt has begun in which it has shown nothing yet."""
        super().listen(event)
        if self.is_running and self._shown:
            agreement = self.node.voting.agreement
            if self._shown[-1].header.height == self.height and agreement.attempt > self._tempted:
                self._tempted = agreement.attempt
                self.after(LATE * agreement.gather_ms(self._tempted) / 1_000, partial(self._show, self.height))
        return (event,)

    def say(self, effect: Effect) -> Sequence[Effect]:
        """Withhold its votes where it splits those of the others."""
        match effect:
            case Publish(VoteMessage(vote)) | Send(_, VoteMessage(vote)) if vote.voter == self.key.public_key:
                return () if self._shown and self._shown[-1].header.height == self.height else (effect,)
            case _:
                return super().say(effect)

    def chosen(self) -> tuple[Post, ...]:
        """All posts, once they are enough and nobody that is expected is missing."""
        held, head = self.held(), self.node.head
        missing = set(expected_contributors(head)) - held.keys()
        return () if missing or len(held) < posts_required(self.genesis, head) else tuple(held.values())

    _hoard: tuple[Block, ...] = ()  # of the open height
    _shown: tuple[Block, ...] = ()
    _tempted = 0

    def _publish(self, posts: tuple[Post, ...], sealed: Header) -> None:
        if sealed.parent_hash != self.node.head.block_hash or not self._still_wants(posts):
            return
        block = sign_block(self.key, self.genesis.chain_id, sealed, posts, self.node.ledger.certificate)
        if self._hoard and self._hoard[0].header.height != self.height:
            self._hoard, self._shown, self._tempted = (), (), 0
        self._hoard += (block,)
        header = draft_header(self, posts)
        if header is not None:
            self.peer.mine(header, partial(self._publish, posts), partial(self._still_wants, posts))
        if not self._shown and len(self._hoard) >= self.parameters["hoard"]:
            honest = list(self.coalition.honest)
            self.draw.shuffle(honest)
            for numbers in (honest[::2], honest[1::2]):
                self._show(self.height, numbers)

    def _show(self, height: int, numbers: Sequence[int] = ()) -> None:
        """Show some members the worst block that is better than all that it has shown."""
        if height != self.height:
            return
        best = min((preference(block) for block in self._shown), default=None)
        better = [block for block in self._hoard if best is None or preference(block) < best]
        if better:
            block = max(better, key=preference)
            self._shown += (block,)
            some = numbers or self.draw.sample(self.coalition.honest, len(self.coalition.honest) // 2)
            self.send(some, CandidateMessage(block))
            self.peer.handle(MessageReceived(self.key.public_key, CandidateMessage(block)))


class HashLeaver(Adversary):
    """Follows the protocol up to a height, and is gone from then on, with all its hash power."""

    PARAMETERS: ClassVar[Mapping[str, Parameter]] = {"height": Parameter(20, 1, 2**32)}

    def act(self) -> None:
        """Stop for good."""
        if self.is_running and self.height > self.parameters["height"]:
            self.peer.crash()


class Grinder(Adversary):
    """Throws away solutions after which too few of its coalition are in the next committee, and mines on.

    From version 3 on all solutions of a height draw the same members, and it only loses blocks.
    """

    def listen(self, event: Event) -> Sequence[Event]:
        """Let its node see a solution only if more of the coalition are drawn than a committee bears."""
        if not isinstance(event, Mined) or not self.node.head.rules.committee_size or self._is_good(event.header.hash):
            return (event,)
        draft = self.node.draft()
        if draft is not None and draft.header is not None:
            header = draft.header
            self.peer.mine(header, self._again, partial(self._still_mines, header))
        return ()

    def _again(self, sealed: Header) -> None:
        self.peer.handle(Mined(sealed))

    def _still_mines(self, header: Header) -> bool:
        return self.is_running and self.node.is_mining(header)

    def _is_good(self, block_hash: Hash) -> bool:
        head = self.node.head
        roster, size = head.roster, head.rules.committee_size
        active = tuple(member for member in roster.members if roster.is_active(member))
        seed = seed_of_electors(self.genesis, head.height + 2, block_hash)
        drawn = draw(active, size, seed, roster.seats if head.records else None)
        own = {key.public_key for key in self.coalition.keys}
        return len(drawn & own) > self.genesis.fault_model.faulty(len(drawn))
