"""Each liar lies: what a campaign shows about a behaviour means nothing if it only follows the protocol."""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from statistics import mean
from typing import Any, TypeVar

import pytest

from fedchain.chain.difficulty import TARGET_MAX, bits_from_target
from fedchain.chain.membership.change import ChangeKind
from fedchain.chain.vote import NIL, Vote, VoteKind
from fedchain.crypto.hashing import sha256
from fedchain.crypto.keys import PrivateKey
from fedchain.network.messages import (
    CandidateMessage,
    ChangeMessage,
    Chunk,
    FinalMessage,
    Message,
    PostMessage,
    Status,
    VoteMessage,
)
from fedchain.node.core.posts import Arrival
from fedchain.simulator.adversaries.providers import CLAIM
from fedchain.simulator.disturbances import Fault, MemberChange, Traitors
from fedchain.simulator.engine.clock import EPOCH_MS
from fedchain.simulator.engine.network import Parcel
from fedchain.simulator.engine.simulation import Simulation
from tests.support.simulator.trivial import trivial_scenario, trivial_simulation

PEERS, LIARS, VICTIM = 7, (5, 6), 0
AWAY: Mapping[str, Any] = {
    "faults": (Fault(at_s=0.5, kind="crash", peers=(VICTIM,)), Fault(at_s=20.0, kind="restart", peers=(VICTIM,)))
}
"""One honest member catches up."""

CHANGES: Mapping[str, Any] = {
    "rounds": 16,
    "admission": "quorum",
    "changes": (MemberChange(round=2, kind="join", peers=(PEERS,), reason="newcomer"),),
}
LOSSY: Mapping[str, Any] = {"loss": 0.3, "mining_s": 0.02, "vote_timeout_s": 0.2}
FETCHED: Mapping[str, Any] = {"inline_size_max": 0}
"""Payloads do not travel beside posts."""

M = TypeVar("M", bound=Message)


@dataclass(frozen=True, slots=True)
class Said:
    """A message that reached a peer."""

    sender: int
    receiver: int
    message: Message
    at_s: float


class Attack:
    """A federation with two liars, and what reached whom."""

    def __init__(
        self,
        behaviour: str,
        parameters: Mapping[str, float],
        values: Mapping[str, Any],
        founded: Mapping[str, Any],
    ) -> None:
        liars = Traitors(behaviour=behaviour, peers=LIARS, parameters=parameters)
        said = {"peers": PEERS, "rounds": 6, "seed": 1, "phase_timeout_s": 5.0, "adversaries": (liars,)}
        self.simulation: Simulation = trivial_simulation(trivial_scenario(**{**said, **values}), founded=founded)
        self.said: list[Said] = []
        self.keys = {self.simulation.peers[number].public_key for number in LIARS}
        network = self.simulation.network
        deliver, taken = network._on_delivery, network._on_taken

        def on_delivery(receiver: int, sender: int, parcel: Parcel) -> None:
            self.said.append(Said(sender, receiver, parcel.message, self.simulation.loop.time()))
            deliver(receiver, sender, parcel)

        def on_taken(receivers: Sequence[int], sender: int, parcel: Parcel, arrival: Arrival) -> None:
            self.said += [Said(sender, number, parcel.message, arrival.now_ms / 1000) for number in receivers]
            taken(receivers, sender, parcel, arrival)

        network._on_delivery, network._on_taken = on_delivery, on_taken
        assert self.simulation.run().violations == []

    def lies(self, kind: type[M]) -> list[M]:
        """Messages of a kind that reached honest members from liars, in order."""
        return [message for _, message in self.placed(kind)]

    def placed(self, kind: type[M]) -> list[tuple[Said, M]]:
        """The same, with who sent them, to whom, and when."""
        return [(item, item.message) for item in self.by_liars() if isinstance(item.message, kind)]

    def by_liars(self) -> Iterator[Said]:
        """All that reached honest members from liars."""
        return (item for item in self.said if item.sender in LIARS and item.receiver not in LIARS)

    def votes(self) -> list[Vote]:
        """Votes of liars that they sent themselves."""
        return [message.vote for message in self.lies(VoteMessage) if message.vote.voter in self.keys]


Lie = Callable[[Attack], bool]


def votes_twice(attack: Attack) -> bool:
    said = defaultdict[Any, set[bytes]](set)
    for vote in attack.votes():
        said[vote.voter, vote.slot].add(vote.block_hash)
    return any(len(hashes) > 1 for hashes in said.values())


def votes_with_all_keys(attack: Attack) -> bool:
    members = [peer.public_key for peer in attack.simulation.peers]
    sent = {(item.sender, message.vote.voter) for item, message in attack.placed(VoteMessage)}
    return {(liar, members[other]) for liar in LIARS for other in LIARS} <= sent


def votes_for_what_is_not_there(attack: Attack) -> bool:
    known = {item.message.block.hash for item in attack.said if isinstance(item.message, CandidateMessage)} | {NIL}
    return any(vote.block_hash not in known for vote in attack.votes())


def shows_each_vote_to_few(attack: Attack) -> bool:
    """To another one where it is sent again."""
    receivers = defaultdict[Any, set[int]](set)
    for item, message in attack.placed(VoteMessage):
        if message.vote.voter in attack.keys:
            receivers[message.vote.voter, message.vote.slot].add(item.receiver)
    return len(receivers) > 2 and mean(map(len, receivers.values())) < 2


def signs_precommits_again(attack: Attack) -> bool:
    """With the time that it is by then, in an attempt that is over; others send what they have signed."""
    said = defaultdict[Any, set[bytes]](set)
    for vote in attack.votes():
        if vote.kind is VoteKind.PRECOMMIT and vote.block_hash != NIL:
            said[vote.voter, vote.slot, vote.block_hash].add(vote.hash)
    return any(len(hashes) > 1 for hashes in said.values())


def votes_for_one_block_in_every_attempt(attack: Attack) -> bool:
    said = defaultdict[Any, set[bytes]](set)
    for vote in attack.votes():
        said[vote.voter, vote.height].add(vote.block_hash)
    return any(vote.attempt > 0 for vote in attack.votes()) and {*map(len, said.values())} == {1}


def measures(is_lie: Callable[[Vote], bool], attack: Attack) -> bool:
    measured = [vote for vote in attack.votes() if vote.kind is VoteKind.PRECOMMIT and vote.block_hash != NIL]
    return bool(measured) and all(map(is_lie, measured))


def says_nothing(attack: Attack) -> bool:
    return not [*attack.by_liars()]


def falls_silent(attack: Attack) -> bool:
    return {vote.height for vote in attack.votes()} == {1, 2}


def crashes(attack: Attack) -> bool:
    return all(attack.simulation.peers[number]._life > 1 for number in LIARS)


def leaves(attack: Attack) -> bool:
    return all(attack.simulation.peers[number].node is None for number in LIARS)


def leaves_out_the_victim(attack: Attack) -> bool:
    victim = attack.simulation.peers[VICTIM].public_key
    blocks = [message.block for message in attack.lies(CandidateMessage)]
    return any(block.header.miner in attack.keys and victim not in block.senders for block in blocks)


def votes_for_no_others_blocks(attack: Attack) -> bool:
    candidates = [item.message.block for item in attack.said if isinstance(item.message, CandidateMessage)]
    others = {block.hash for block in candidates if block.header.miner not in attack.keys}
    return bool(others) and not others & {vote.block_hash for vote in attack.votes()}


def shows_its_post_in_its_blocks_alone(attack: Attack) -> bool:
    own = [message.block for message in attack.lies(CandidateMessage) if message.block.header.miner in attack.keys]
    posted = [message for message in attack.lies(PostMessage) if message.post.sender in attack.keys]
    return any(block.header.miner in block.senders for block in own) and not posted


def mines_final_blocks_again(attack: Attack) -> bool:
    highest = 0
    for message in attack.lies(CandidateMessage):
        if message.block.header.height < highest:
            return True
        highest = max(highest, message.block.header.height)
    return False


def mines_siblings(attack: Attack) -> bool:
    headers = {message.block.hash: message.block.header for message in attack.lies(CandidateMessage)}
    mined = Counter((header.miner, header.height) for header in headers.values() if header.miner in attack.keys)
    return max(mined.values(), default=0) > 2


def mines_at_the_easiest_target(attack: Attack) -> bool:
    easiest = bits_from_target(TARGET_MAX)
    return any(message.block.header.bits == easiest for message in attack.lies(CandidateMessage))


def posts_twice(attack: Attack) -> bool:
    said = defaultdict[Any, set[bytes]](set)
    for message in attack.lies(PostMessage):
        said[message.post.key].add(message.post.payload_hash)
    return any(len(hashes) > 1 for hashes in said.values())


def posts_zeros(attack: Attack) -> bool:
    """Payloads without tensors have nothing else to be poisoned."""
    posts = attack.lies(PostMessage)
    return bool(posts) and all(message.payload == bytes(len(message.payload or b"")) for message in posts)


def posts_another_members_number(attack: Attack) -> bool:
    numbers = {int.from_bytes((message.payload or b"")[:4], "little") for message in attack.lies(PostMessage)}
    return bool(numbers - {number + 1 for number in range(PEERS)})


def posts_late(attack: Attack) -> bool:
    came = defaultdict[int, list[tuple[bool, float]]](list)
    for item in attack.said:
        if isinstance(item.message, PostMessage) and item.receiver == 1:
            came[item.message.post.round].append((item.sender in LIARS, item.at_s))
    waits = [
        min(at_s for lies, at_s in posts if lies) - max(at_s for lies, at_s in posts if not lies)
        for posts in came.values()
        if {lies for lies, _ in posts} == {False, True}
    ]
    return any(wait_s > 2.0 for wait_s in waits)


def withholds_its_payload(attack: Attack) -> bool:
    posts = attack.lies(PostMessage)
    promised = {message.post.payload_hash for message in posts}
    given = {item.receiver for item, chunk in attack.placed(Chunk) if chunk.data and chunk.content_hash in promised}
    return all(message.payload is None for message in posts) and given == {VICTIM}


def provides_slowly(attack: Attack) -> bool:
    promised: dict[bytes, float] = {}
    for item, message in attack.placed(PostMessage):
        promised.setdefault(message.post.payload_hash, item.at_s)
    chunks = [(item.at_s, chunk) for item, chunk in attack.placed(Chunk) if chunk.data]
    waits = [at_s - promised[chunk.content_hash] for at_s, chunk in chunks if chunk.content_hash in promised]
    return bool(waits) and min(waits) > 1.8


def floods(attack: Attack) -> bool:
    kinds = {type(item.message) for item in attack.by_liars()}
    names = {message.vote.voter for message in attack.lies(VoteMessage)}
    members = {peer.public_key for peer in attack.simulation.peers}
    return len(kinds) > 8 and bool(names - members) and bool(names & members - attack.keys)


def replays(attack: Attack) -> bool:
    said = Counter((item.receiver, message.vote.hash) for item, message in attack.placed(VoteMessage))
    return max(said.values(), default=0) > 5


def forges_finals(attack: Attack) -> bool:
    """They stand above all that there is, and no honest member has signed them."""
    head = attack.simulation.checker.finals.state.height
    finals = attack.lies(FinalMessage)
    return any(
        item.block.header.height > head and {v.voter for v in item.certificate.votes} <= attack.keys for item in finals
    )


def claims(is_lie: Callable[[int], bool], attack: Attack) -> bool:
    """In every status, whether it was asked for or not."""
    heights = [message.height for message in attack.lies(Status)]
    return len(heights) > 10 and all(map(is_lie, heights))


def invents_finals(attack: Attack) -> bool:
    known = set(attack.simulation.checker.finals.hashes)
    return any(message.block.hash not in known for message in attack.lies(FinalMessage))


def strips_finals(attack: Attack) -> bool:
    """All of them: those that it was asked for, and those that it was not."""
    finals = attack.lies(FinalMessage)
    return len(finals) > 20 and not any(message.block.transactions for message in finals)


def forges_contents(attack: Attack) -> bool:
    chunks = [message for message in attack.lies(Chunk) if message.data]
    return bool(chunks) and all(sha256(chunk.data) != chunk.content_hash for chunk in chunks)


def hands_out_blocks_one_by_one(attack: Attack) -> bool:
    came = defaultdict[int, list[float]](list)
    for item, _ in attack.placed(FinalMessage):
        if item.receiver == VICTIM:
            came[item.sender].append(item.at_s)
    waits = [later - at_s for times in came.values() for at_s, later in pairwise(times)]
    return len(waits) > 1 and min(waits) > 1.5


def forges_changes(attack: Attack) -> bool:
    heard = [
        (item.sender in LIARS, item.message.change) for item in attack.said if isinstance(item.message, ChangeMessage)
    ]
    proposed = {change.hash for is_liar, change in heard if not is_liar}
    forged = {change.kind for is_liar, change in heard if is_liar and change.hash not in proposed} - {ChangeKind.REKEY}
    return bool(forged)


def proposes_two_keys(attack: Attack) -> bool:
    asked = {(message.change.member, message.change.key) for message in attack.lies(ChangeMessage)}
    liars = [attack.simulation.peers[number].key for number in LIARS]
    following = [[PrivateKey(sha256(key.seed + bytes([half]))) for half in range(2)] for key in liars]
    return any(
        {(key.public_key, new.public_key) for new in news} <= asked for key, news in zip(liars, following, strict=True)
    )


def repeats_changes(attack: Attack) -> bool:
    counts = Counter(
        message.change.hash for message in attack.lies(ChangeMessage) if message.change.member not in attack.keys
    )
    return max(counts.values(), default=0) > 20


def approves_of_nothing(attack: Attack) -> bool:
    heard = [item.message.change for item in attack.said if isinstance(item.message, ChangeMessage)]
    approvers = {approval.approver for change in heard for approval in change.approvals}
    return bool(approvers) and not approvers & attack.keys and not attack.lies(ChangeMessage)


def shows_each_half_another_block(attack: Attack) -> bool:
    shown = defaultdict[Any, dict[bytes, set[int]]](lambda: defaultdict(set))
    for item, message in attack.placed(CandidateMessage):
        header = message.block.header
        if header.miner in attack.keys:
            shown[header.miner, header.height][header.hash].add(item.receiver)
    return any(len(blocks) > 1 and max(map(len, blocks.values())) <= PEERS // 2 for blocks in shown.values())


ACTS: Sequence[tuple[str, Lie, Mapping[str, float], Mapping[str, Any], Mapping[str, Any]]] = [
    ("double-voter", votes_twice, {}, {}, {}),
    ("yes-voter", votes_with_all_keys, {}, {}, {}),
    ("random-voter", votes_for_what_is_not_there, {}, {}, {}),
    ("vote-withholder", shows_each_vote_to_few, {}, {}, {}),
    ("stale-lock-voter", signs_precommits_again, {}, LOSSY, {}),
    ("stale-lock-voter", votes_for_one_block_in_every_attempt, {}, LOSSY, {}),
    ("clock-liar", partial(measures, lambda vote: vote.clock_ms < EPOCH_MS - 3_000_000), {}, {}, {}),
    ("difficulty-liar", partial(measures, lambda vote: vote.mining_ms == 10**9), {}, {}, {}),
    ("difficulty-liar", mines_at_the_easiest_target, {}, {"mining_attempts": 64}, {}),
    ("silent", says_nothing, {}, {}, {}),
    ("falls-silent", falls_silent, {"height": 2}, {}, {}),
    ("crash-loop", crashes, {"up_s": 1}, {}, {}),
    ("hash-leaver", leaves, {"height": 2}, {}, {}),
    ("censor", leaves_out_the_victim, {}, {}, {}),
    ("censor", shows_its_post_in_its_blocks_alone, {}, {}, {}),
    ("hash-censor", leaves_out_the_victim, {}, {}, {}),
    ("censor", votes_for_no_others_blocks, {}, {}, {}),
    ("capture-attacker", shows_its_post_in_its_blocks_alone, {}, {}, {}),
    ("sibling-miner", mines_siblings, {}, {}, {}),
    ("sibling-miner", mines_final_blocks_again, {}, {}, {}),
    ("late-better", shows_each_half_another_block, {}, {"hash_rates": (1.0,) * 5 + (30.0, 30.0)}, {}),
    ("post-equivocator", posts_twice, {}, {}, {}),
    ("poison-poster", posts_zeros, {}, {}, {}),
    ("invalid-poster", posts_another_members_number, {}, {}, {}),
    ("payload-withholder", withholds_its_payload, {}, {}, {}),
    ("slow-provider", provides_slowly, {}, {}, {}),
    ("head-start", posts_late, {}, {}, {}),
    ("slow-walk", posts_late, {}, {}, {}),
    ("junk-flooder", floods, {}, {}, {}),
    ("replay-flooder", replays, {}, {}, {}),
    ("catch-up-hog", partial(claims, lambda height: height > 900), {}, AWAY, {}),
    ("catch-up-hog", forges_finals, {}, AWAY, {}),
    ("slow-blocks", hands_out_blocks_one_by_one, {}, AWAY, {}),
    ("backfill-spoiler", strips_finals, {}, AWAY, {}),
    ("content-forger", forges_contents, {}, AWAY, FETCHED),
    ("low-claimer", partial(claims, lambda height: height == 0), {}, AWAY, {}),
    ("final-flooder", partial(claims, lambda height: height == CLAIM), {}, AWAY, {}),
    ("final-flooder", invents_finals, {}, AWAY, {}),
    ("change-liar", forges_changes, {}, CHANGES, {}),
    ("change-liar", proposes_two_keys, {}, CHANGES, {}),
    ("change-liar", repeats_changes, {}, CHANGES, {}),
    ("change-withholder", approves_of_nothing, {}, CHANGES, {}),
]


_PLAYED: dict[str, Attack] = {}
"""By what is played: a liar may do several things, and all are held against one federation without a lie."""


def played(behaviour: str, *settings: Mapping[str, Any]) -> Attack:
    key = repr((behaviour, settings))
    if key not in _PLAYED:
        _PLAYED[key] = Attack(behaviour, *settings)
    return _PLAYED[key]


@pytest.mark.long
@pytest.mark.parametrize(("behaviour", "lie", "parameters", "values", "founded"), ACTS)
def test_each_liar_does_what_it_is_for(
    behaviour: str,
    lie: Lie,
    parameters: Mapping[str, float],
    values: Mapping[str, Any],
    founded: Mapping[str, Any],
) -> None:
    assert lie(played(behaviour, parameters, values, founded))
    assert not lie(played("follower", {}, values, founded)), "it would say nothing of a liar"
