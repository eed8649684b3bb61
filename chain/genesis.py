"""The genesis document: everything that a federation agreed on before it began. Its hash is the chain id.

All parameters of validity are in it, so two peers with the same genesis agree on every block.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from enum import Enum
from typing import Any

from fedchain.chain.difficulty import is_canonical_bits
from fedchain.chain.encoding import decode, encode, expect_record
from fedchain.chain.exceptions import InvalidEncoding, InvalidGenesis
from fedchain.chain.membership.change import CHANGES_VERSION
from fedchain.chain.proof_of_work import PROOF_FUNCTIONS
from fedchain.crypto.address import address
from fedchain.crypto.hashing import Hash, sha256
from fedchain.crypto.keys import PUBLIC_KEY_SIZE, PublicKey, is_valid_public_key

GENESIS_VERSION = 2
"""Version of documents whose members are the same for ever."""
NEWEST_VERSION = CHANGES_VERSION
"""The newest version of the protocol that this program speaks; an amendment may lead to a later one."""
GENESIS_SIZE_MAX = 16 * 2**20

LATE_ROUNDS_MAX = 16
"""Most rounds for which late posts may count: states name who owes one, and peers keep what they were made from."""

KNOWLEDGE_SIZE_MAX = 2**28
"""Largest size of knowledge that is fetched, in bytes, unless a single payload may be larger."""

LATER = "round_interval_ms"
"""The last field of version 2, added later: a document without it keeps its bytes, and its chain id."""

PATIENCE_DEFAULT = 100
"""Percent."""

PAYLOAD_SIZE_DEFAULT = 64 * 2**20
"""Bytes; room for a model of 16 million parameters."""

PAYLOAD_SIZE_MAX = {GENESIS_VERSION: 2**30, CHANGES_VERSION: 2**31}
"""Bytes of the largest post that a founding document of each version can allow."""


class Contributor(Enum):
    """The members that post in a phase."""

    PARTICIPANT = "participant"
    """Every member that takes part in the round."""
    AGGREGATOR = "aggregator"
    """The designated aggregator alone."""


class AggregatorRule(Enum):
    """How the designated aggregator is chosen."""

    NONE = "none"
    """Nobody: every peer aggregates, and the one that mines first writes the block."""
    FIXED = "fixed"
    """One member, at first the first of the genesis document's."""
    ROTATING = "rotating"
    """The members in turn, round by round."""
    DEDICATED = "dedicated"
    """One member, at first the last of the genesis document's, which has no data. While a member has this role it posts
    in no phase of the participants."""

    @property
    def is_role(self) -> bool:
        """Whether one member has the role until another gets it."""
        return self in (AggregatorRule.FIXED, AggregatorRule.DEDICATED)


class Admission(Enum):
    """The approvals that a change of the membership takes."""

    CLOSED = "closed"
    """Nobody is added or removed."""
    QUORUM = "quorum"
    """A quorum of the active members has to approve."""
    SPONSORS = "sponsors"
    """As many active members as ``sponsors`` says have to approve."""


class FaultModel(Enum):
    """The faults that the chain tolerates: within them its guarantees hold."""

    BYZANTINE = "byzantine"
    """Fewer than a third may do anything: lie, sign twice, withhold, collude."""
    CRASH = "crash"
    """Fewer than half may stop, and all others are honest. (DFPL's majority)"""

    def faulty(self, electors: int) -> int:
        """How many of ``electors`` may lie, f."""
        return max(0, electors - 1) // 3 if self is FaultModel.BYZANTINE else 0

    def quorum(self, electors: int) -> int:
        """How many of ``electors`` decide, q: any two quorums have an honest elector in common."""
        return (electors + self.faulty(electors)) // 2 + 1


@dataclass(frozen=True, slots=True)
class PhaseRule:
    """The chain's part of a learning method's phase."""

    name: str
    """Name of the phase in the method."""
    by: Contributor
    """The members that post."""
    quorum: int = 0
    """Fewest posts that close the phase; 0: the federation's ``contribution_quorum``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Genesis:
    """The founding document. The field order is the encoding's."""

    version: int = GENESIS_VERSION
    """Format of the document and of the protocol."""
    name: str
    """Name of the federation, for people."""
    created_ms: int
    """When it was founded, in milliseconds since the Unix epoch; no block is older."""
    members: tuple[PublicKey, ...]
    """32 bytes each. A fixed aggregator is at first the first of them, a dedicated one the last. The state says which
    are members now."""
    learning: tuple[tuple[str, str], ...]
    """The learning task as (name, value as JSON) pairs, sorted by name; the chain carries it and never reads it."""
    setup: tuple[PhaseRule, ...] = ()
    """Phases that run once, as round 0."""
    phases: tuple[PhaseRule, ...]
    """Phases of every round; each is closed by one block."""
    rounds: int = 0
    """The federation ends after this many rounds; 0: never."""
    aggregator: AggregatorRule = AggregatorRule.NONE
    """How the designated aggregator is chosen."""
    centralized: bool = False
    """Whether only the designated aggregator may produce blocks that count posts."""
    proof_function: str = "scrypt"
    """Hash of the proof of work: scrypt or sha256d."""
    initial_bits: int
    """Difficulty of the first block, in compact form."""
    target_mining_time_ms: int = 4_000
    """Mining time that the retarget aims for, in milliseconds (DFPL: β)."""
    fault_model: FaultModel = FaultModel.BYZANTINE
    """Faults that the chain tolerates; they decide how many votes make a block final."""
    contribution_quorum: int = 0
    """Fewest posts of participants that a block may close a phase with; 0: a quorum of the phase's contributors."""
    phase_timeout_ms: int = 60_000
    """How long a phase waits for expected posts at most, in milliseconds; the chain shortens it by what it measured."""
    phase_floor_ms: int = 5_000
    """How long a phase waits for expected posts at least, in milliseconds; in version 3 within a member's budget."""
    vote_timeout_ms: int = 1_000
    """How long the first attempt to decide a height waits for votes, in milliseconds; each further one waits longer."""
    committee_size: int = 0
    """Members that vote on a block, drawn by the parent's hash, or from version 3 on by the height; 0: all."""
    contributors_per_round: int = 0
    """Members that contribute in a round, drawn by the hash of the block that closed the last one, or from version 3 on
    by the round's number; 0: all."""
    payload_size_max: int = PAYLOAD_SIZE_DEFAULT
    """Bytes of a payload, at most."""
    inline_size_max: int = 64 * 2**10
    """Payloads up to this many bytes travel inside the gossip message; larger ones are fetched by hash."""
    retention_blocks: int = 0
    """Blocks up to the head whose payloads and knowledge every peer keeps; 0: all, for ever.

    A peer that lacks older blocks accepts them by the votes that made them final.
    """
    omission_slack_ms: int = 2_000
    """A peer does not vote for a block that omits a post which the peer had held for this long when the block came."""
    round_interval_ms: int = 0
    """Least time from the end of a round to the beginning of the next, in milliseconds; 0: none. The field was added
    later than the others, and version 2 does not write it if it is 0."""
    admission: Admission = Admission.CLOSED
    """Approvals that adding or removing a member takes. This field and those below are written from version 3 on."""
    sponsors: int = 0
    """Members that have to approve, if ``admission`` says so; otherwise 0."""
    away_after: int = 0
    """Rounds in which a member owes posts and is silent, after which it counts no more until it is back; 0: never."""
    late_rounds: int = 0
    """Rounds after its own in which a post that came too late may still be counted, in the same phase; 0: none."""
    patience_percent: int = PATIENCE_DEFAULT
    """How much longer than without waiting for late posts f members may make the rounds, in the long run, in percent;
    the difference is divided among the members in equal budgets (version 3)."""

    chain_id: Hash = field(init=False, repr=False, compare=False)
    """32 bytes: hash of the document."""
    index: Mapping[PublicKey, int] = field(init=False, repr=False, compare=False)
    """Place of each member in ``members``."""

    def __post_init__(self) -> None:
        _validate(self)
        object.__setattr__(self, "chain_id", sha256(self.encode()))
        object.__setattr__(self, "index", {member: place for place, member in enumerate(self.members)})

    def phases_of(self, round_number: int) -> tuple[PhaseRule, ...]:
        """Phases of a round; round 0 holds the setup."""
        return self.phases if round_number else self.setup

    @property
    def participants(self) -> tuple[PublicKey, ...]:
        """Members that may post in phases of participants: all but a dedicated aggregator."""
        return self.members[:-1] if self.aggregator is AggregatorRule.DEDICATED else self.members

    @property
    def founded_aggregator(self) -> int | None:
        """The place with the role of a fixed or dedicated aggregator at the founding; None if there is no such role."""
        if not self.aggregator.is_role:
            return None
        return 0 if self.aggregator is AggregatorRule.FIXED else len(self.members) - 1

    @property
    def knowledge_size_max(self) -> int:
        """Largest size of knowledge that is fetched, in bytes; unlike a payload's, its size is not on the chain."""
        return max(self.payload_size_max, min(len(self.members) * self.payload_size_max, KNOWLEDGE_SIZE_MAX))

    def encode(self) -> bytes:
        """The document's one byte string."""
        names = _fields_of(self.version, has_later=bool(getattr(self, LATER)))
        return encode([_to_record(getattr(self, name)) for name in names])

    @classmethod
    def decode(cls, data: bytes) -> "Genesis":
        """Read :meth:`encode`'s bytes.

        Raises:
            InvalidEncoding: not the canonical form of a genesis document.
            InvalidGenesis: it contradicts itself.
        """
        value = decode(data, GENESIS_SIZE_MAX)
        _expect_version(value)
        version = value[0] if type(value) is list and value and type(value[0]) is int else GENESIS_VERSION
        names = _fields_of(version, has_later=True)
        if type(value) is list and version == GENESIS_VERSION and len(value) < len(names):
            names = names[:-1]
        record = expect_record(value, "genesis", [_record_kind(name) for name in names])
        if version == GENESIS_VERSION and names[-1] == LATER and record[-1] == 0:
            raise InvalidEncoding(LATER, "0 is not written")
        return cls(**{name: _from_record(name, entry) for name, entry in zip(names, record, strict=True)})


def _fields_of(version: int, *, has_later: bool) -> list[str]:
    """Names of the fields that a document writes, in order."""
    names = [item.name for item in fields(Genesis) if item.init]
    if version >= CHANGES_VERSION:
        return names
    return names[: names.index(LATER) + has_later]


def _expect_version(value: Any) -> None:
    """Check the version first: another version has other fields."""
    if type(value) is list and value and type(value[0]) is int and value[0] not in _VERSIONS:
        raise InvalidGenesis(
            f"version is {value[0]}, this program speaks {_SPOKEN}: "
            "a chain of another version is not carried over, found a new one"
        )


def _to_record(value: Any) -> Any:
    if isinstance(value, tuple):
        return [_to_record(item) for item in value]
    if isinstance(value, PhaseRule):
        return [value.name, value.by.value, value.quorum]
    if isinstance(value, Enum):
        return value.value
    return int(value) if isinstance(value, bool) else value


def _record_kind(name: str) -> type:
    if name in ("members", "learning", "setup", "phases"):
        return list
    return str if name in ("name", "aggregator", "proof_function", "fault_model", "admission") else int


def _from_record(name: str, value: Any) -> Any:
    if name in ("setup", "phases"):
        return tuple(_read_phase(item) for item in value)
    if name == "learning":
        return tuple(tuple(expect_record(item, "genesis learning", (str, str))) for item in value)
    if name == "members":
        return tuple(expect_record(value, "genesis members", [bytes] * len(value)))
    if name in _CHOICES:
        return _read_choice(_CHOICES[name], value, name)
    if name == "centralized":
        _expect(value in (0, 1), f"centralized is {value}, it must be 0 or 1")
        return bool(value)
    return value


def read_admission(value: str) -> Admission:
    """A rule of admission by its name. Raises InvalidGenesis."""
    found: Admission = _read_choice(Admission, value, "admission")
    return found


def _read_phase(value: Any) -> PhaseRule:
    name, by, quorum = expect_record(value, "genesis phase", (str, str, int))
    return PhaseRule(name, _read_choice(Contributor, by, "phase"), quorum)


def _read_choice(choices: Any, value: str, name: str) -> Any:
    allowed = [choice.value for choice in choices]
    _expect(value in allowed, f"{name} is {value!r}, it must be one of {', '.join(allowed)}")
    return choices(value)


def _validate(genesis: Genesis) -> None:
    """One rule a line; the message names the field and both values."""
    g, count = genesis, len(genesis.members)
    needs_aggregator = any(phase.by is Contributor.AGGREGATOR for phase in (*g.setup, *g.phases))
    _expect(g.version in _VERSIONS, f"version is {g.version}, this program speaks {_SPOKEN}")
    _expect(count >= 1, "members is empty, a federation has at least 1")
    _expect(all(len(m) == PUBLIC_KEY_SIZE for m in g.members), f"members must be {PUBLIC_KEY_SIZE} bytes each")
    twice = next((member for member, times in Counter(g.members).items() if times > 1), b"")
    _expect(not twice, f"members holds {address(twice) if twice else ''} more than once")
    # A key of small order has signatures that anybody can make; one with two spellings is two members.
    bad = next((m.hex() for m in g.members if not is_valid_public_key(m)), None)
    _expect(bad is None, f"members holds {bad}, which is no canonical Ed25519 key of the full group")
    _expect(list(g.learning) == sorted(set(g.learning)), "learning must be sorted and without repetition")
    _expect(len(g.phases) >= 1, "phases is empty, a round has at least 1")
    _expect(
        not (needs_aggregator or g.centralized) or g.aggregator is not AggregatorRule.NONE,
        "aggregator is none, but a phase or centralized = 1 needs one",
    )
    if g.aggregator is AggregatorRule.DEDICATED:
        _expect(count >= 2, f"aggregator is dedicated, which takes at least 2 members, found {count}")
        _expect(needs_aggregator or g.centralized, "aggregator is dedicated, but no phase and no block is its own")
    _expect(
        g.proof_function in PROOF_FUNCTIONS,
        f"proof_function is {g.proof_function!r}, not {list(PROOF_FUNCTIONS)}",
    )
    _expect(is_canonical_bits(g.initial_bits), f"initial_bits is {g.initial_bits:#x}, not a compact target")
    # Where members come, more may be drawn than founded; with as many members or fewer, all are.
    participants, members_come = len(g.participants), g.admission is not Admission.CLOSED
    _expect_range(g, "committee_size", 0, 2**32 if members_come else count)
    drawn_max = 2**32 if members_come else participants
    _expect_range(g, "contributors_per_round", 0, drawn_max)
    _expect_range(g, "contribution_quorum", 0, g.contributors_per_round or drawn_max)
    contributors = g.contributors_per_round or participants
    for phase in (*g.setup, *g.phases):
        _expect(
            0 <= phase.quorum <= contributors,
            f"quorum of {phase.name} is {phase.quorum}, it must be between 0 and {contributors}",
        )
    _expect_range(g, "target_mining_time_ms", 4, 2**40)
    _expect_range(g, "phase_timeout_ms", 1, 2**40)
    _expect_range(g, "phase_floor_ms", 0, 2**40)
    _expect_range(g, "vote_timeout_ms", 1, 2**32)
    _expect_range(g, "payload_size_max", 1, PAYLOAD_SIZE_MAX[g.version])
    _expect_range(g, "inline_size_max", 0, min(g.payload_size_max, 2**18))
    _expect_range(g, "retention_blocks", 0, 2**32)
    _expect_range(g, "omission_slack_ms", 0, 2**32)
    _expect_range(g, "round_interval_ms", 0, 2**40)
    _expect_range(g, "created_ms", 0, 2**48)
    _expect_range(g, "rounds", 0, 2**32)
    _validate_admission(g)


def _validate_admission(genesis: Genesis) -> None:
    g, by_sponsors = genesis, genesis.admission is Admission.SPONSORS
    says_more = g.admission is not Admission.CLOSED or g.sponsors or g.away_after
    _expect(g.version >= CHANGES_VERSION or not says_more, "members of a version 2 document are the same for ever")
    _expect(g.version >= CHANGES_VERSION or not g.late_rounds, "late_rounds begins with version 3")
    is_patient = g.patience_percent != PATIENCE_DEFAULT
    _expect(g.version >= CHANGES_VERSION or not is_patient, "patience_percent begins with version 3")
    if by_sponsors:
        _expect_range(g, "sponsors", 1, len(g.members))
    _expect(by_sponsors or not g.sponsors, f"sponsors is {g.sponsors}, it must be 0 unless admission is sponsors")
    _expect_range(g, "away_after", 0, 2**16)
    _expect_range(g, "late_rounds", 0, LATE_ROUNDS_MAX)
    # A block is recomputed with the knowledge that its late posts were made from.
    blocks = (g.late_rounds + 1) * len(g.phases)
    _expect(
        not g.late_rounds or not g.retention_blocks or g.retention_blocks >= blocks,
        f"retention_blocks is {g.retention_blocks}, late_rounds = {g.late_rounds} needs at least {blocks}, or 0",
    )
    _expect_range(g, "patience_percent", 0, 10_000)


def _expect_range(genesis: Genesis, name: str, low: int, high: int) -> None:
    value = getattr(genesis, name)
    _expect(low <= value <= high, f"{name} is {value}, it must be between {low} and {high}")


def _expect(condition: bool, message: str) -> None:
    if not condition:
        raise InvalidGenesis(message)


_VERSIONS = (GENESIS_VERSION, CHANGES_VERSION)
_SPOKEN = f"{GENESIS_VERSION} and {CHANGES_VERSION}"
_CHOICES: Mapping[str, type[Enum]] = {
    "aggregator": AggregatorRule,
    "fault_model": FaultModel,
    "admission": Admission,
}
