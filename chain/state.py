"""The state of the chain at a block, by which all rules judge the next block. It is a pure function of the chain.

It is bounded, and the next header commits to it by hash. A peer that holds a final block, its certificate and the state
before it can therefore go on without any older block.
"""

from collections.abc import Mapping, Set
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import compress
from typing import Any
from weakref import WeakValueDictionary

from fedchain.chain.certificate import Certificate
from fedchain.chain.difficulty import is_canonical_bits
from fedchain.chain.encoding import decode, encode, encode_list, expect_record, expect_size
from fedchain.chain.evidence import Evidence
from fedchain.chain.exceptions import InvalidEncoding, InvalidGenesis
from fedchain.chain.genesis import Contributor, Genesis, PhaseRule
from fedchain.chain.membership.amendment import NO_AMENDMENTS, Amendments
from fedchain.chain.membership.change import CHANGES_VERSION
from fedchain.chain.membership.in_force import rules_of
from fedchain.chain.membership.member import Member, Standing
from fedchain.chain.membership.member_set import MemberSet
from fedchain.chain.membership.owed import Owed
from fedchain.chain.membership.patience import grant_ms
from fedchain.chain.membership.weights import shares_of, weigh
from fedchain.chain.post import PostKey
from fedchain.chain.roster import Roster, draw_roster, seed_of_contributors, seed_of_electors
from fedchain.crypto.hashing import HASH_SIZE, Hash, sha256
from fedchain.crypto.keys import PUBLIC_KEY_SIZE, PublicKey

EMPTY_KNOWLEDGE = b""
"""The knowledge of a federation before its first block."""

DELAYS_MAX = 16
"""Most rounds whose posting delays are remembered."""

PUNCTUAL = 2
"""Consecutive phases for which a member has to be on time before it is waited for; all members begin with as many."""

STATE_SIZE_MAX = 16 * 2**20
"""Most bytes of an encoded state that is fetched."""

STATE_ITEMS_MAX = 2**22
"""Most items of an encoded state where members have records: 65,536 records of at most 25, and a crime of at most 35 of
each third member. A record has 18 in some fifty bytes, more than other values have."""

CRIME_SIZE_MAX = 512
"""Most bytes of one crime in it: two signed posts or two signed votes."""

NUMBER_MAX = 2**62
"""Largest height, round or time in a state that is fetched: later values have to fit into 64 bits, too."""


WORK_SIZE = 40
"""Bytes of the accumulated work, which exceeds 64 bits: a block adds at most 2²⁵⁵."""


@dataclass(frozen=True, slots=True, weakref_slot=True)
class State:
    """The state of the chain after one block."""

    block_hash: Hash
    """32 bytes: the block's hash; the chain id for the genesis state."""
    height: int
    """Number of blocks since the genesis document."""
    round: int
    """Round that the *next* block belongs to."""
    phase: int
    """Phase that the *next* block closes."""
    finished: bool
    """Whether the federation's last round is closed."""
    knowledge_root: Hash
    """32 bytes: hash of the knowledge in force."""
    work: int
    """Expected number of hashes behind the whole chain."""
    bits: int
    """Difficulty of the next block, in compact form; :meth:`bits_of` says what a member makes of it."""
    posts: int
    """Number of posts that the block counts."""
    settled_time_ms: int
    """Time of the block *before* this one, in milliseconds since the Unix epoch: the newest time on the chain."""
    delays_ms: tuple[tuple[int, ...], ...]
    """For each phase of a round, its posting delays in the last rounds, oldest first, at most ``DELAYS_MAX``."""
    round_seed: Hash
    """32 bytes: hash of the block that closed the last round; it draws the contributors of this one. Empty where
    members have records, since no block draws anybody there."""
    punctuality: bytes
    """One byte for each member, by seat: for how many consecutive phases it was on time, at most ``PUNCTUAL``."""
    convicted: tuple[Evidence, ...]
    """Proven crimes, one for each member that may not vote, post or mine any more, in the order of the chain."""
    deciders: frozenset[PublicKey]
    """Members whose precommits made, or will make, this state's block final."""
    roster: Roster
    """The members and their rights; except for the keys it follows from the other fields and the genesis document."""
    records: tuple[Member, ...] = ()
    """Every member's record, by seat; empty where the genesis document says that members are the same for ever."""
    owed: tuple[Owed, ...] = ()
    """Posts of earlier rounds that may still be counted, the oldest phase first; those of the open phase's name count
    in the next block. Empty where late posts do not count."""
    amendments: Amendments = NO_AMENDMENTS
    """Amendments that the chain counts so far."""
    rules: Genesis = field(kw_only=True, compare=False, repr=False)
    """The rules in force: the founding document with the amendments that have begun, and with its own chain id."""
    root: Hash = field(init=False, compare=False)
    """32 bytes: SHA-256 of the encoded state; the next header commits to it."""
    _encoded: bytes = field(init=False, compare=False, repr=False)
    _shares: int = field(init=False, compare=False, repr=False)
    _patience_ms: dict[PublicKey, int] | None = field(init=False, default=None, compare=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_encoded", self._written())
        object.__setattr__(self, "root", sha256(self._encoded))
        counting, seats = self.roster.counting if self.records else (), self.roster.seats
        object.__setattr__(self, "_shares", shares_of(self.records[seats[member]].weight for member in counting))

    def owed_to(self, post: PostKey) -> Owed | None:
        """The phase of an earlier round that a post is owed to; None if it is not owed."""
        if not self.owed:
            return None
        round_number, phase, sender = post
        found = next((item for item in self.owed if (item.round, item.phase) == (round_number, phase)), None)
        seat = self.roster.seats.get(sender)
        return found if found is not None and seat is not None and seat in found else None

    @property
    def knowledge_roots(self) -> frozenset[Hash]:
        """Hashes of the knowledge that posts are made from: the one in force, and those of owed posts."""
        return frozenset((self.knowledge_root, *(item.knowledge_root for item in self.owed)))

    @property
    def countable(self) -> int:
        """Number of posts that the next block may count: one of each contributor, and the late ones that are owed."""
        late = sum(len(item) for item in self.owed if item.phase == self.phase)
        return len(self.roster.contributors) + late

    @property
    def member_set(self) -> MemberSet:
        """The members that may vote on the next block, before electors are drawn from them."""
        return member_set_of(self.roster.members, self.roster.counting, self.amendments)

    def bits_of(self, miner: PublicKey) -> int:
        """Difficulty of an active member's next block, in compact form; without records it is the common one."""
        roster = self.roster
        if not self.records or not roster.is_active(miner):
            return self.bits
        return weigh(self.bits, self.records[roster.seats[miner]].weight, self._shares, roster.active)

    def encode(self) -> bytes:
        """The canonical bytes of the state, without the parts that follow from them and the genesis document.

        They are one object for all that hold the state.
        """
        return self._encoded

    def _written(self) -> bytes:
        roster = self.roster
        deciders = bytes(map(self.deciders.__contains__, _keys_at(self.records, self.height) or roster.members))
        head = [
            self.block_hash,
            self.height,
            self.round,
            self.phase,
            int(self.finished),
            self.knowledge_root,
            self.work.to_bytes(WORK_SIZE, "big"),
            self.bits,
            self.posts,
            self.settled_time_ms,
            [list(delays) for delays in self.delays_ms],
        ]
        rest = [self.punctuality, [crime.to_record() for crime in self.convicted], deciders]
        if not self.records:
            return encode([*head, self.round_seed, b"".join(roster.members), *rest])
        rest += [self.amendments.to_record(), [item.to_record() for item in self.owed]]
        members = encode_list([record.encode() for record in self.records])
        return encode_list([*map(encode, head), members, *map(encode, rest)])


_states: WeakValueDictionary[tuple[Hash, Hash], State] = WeakValueDictionary()
"""Chain id, root -> a state of this process."""


def decode_state(genesis: Genesis, data: bytes) -> State:
    """Read :meth:`State.encode`'s bytes, and no other encoding; raises InvalidEncoding.

    Only a header with a quorum's certificate proves that the state is the chain's: see ``judge_joined``. Bytes are not
    read again as long as anybody in this process holds the state of that hash: it has this encoding and no other one.
    """
    known = _states.get((genesis.chain_id, sha256(data)))
    if known is not None:
        return known
    kinds: tuple[type, ...] = (bytes, int, int, int, int, bytes, bytes, int, int, int, list)
    changing = genesis.version >= CHANGES_VERSION
    kinds += (list, bytes, list, bytes, list, list) if changing else (bytes, bytes, bytes, list, bytes)
    items_max = STATE_ITEMS_MAX if changing else None
    values = expect_record(decode(data, STATE_SIZE_MAX, items_max), "state", kinds)
    block_hash, height, round_number, phase, finished, knowledge_root, work, bits, posts, time_ms, delays = values[:11]
    round_seed, keys, punctuality, crimes, deciders, *changed = [b"", *values[11:]] if changing else values[11:]
    for item in (block_hash, knowledge_root, *([] if changing else [round_seed])):
        expect_size(item, HASH_SIZE, "state hash")
    members, records = _read_members(genesis, keys)
    for name, marks in (("state punctuality", punctuality), ("state deciders", deciders)):
        expect_size(marks, len(members), name)
    if phase >= len(genesis.phases_of(round_number)) or not is_canonical_bits(bits):
        raise InvalidEncoding("state", f"phase {phase} of round {round_number} or bits {bits:#x} fit no state")
    if (largest := max(height, round_number, posts, time_ms)) > NUMBER_MAX:
        raise InvalidEncoding("state", f"{largest} found, no number is above {NUMBER_MAX}")
    amendments = Amendments.from_record(changed[0]) if changed else NO_AMENDMENTS
    if (amendments.aggregator or 0) >= len(members):
        raise InvalidEncoding("state", f"place {amendments.aggregator} aggregates, there are {len(members)} members")
    try:
        rules = rules_of(genesis, amendments.in_force)
    except InvalidGenesis as error:
        raise InvalidEncoding("state", str(error)) from None
    state = complete_state(
        rules,
        amendments=amendments,
        block_hash=block_hash,
        height=height,
        round=round_number,
        phase=phase,
        finished=bool(finished),
        knowledge_root=knowledge_root,
        work=_read_work(work),
        bits=bits,
        posts=posts,
        settled_time_ms=time_ms,
        delays_ms=_read_delays(delays, len(genesis.phases)),
        round_seed=round_seed,
        members=members,
        records=records,
        punctuality=punctuality,
        convicted=tuple(Evidence.from_record(record) for record in crimes),
        deciders=frozenset(compress(_keys_at(records, height) or members, deciders)),
        owed=_read_owed(genesis, (round_number, phase), len(members), changed[1] if changed else []),
    )
    if state.root != sha256(data):
        raise InvalidEncoding("state", f"{len(data)} bytes differ from their re-encoding")
    return state


def _read_members(genesis: Genesis, value: Any) -> tuple[tuple[PublicKey, ...], tuple[Member, ...]]:
    """Keys and records of the members, which the blocks since the founding vouch for: see ``judge_joined``."""
    members = genesis.members
    if genesis.version >= CHANGES_VERSION:
        records = tuple(Member.from_record(record) for record in value)
        keys = tuple(record.key for record in records)
        names = {record.came_with for record in records}
        if len(keys) < len(members) or not len(set(keys)) == len(keys) == len(names):
            raise InvalidEncoding("state", f"its {len(set(keys))} members are fewer than the {len(members)} founders")
        for place, (record, founder) in enumerate(zip(records, members, strict=False)):
            if record.came_with != founder:
                raise InvalidEncoding("state", f"founder {place} came with another key, {record.came_with.hex()}")
        return keys, records
    if value != b"".join(members):
        raise InvalidEncoding("state", f"its {len(value)} bytes of keys are not the {len(members)} members'")
    return members, ()


def _read_owed(genesis: Genesis, open_phase: tuple[int, int], members: int, value: list[Any]) -> tuple[Owed, ...]:
    """The owed posts of a state; raises InvalidEncoding for phases or seats to which none can be owed."""
    found = tuple(Owed.from_record(record) for record in value)
    phases = [(item.round, item.phase) for item in found]
    if phases != sorted(set(phases)):
        raise InvalidEncoding("state", f"owed posts of {len(found)} phases are not in their order")
    for item in found:
        closes = open_phase[0] + (item.phase < open_phase[1])  # the round in which a block closes the phase next
        is_open = item.phase < len(genesis.phases) and closes - genesis.late_rounds <= item.round < closes
        if not is_open or item.round < 1 or 8 * len(item.due) - 7 > members or max(item.seats) >= members:
            where = f"phase {item.phase} of round {item.round}"
            raise InvalidEncoding("state", f"posts owed to {where} by {members} members fit no state")
    return found


def state_size_max(genesis: Genesis) -> int:
    """Most bytes of an encoded state: a peer that fetches one need not take more, whatever its sender says."""
    if genesis.version >= CHANGES_VERSION:  # there may be more members by now
        return STATE_SIZE_MAX
    members, delays = len(genesis.members), len(genesis.phases) * (3 + 9 * DELAYS_MAX)
    of_member = PUBLIC_KEY_SIZE + 2 + CRIME_SIZE_MAX  # key, punctuality, whether it decided, and one crime
    return min(STATE_SIZE_MAX, 512 + delays + members * of_member)


def _read_work(data: bytes) -> int:
    work = int.from_bytes(expect_size(data, WORK_SIZE, "state work"), "big")
    if work.bit_length() >= 8 * WORK_SIZE:
        raise InvalidEncoding("state work", f"{work.bit_length()} bits found, fewer than {8 * WORK_SIZE} expected")
    return work


def _read_delays(rows: list[Any], phases: int) -> tuple[tuple[int, ...], ...]:
    expect_record(rows, "state delays", [list] * phases)
    return tuple(tuple(expect_record(row, "state delays", [int] * min(len(row), DELAYS_MAX))) for row in rows)


@lru_cache(maxsize=4)
def genesis_state(genesis: Genesis) -> State:
    """The state before the first block. Cached: every peer begins there, and drawing from many members takes time."""
    return complete_state(
        genesis,
        block_hash=genesis.chain_id,
        height=0,
        round=0 if genesis.setup else 1,
        phase=0,
        finished=False,
        knowledge_root=sha256(EMPTY_KNOWLEDGE),
        work=0,
        bits=genesis.initial_bits,
        posts=0,
        settled_time_ms=genesis.created_ms,
        delays_ms=((),) * len(genesis.phases),
        round_seed=seed_of_round(genesis, genesis.chain_id),
        members=genesis.members,
        records=_founders(genesis),
        punctuality=bytes([PUNCTUAL]) * len(genesis.members),
        convicted=(),
        deciders=frozenset(),
    )


def member_set_of(members: tuple[PublicKey, ...], counting: tuple[PublicKey, ...], amendments: Amendments) -> MemberSet:
    """The set of those of the members that count, where some amendments have begun."""
    amended = dict(amendments.in_force).get("committee_size")
    return _member_set(members, counting, amended if isinstance(amended, int) else None)


@lru_cache(maxsize=8)
def _member_set(members: tuple[PublicKey, ...], counting: tuple[PublicKey, ...], size: int | None) -> MemberSet:
    """Cached: few blocks change who counts, and the set is hashed for each block that is made or judged."""
    places = {member: place for place, member in enumerate(members)}
    return MemberSet(counting, tuple(places[member] for member in counting), size)


def _founders(genesis: Genesis) -> tuple[Member, ...]:
    if genesis.version < CHANGES_VERSION:
        return ()
    return tuple(Member(key, Standing.ACTIVE, Standing.ACTIVE, 0) for key in genesis.members)


def seed_of_round(genesis: Genesis, block_hash: Hash) -> Hash:
    """The seed of a round that begins behind a block; empty in version 3, whose draws go by heights."""
    return block_hash if genesis.version < CHANGES_VERSION else b""


def _keys_at(records: tuple[Member, ...], height: int) -> tuple[PublicKey, ...]:
    """The keys with which members decided the head's height, by seat; another key holds from the next one on."""
    return tuple(record.key_at(height) for record in records)


def block_time_ms(state: State, certificate: Certificate) -> int:
    """Time of ``state``'s block, by the certificate that made it final. It never goes back."""
    return max(state.settled_time_ms + 1, certificate.clock_ms)


def phase_rule(genesis: Genesis, state: State) -> PhaseRule:
    """The phase that the next block closes."""
    return genesis.phases_of(state.round)[state.phase]


def posts_required(genesis: Genesis, state: State) -> int:
    """Fewest posts that the next block may count, unless it closes its phase empty."""
    rule = phase_rule(genesis, state)
    if rule.by is Contributor.AGGREGATOR:
        return 1
    count = len(state.roster.contributors)
    return max(1, min(count, rule.quorum or state.rules.contribution_quorum or genesis.fault_model.quorum(count)))


def votes_required(genesis: Genesis, electors: frozenset[PublicKey]) -> int:
    """Number of ``electors`` that make a block final."""
    return genesis.fault_model.quorum(len(electors))


def liars_left(genesis: Genesis, state: State) -> int:
    """Number of members that may lie and were not convicted: nobody can prove a crime of an honest member."""
    return genesis.fault_model.faulty(len(state.roster.members)) - len(state.convicted)


def may_close_empty(genesis: Genesis, state: State) -> bool:
    """Whether the open phase depends on few enough members that their silence could stop the federation for ever.

    If every member may post, waiting for a quorum to come back is better than an idle round. If none may, since all
    with data left a dedicated aggregator, there is nobody to wait for.
    """
    if state.records and not state.roster.contributors:
        return True
    by_aggregator = phase_rule(genesis, state).by is Contributor.AGGREGATOR
    return by_aggregator or genesis.centralized or state.rules.contributors_per_round > 0 or state.phase > 0


def expected_contributors(state: State) -> Set[PublicKey]:
    """Contributors to wait for: those that are granted :func:`patience_of`, if members have records.

    Otherwise a member that missed a phase first has to be on time in two consecutive phases. If none is punctual, all
    are waited for; otherwise an aggregator that once trained too slowly would be passed over.
    """
    if state.records:
        return patience_of(state).keys()
    roster, marks = state.roster, state.punctuality
    punctual = (member for member in roster.contributors if marks[roster.seats[member]] >= PUNCTUAL)
    return frozenset(punctual) or roster.contributors


def patience_of(state: State) -> Mapping[PublicKey, int]:
    """How long to wait for each contributor, in milliseconds from when the posts required are in; only where it is any.

    The longest comes first: a peer asks at each post how long the missing ones are worth. It is computed once for a
    state. An aggregator's phase waits for its one post in any case.
    """
    if state._patience_ms is not None:
        return state._patience_ms
    roster, granted = state.roster, dict[PublicKey, int]()
    by_aggregator = phase_rule(state.rules, state).by is Contributor.AGGREGATOR
    for member in roster.contributors:
        seat = roster.seats[member]
        is_punctual = state.punctuality[seat] > 0
        patience_ms = grant_ms(state.rules, state.records[seat], is_punctual=is_punctual)
        if by_aggregator or patience_ms:
            granted[member] = patience_ms
    longest_first = dict(sorted(granted.items(), key=lambda item: item[1], reverse=True))
    object.__setattr__(state, "_patience_ms", longest_first)
    return longest_first


def complete_state(rules: Genesis, members: tuple[PublicKey, ...], **fields: Any) -> State:
    """Complete a state's fields with its roster: the members that may post, and those that may vote."""
    culprits = {crime.culprit for crime in fields["convicted"]}
    phase, next_height = (fields["round"], fields["phase"]), fields["height"] + 1
    contributors_seed = seed_of_contributors(rules, fields["round"], fields["round_seed"])
    seeds = contributors_seed, seed_of_electors(rules, next_height, fields["block_hash"])
    named = fields.get("amendments", NO_AMENDMENTS).aggregator
    roster = draw_roster(rules, members, culprits, phase, seeds, fields["records"], named)
    state = State(**fields, roster=roster, rules=rules)
    _states[rules.chain_id, state.root] = state
    return state
