"""The simulated network: delays, loss, replays, partitions and bandwidth, all drawn from one seed.

It keeps the promises of :class:`fedchain.network.network.Network` and no more. Every message is encoded and decoded
on its way, once for all its receivers, so they get the same content as on a real network.
"""

import asyncio
import heapq
import random
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial

from fedchain.chain.exceptions import Refused
from fedchain.chain.post import Post
from fedchain.crypto.hashing import Hash, sha256
from fedchain.crypto.keys import PublicKey
from fedchain.files.links import Link
from fedchain.network.membership import Membership
from fedchain.network.messages import (
    CandidateMessage,
    Chunk,
    FinalMessage,
    GossipMessage,
    Message,
    PostMessage,
    SessionMessage,
    decode_message,
    encode_message,
)
from fedchain.network.network import Receiver
from fedchain.network.verdict import Verdict
from fedchain.node.core.posts import Arrival, Lull, taken_in_lulls
from fedchain.node.core.voting.sessions import Said
from fedchain.simulator.engine.clock import VirtualTimeLoop
from fedchain.simulator.engine.gates import Gates, OnBan

SEEN_MAX = 8_192
"""Number of message ids that a peer of a gossip mesh remembers."""

PARCELS_MAX = 512
"""Number of packed parcels that are kept: peers that catch up ask for the same blocks and chunks."""

POSTS_MAX = 2**16
"""Number of posts that are remembered, to be found again in blocks."""

LABELS_MAX = 8_192
"""Number of chunks whose size and identity on the wire are remembered, without the bytes: 2 GiB of contents."""


LINKED_MAX = 256
"""Most members whose traffic is counted link by link: the links of full connection grow with the square."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Conditions:
    """Quality of the network."""

    delay_min_ms: int = 10
    """Shortest one-way delay of a message, in milliseconds."""
    delay_max_ms: int = 100
    """Longest one-way delay; delays are drawn evenly between both."""
    loss: float = 0.0
    """Probability that a message is lost."""
    replay: float = 0.0
    """Probability that a message arrives twice."""
    bandwidth_mbit_s: float = 0.0
    """Sending rate of one peer, in megabits per second; 0: no limit."""
    degree: int = 0
    """Neighbours of each peer in the gossip mesh; 0: every peer is every other peer's neighbour."""


Share = Callable[[Hash, int, bytes], bytes]
"""``share(content_hash, start, data)``: the shared copy of a part of a content, or ``data`` itself."""

OnLink = Callable[[int, int, bool], None]
"""Called with (peer number, neighbour, whether they are connected now)."""


@dataclass(frozen=True, slots=True)
class Parcel:
    """One message on its way."""

    message: Message
    size_bytes: int
    """Bytes on the wire."""
    identity: bytes
    """First 8 bytes of the hash of the encoded message."""
    gossip: bool
    """Whether peers that accept it pass it on."""


OnTaken = Callable[[Sequence[int], int, Parcel, Arrival], None]
"""Called with (peer numbers, sender, parcel, arrival)."""

Notes = Callable[[Said], bool]
"""Has a node keep a process's statement if it would do nothing else with it; False: it is left to its receiver."""

Take = Callable[[Sequence[int], int], int]
"""Called with (peer numbers, place): hands a parcel to those from that place on that merely keep it, up to the first
other one; returns its place."""


@dataclass(frozen=True, slots=True)
class NetworkWatch:
    """Functions to call with what happens in the network."""

    on_delivery: Callable[[int, int, Parcel], None]
    """Called for each parcel before its receiver gets it: (peer number, sender, parcel)."""
    on_link: OnLink = lambda number, neighbour, connected: None
    """Called when a ban or the membership cuts a connection, and when one is made again or in its place; once for each
    end."""
    on_ban: OnBan = lambda number, banned: None
    """Called with (peer number, the peer that it has banned) before that."""
    on_taken: OnTaken = lambda numbers, sender, parcel, arrival: None
    """Called in place of ``on_delivery`` for a post that some peers took in a lull."""
    on_noted: Callable[[Sequence[int], int, Parcel], None] = lambda numbers, sender, parcel: None
    """Called in place of ``on_delivery`` for a process's statement that some peers noted: (numbers, sender, parcel)."""


class SimulatedNetwork:
    """Carries parcels between peers, in virtual time.

    Args:
        loop: the clock.
        members: public keys by peer number, of all that ever take part.
        conditions: quality of the network.
        seed: seed of delays, losses, replays and the mesh.
        watch: is told of deliveries, links and bans.
        share: finds the copy of a chunk's bytes to hand over.
        founders: number of the first peers, which every peer admits until it tracks others; None for all of them.
    """

    def __init__(
        self,
        loop: VirtualTimeLoop,
        members: Sequence[PublicKey],
        conditions: Conditions,
        seed: int,
        watch: NetworkWatch,
        share: Share = lambda content_hash, start, data: data,
        *,
        founders: int | None = None,
    ) -> None:
        self.sent_bytes, self.received_bytes = [0] * len(members), [0] * len(members)
        self.sent_kinds: dict[type[Message], list[int]] = {}
        """By kind: messages and bytes that were sent so far, each copy counted."""
        is_counted = len(members) <= LINKED_MAX
        self._links = [[[0, 0, 0] for _ in members] for _ in members] if is_counted else []  # bytes, arrivals, delays
        self.conditions = conditions
        self._loop = loop
        members = self._members = list(members)
        self._number = {member: number for number, member in enumerate(members)}
        self._random = random.Random(seed)
        self._on_delivery, self._on_taken, self._on_noted = watch.on_delivery, watch.on_taken, watch.on_noted
        self._on_link, self._on_ban = watch.on_link, watch.on_ban
        self._share = share
        self._pack = lru_cache(maxsize=PARCELS_MAX)(self._pack_message)
        self._posts: dict[Hash, Post] = {}  # those that were sent last, by their hashes
        self._labels: dict[tuple[Hash, int, int], tuple[int, bytes]] = {}  # chunk -> size and identity, as of a parcel
        self._tracked: tuple[Collection[PublicKey], frozenset[PublicKey]] = (), frozenset(members[:founders])
        self._memberships = [Membership(self._tracked[1]) for _ in members]
        self.gates = Gates(members, self._memberships, loop.time, self._cut)
        self.bans: list[tuple[int, int]] = []
        """(peer that banned, peer that it banned), in order."""
        later = range(len(members) if founders is None else founders, len(members))
        pairs = {(one, other) for one in later for other in range(len(members)) if one != other}
        # Pairs that a ban or the membership keeps apart, both ways round.
        self._broken = pairs | {(other, one) for one, other in pairs}
        self.attached: set[int] = set()
        """Peers that are up."""
        self._receivers: list[Receiver | None] = [None] * len(members)
        self._notes: list[Notes | None] = [None] * len(members)
        self._lulls: list[Lull | None] = [None] * len(members)
        self._mesh = _build_mesh(len(members), conditions.degree, self._random)
        self._present: Sequence[int] = range(len(members))
        self._side, self._is_split = [0] * len(members), False
        self._uplink_free_ms = [0.0] * len(members)
        self._seen: list[dict[bytes, None]] = [{} for _ in members]
        self._arrivals: dict[int, list[tuple[int, Parcel, list[int]]]] = {}  # by time: (from, parcel, to), in order
        self._times_ms: list[int] = []  # a heap of the times that have arrivals
        self._timer: asyncio.TimerHandle | None = None
        self._wake_ms = 0

    def key_of(self, number: int) -> PublicKey:
        """Public key of a peer."""
        return self._members[number]

    def neighbours(self, number: int) -> Sequence[int]:
        """Peers that a peer is connected to, in ascending order."""
        known = self._mesh[number] if self._mesh else [other for other in self._present if other != number]
        return [other for other in known if (number, other) not in self._broken] if self._broken else known

    def links(self) -> list[Link]:
        """The traffic so far of each direction that was used, by sender and receiver; none of very many members."""
        return [
            Link(sender, receiver, *counts)
            for sender, row in enumerate(self._links)
            for receiver, counts in enumerate(row)
            if counts[0]
        ]

    def set_present(self, numbers: Collection[int]) -> None:
        """Set the peers that are present at all; without a mesh, nobody is connected to absent ones."""
        self._present = sorted(numbers)

    def endpoint(self, number: int) -> "Endpoint":
        """One peer's side of the network."""
        return Endpoint(self, number)

    def attach(self, number: int, receiver: Receiver | None, notes: Notes | None = None) -> None:
        """Hand a peer's messages to ``receiver``; None if the peer is down, and they are lost.

        Statements of processes are offered to ``notes`` before, if its node has that.
        """
        self._receivers[number], self._notes[number] = receiver, notes
        self._end_lull(number)
        (self.attached.discard if receiver is None else self.attached.add)(number)

    def rest(self, number: int, lull: Lull) -> None:
        """Give a peer the posts that its node takes in a lull without calling the peer."""
        if not self._mesh and self.gates.of(number).is_calm:
            self._lulls[number] = lull

    def _end_lull(self, number: int) -> None:
        """A peer is to be called again; its neighbours pay for what it took."""
        lull = self._lulls[number]
        if lull is not None:
            self._lulls[number] = None
            lull.end()
            self.gates.of(number).pay([(arrival.post.sender, arrival.now_ms / 1000) for arrival in lull.taken])

    def track(self, number: int, height: int, members: Collection[PublicKey]) -> None:
        """Take the members by which a peer admits others from now on; it keeps no connection to anybody else."""
        if members is not self._tracked[0]:  # nearly all track the same ones, and share one set
            found = frozenset(members)
            self._tracked = members, self._tracked[1] if found == self._tracked[1] else found
        new, gone = self._memberships[number].track(height, self._tracked[1])
        for member in sorted(gone):
            other = self._number.get(member, number)
            has_other_key = self._members[other] != member  # under which it may be connected
            if other != number and not has_other_key and (number, other) not in self._broken:
                self._part(number, other)
        for member in sorted(new):
            other = self._number.get(member, number)
            if self._admit_each_other(number, other):
                self._join(number, other)

    def leave(self, number: int) -> None:
        """Cut a peer off from all others."""
        for other in range(len(self._members)):
            if other != number and (number, other) not in self._broken:
                self._part(number, other)

    def rename(self, number: int, member: PublicKey) -> None:
        """Let a peer that left be another member; the peers that admit it are connected to it."""
        self._members[number] = member
        self._number[member] = number
        for other in range(len(self._members)):
            if other != number and self._admit_each_other(number, other):
                self._join(number, other)

    def split(self, groups: Sequence[Sequence[int]]) -> None:
        """Partition the network: only peers of one group reach each other. Peers in no group form the last one."""
        self._is_split = True
        self._side = [len(groups)] * len(self._members)
        for side, group in enumerate(groups):
            for number in group:
                self._side[number] = side

    def heal(self) -> None:
        """End the partition."""
        self._is_split = False
        self._side = [0] * len(self._members)

    def publish(self, sender: int, message: GossipMessage) -> None:
        """Send to all neighbours; in a mesh they pass it on."""
        parcel = self._pack(message, gossip=bool(self._mesh))
        self._remember(sender, parcel.identity)
        self._spread(sender, parcel)

    def send(self, sender: int, receiver: PublicKey, message: Message) -> None:
        """Send to one peer, neighbour or not; nothing happens if it is unknown."""
        number = self._number.get(receiver)
        if number is not None:
            parcel = self._pack_chunk(message) if isinstance(message, Chunk) else self._pack(message, gossip=False)
            self._carry(sender, (number,), parcel)

    def _pack_message(self, message: Message, *, gossip: bool) -> Parcel:
        """Pack a message, once for all that it is sent to. Posts of blocks are the very objects that came before."""
        data = encode_message(message)
        packed, known = decode_message(data), self._posts
        if isinstance(packed, PostMessage):
            known[packed.post.hash] = packed.post
            if len(known) > POSTS_MAX:
                del known[next(iter(known))]
        elif isinstance(packed, CandidateMessage | FinalMessage):
            posts = tuple([known.get(post.hash, post) for post in packed.block.transactions])
            packed = replace(packed, block=replace(packed.block, transactions=posts))
        return Parcel(packed, len(data), sha256(data)[:8], gossip)

    def _pack_chunk(self, chunk: Chunk) -> Parcel:
        """Pack part of a content. A content that many peers fetch at the same time is in memory once."""
        data = self._share(chunk.content_hash, chunk.offset, chunk.data)
        if data is chunk.data:
            return self._pack(chunk, gossip=False)
        key = chunk.content_hash, chunk.offset, len(data)
        if key not in self._labels:
            packed = encode_message(chunk)
            self._labels[key] = len(packed), sha256(packed)[:8]
            if len(self._labels) > LABELS_MAX:
                del self._labels[next(iter(self._labels))]
        return Parcel(Chunk(chunk.content_hash, chunk.offset, data), *self._labels[key], gossip=False)

    def blame(self, number: int, author: PublicKey, error: Refused) -> None:
        """A peer blames a member for a message that it signed."""
        self.gates.wrote(number, self._number[author], error)

    def _cut(self, number: int, banned: int) -> None:
        """A peer has banned another one: they are not connected until the ban is over."""
        if (number, banned) in self._broken:
            return
        self.bans.append((number, banned))
        self._on_ban(number, banned)
        self._part(number, banned)
        self._loop.call_later(self.gates.limits.ban_s, self._mend, number, banned)
        self._replace(number)

    def _replace(self, number: int) -> None:
        """Link a peer that has cut a link of a mesh to another one: bans alone must not divide the remaining peers."""
        held = {number, *(self._mesh[number] if self._mesh else range(len(self._members)))}
        strangers = [
            other
            for other in range(len(self._members))
            if other not in held and (number, other) not in self._broken and self.gates.admits(other, number)
        ]
        if not strangers:
            return
        other = self._random.choice(strangers)
        for one, new in ((number, other), (other, number)):
            self._mesh[one] = sorted((*self._mesh[one], new))
            self._on_link(one, new, True)

    def _mend(self, number: int, banned: int) -> None:
        if self._admit_each_other(number, banned):
            self._join(number, banned)
        elif (number, banned) in self._broken:
            self._loop.call_later(self.gates.limits.redial_max_s, self._mend, number, banned)

    def _admit_each_other(self, number: int, other: int) -> bool:
        return self.gates.admits(number, other) and self.gates.admits(other, number)

    def _part(self, number: int, other: int) -> None:
        pairs = (number, other), (other, number)
        self._broken.update(pairs)
        for one, neighbour in pairs:
            self._on_link(one, neighbour, False)

    def _join(self, number: int, other: int) -> None:
        pairs = (number, other), (other, number)
        if not self._broken.issuperset(pairs):
            return
        self._broken.difference_update(pairs)
        for one, neighbour in pairs:
            self._on_link(one, neighbour, True)

    def _spread(self, sender: int, parcel: Parcel, received_from: int = -1) -> None:
        self._carry(sender, [number for number in self.neighbours(sender) if number != received_from], parcel)

    def _carry(self, sender: int, receivers: Sequence[int], parcel: Parcel) -> None:
        """Send a parcel to some peers, one after the other; random numbers are drawn in that order."""
        conditions, draw, arrivals = self.conditions, self._random.random, self._arrivals
        min_ms, spread_ms = conditions.delay_min_ms, conditions.delay_max_ms - conditions.delay_min_ms
        bandwidth, replay, loss = conditions.bandwidth_mbit_s, conditions.replay, conditions.loss
        self.sent_bytes[sender] += parcel.size_bytes * len(receivers)
        kind = self.sent_kinds.setdefault(type(parcel.message), [0, 0])
        kind[0] += len(receivers)
        kind[1] += parcel.size_bytes * len(receivers)
        now_ms = self._loop.now_ms()
        start_ms = float(now_ms)
        links = self._links[sender] if self._links else None
        groups: dict[int, list[int]] = {}
        for receiver in receivers:
            if links is not None:
                links[receiver][0] += parcel.size_bytes
            if bandwidth:
                start_ms = max(start_ms, self._uplink_free_ms[sender]) + parcel.size_bytes / bandwidth / 125
                self._uplink_free_ms[sender] = start_ms
            is_new = False
            for _ in range(2 if replay and draw() < replay else 1):
                arrival = int(start_ms + (min_ms + spread_ms * draw())) + 1
                if loss and draw() < loss:
                    continue
                group = groups.get(arrival)
                if group is not None:
                    group.append(receiver)
                else:
                    group = groups[arrival] = [receiver]
                    due = arrivals.get(arrival)
                    if due is None:
                        due, is_new = arrivals.setdefault(arrival, []), True
                        heapq.heappush(self._times_ms, arrival)
                    due.append((sender, parcel, group))
                if links is not None:
                    link = links[receiver]
                    link[1] += 1
                    link[2] += arrival - now_ms
            if is_new:  # at once: the order of timers of one moment is part of the trace
                self._set_timer()

    def _set_timer(self) -> None:
        """Have the loop call us at the first arrival. One timer serves a million parcels."""
        if not self._times_ms or (self._timer is not None and self._times_ms[0] >= self._wake_ms):
            return
        if self._timer is not None:
            self._timer.cancel()
        self._wake_ms = self._times_ms[0]
        self._timer = self._loop.call_at(self._wake_ms / 1000, self._deliver_due)

    def _deliver_due(self) -> None:
        now_ms, now_s = self._loop.now_ms(), self._loop.time()
        while self._times_ms and self._times_ms[0] <= now_ms:
            for sender, parcel, receivers in self._arrivals.pop(heapq.heappop(self._times_ms)):
                message = parcel.message
                author = self._members[sender]
                if type(message) is PostMessage and message.post.sender == author:
                    self._deliver_post(sender, parcel, receivers, Arrival(message.post, message.payload, now_ms), now_s)
                elif type(message) is SessionMessage and message.session.member == author and not parcel.gossip:
                    self._deliver_session(sender, parcel, receivers, Said(message.session), now_s)
                else:
                    for number in receivers:
                        self._deliver(number, sender, parcel, now_s)
        self._timer = None
        self._set_timer()

    def _deliver_post(
        self, sender: int, parcel: Parcel, receivers: Sequence[int], arrival: Arrival, now_s: float
    ) -> None:
        """Hand peers a post from its author: to those in a lull at once."""

        def take(numbers: Sequence[int], place: int) -> int:
            return taken_in_lulls(arrival, numbers, place, self._lulls)

        def on_taken(numbers: Sequence[int]) -> None:
            self._on_taken(numbers, sender, parcel, arrival)

        self._deliver_to_all(sender, parcel, receivers, now_s, take, on_taken)

    def _deliver_session(self, sender: int, parcel: Parcel, receivers: Sequence[int], said: Said, now_s: float) -> None:
        """Hand peers a process's statement from its member: at once to those that merely note it."""
        member = self._members[sender]

        def take(numbers: Sequence[int], place: int) -> int:
            while place < len(numbers):
                number = numbers[place]
                notes, gate = self._notes[number], self.gates.of(number)
                self._end_lull(number)
                if notes is None or not gate.is_calm or not notes(said):
                    break
                gate.pays(member, now_s)
                place += 1
            return place

        def on_taken(numbers: Sequence[int]) -> None:
            self._on_noted(numbers, sender, parcel)

        self._deliver_to_all(sender, parcel, receivers, now_s, take, on_taken)

    def _deliver_to_all(
        self,
        sender: int,
        parcel: Parcel,
        receivers: Sequence[int],
        now_s: float,
        take: Take,
        on_taken: Callable[[Sequence[int]], None],
    ) -> None:
        """Hand peers a parcel from its author: at once to those that merely keep it, and to others in turn."""
        place, received = 0, self.received_bytes
        while place < len(receivers):
            if not self._broken and not self._is_split:  # each delivery may change that
                first, place = place, take(receivers, place)
                if place > first:
                    taken = receivers[first:place]
                    for number in taken:
                        received[number] += parcel.size_bytes
                    on_taken(taken)
            if place < len(receivers):
                self._deliver(receivers[place], sender, parcel, now_s)
                place += 1

    def _deliver(self, number: int, sender: int, parcel: Parcel, now_s: float) -> None:
        """Hand a peer a parcel that reaches it, if its neighbour can pay for it."""
        if self._side[sender] != self._side[number]:
            return
        self.received_bytes[number] += parcel.size_bytes
        receiver, is_gossip = self._receivers[number], parcel.gossip
        if receiver is None or (self._broken and (number, sender) in self._broken):
            return
        self._end_lull(number)
        if not self.gates.pays(number, sender, now_s) or (is_gossip and not self._remember(number, parcel.identity)):
            return
        self._on_delivery(number, sender, parcel)
        verdict = receiver(self._members[sender], parcel.message)
        if verdict is Verdict.ACCEPT:
            if is_gossip:
                self._spread(number, parcel, sender)
        elif is_gossip and verdict is Verdict.IGNORE:
            del self._seen[number][parcel.identity]  # it may be good the next time

    def _remember(self, number: int, identity: bytes) -> bool:
        """Note that a peer has seen a gossip message; False if it had before."""
        seen = self._seen[number]
        if identity in seen:
            return False
        seen[identity] = None
        if len(seen) > SEEN_MAX:
            del seen[next(iter(seen))]
        return True


class Endpoint:
    """One peer's :class:`fedchain.network.network.Network`."""

    def __init__(self, network: SimulatedNetwork, number: int) -> None:
        self.attach = partial(network.attach, number)
        self.rest = partial(network.rest, number)
        self.track = partial(network.track, number)
        self.publish = partial(network.publish, number)
        self.send = partial(network.send, number)
        self.blame = partial(network.blame, number)


def _build_mesh(count: int, degree: int, draw: random.Random) -> list[list[int]]:
    """A connected random graph of about ``degree`` neighbours each; empty if every peer is connected to all."""
    if not 0 < degree < count - 1:
        return []
    links: list[set[int]] = [set() for _ in range(count)]
    ring = draw.sample(range(count), count)
    for place, number in enumerate(ring):  # a ring through all keeps the graph in one piece
        other = ring[(place + 1) % count]
        links[number].add(other)
        links[other].add(number)
    for number in range(count):
        while len(links[number]) < degree:
            other = draw.randrange(count)
            if other != number:
                links[number].add(other)
                links[other].add(number)
    return [sorted(link) for link in links]
