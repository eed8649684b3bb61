"""Reception: which part takes an event, and which work is left after it.

A message that is refused leaves the node as it was, so a log of a node's events replays to the same state.
"""

from collections.abc import Callable
from enum import Enum
from typing import Any

from fedchain.chain.exceptions import AlreadyKnown, OutOfWindow, Refused
from fedchain.crypto.keys import PublicKey
from fedchain.network.downloads import Request
from fedchain.network.messages import (
    CandidateMessage,
    CertificateMessage,
    ChangeMessage,
    Chunk,
    EvidenceMessage,
    FinalMessage,
    GetContent,
    GetLight,
    LightMessage,
    Message,
    Payloads,
    PostMessage,
    SessionMessage,
    Status,
    VoteMessage,
)
from fedchain.node.core.answers import ChainQuestion
from fedchain.node.core.context import Context
from fedchain.node.core.effects import Refuse, Send
from fedchain.node.core.events import (
    ChangeSubmitted,
    Computed,
    Contributed,
    Event,
    MessageReceived,
    Mined,
    NotContributed,
    PeersConnected,
    PeersDisconnected,
    Tick,
)
from fedchain.node.core.jobs import CheckPost, Job, KeepPart, Knowledge, Recompute, Verified, VerifySignatures
from fedchain.node.core.parts import Parts

TICK_MS = 1_000
"""Milliseconds between two ticks; for timeouts in between the node emits ``Wake``."""


class Follows(Enum):
    """The work that is left after an event."""

    NOTHING = "nothing"
    """No work: timeouts have ticks of their own."""
    ADVANCE = "advance"
    """Work that waited for the event may be possible now."""
    NEW_HEAD = "new head"
    """The head has moved, and further work may be possible."""


class Reception:
    """Hands each event to its part."""

    def __init__(self, context: Context, parts: Parts) -> None:
        self._context, self._parts = context, parts
        self._ticked_until_ms = 0  # ticks before this time are of timeouts alone
        self._events: dict[type[Event], Callable[[Any], Follows]] = {
            MessageReceived: self._on_message_received,
            PeersConnected: self._on_connected,
            PeersDisconnected: self._on_disconnected,
            Contributed: self._on_contributed,
            NotContributed: self._on_not_contributed,
            Mined: self._on_mined,
            Computed: self._on_computed,
            ChangeSubmitted: self._on_submitted,
            Tick: self._on_tick,
        }
        self._messages: dict[type[Message], Callable[[PublicKey, Any], Follows]] = {
            PostMessage: self._on_post,
            CandidateMessage: self._on_candidate,
            VoteMessage: self._on_vote,
            EvidenceMessage: self._on_evidence,
            ChangeMessage: self._on_change,
            SessionMessage: self._on_session,
            CertificateMessage: self._on_certificate,
            FinalMessage: self._on_final,
            Status: self._on_status,
            Payloads: self._on_payloads,
            Chunk: self._on_chunk,
            GetContent: self._on_get_content,
            LightMessage: self._on_light,
            GetLight: self._on_get_light,
        }
        self._results: dict[type[Job], Callable[[Any, Any], Follows]] = {
            CheckPost: self._on_checked,
            KeepPart: self._on_kept,
            Recompute: self._on_recomputed,
            VerifySignatures: self._on_verified,
        }

    def take(self, event: Event) -> Follows:
        """Hand an event to its part."""
        return self._events[type(event)](event)

    def _on_message_received(self, event: MessageReceived) -> Follows:
        try:
            return self._messages.get(type(event.message), self._on_question)(event.peer, event.message)
        except Refused as error:
            self._context.emit(Refuse(event.peer, error))
            return _advance_if(not isinstance(error, AlreadyKnown | OutOfWindow))  # those two change nothing here

    # peers, own work and time

    def _on_connected(self, event: PeersConnected) -> Follows:
        on_connected = self._parts.sessions.on_connected
        for peer, is_greeted in self._parts.announcing.greet(event.peers):
            on_connected(peer, is_greeted=is_greeted)
        return Follows.NOTHING

    def _on_disconnected(self, event: PeersDisconnected) -> Follows:
        context, parts = self._context, self._parts
        context.peers.drop(event.peers)
        left, requests = context.peers.in_order, list[Request]()
        for peer in event.peers:
            context.catch_up.drop(peer)
            parts.sessions.on_disconnected(peer)
            requests += context.contents.drop_provider(peer, context.now.ms, left)
            requests += parts.refill.drop_provider(peer, left)
        context.send(request for request in requests if request[0] not in event.peers)  # to one that is dropped next
        return Follows.NOTHING

    def _on_contributed(self, event: Contributed) -> Follows:
        self._parts.contributing.on_contributed(event.round, event.phase, event.payload)
        return Follows.ADVANCE

    def _on_not_contributed(self, event: NotContributed) -> Follows:
        self._parts.contributing.on_not_contributed(event.round, event.phase, event.reason)
        return Follows.ADVANCE

    def _on_mined(self, event: Mined) -> Follows:
        self._parts.mining.on_mined(event.header)
        return Follows.ADVANCE

    def _on_submitted(self, event: ChangeSubmitted) -> Follows:
        try:
            self._parts.changes.submit(event.change, approves=event.approves)
        except Refused as error:
            self._context.emit(Refuse(self._context.me, error))
        return Follows.ADVANCE

    def _on_tick(self, _: Tick) -> Follows:
        """Make up for lost messages: ask again, and announce what we hold."""
        context, parts = self._context, self._parts
        if context.now.ms >= self._ticked_until_ms:
            self._ticked_until_ms = context.now.ms + TICK_MS * 9 // 10
            context.send(context.contents.on_tick(context.now.ms, context.peers.in_order))
            parts.blocks.on_tick()
            parts.bulk.on_tick()
            parts.changes.on_tick()
            parts.sessions.on_tick(is_listening=parts.twins.is_listening)
            parts.announcing.on_tick(is_listening=parts.twins.is_listening)
            has_joined = parts.catching_up.on_tick()
            parts.refill.on_tick()
            return _new_head_if(has_joined)
        return Follows.ADVANCE

    # messages

    def _on_post(self, peer: PublicKey, message: PostMessage) -> Follows:
        if message.post.sender == self._context.me:
            self._parts.twins.hears(message.post)
        counts = self._parts.posts.on_post(peer, message.post, message.payload)
        return _advance_if(counts and not self._parts.attendance.waits_for_more())

    def _on_candidate(self, peer: PublicKey, message: CandidateMessage) -> Follows:
        if self._parts.catching_up.has_waypoint:
            self._parts.catching_up.expect_followed(message.block)
        self._parts.blocks.on_candidate(peer, message.block)
        for post in message.block.transactions:
            if post.sender == self._context.me:  # members that started anew show it nowhere else
                self._parts.twins.hears(post)
        return Follows.ADVANCE

    def _on_vote(self, _: PublicKey, message: VoteMessage) -> Follows:
        is_own = message.vote.voter == self._context.me
        if is_own:
            self._parts.twins.hears(message.vote)
        return _advance_if(self._parts.voting.on_vote(message.vote) or is_own)

    def _on_evidence(self, _: PublicKey, message: EvidenceMessage) -> Follows:
        self._parts.crimes.on_evidence(message.evidence)
        return Follows.ADVANCE

    def _on_change(self, _: PublicKey, message: ChangeMessage) -> Follows:
        self._parts.changes.on_change(message.change)
        return Follows.ADVANCE

    def _on_session(self, peer: PublicKey, message: SessionMessage) -> Follows:
        self._parts.sessions.on_session(peer, message.session)
        return Follows.NOTHING

    def _on_certificate(self, _: PublicKey, message: CertificateMessage) -> Follows:
        self._parts.voting.on_certificate(message.certificate)
        for vote in message.certificate.votes:
            if vote.voter == self._context.me:  # members that started anew show it nowhere else
                self._parts.twins.hears(vote)
        return Follows.ADVANCE

    def _on_final(self, peer: PublicKey, message: FinalMessage) -> Follows:
        return _new_head_if(self._parts.catching_up.on_final(peer, message.block, message.certificate))

    def _on_status(self, peer: PublicKey, status: Status) -> Follows:
        parts = self._parts
        parts.catching_up.on_status(peer, status)
        for question in parts.answers.questions(status, parts.voting.agreement, parts.blocks.wanted):
            self._context.emit(Send(peer, question))
        self._context.send((peer, own) for own in parts.answers.reminders(peer, status))
        parts.announcing.on_status(peer, status)
        return _advance_if(parts.twins.may_end())

    def _on_payloads(self, peer: PublicKey, message: Payloads) -> Follows:
        return _new_head_if(self._parts.catching_up.on_payloads(peer, message))

    def _on_chunk(self, peer: PublicKey, message: Chunk) -> Follows:
        if self._parts.refill.on_chunk(peer, message):
            return Follows.NOTHING
        is_whole = self._parts.posts.on_chunk(peer, message)
        return _new_head_if(is_whole and self._parts.catching_up.on_content(message.content_hash))

    def _on_get_content(self, peer: PublicKey, question: GetContent) -> Follows:
        is_withheld = self._parts.bulk.withholds(peer, question.content_hash)
        nothing = Chunk(question.content_hash, question.offset, b"")
        chunk = nothing if is_withheld else self._context.contents.chunk(peer, question)
        if chunk is not None:
            self._context.emit(Send(peer, chunk))
        return Follows.NOTHING

    def _on_light(self, peer: PublicKey, message: LightMessage) -> Follows:
        return _new_head_if(self._parts.catching_up.on_light(peer, message))

    def _on_get_light(self, peer: PublicKey, question: GetLight) -> Follows:
        answer = self._parts.proving.answer(question)
        if answer is not None:
            self._context.emit(Send(peer, answer))
        return Follows.NOTHING

    def _on_question(self, peer: PublicKey, question: ChainQuestion) -> Follows:
        answers = self._parts.answers.answer(question, self._parts.voting.agreement)
        self._context.send((peer, answer) for answer in answers)
        return Follows.NOTHING

    # results of jobs

    def _on_computed(self, event: Computed) -> Follows:
        return self._results[type(event.job)](event.job, event.result)

    def _on_checked(self, job: CheckPost, result: Refused | None) -> Follows:
        if job.post.sender == self._context.me and self._parts.contributing.on_checked(job, result):
            return Follows.ADVANCE
        self._parts.posts.on_checked(job, result)
        return _advance_if(not self._parts.attendance.waits_for_more())

    def _on_kept(self, job: KeepPart, result: Refused | None) -> Follows:
        self._parts.posts.on_kept(job, result)
        return Follows.ADVANCE

    def _on_recomputed(self, job: Recompute, result: Knowledge | Refused) -> Follows:
        self._parts.blocks.on_recomputed(job, result)
        self._parts.mining.on_recomputed(job, result)
        return _new_head_if(self._parts.catching_up.on_recomputed(job, result))

    def _on_verified(self, job: VerifySignatures, result: Verified) -> Follows:
        return _new_head_if(self._parts.catching_up.on_verified(job, result))


def _advance_if(may_advance: bool) -> Follows:
    return Follows.ADVANCE if may_advance else Follows.NOTHING


def _new_head_if(has_moved: bool) -> Follows:
    return Follows.NEW_HEAD if has_moved else Follows.ADVANCE
