"""The simulated network keeps the promises of `fedchain.network.network.Network`, and breaks no others than it says."""

import random
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest

from fedchain.chain.exceptions import InvalidBlock, LimitReached
from fedchain.chain.storage.store import Final
from fedchain.chain.vote import VoteKind, sign_vote
from fedchain.crypto.hashing import sha256
from fedchain.crypto.keys import PublicKey
from fedchain.network.messages import (
    CandidateMessage,
    Chunk,
    FinalMessage,
    GetContent,
    Message,
    PostMessage,
    SessionMessage,
    VoteMessage,
    encode_message,
)
from fedchain.network.session import Session
from fedchain.network.verdict import Verdict
from fedchain.node.core.attendance import Quiet
from fedchain.node.core.context import Context
from fedchain.node.core.mempool import Mempool
from fedchain.node.core.posts import Lull
from fedchain.simulator.engine.clock import VirtualTimeLoop
from fedchain.simulator.engine.network import (
    LINKED_MAX,
    SEEN_MAX,
    Conditions,
    NetworkWatch,
    Parcel,
    SimulatedNetwork,
    _build_mesh,
)
from tests.support.chain import builders


def request(number: int = 0) -> GetContent:
    return GetContent(sha256(b"%d" % number), 0)


def gossip(number: int = 0) -> VoteMessage:
    return VoteMessage(sign_vote(builders.keys(1)[0], bytes(32), (1, 0, VoteKind.PREVOTE), sha256(b"%d" % number)))


class Scene:
    """Peers that note what arrives, and when."""

    def __init__(self, loop: VirtualTimeLoop, peers: int, seed: int, **conditions: Any) -> None:
        self.loop = loop
        self.members: list[PublicKey] = [key.public_key for key in builders.keys(peers)]
        self.delivered: list[tuple[int, int, Parcel]] = []
        self.received: list[tuple[int, int, PublicKey, Message]] = []  # (time, peer, sender, message)
        self.verdicts: dict[int, Verdict] = {}
        self.network = SimulatedNetwork(loop, self.members, Conditions(**conditions), seed, NetworkWatch(self._note))
        for number in range(peers):
            self.attach(number)

    def attach(self, number: int) -> None:
        def receive(sender: PublicKey, message: Message) -> Verdict:
            self.received.append((self.loop.now_ms(), number, sender, message))
            return self.verdicts.get(number, Verdict.ACCEPT)

        self.network.attach(number, receive)

    def run(self, seconds: float = 60.0) -> None:
        self.loop.call_later(seconds, self.loop.stop)
        self.loop.run_forever()

    def receivers(self) -> list[int]:
        return sorted(number for _, number, _, _ in self.received)

    def times(self) -> list[int]:
        return [time for time, *_ in self.received]

    def _note(self, receiver: int, sender: int, parcel: Parcel) -> None:
        self.delivered.append((receiver, sender, parcel))


@contextmanager
def scene(peers: int = 2, seed: int = 1, **conditions: Any) -> Iterator[Scene]:
    loop = VirtualTimeLoop()
    try:
        yield Scene(loop, peers, seed, **conditions)
    finally:
        loop.close()


def test_a_message_arrives_from_whom_it_names() -> None:
    with scene(3) as it:
        it.network.send(2, it.members[1], request())
        it.run()
        assert [entry[1:] for entry in it.received] == [(1, it.members[2], request())]
        assert [(receiver, sender) for receiver, sender, _ in it.delivered] == [(1, 2)]


def test_what_arrives_is_what_the_wire_carried() -> None:
    with scene() as it:
        sent = gossip()
        it.network.publish(0, sent)
        it.run()
        (_, _, _, message), (_, _, parcel) = it.received[0], it.delivered[0]
        assert message == sent
        assert message is not sent, "it was decoded, not handed over"
        assert parcel.size_bytes == len(encode_message(sent))
        assert parcel.identity == sha256(encode_message(sent))[:8]


@pytest.mark.parametrize("kind", ["candidate", "final"])
def test_the_posts_of_a_block_are_the_very_objects_that_came_before(kind: str) -> None:
    chain = builders.ChainBuilder(builders.genesis())
    block = chain.extend()
    first, second = block.transactions[:2]
    forged = replace(second, signature=bytes(64))
    sent: Message = CandidateMessage(block) if kind == "candidate" else final_message(chain.final(block))
    with scene() as it:
        for post in (first, forged):
            it.network.publish(0, PostMessage(post, None))
        it.network.send(0, it.members[1], sent)
        it.run()
        received = {type(message): message for *_, message in it.received}
        posts = {message.post.hash: message.post for *_, message in it.received if isinstance(message, PostMessage)}
        arrived = received[type(sent)]
        assert arrived == sent
        assert isinstance(arrived, CandidateMessage | FinalMessage)
        assert arrived.block.transactions[0] is posts[first.hash]
        assert arrived.block.transactions[1] == second != posts[forged.hash]


def final_message(final: Final) -> FinalMessage:
    return FinalMessage(final.block, final.certificate)


def test_few_posts_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fedchain.simulator.engine.network.POSTS_MAX", 2)
    with scene() as it:
        for number in range(4):
            it.network.publish(0, PostMessage(replace(POST, round=1 + number), None))
        assert [post.round for post in it.network._posts.values()] == [3, 4]


def test_chunks_that_are_shared_arrive_as_views_and_look_the_same_on_the_wire() -> None:
    whole = bytes(range(256))
    content_hash = sha256(whole)
    with scene() as it:
        it.network._share = lambda found, start, data: (
            cast(bytes, memoryview(whole)[start : start + len(data)]) if found == content_hash else data
        )
        parts = [Chunk(content_hash, start, whole[start : start + 100]) for start in (0, 100, 200, 0)]
        for sent in (*parts, Chunk(bytes(32), 0, b"unknown")):
            it.network.send(0, it.members[1], sent)
        it.run()
        parcels = {parcel.identity: parcel for _, _, parcel in it.delivered}
        for sent in (*parts, Chunk(bytes(32), 0, b"unknown")):
            parcel = parcels[sha256(encode_message(sent))[:8]]
            assert (parcel.message, parcel.size_bytes) == (sent, len(encode_message(sent)))
            assert isinstance(parcel.message, Chunk)
            assert isinstance(parcel.message.data, memoryview) == (sent in parts)
        assert len(it.delivered) == 5


def test_delays_are_spread_between_their_bounds() -> None:
    with scene(delay_min_ms=20, delay_max_ms=70) as it:
        for number in range(500):
            it.network.send(0, it.members[1], request(number))
        it.run()
        times = it.times()
        assert len(times) == 500
        assert min(times) >= 20
        assert max(times) <= 71
        assert min(times) <= 25 <= 65 <= max(times)
        assert sum(times) / 500 == pytest.approx(45.5, abs=3)
        assert times == sorted(times)


def test_nothing_arrives_at_the_moment_it_is_sent() -> None:
    with scene(delay_min_ms=0, delay_max_ms=0) as it:
        it.network.send(0, it.members[1], request())
        assert it.received == []
        it.run()
        assert it.times() == [1]


@pytest.mark.parametrize("loss", [0.0, 0.3, 0.9])
def test_as_many_messages_are_lost_as_was_asked_for(loss: float) -> None:
    with scene(loss=loss) as it:
        for number in range(4_000):
            it.network.send(0, it.members[1], request(number))
        it.run()
        assert len(it.received) == pytest.approx(4_000 * (1 - loss), abs=0 if loss == 0 else 120)
        assert it.network.sent_bytes[0] == 4_000 * len(encode_message(request())), "lost bytes were sent all the same"


def test_replayed_messages_arrive_twice_and_are_sent_once() -> None:
    with scene(replay=0.5) as it:
        for number in range(2_000):
            it.network.send(0, it.members[1], request(number))
        it.run()
        assert len(it.received) == pytest.approx(3_000, abs=120)
        assert len({entry[3] for entry in it.received}) == 2_000
        assert it.network.sent_bytes[0] == 2_000 * len(encode_message(request()))


def test_two_copies_are_lost_independently() -> None:
    with scene(replay=1.0, loss=0.5) as it:
        for number in range(2_000):
            it.network.send(0, it.members[1], request(number))
        it.run()
        assert len({entry[3] for entry in it.received}) == pytest.approx(1_500, abs=100)


def test_a_partition_separates_and_heals() -> None:
    with scene(4) as it:
        it.network.split([(0, 1)])
        it.network.publish(0, gossip(1))
        it.network.publish(2, gossip(2))
        it.run()
        assert [(number, message) for _, number, _, message in it.received] == [(1, gossip(1)), (3, gossip(2))]
        it.network.heal()
        it.network.publish(0, gossip(3))
        it.run()
        assert it.receivers() == [1, 1, 2, 3, 3]


def test_a_partition_can_have_many_sides() -> None:
    with scene(5) as it:
        it.network.split([(0, 1), (2,)])
        for number in range(5):
            it.network.publish(number, gossip(number))
        it.run()
        pairs = {(receiver, it.members.index(sender)) for _, receiver, sender, _ in it.received}
        assert pairs == {(0, 1), (1, 0), (3, 4), (4, 3)}


def test_what_is_under_way_when_the_network_splits_is_lost() -> None:
    with scene() as it:
        it.network.send(0, it.members[1], request())
        it.network.split([(0,)])
        it.run()
        assert it.received == []


def test_a_peer_that_is_down_receives_nothing() -> None:
    with scene() as it:
        it.network.attach(1, None)
        it.network.send(0, it.members[1], request(1))
        it.run()
        assert not it.received
        assert not it.delivered
        it.attach(1)
        it.network.send(0, it.members[1], request(2))
        it.run()
        assert [entry[3] for entry in it.received] == [request(2)]


def test_a_slow_uplink_sends_one_message_after_the_other() -> None:
    size = len(encode_message(request()))
    mbit_s = size * 8 / 1e6 / 0.1  # one message takes 100 ms
    with scene(3, delay_min_ms=0, delay_max_ms=0, bandwidth_mbit_s=mbit_s) as it:
        for number in range(4):
            it.network.send(0, it.members[1 + number % 2], request(number))
        it.network.send(1, it.members[2], request(9))
        it.run()
        assert [entry[3] for entry in it.received if entry[2] == it.members[0]] == [request(n) for n in range(4)]
        assert it.times() == pytest.approx([101, 101, 201, 301, 401], abs=1)
        it.received.clear()
        it.network.send(0, it.members[1], request(5))
        it.run()
        assert it.times() == pytest.approx([60_101], abs=1), "an idle uplink is free again"


def test_bytes_are_counted_for_every_neighbour() -> None:
    with scene(4) as it:
        it.network.publish(1, gossip())
        assert it.network.sent_bytes == [0, 3 * len(encode_message(gossip())), 0, 0]


def test_bytes_arrivals_and_delays_are_counted_by_link() -> None:
    with scene(3, loss=0.5, delay_min_ms=10, delay_max_ms=20) as it:
        for number in range(40):
            it.network.send(0, it.members[2], request(number))
        it.network.publish(1, gossip())
        it.run()
        links = {(link.sender, link.receiver): link for link in it.network.links()}
    assert links.keys() == {(0, 2), (1, 0), (1, 2)}
    assert links[0, 2].sent_bytes == 40 * len(encode_message(request()))
    assert links[0, 2].arrivals == sum(sender == it.members[0] for _, _, sender, _ in it.received)
    assert 11 <= links[0, 2].delay_ms / links[0, 2].arrivals <= 21
    assert sum(link.sent_bytes for link in links.values()) == sum(it.network.sent_bytes)


def test_links_of_very_many_members_are_not_counted() -> None:
    with scene(LINKED_MAX + 1) as it:
        it.network.publish(0, gossip())
        assert it.network.links() == []
        assert it.network.sent_bytes[0] > 0


def test_the_same_seed_gives_the_same_times_and_losses() -> None:
    def play(seed: int) -> list[tuple[int, int, PublicKey, Message]]:
        with scene(5, seed, loss=0.2, replay=0.2) as it:
            for number in range(50):
                it.network.publish(number % 5, gossip(number))
            it.run()
            return it.received

    assert play(7) == play(7)
    assert play(7) != play(8)


# gossip


def test_in_a_mesh_everyone_hears_what_everyone_accepts() -> None:
    with scene(30, degree=3) as it:
        it.network.publish(4, gossip())
        it.run()
        assert it.receivers() == [number for number in range(30) if number != 4], "and each of them once"


@pytest.mark.parametrize("refusal", [Verdict.IGNORE, Verdict.REJECT])
def test_what_a_peer_did_not_accept_is_not_passed_on(refusal: Verdict) -> None:
    with scene(30, degree=3) as it:
        it.verdicts = dict.fromkeys(range(30), refusal)
        it.network.publish(4, gossip())
        it.run()
        assert it.receivers() == sorted(it.network.neighbours(4))


def test_what_was_ignored_may_come_again_and_what_was_rejected_may_not() -> None:
    with scene(12, degree=2) as it:
        first, second = it.network.neighbours(0)[:2]
        it.verdicts = dict.fromkeys(range(12), Verdict.ACCEPT)
        it.verdicts |= {first: Verdict.IGNORE, second: Verdict.REJECT}
        for _ in range(2):
            it.network.publish(0, gossip())
            it.run()
        assert it.receivers().count(second) == 1
        assert it.receivers().count(first) >= 2


def test_bans_do_not_divide_a_mesh() -> None:
    """Else a federation whose liars happen to stand between its honest members would wait for ever."""
    with scene(12, degree=2) as it:
        it.verdicts = dict.fromkeys(range(12), Verdict.ACCEPT)
        banned = list(it.network.neighbours(0))
        for neighbour in banned:
            it.network._cut(0, neighbour)
        assert it.network.neighbours(0)
        assert not set(banned) & set(it.network.neighbours(0))
        it.network.publish(0, gossip())
        it.run()
        assert it.receivers() == list(range(1, 12))


def test_without_a_mesh_nothing_is_passed_on() -> None:
    with scene(6) as it:
        it.network.publish(0, gossip())
        it.run()
        assert {sender for _, _, sender, _ in it.received} == {it.members[0]}
        assert len(it.received) == 5


def test_a_direct_message_is_never_passed_on() -> None:
    with scene(12, degree=2) as it:
        it.network.send(0, it.members[7], gossip())
        it.run()
        assert it.receivers() == [7]


def test_the_memory_of_gossip_is_bounded() -> None:
    with scene(4, degree=2) as it:
        vote = gossip().vote
        for number in range(SEEN_MAX + 10):
            it.network._remember(0, b"%08d" % number)
        assert len(it.network._seen[0]) == SEEN_MAX
        assert it.network._remember(0, b"%08d" % 0), "the oldest was forgotten"
        assert not it.network._remember(0, b"%08d" % (SEEN_MAX + 9))
        assert vote == gossip().vote


@pytest.mark.parametrize(("count", "degree"), [(4, 2), (20, 3), (100, 6), (500, 8)])
def test_a_mesh_is_in_one_piece_and_of_bounded_degree(count: int, degree: int) -> None:
    for seed in range(5):
        mesh = _build_mesh(count, degree, random.Random(seed))
        reached, edge = {0}, [0]
        while edge:
            edge = [other for number in edge for other in mesh[number] if other not in reached]
            reached.update(edge)
        assert len(reached) == count
        for number, links in enumerate(mesh):
            assert links == sorted(set(links))
            assert number not in links
            assert all(number in mesh[other] for other in links), "neighbours know each other"
            assert degree <= len(links) <= 4 * degree
        assert sum(map(len, mesh)) / count <= 2 * degree


@pytest.mark.parametrize("degree", [0, 5, 9])
def test_few_peers_are_all_neighbours(degree: int) -> None:
    scene = Scene(VirtualTimeLoop(), 6, 0, degree=degree)
    assert [scene.network.neighbours(number) for number in range(6)] == [
        [other for other in range(6) if other != number] for number in range(6)
    ]


def test_only_those_who_are_present_are_neighbours() -> None:
    scene = Scene(VirtualTimeLoop(), 6, 0)
    scene.network.set_present({4, 1, 5})
    assert scene.network.neighbours(1) == [4, 5]


def test_a_member_is_heard_from_the_height_at_which_it_is_tracked() -> None:
    with scene(3) as it:
        for number in range(3):
            it.network.track(number, 0, it.members[:2])
        assert [list(it.network.neighbours(number)) for number in range(3)] == [[1], [0], []]
        it.network.send(2, it.members[0], request())
        it.network.send(2, it.members[1], request())
        it.run()
        assert it.received == []
        for number in range(3):
            it.network.track(number, 5, it.members)
        it.network.send(2, it.members[0], request())
        it.run()
        assert [entry[1:] for entry in it.received] == [(0, it.members[2], request())]


def test_a_peer_that_is_a_member_no_more_is_cut_off_until_it_is_tracked_again() -> None:
    links: list[tuple[int, int, bool]] = []
    with scene(3) as it:
        watch = NetworkWatch(it._note, lambda *link: links.append(link))
        it.network = SimulatedNetwork(it.loop, it.members, Conditions(), 1, watch)
        it.network.track(0, 4, it.members[:2])
        assert links == [(0, 2, False), (2, 0, False)]
        assert list(it.network.neighbours(2)) == [1]
        it.network.track(1, 4, it.members)  # nothing changes for the others
        it.network.track(0, 6, it.members)
        assert links[2:] == [(0, 2, True), (2, 0, True)]


def test_a_peer_with_another_key_stays_connected_where_it_was_let_in_under_it_before() -> None:
    with scene(3) as it:
        former, following = it.members[1], bytes(32)
        for number in range(3):
            it.network.track(number, 4, (*it.members, following))
        it.network.leave(1)
        assert list(it.network.neighbours(1)) == []
        it.network.rename(1, following)
        assert list(it.network.neighbours(1)) == [0, 2]
        now = tuple(following if member == former else member for member in it.members)
        it.network.track(0, 5, now)
        assert list(it.network.neighbours(1)) == [0, 2]


class Lulled(Scene):
    """Peers of which some are in a lull, in which they take any post."""

    taken: list[tuple[Sequence[int], int, int]]  # (peers, sender, time)

    def rest(self, *numbers: int, posts: int = 9) -> None:
        for number in numbers:
            context = SimpleNamespace(phase=(1, 0), mempool=Mempool(), contents=SimpleNamespace(hold_all=list), me=b"")
            parcel = self.network._pack(PostMessage(POST, b"payload"), gossip=self.network.conditions.degree > 0)
            good = {POST.hash: cast(PostMessage, parcel.message).payload or b""}  # the very object that is delivered
            lull = Lull(cast(Context, context), good, Quiet(posts, None, None))
            self.network.rest(number, lull)

    def post(self, sender: int = 0) -> None:
        self.network.publish(sender, PostMessage(POST, b"payload"))


POST = builders.post(builders.keys(1)[0], builders.genesis(), 1, b"payload")


@contextmanager
def lulled(peers: int = 4, **conditions: Any) -> Iterator[Lulled]:
    loop = VirtualTimeLoop()
    it = Lulled(loop, peers, 1, **conditions)
    it.taken = []
    it.network._on_taken = lambda numbers, sender, parcel, arrival: it.taken.append((numbers, sender, arrival.now_ms))
    try:
        yield it
    finally:
        loop.close()


AT_ONCE = {"delay_min_ms": 20, "delay_max_ms": 20}


def test_an_author_s_post_is_taken_by_those_in_a_lull_and_handed_to_each_other_one_in_its_turn() -> None:
    with lulled(7, **AT_ONCE) as it:
        it.rest(1, 2, 4)
        it.rest(5, posts=0)
        it.post()
        it.run()
        assert it.taken == [([1, 2], 0, 21), ([4], 0, 21)]
        assert it.receivers() == [3, 5, 6]
        assert [number for number, _, _ in it.delivered] == [3, 5, 6]
        assert len({*it.network.received_bytes[1:]}) == 1, "each of them has received it"


def test_another_s_post_and_one_in_a_mesh_are_handed_to_each_peer() -> None:
    with lulled(5, **AT_ONCE) as it:
        it.rest(1, 2, 3, 4)
        it.post(sender=2)
        it.run()
        assert (it.taken, it.receivers()) == ([], [0, 1, 3, 4])
    with lulled(5, degree=2, **AT_ONCE) as it:
        it.rest(1, 2, 3, 4)
        it.post()
        it.run()
        assert (it.taken, it.receivers()) == ([], [1, 2, 3, 4])


def keep_apart(it: Scene, happens: str) -> None:
    """Let something happen by which nothing of peer 0 reaches peer 1."""
    if happens == "split":
        it.network.split([[1]])
    elif happens == "down":
        it.network.attach(1, None)
    else:
        it.network.track(1, 4, it.members[1:])


@pytest.mark.parametrize("happens", ["split", "down", "cut off"])
def test_no_post_reaches_those_in_a_lull_whom_none_could_reach(happens: str) -> None:
    with lulled(4, **AT_ONCE) as it:
        it.rest(1, 2, 3)
        it.post()
        keep_apart(it, happens)
        it.run()
        assert 1 not in it.receivers()
        assert all(1 not in numbers for numbers, _, _ in it.taken)


def test_posts_that_were_taken_are_paid_when_the_lull_ends() -> None:
    with lulled(2, **AT_ONCE) as it:
        it.rest(1)
        burst, paid = int(it.network.gates.limits.messages_burst), []

        def take(*_: Any) -> None:
            it.network.attach(1, None)  # as any other message to it does
            paid.append(sum(it.network.gates.pays(1, 0, it.loop.time()) for _ in range(burst)))

        it.network._on_taken = take
        it.post()
        it.run()
        assert paid == [burst - 1]
        it.attach(1)
        it.rest(1)
        it.post()
        it.run()
        assert (len(paid), it.receivers()) == (1, [1]), "where budgets are short, each message is looked at"


@contextmanager
def noting(*numbers: int, **conditions: Any) -> Iterator[tuple[Scene, list[tuple[Sequence[int], int]]]]:
    """Six peers, of which some note statements of processes; with (peers, sender) of those that they noted."""
    loop, taken = VirtualTimeLoop(), list[tuple[Sequence[int], int]]()
    it = Scene(loop, 6, 1, **AT_ONCE, **conditions)
    it.network._on_noted = lambda numbers, sender, _: taken.append((numbers, sender))
    for number in numbers:
        it.network.attach(number, it.network._receivers[number], lambda _: True)
    try:
        yield it, taken
    finally:
        loop.close()


def statement(it: Scene, member: int) -> SessionMessage:
    return SessionMessage(Session(it.members[member], b"a process!!!!!!!", bytes(16), 0, 0, bytes(64)))


def test_a_member_s_statement_is_noted_at_once_and_handed_to_each_other_peer_in_its_turn() -> None:
    with noting(1, 2, 4) as (it, taken):
        it.network.publish(0, statement(it, 0))
        it.run()
        assert taken == [([1, 2], 0), ([4], 0)]
        assert it.receivers() == [number for number, _, _ in it.delivered] == [3, 5]
        assert len({*it.network.received_bytes[1:]}) == 1, "each of them has received it"


def test_a_statement_that_another_peer_passes_on_and_one_in_a_mesh_are_handed_to_each_peer() -> None:
    with noting(1, 2, 3, 4, 5) as (it, taken):
        it.network.publish(0, statement(it, 1))
        it.run()
        assert (taken, it.receivers()) == ([], [1, 2, 3, 4, 5])
    with noting(1, 2, 3, 4, 5, degree=2) as (it, taken):
        it.network.publish(0, statement(it, 0))
        it.run()
        assert (taken, it.receivers()) == ([], [1, 2, 3, 4, 5])


@pytest.mark.parametrize("happens", ["split", "down", "cut off"])
def test_no_statement_is_noted_by_peers_that_none_could_reach(happens: str) -> None:
    with noting(1, 2) as (it, taken):
        it.network.publish(0, statement(it, 0))
        keep_apart(it, happens)
        it.run()
        assert 1 not in it.receivers()
        assert all(1 not in numbers for numbers, _ in taken)


def test_a_member_pays_for_statements_that_are_noted() -> None:
    with noting(1) as (it, taken):
        burst = int(it.network.gates.limits.messages_burst)
        for _ in range(2 * burst):
            it.network.publish(0, statement(it, 0))
        it.run(1.0)
        came = sum(1 in numbers for numbers, _ in taken) + it.receivers().count(1)
        assert 0 < len(taken) < burst <= came < 2 * burst


def test_a_lull_ends_with_a_statement() -> None:
    with lulled(2, **AT_ONCE) as it:
        it.rest(1)
        it.network._notes[1] = lambda _: True
        it.network.publish(0, statement(it, 0))
        it.run()
        assert it.network._lulls[1] is None
        assert it.receivers() == []


def ban(it: Scene, number: int, banned: int) -> None:
    """Have a peer blame another one until it bans it."""
    while (number, banned) not in it.network.bans:
        it.network.blame(number, it.members[banned], InvalidBlock("block", "it is none"))


def test_a_ban_outlasts_another_membership_and_ends_with_its_time() -> None:
    with scene(3) as it:
        ban(it, 2, 0)
        assert list(it.network.neighbours(0)) == [1]
        it.network.track(0, 4, it.members[:2])
        it.network.track(0, 6, it.members)
        assert list(it.network.neighbours(0)) == [1], "one of both does not let the other one in"
        it.run(it.network.gates.limits.ban_s - 1)
        assert list(it.network.neighbours(0)) == [1]
        it.run(2)
        assert list(it.network.neighbours(0)) == [1, 2]


def test_two_that_ban_each_other_are_connected_when_both_bans_are_over() -> None:
    with scene(3) as it:
        ban(it, 2, 0)
        for _ in range(20):
            it.loop.call_later(100.0, it.network.gates.wrote, 0, 2, InvalidBlock("block", "it is none"))
        limits = it.network.gates.limits
        it.run(limits.ban_s + 50)
        assert list(it.network.neighbours(0)) == [1], "the second ban holds for longer"
        it.run(100 + limits.redial_max_s)
        assert list(it.network.neighbours(0)) == [1, 2]


def test_nobody_is_banned_for_what_it_could_not_know() -> None:
    with scene(2) as it:
        for _ in range(100):
            it.network.blame(0, it.members[1], LimitReached("disk", "it is full"))
        assert it.network.bans == []


def test_a_neighbour_is_not_the_author_of_what_it_passes_on() -> None:
    """On real networks, too: a peer that is behind rejects what others hold for right."""
    with scene(2) as it:
        it.verdicts[1] = Verdict.REJECT
        for number in range(100):
            it.network.send(0, it.members[1], request(number))
        it.run()
        assert len(it.received) == 100
        assert it.network.bans == []


def test_messages_beyond_a_neighbour_s_budget_are_not_taken() -> None:
    with scene(2, delay_min_ms=5, delay_max_ms=5) as it:
        limits, count = it.network.gates.limits, 5_000
        for number in range(count):
            it.network.send(0, it.members[1], request(number))
        it.run()
        assert limits.messages_burst <= len(it.received) < count
