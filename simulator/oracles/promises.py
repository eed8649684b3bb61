"""Promises: an honest member writes every statement down before it sends it, and never contradicts one."""

from collections.abc import Sequence

from fedchain.chain.post import Post, PostKey
from fedchain.chain.storage.store import Candidate
from fedchain.chain.vote import Slot, Vote
from fedchain.crypto.hashing import Hash
from fedchain.crypto.keys import PublicKey
from fedchain.network.messages import CandidateMessage, Message, PostMessage, VoteMessage
from fedchain.node.core.effects import Effect, Persist, Publish, Send, WriteJournal
from fedchain.node.core.voting.journal import Journal
from fedchain.simulator.engine.peer import SimulatedPeer
from fedchain.simulator.oracles.agreement import Fail

STATEMENTS = (VoteMessage, PostMessage, CandidateMessage)
"""Messages with statements of members."""


class Promises:
    """Remembers statements of honest peers that they wrote down, in storage or journal, and those that they sent.

    A peer that is killed between the two writes has a statement in its journal alone. That is enough to repeat it and
    to send nothing else.
    """

    def __init__(self, fail: Fail) -> None:
        self._fail = fail
        self._written: dict[int, set[Hash]] = {}
        self._journals: dict[int, Journal] = {}
        self._votes_of: dict[PublicKey, dict[Slot, Vote]] = {}
        self._posts_of: dict[PublicKey, dict[PostKey, Post]] = {}
        self._lost: dict[int, set[Hash]] = {}  # written down before, and no longer on any disk
        self._forgetful: set[int] = set()  # peers that lost their journal, and may contradict earlier statements

    def on_loss(self, number: int, *, journal: bool) -> None:
        """A peer lost its storage, and perhaps its journal. It may get old statements from others and repeat them."""
        self._lost.setdefault(number, set()).update(self._written.pop(number, ()))
        if journal:
            self._journals.pop(number, None)
            self._forgetful.add(number)

    def on_key(self, number: int) -> None:
        """A peer goes on with another key; what it signed with the former one is another member's to all others."""
        self._journals.pop(number, None)

    def on_effects(self, peer: SimulatedPeer, effects: Sequence[Effect]) -> None:
        """Follow the writes and messages of a peer, in order."""
        for effect in effects:
            match effect:
                case Persist(records):
                    written = self._written.setdefault(peer.number, set())
                    for record in records:
                        if isinstance(record, Vote | Post):
                            written.add(record.hash)
                        elif isinstance(record, Candidate):
                            written.add(record.block.hash)
                case WriteJournal(journal):
                    self._write_journal(peer, journal)
                case Publish(message):
                    self._say(peer, message)
                case Send(_, message):
                    self._say(peer, message)
                case _:
                    pass

    def check_end(self, peer: SimulatedPeer) -> None:
        """Check that a peer's statements are in its storage, and that its journal vouches for its votes."""
        stored, written = {post.hash for post in peer.storage.posts(0)}, self._written.get(peer.number, set())
        missing, votes = written - stored, dict[int, set[Hash]]()
        for post in self._posts_of.get(peer.public_key, {}).values():
            if post.hash in missing:
                self._fail(f"lost: peer {peer.number} lost its own post of round {post.round}, phase {post.phase}")
        for slot, vote in self._votes_of.get(peer.public_key, {}).items():
            height = slot[0]
            if height not in votes:
                votes[height] = {known.hash for known in peer.storage.votes(height)}
            if vote.hash in written - votes[height]:
                self._fail(f"lost: peer {peer.number} lost its own vote in {slot}")
            if not peer.journal.vouches_for(vote) and peer.number not in self._forgetful:
                self._fail(f"lost: peer {peer.number}'s journal does not know its vote in {slot}")

    def _write_journal(self, peer: SimulatedPeer, journal: Journal) -> None:
        before = self._journals.get(peer.number, Journal())
        if journal.slot < before.slot or not all(journal.vouches_for(post) for post in before.posts):
            self._fail(f"journal: peer {peer.number} went back from {before.slot} to {journal.slot}")
        if _loses_lock(before, journal):
            self._fail(f"journal: peer {peer.number} lost its lock of height {before.height}")
        self._journals[peer.number] = journal

    def _say(self, peer: SimulatedPeer, message: Message) -> None:
        if not isinstance(message, STATEMENTS):  # most messages are none
            return
        me, written = peer.public_key, self._written.get(peer.number, set())
        lost = self._lost.get(peer.number, set())
        journal = self._journals.get(peer.number, Journal())
        match message:
            case VoteMessage(vote) if vote.voter == me:
                first = self._votes_of.setdefault(me, {}).setdefault(vote.slot, vote)
                if first.block_hash != vote.block_hash and peer.number not in self._forgetful:
                    self._fail(f"double signature: peer {peer.number} voted twice in {vote.slot}")
                if not (vote.hash in written or vote.hash in lost or vote in journal.votes) or not journal.vouches_for(
                    vote
                ):
                    self._fail(f"lost: peer {peer.number} sent its vote in {vote.slot} before it wrote it down")
            case PostMessage(post, _) if post.sender == me:
                first_post = self._posts_of.setdefault(me, {}).setdefault(post.key, post)
                if first_post.payload_hash != post.payload_hash and peer.number not in self._forgetful:
                    self._fail(f"double signature: peer {peer.number} posted twice in {post.key[:2]}")
                if not (post.hash in written or post.hash in lost or post in journal.posts) or not journal.vouches_for(
                    post
                ):
                    self._fail(f"lost: peer {peer.number} sent its post of {post.key[:2]} before it wrote it down")
            case CandidateMessage(block) if (
                block.header.miner == me and block.hash not in written and block.hash not in lost
            ):
                self._fail(f"lost: peer {peer.number} sent its block of height {block.header.height} unwritten")
            case _:
                pass


def _loses_lock(before: Journal, after: Journal) -> bool:
    """Whether a lock gave way, at its height, to none or to another one that is not newer."""
    if before.lock is None or after.height != before.height or after.lock == before.lock:
        return False
    return after.lock is None or after.lock[0] <= before.lock[0]
