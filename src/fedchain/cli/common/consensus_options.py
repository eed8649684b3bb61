"""Settings of ``fedchain genesis new`` for everything that members agree on beside the task, in units for people."""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from fedchain.node.founding.aggregator import AGGREGATOR_HELP, AUTO, CENTRALIZED_HELP


@dataclass(frozen=True, slots=True)
class Setting:
    """One setting: its name, its default, and the field of the document that it becomes."""

    name: str
    """Its name."""
    field: str
    """Field of :class:`fedchain.chain.genesis.Genesis`."""
    default: Any
    """Default, in the setting's unit."""
    text: str
    """Help text."""
    per_unit: int = 1
    """The setting's unit in units of the field: 1,000 for seconds, 2^20 for mebibytes."""


ATTEMPTS_MAX = 2**40
"""Most hashes behind the first block; no federation should search longer for it."""

FAULT_MODEL_HELP = "Faults that are tolerated: byzantine (fewer than a third, anything) or crash (fewer than half)."

ROUND_INTERVAL_HELP = "Seconds from the end of a round to the beginning of the next one, at least."

SETTINGS = (
    Setting("rounds", "rounds", 0, "The federation ends after this many rounds; 0: never."),
    Setting("fault_model", "fault_model", "byzantine", FAULT_MODEL_HELP),
    Setting("round_interval_s", "round_interval_ms", 0.0, ROUND_INTERVAL_HELP, 1_000),
    Setting(
        "contributors_per_round",
        "contributors_per_round",
        0,
        "Members that contribute in a round, drawn by the chain; 0: all.",
    ),
    Setting(
        "contribution_quorum",
        "contribution_quorum",
        0,
        "Fewest posts that close a phase; 0: a quorum of its contributors.",
    ),
    Setting("phase_timeout_s", "phase_timeout_ms", 60.0, "Seconds that a phase waits at most.", 1_000),
    Setting("phase_floor_s", "phase_floor_ms", 5.0, "Seconds that a phase waits at least.", 1_000),
    Setting(
        "vote_timeout_s",
        "vote_timeout_ms",
        1.0,
        "Seconds that the first attempt to decide a block waits for votes.",
        1_000,
    ),
    Setting(
        "omission_slack_s",
        "omission_slack_ms",
        2.0,
        "A peer does not vote for a block that leaves out a post which it has held for so many seconds.",
        1_000,
    ),
    Setting("committee_size", "committee_size", 0, "Members that vote on a block, drawn by the chain; 0: all."),
    Setting("mining_s", "target_mining_time_ms", 4.0, "Seconds that mining shall take.", 1_000),
    Setting("attempts", "initial_bits", 8_000, "Hashes behind the first block; later ones follow mining_s."),
    Setting("proof_function", "proof_function", "scrypt", "Hash of the proof of work: scrypt or sha256d."),
    Setting(
        "payload_mib_max",
        "payload_size_max",
        0,
        "Mebibytes of one post at most; 0: as much as the model needs, at least 64.",
        2**20,
    ),
    Setting(
        "inline_kib_max",
        "inline_size_max",
        64,
        "Kibibytes up to which a post travels inside the message that announces it.",
        2**10,
    ),
    Setting(
        "retention_blocks",
        "retention_blocks",
        1_000,
        "Blocks whose payloads are kept; older ones are dropped. 0: keep all.",
    ),
)
"""Every field of the document that can be chosen by itself, in the order of help."""


PRODUCTION = {"aggregator": (AUTO, AGGREGATOR_HELP), "centralized": (False, CENTRALIZED_HELP)}
"""Default and help of the settings that say which members write blocks, by name."""

CONSENSUS = MappingProxyType(
    PRODUCTION | {item.name: (item.default, item.text) for item in SETTINGS if item.name != "rounds"}
)
"""Default and help of the settings that ``--set`` takes, by name. The number of rounds has an option."""


def consensus_fields(chosen: Mapping[str, Any]) -> dict[str, Any]:
    """The document's fields for these settings; those that are absent have their defaults.

    Raises:
        NodeConfigError: a value is unknown, out of range, or contradicts another one.
        ConfigurationError: a duration is invalid.
    """
    from fedchain.chain.difficulty import bits_from_attempts
    from fedchain.chain.genesis import FaultModel
    from fedchain.node.config import NodeConfigError
    from fedchain.node.founding.task import milliseconds

    chosen = {setting.name: setting.default for setting in SETTINGS} | dict(chosen)
    found: dict[str, Any] = {}
    for setting in SETTINGS:
        value = chosen[setting.name]
        if setting.per_unit == 1_000:
            may_be_zero = setting.name in ("round_interval_s", "phase_floor_s", "omission_slack_s")
            found[setting.field] = 0 if may_be_zero and value == 0 else milliseconds(setting.name, value)
        else:
            found[setting.field] = value * setting.per_unit
    if not 1 <= chosen["attempts"] <= ATTEMPTS_MAX:
        raise NodeConfigError(f"attempts is {chosen['attempts']}, it must be from 1 to {ATTEMPTS_MAX:,}")
    if chosen["phase_floor_s"] > chosen["phase_timeout_s"]:
        floor_s, timeout_s = (chosen[name] for name in ("phase_floor_s", "phase_timeout_s"))
        raise NodeConfigError(
            f"a phase would wait at least {floor_s:g} s (phase_floor_s) and at most {timeout_s:g} s (phase_timeout_s)"
        )
    found["initial_bits"] = bits_from_attempts(chosen["attempts"])
    names = [model.value for model in FaultModel]
    if chosen["fault_model"] not in names:
        raise NodeConfigError(f"fault_model is {chosen['fault_model']!r}, it must be one of {', '.join(names)}")
    found["fault_model"] = FaultModel(chosen["fault_model"])
    if not chosen["payload_mib_max"]:
        del found["payload_size_max"]
    return found
