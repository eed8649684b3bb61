"""The founding document: it contradicts itself in no way, and its hash says everything."""

from dataclasses import fields
from typing import Any

import pytest

from fedchain.chain.difficulty import bits_from_target
from fedchain.chain.encoding import decode, encode
from fedchain.chain.exceptions import InvalidEncoding, InvalidGenesis
from fedchain.chain.genesis import (
    GENESIS_SIZE_MAX,
    KNOWLEDGE_SIZE_MAX,
    Admission,
    AggregatorRule,
    Contributor,
    FaultModel,
    Genesis,
    PhaseRule,
)
from fedchain.crypto.address import address
from fedchain.crypto.hashing import sha256
from fedchain.crypto.keys import is_valid_signature
from tests.support.chain.builders import CREATED_MS, GLOBAL, UPDATE, genesis, keys
from tests.support.chain.changes import living_genesis

FULL: dict[str, Any] = {
    "setup": (PhaseRule("key_shares", Contributor.PARTICIPANT, 2),),
    "phases": (UPDATE, GLOBAL),
    "learning": (("batch", "32"), ("method", '"süm"')),
    "rounds": 9,
    "aggregator": AggregatorRule.ROTATING,
    "centralized": True,
    "proof_function": "scrypt",
    "committee_size": 3,
    "contributors_per_round": 2,
    "contribution_quorum": 2,
    "fault_model": FaultModel.CRASH,
}


FULL_CHAIN_ID = "644baf851bbcdad16803396fcbcac079c3580b3e93849c6fd8340a8e30d551bf"


@pytest.mark.parametrize("overrides", [{}, FULL], ids=["plain", "full"])
def test_a_document_is_read_back(overrides: dict[str, Any]) -> None:
    document = genesis(4, **overrides)
    again = Genesis.decode(document.encode())
    assert again == document
    assert again.chain_id == document.chain_id == sha256(document.encode())


def test_the_chain_id_is_fixed() -> None:
    """Any change of this number is a change of the protocol: it needs a new version."""
    assert genesis(4, **FULL).chain_id.hex() == FULL_CHAIN_ID


DEDICATED = AggregatorRule.DEDICATED

CHANGES: dict[str, Any] = {
    "name": "other",
    "created_ms": CREATED_MS + 1,
    "members": tuple(key.public_key for key in reversed(keys(4))),
    "learning": (("method", '"product"'),),
    "setup": (UPDATE,),
    "phases": (UPDATE, UPDATE),
    "rounds": 1,
    "aggregator": AggregatorRule.FIXED,
    "proof_function": "scrypt",
    "initial_bits": bits_from_target(2**200),
    "target_mining_time_ms": 4_001,
    "fault_model": FaultModel.CRASH,
    "contribution_quorum": 2,
    "phase_timeout_ms": 60_001,
    "phase_floor_ms": 5_001,
    "vote_timeout_ms": 1_001,
    "committee_size": 1,
    "contributors_per_round": 1,
    "payload_size_max": 2**20,
    "inline_size_max": 2**10,
    "retention_blocks": 100,
    "omission_slack_ms": 2_001,
    "round_interval_ms": 1,
}


def test_any_change_changes_the_chain_id() -> None:
    untested = {item.name for item in fields(Genesis) if item.init} - set(CHANGES)
    # Centralized needs an aggregator, see below; the others are of version 3.
    of_version_3 = {"admission", "sponsors", "away_after", "late_rounds", "patience_percent"}
    assert untested == {"version", "centralized", *of_version_3}
    ids = [genesis(4).chain_id] + [genesis(4, **{name: value}).chain_id for name, value in CHANGES.items()]
    ids.append(genesis(4, aggregator=AggregatorRule.FIXED, centralized=True).chain_id)
    ids.append(genesis(4, phases=(PhaseRule("update", Contributor.PARTICIPANT, 1),)).chain_id)
    ids += [genesis(4, phases=(UPDATE, GLOBAL), aggregator=rule).chain_id for rule in list(AggregatorRule)[1:]]
    living: tuple[dict[str, Any], ...] = ({}, {"away_after": 1}, {"admission": Admission.CLOSED}, {"late_rounds": 1})
    ids += [living_genesis(4, **fields).chain_id for fields in living]
    ids.append(living_genesis(4, patience_percent=99).chain_id)
    ids += [living_genesis(4, admission=Admission.SPONSORS, sponsors=count).chain_id for count in (1, 2)]
    assert len(set(ids)) == len(ids)


RULES: list[tuple[dict[str, Any], str]] = [
    ({"version": 1}, "version is 1, this program speaks 2 and 3"),
    ({"version": 4}, "version is 4, this program speaks 2 and 3"),
    ({"admission": Admission.QUORUM}, "members of a version 2 document are the same for ever"),
    ({"away_after": 1}, "members of a version 2 document are the same for ever"),
    ({"patience_percent": 99}, "patience_percent begins with version 3"),
    ({"version": 3, "patience_percent": 10_001}, "patience_percent is 10001, it must be between 0 and 10000"),
    ({"version": 3, "away_after": 2**16 + 1}, "away_after is 65537, it must be between 0 and 65536"),
    ({"late_rounds": 1}, "late_rounds begins with version 3"),
    ({"version": 3, "late_rounds": 17}, "late_rounds is 17, it must be between 0 and 16"),
    (
        {"version": 3, "late_rounds": 2, "retention_blocks": 2},
        "retention_blocks is 2, late_rounds = 2 needs at least 3, or 0",
    ),
    (
        {"version": 3, "admission": Admission.QUORUM, "sponsors": 1},
        "sponsors is 1, it must be 0 unless admission is sponsors",
    ),
    ({"version": 3, "admission": Admission.SPONSORS}, "sponsors is 0, it must be between 1 and 4"),
    ({"members": ()}, "members is empty, a federation has at least 1"),
    ({"members": (bytes(32), bytes(32))}, f"members holds {address(bytes(32))} more than once"),
    ({"members": (bytes(32), bytes(31))}, "members must be 32 bytes each"),
    ({"learning": (("b", "1"), ("a", "1"))}, "learning must be sorted and without repetition"),
    ({"learning": (("a", "1"), ("a", "1"))}, "learning must be sorted and without repetition"),
    ({"phases": ()}, "phases is empty, a round has at least 1"),
    ({"phases": (UPDATE, GLOBAL)}, "aggregator is none, but a phase or centralized = 1 needs one"),
    ({"setup": (GLOBAL,)}, "aggregator is none, but a phase or centralized = 1 needs one"),
    ({"centralized": True}, "aggregator is none, but a phase or centralized = 1 needs one"),
    ({"aggregator": DEDICATED}, "aggregator is dedicated, but no phase and no block is its own"),
    (
        {"aggregator": DEDICATED, "phases": (GLOBAL,), "members": (keys(1)[0].public_key,)},
        "aggregator is dedicated, which takes at least 2 members, found 1",
    ),
    (
        {"aggregator": DEDICATED, "centralized": True, "contributors_per_round": 4},
        "contributors_per_round is 4, it must be between 0 and 3",
    ),
    (
        {"aggregator": DEDICATED, "centralized": True, "contribution_quorum": 4},
        "contribution_quorum is 4, it must be between 0 and 3",
    ),
    ({"proof_function": "md5"}, "proof_function is 'md5', not ['scrypt', 'sha256d']"),
    ({"initial_bits": 0}, "initial_bits is 0x0, not a compact target"),
    ({"initial_bits": 0x2100FFFF}, "initial_bits is 0x2100ffff, not a compact target"),
    ({"contributors_per_round": 2, "contribution_quorum": 3}, "contribution_quorum is 3, it must be between 0 and 2"),
    (
        {
            "contributors_per_round": 2,
            "contribution_quorum": 0,
            "phases": (PhaseRule("a", Contributor.PARTICIPANT, 3),),
        },
        "quorum of a is 3, it must be between 0 and 2",
    ),
    ({"setup": (PhaseRule("a", Contributor.PARTICIPANT, 5),)}, "quorum of a is 5, it must be between 0 and 4"),
    ({"phases": (PhaseRule("a", Contributor.PARTICIPANT, -1),)}, "quorum of a is -1, it must be between 0 and 4"),
    ({"payload_size_max": 5, "inline_size_max": 6}, "inline_size_max is 6, it must be between 0 and 5"),
]

RANGES: dict[str, tuple[int, int]] = {
    "contribution_quorum": (0, 4),
    "committee_size": (0, 4),
    "contributors_per_round": (0, 4),
    "target_mining_time_ms": (4, 2**40),
    "phase_timeout_ms": (1, 2**40),
    "phase_floor_ms": (0, 2**40),
    "vote_timeout_ms": (1, 2**32),
    "payload_size_max": (1, 2**30),
    "inline_size_max": (0, 2**18),
    "retention_blocks": (0, 2**32),
    "omission_slack_ms": (0, 2**32),
    "round_interval_ms": (0, 2**40),
    "created_ms": (0, 2**48),
    "rounds": (0, 2**32),
}


@pytest.mark.parametrize(("overrides", "message"), RULES, ids=[message for _, message in RULES])
def test_a_contradiction_is_named(overrides: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidGenesis) as caught:
        genesis(4, **overrides)
    assert str(caught.value) == message


@pytest.mark.parametrize(("name", "low", "high"), [(name, *limits) for name, limits in RANGES.items()])
def test_a_number_out_of_range_is_named_with_its_range(name: str, low: int, high: int) -> None:
    room = {"inline_size_max": 0} if name == "payload_size_max" else {}
    for value in (low, high):
        assert getattr(genesis(4, **{**room, name: value}), name) == value
    for value in (low - 1, high + 1):
        with pytest.raises(InvalidGenesis) as caught:
            genesis(4, **{**room, name: value})
        assert str(caught.value) == f"{name} is {value}, it must be between {low} and {high}"


def test_every_number_has_a_range() -> None:
    kinds = {item.name for item in fields(Genesis) if item.init and item.type is int}
    assert kinds == {*RANGES, "version", "initial_bits", "sponsors", "away_after", "late_rounds", "patience_percent"}


def _record(**changes: Any) -> bytes:
    names = [item.name for item in fields(Genesis) if item.init]
    record = decode(genesis(4, **FULL).encode(), GENESIS_SIZE_MAX)
    for name, value in changes.items():
        record[names.index(name)] = value
    return encode(record)


def test_the_record_is_built_right() -> None:
    assert _record() == genesis(4, **FULL).encode()


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        ({"centralized": 2}, InvalidGenesis, "centralized is 2, it must be 0 or 1"),
        (
            {"aggregator": "me"},
            InvalidGenesis,
            "aggregator is 'me', it must be one of none, fixed, rotating, dedicated",
        ),
        ({"fault_model": "none"}, InvalidGenesis, "fault_model is 'none', it must be one of byzantine, crash"),
        ({"phases": [["x", "me", 0]]}, InvalidGenesis, "phase is 'me', it must be one of participant, aggregator"),
        ({"phases": [["x", "participant"]]}, InvalidEncoding, "genesis phase: 2 fields found, 3 fields expected"),
        ({"phases": ["x"]}, InvalidEncoding, "genesis phase: str found, 3 fields expected"),
        ({"members": [7]}, InvalidEncoding, "genesis members: field 0 is int, bytes expected"),
        ({"learning": [["x", 7]]}, InvalidEncoding, "genesis learning: field 1 is int, str expected"),
        ({"name": b"x"}, InvalidEncoding, "genesis: field 1 is bytes, str expected"),
        ({"rounds": "x"}, InvalidEncoding, "genesis: field 7 is str, int expected"),
    ],
)
def test_a_malformed_record_is_refused(changes: dict[str, Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error) as caught:
        Genesis.decode(_record(**changes))
    assert str(caught.value) == message


@pytest.mark.parametrize("data", [b"", b"\x90", b"\xc0", genesis(4).encode()[:-1], genesis(4).encode() + b"\x00"])
def test_other_bytes_are_refused(data: bytes) -> None:
    with pytest.raises(InvalidEncoding):
        Genesis.decode(data)


def test_all_but_a_dedicated_aggregator_participate() -> None:
    members = [key.public_key for key in keys(3)]
    dedicated = genesis(3, aggregator=DEDICATED, phases=(UPDATE, GLOBAL))
    assert dedicated.participants == tuple(members[:2])
    assert genesis(3).participants == genesis(3, aggregator=AggregatorRule.FIXED).participants == tuple(members)
    assert Genesis.decode(dedicated.encode()) == dedicated


@pytest.mark.parametrize(
    ("members", "payload", "knowledge"),
    [(3, 2**20, 3 * 2**20), (300, 2**20, KNOWLEDGE_SIZE_MAX), (3, 2**30, 2**30)],
)
def test_knowledge_may_have_the_size_of_all_payloads_up_to_a_limit_but_always_that_of_one(
    members: int, payload: int, knowledge: int
) -> None:
    assert genesis(members, payload_size_max=payload).knowledge_size_max == knowledge


def test_round_0_holds_the_setup() -> None:
    document = genesis(4, **FULL)
    assert document.phases_of(0) == document.setup
    assert document.phases_of(1) == document.phases_of(2) == document.phases


def test_members_are_found_by_their_key() -> None:
    document = genesis(4)
    assert [document.index[member] for member in document.members] == [0, 1, 2, 3]
    assert bytes(32) not in document.index


# --- versions


def _version_1() -> bytes:
    """A document as version 1 wrote it: its fields, in its order."""
    members = [key.public_key for key in keys(3)]
    return encode(
        [
            *(1, "old", CREATED_MS, members, [["method", '"fedavg"']], [], [["update", "participant"]], 0, "none", 0),
            *("scrypt", 0x1F00FFFF, 4_000, 50, 1, 60_000, 3, 1, 0, 0, 64 * 2**20, 64 * 2**10, 0, 2_000, 2_000),
        ]
    )


def test_a_document_of_version_1_is_refused_and_says_what_to_do() -> None:
    with pytest.raises(InvalidGenesis) as caught:
        Genesis.decode(_version_1())
    assert str(caught.value) == (
        "version is 1, this program speaks 2 and 3: a chain of another version is not carried over, found a new one"
    )


@pytest.mark.parametrize("version", [0, 1, 4, 2**64 - 1])
def test_another_version_is_named_before_anything_else_is_looked_at(version: int) -> None:
    for data in (encode([version]), encode([version, b"", []]), _record(version=version)):
        with pytest.raises(InvalidGenesis, match=f"^version is {version}, this program speaks 2 and 3: "):
            Genesis.decode(data)


# --- keys


SMALL_ORDER = (
    bytes(32),  # order 4: y = 0
    b"\x01" + bytes(31),  # order 1: anybody signs for it
    bytes.fromhex("ecffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f"),  # order 2
    bytes.fromhex("26e8958fc2b227b045c3f489f2ef98f0d5dfac05d3c63339b13802886d53fc05"),  # order 8
    bytes.fromhex("c7176a703d4dd84fba3c0b760d10670f2a2053fa2c39ccc64ec7fd7792ac037a"),  # order 8
)
OTHER_SPELLINGS = (
    bytes.fromhex("edffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f"),  # y = p, which is 0
    bytes.fromhex("eeffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f"),  # y = p + 1, which is 1
    b"\x01" + bytes(30) + b"\x80",  # x = 0 with the sign of another
)
NO_POINTS = (b"\x02" + bytes(31), b"\xff" * 32)


@pytest.mark.parametrize("key", [*SMALL_ORDER, *OTHER_SPELLINGS, *NO_POINTS], ids=bytes.hex)
def test_a_key_that_anybody_can_sign_for_or_that_has_two_spellings_is_refused(key: bytes) -> None:
    members = tuple(item.public_key for item in keys(3))
    with pytest.raises(InvalidGenesis) as caught:
        genesis(4, members=(*members, key))
    assert str(caught.value) == f"members holds {key.hex()}, which is no canonical Ed25519 key of the full group"
    with pytest.raises(InvalidGenesis):
        Genesis.decode(_record(members=[*members, key]))


@pytest.mark.parametrize("key", [*SMALL_ORDER, *OTHER_SPELLINGS, *NO_POINTS], ids=bytes.hex)
def test_such_a_key_signs_nothing_either(key: bytes) -> None:
    """These 64 bytes would satisfy the equation for every message under the key of order 1."""
    signature = b"\x01" + bytes(63)
    assert not any(is_valid_signature(key, signature, b"%d" % number) for number in range(20))


# --- quorums


QUORUMS = {
    FaultModel.BYZANTINE: [1, 2, 2, 3, 4, 4, 5, 6, 6, 7, 8, 8, 9, 10, 10, 11, 12, 12, 13, 14],
    FaultModel.CRASH: [1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 6, 7, 7, 8, 8, 9, 9, 10, 10, 11],
}
"""Votes that decide, of 1, 2, 3 … 20 electors."""


@pytest.mark.parametrize("model", FaultModel)
def test_the_quorums(model: FaultModel) -> None:
    assert [model.quorum(count) for count in range(1, 21)] == QUORUMS[model]
    assert model.quorum(0) == 1  # nobody is left, and nobody decides


def test_how_many_may_lie() -> None:
    assert [FaultModel.BYZANTINE.faulty(count) for count in range(11)] == [0, 0, 0, 0, 1, 1, 1, 2, 2, 2, 3]
    assert [FaultModel.CRASH.faulty(count) for count in range(11)] == [0] * 11


@pytest.mark.parametrize("count", range(1, 200))
def test_two_quorums_share_an_honest_elector_and_the_honest_are_one(count: int) -> None:
    quorum, faulty = FaultModel.BYZANTINE.quorum(count), FaultModel.BYZANTINE.faulty(count)
    assert 2 * quorum - count > faulty
    assert count - faulty >= quorum
    assert 3 * faulty < count <= 3 * faulty + 3
    majority = FaultModel.CRASH.quorum(count)
    assert 2 * majority > count >= majority


def test_a_field_that_came_later_is_written_only_where_it_says_something() -> None:
    without, with_it = (decode(genesis(4, **given).encode(), 2**20) for given in ({}, {"round_interval_ms": 5}))
    assert with_it == [*without, 5]
    assert Genesis.decode(encode(with_it)).round_interval_ms == 5
    assert Genesis.decode(encode(without)).round_interval_ms == 0
    with pytest.raises(InvalidEncoding, match="round_interval_ms: 0 is not written"):
        Genesis.decode(encode([*without, 0]))
