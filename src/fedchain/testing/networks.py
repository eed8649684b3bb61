"""Conformance tests for every implementation of the network interface: a suite for pytest.

Subclass :class:`NetworkConformance` in a test module, with a fixture ``wire`` that connects the peers.
"""

from collections.abc import Callable
from itertools import count
from typing import Protocol

from fedchain.chain.post import sign_post
from fedchain.chain.vote import VoteKind, sign_vote
from fedchain.crypto.hashing import sha256
from fedchain.crypto.keys import PrivateKey, PublicKey
from fedchain.network.messages import CHUNK_SIZE, Chunk, GetContent, Message, PostMessage, Status, VoteMessage
from fedchain.network.network import Network
from fedchain.network.verdict import Verdict

HASH = bytes(range(32))
"""Hash of a federation or a block that no peer knows."""

_KEY = PrivateKey(sha256(b"fedchain testing"))

_numbers = count(100)


class Wire(Protocol):
    """Peers connected by the implementation under test."""

    members: list[PublicKey]
    """The peers, at least eight."""

    def network(self, number: int) -> Network:
        """One peer's side."""

    def neighbours(self, number: int) -> set[int]:
        """Peers that the peer may reach directly by gossip."""

    def take_down(self, number: int) -> None:
        """Make a peer unreachable."""

    def settle(self) -> None:
        """Deliver messages until none is on its way."""


class Listener:
    """Notes the messages that arrive at every peer; ``judge`` gives the verdict on each."""

    def __init__(self, wire: Wire, judge: Callable[[int, Message], Verdict] = lambda _, __: Verdict.ACCEPT) -> None:
        self.heard: list[list[tuple[PublicKey, Message]]] = [[] for _ in wire.members]
        self._judge = judge
        for number in range(len(wire.members)):
            wire.network(number).attach(self._receiver(number))

    def messages(self, number: int) -> list[Message]:
        return [message for _, message in self.heard[number]]

    def _receiver(self, number: int) -> Callable[[PublicKey, Message], Verdict]:
        def receive(sender: PublicKey, message: Message) -> Verdict:
            self.heard[number].append((sender, message))
            return self._judge(number, message)

        return receive


def gossip(number: int = 1) -> PostMessage:
    """A post that fits no federation in particular."""
    payload = b"post %d" % number
    return PostMessage(sign_post(_KEY, HASH, 1, 0, payload), payload)


def news() -> PostMessage:
    """New gossip: a network may identify a message by its content, and carry it once."""
    return gossip(next(_numbers))


class NetworkConformance:
    """Tests of the promises of :class:`fedchain.network.network.Network`."""

    def test_what_is_published_reaches_everyone_as_it_was(self, wire: Wire) -> None:
        listener, message = Listener(wire), news()
        wire.network(0).publish(message)
        wire.settle()
        for number in range(1, len(wire.members)):
            assert message in listener.messages(number), f"peer {number} heard nothing"
            assert set(listener.messages(number)) == {message}

    def test_nobody_hears_itself(self, wire: Wire) -> None:
        listener = Listener(wire)
        wire.network(0).publish(news())
        wire.settle()
        assert listener.heard[0] == []
        for number, heard in enumerate(listener.heard):
            assert wire.members[number] not in [sender for sender, _ in heard]

    def test_whoever_passed_a_message_on_is_named(self, wire: Wire) -> None:
        listener = Listener(wire)
        wire.network(0).publish(news())
        wire.settle()
        for number, heard in enumerate(listener.heard):
            neighbours = {wire.members[other] for other in wire.neighbours(number)}
            assert {sender for sender, _ in heard} <= neighbours

    def test_what_is_not_accepted_is_not_passed_on(self, wire: Wire) -> None:
        for refusal in (Verdict.IGNORE, Verdict.REJECT):
            listener = Listener(wire, lambda _, __, refusal=refusal: refusal)  # type: ignore[misc]
            wire.network(0).publish(news())
            wire.settle()
            heard = {number for number, messages in enumerate(listener.heard) if messages}
            assert heard == wire.neighbours(0)
            assert {sender for messages in listener.heard for sender, _ in messages} == {wire.members[0]}

    def test_one_peer_that_does_not_accept_does_not_keep_it_from_others(self, wire: Wire) -> None:
        refusing = min(wire.neighbours(0))
        listener = Listener(wire, lambda number, _: Verdict.REJECT if number == refusing else Verdict.ACCEPT)
        wire.network(0).publish(news())
        wire.settle()
        assert all(listener.heard[number] for number in range(1, len(wire.members)))
        passed_on = {sender for messages in listener.heard for sender, _ in messages}
        assert wire.members[refusing] not in passed_on

    def test_what_is_sent_reaches_one_peer_and_names_the_sender(self, wire: Wire) -> None:
        listener = Listener(wire)
        messages: list[Message] = [GetContent(HASH, 7), Status(1, HASH, b"", (), (), None), gossip()]
        for message in messages:
            wire.network(2).send(wire.members[5], message)
        wire.settle()
        for message in messages:
            assert (wire.members[2], message) in listener.heard[5]
        assert {sender for sender, _ in listener.heard[5]} == {wire.members[2]}
        assert not [number for number, heard in enumerate(listener.heard) if heard and number != 5], "it was passed on"

    def test_answers_travel_back(self, wire: Wire) -> None:
        listener = Listener(wire)
        wire.network(1).attach(
            lambda sender, _: wire.network(1).send(sender, Chunk(HASH, 0, b"answer")) or Verdict.ACCEPT  # type: ignore[func-returns-value]
        )
        wire.network(4).send(wire.members[1], GetContent(HASH, 0))
        wire.settle()
        assert (wire.members[1], Chunk(HASH, 0, b"answer")) in listener.heard[4]

    def test_the_largest_chunk_travels(self, wire: Wire) -> None:
        listener = Listener(wire)
        chunk = Chunk(HASH, 2**40, bytes(CHUNK_SIZE))
        wire.network(3).send(wire.members[0], chunk)
        wire.settle()
        assert chunk in listener.messages(0)

    def test_nothing_happens_if_a_peer_cannot_be_reached(self, wire: Wire) -> None:
        listener = Listener(wire)
        wire.take_down(6)
        wire.network(0).send(wire.members[6], GetContent(HASH, 0))
        wire.network(0).publish(news())
        wire.settle()
        assert listener.heard[6] == []

    def test_two_messages_both_arrive(self, wire: Wire) -> None:
        listener = Listener(wire)
        attempt = next(_numbers)
        votes = [VoteMessage(sign_vote(_KEY, HASH, (1, attempt, kind), HASH)) for kind in VoteKind]
        wire.network(0).publish(votes[0])
        wire.network(7).publish(votes[1])
        wire.settle()
        for number in range(1, 7):
            assert set(listener.messages(number)) == set(votes)
