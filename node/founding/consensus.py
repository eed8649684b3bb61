"""The settings of consensus: what members agree on beside their learning task, in units for people.

Scenarios, ``genesis new`` and test networks have them under these names, with these ranges and docstrings.
"""

from dataclasses import dataclass
from typing import Annotated, Any, Literal, get_args

from fedchain.files.tables import Range
from fedchain.node.config import NodeConfigError

PATIENCE_PERCENT = 100
"""Default of the founding document, which takes time to import; a test compares all defaults with its own."""

Aggregator = Literal["auto", "none", "fixed", "rotating", "dedicated"]

AGGREGATOR_CHOICES: tuple[Aggregator, ...] = get_args(Aggregator)
"""The rules of :class:`fedchain.chain.genesis.AggregatorRule`, and to leave it to the method."""

Members = Annotated[int, Range(0, 100_000)]
"""A number of members; the genesis document bounds it by those that there are."""

Seconds = Annotated[float, Range(0, 1e9)]

MiningTime = Annotated[float, Range(0.004, 1e6)]
"""Seconds, at least four milliseconds."""

Attempts = Annotated[int, Range(1, 2**40)]

Blocks = Annotated[int, Range(0, 2**32)]

Timeout = Annotated[float, Range(0.001, 1e9)]
"""Seconds, at least one millisecond."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Consensus:
    """Everything that a genesis document says beside the members and their task; times are virtual in a simulation."""

    rounds: Blocks = 0
    """Number of rounds after which the federation ends, R; 0: it does not end."""
    fault_model: Literal["byzantine", "crash"] = "byzantine"
    """Faults of members to tolerate: byzantine (fewer than a third, any fault) or crash (fewer than half stop)."""
    aggregator: Aggregator = "auto"
    """Designated aggregator: none, fixed (the first member), rotating (each in turn), dedicated (the last member, which
    has no data) or auto (what the method wants)."""
    centralized: bool = False
    """Only the designated aggregator produces blocks that count posts."""
    round_interval_s: Seconds = 0.0
    """Seconds from the end of a round to the beginning of the next one, at least."""
    contributors_per_round: Members = 0
    """Members that contribute in a round, drawn by the chain; 0: all."""
    contribution_quorum: Members = 0
    """Fewest posts that close a phase; 0: a quorum of the phase's contributors."""
    phase_timeout_s: Timeout = 60.0
    """Seconds that a phase waits for expected posts, at most."""
    phase_floor_s: Seconds = 5.0
    """Shortest wait for an expected post, in seconds, however fast earlier rounds were; in version 3 as far as its
    member's budget of waiting lasts."""
    vote_timeout_s: Annotated[float, Range(0.001, 1e6)] = 1.0
    """Seconds that the first attempt to decide a block waits for votes."""
    omission_slack_s: Annotated[float, Range(0, 1e6)] = 2.0
    """A peer does not vote for a block that leaves out a post which it has held for so many seconds."""
    committee_size: Members = 0
    """Members that vote on a block, drawn by the chain; 0: all."""
    mining_s: MiningTime = 4.0
    """Seconds that mining a block takes, on average (DFPL: β)."""
    mining_attempts: Attempts = 8_000
    """Hashes behind the first block, on average; the difficulty of later ones follows mining_s."""
    proof_function: Literal["scrypt", "sha256d"] = "scrypt"
    """Hash of the proof of work: scrypt or sha256d."""
    payload_mib_max: Annotated[int, Range(0, 2048)] = 0
    """Mebibytes of one post at most; 0: as much as the model needs, at least 64. More than 1024 need version 3."""
    inline_kib_max: Annotated[int, Range(0, 256)] = 64
    """Kibibytes up to which a post travels inside the message that announces it."""
    retention_blocks: Blocks = 1_000
    """Blocks up to the head whose payloads are kept; 0: all."""
    version: Annotated[int, Range(2, 3)] = 3
    """Version of the protocol. In 2 nobody comes or goes, and all members have one difficulty."""
    admission: Literal["closed", "quorum", "sponsors"] = "closed"
    """Members that decide who comes or is removed: none (closed), a quorum, or sponsors."""
    sponsors: Annotated[int, Range(0, 10_000)] = 0
    """Members that have to approve, if sponsors decide."""
    away_after: Annotated[int, Range(0, 65_536)] = 0
    """Rounds in which a member owes posts and is silent, after which it counts no more until it is back; 0: never."""
    late_rounds: Annotated[int, Range(0, 16)] = 0
    """Rounds after its own in which a post that came too late still counts, by the method's late_weighting; 0: none. 2
    suits machines of different speeds."""
    patience_percent: Annotated[int, Range(0, 10_000)] = PATIENCE_PERCENT
    """How much longer f members may make rounds by posting late, in the long run, in percent (version 3)."""

    def to_genesis(self) -> dict[str, Any]:
        """The fields of a genesis document in its own units, but for the aggregator: the task has a say in that."""
        from fedchain.chain.difficulty import bits_from_attempts
        from fedchain.chain.genesis import Admission, FaultModel

        same: tuple[str, ...] = ("rounds", "centralized", "proof_function", "retention_blocks")
        same += ("committee_size", "contributors_per_round", "contribution_quorum", "late_rounds")
        times = ("round_interval", "phase_timeout", "phase_floor", "vote_timeout", "omission_slack")
        return {
            **{name: getattr(self, name) for name in same},
            **{f"{name}_ms": round(getattr(self, f"{name}_s") * 1000) for name in times},
            **({"payload_size_max": self.payload_mib_max * 2**20} if self.payload_mib_max else {}),
            "inline_size_max": self.inline_kib_max * 2**10,
            "target_mining_time_ms": round(self.mining_s * 1000),
            "initial_bits": bits_from_attempts(self.mining_attempts),
            "fault_model": FaultModel(self.fault_model),
            "version": self.version,
            "admission": Admission(self.admission),
            **{name: getattr(self, name) for name in ("sponsors", "away_after", "patience_percent")},
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Founding(Consensus):
    """Everything that real members agree on beside their task when they found a federation."""

    parts: Members = 0
    """Parts that the data are divided into, one for each member with data that there may ever be; 0: as many as
    founders have data."""

    def count_parts(self, founders: int) -> int:
        """The number of parts for so many founders with data; raises NodeConfigError."""
        if not self.parts or self.parts == founders:
            return founders
        if self.parts < founders or self.admission == "closed":
            ever = (
                f"at least {founders}"
                if self.admission != "closed"
                else f"{founders}: in a closed federation nobody joins"
            )
            raise NodeConfigError(f"parts is {self.parts}, it must be {ever}")
        return self.parts
