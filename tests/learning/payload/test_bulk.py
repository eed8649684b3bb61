"""Payloads by reference: what a post lists, who may read it, and what becomes of bytes that are missing or wrong."""

from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
import pytest
import zstandard
from numpy.typing import NDArray

from fedchain.crypto.hashing import sha256
from fedchain.learning.application import Application
from fedchain.learning.client import Client
from fedchain.learning.config import LearningConfig
from fedchain.learning.exceptions import InvalidPayload, NothingToPost, OwnCodeFailed, TrainingDiverged
from fedchain.learning.payload import bulk
from fedchain.learning.payload.bulk import (
    AGGREGATOR,
    EVERYBODY,
    NEXT_AGGREGATOR,
    PART_SIZE_MAX,
    PartRef,
    check_manifest,
    decode_part,
    manifest,
    oversized,
)
from fedchain.learning.payload.codec import decode, encode
from fedchain.learning.payload.spec import TensorSpec
from fedchain.learning.round import OffChain, Round, Tensors, bulk_of
from tests.support.learning.parts import Players, written
from tests.support.learning.parts import config as config
from tests.support.learning.relay import Relay

NOISE = np.random.default_rng(0).standard_normal((8, 64)).astype(np.float32)
SPECS = (TensorSpec("rows", (-1, 64), free_max=8),)


def total(players: Players) -> float:
    """The sum that the aggregator has computed."""
    ref = next(part for _, part, _ in players.rules.parts_known(players.known) if part[2] == NEXT_AGGREGATOR)
    return float(decode_part(players.store.read(ref[0]), (TensorSpec("total", (64,)),))["total"][0])


def test_rows_reach_the_aggregator_and_its_answers_come_back(config: LearningConfig) -> None:
    players = Players(config)
    players.play("show", 0, range(3))
    expected = 0.0
    for number in (1, 2):
        players.play("send", number, range(3))
        assert len(players.rules.parts_known(players.known)) == 3 + 3 * 2 + (0 if number == 1 else 3 + 1)
        players.play("answer", number, range(1))
        sent = [1 + 2 + 3 + expected + place + part / 64 for place in range(3) for part in range(2)]
        expected += sum(sent) / 1024
        assert total(players) == pytest.approx(expected, rel=1e-6)
        # what was sent in the round is gone, what was shown to all and answered is in force
        assert sorted(number for number, _, _ in players.rules.parts_known(players.known)) == [0] * 3 + [number] * 4


def test_a_post_lists_its_parts_by_hash_size_and_reader(config: LearningConfig) -> None:
    players = Players(config)
    players.play("show", 0, range(3))
    payload = players.play("send", 1, range(3))[1]
    parts = players.rules.parts("send", payload)
    assert [reader for _, _, reader in parts] == [AGGREGATOR, AGGREGATOR]
    assert all(len(players.store.read(part_hash)) == size for part_hash, size, _ in parts)
    assert len(payload) < 600, "a post that lists two parts of 2 KiB is small"


def test_parts_that_are_missing_count_as_not_posted(config: LearningConfig) -> None:
    players = Players(config)
    players.play("show", 0, range(3))
    players.play("send", 1, range(3))
    players.store._parts.clear()
    with pytest.raises(NothingToPost, match="member 0, round 1: nobody sent anything"):
        players.learner.contribute(0, "answer", 1, players.known)


def test_a_member_whose_method_does_not_look_for_missing_parts_has_nothing_to_post(config: LearningConfig) -> None:
    players = Players(config)
    players.play("show", 0, range(3))
    players.store._parts.clear()
    said = "peer 1, round 1: phase send cannot do without what is missing: part [0-9a-f]{64} is not here"
    with pytest.raises(NothingToPost, match=f"^{said}$"):
        players.learner.contribute(1, "send", 1, players.known)


@dataclass(frozen=True, kw_only=True)
class Taking(Relay):
    """Reads what everybody has shown as a round begins."""

    taken: ClassVar[list[float]] = []

    def receive(self, client: Client, round: Round) -> None:
        bulk = bulk_of(round)
        self.taken.extend(float(bulk.read(ref)["rows"][0, 0]) for ref in bulk.parts("show"))


def test_what_is_measured_at_the_end_is_received_with_the_parts_that_contributors_have(config: LearningConfig) -> None:
    players = Players(replace(config, method=f"{__name__}:Taking"))
    players.play("show", 0, range(3))
    Taking.taken.clear()
    players.learner.evaluate_received(0, 1, players.known)
    assert Taking.taken == [1, 2, 3]
    players.store._parts.clear()
    assert players.learner.evaluate_received(0, 1, players.known) is None, "who cannot begin a round is not measured"
    with pytest.raises(NothingToPost, match="peer 0, round 1: phase send cannot do without"):
        players.learner.contribute(0, "send", 1, players.known)


@dataclass(frozen=True, kw_only=True)
class Writing(Relay):
    """Writes a part of a kind."""

    kind: ClassVar[str] = "sent"
    part: ClassVar[Any] = None

    def send(self, client: Client, round: Round) -> Tensors:
        bulk_of(round).write(self.kind, self.part, AGGREGATOR)
        return bulk_of(round).manifest()


@pytest.mark.parametrize(
    ("kind", "part", "message"),
    [
        ("sent", {"rows": NOISE.astype(np.float64)}, "rows of a part 'sent' of phase send must be an array of .*"),
        ("sent", {"rows": NOISE.tolist()}, "rows of a part 'sent' of phase send must be an array of .*, not list"),
        ("sent", {3: NOISE}, "a part 'sent' of phase send must be arrays by name, and 3 is none"),
        ("sent", None, "a part 'sent' of phase send must be arrays by name, not NoneType"),
        ("sent", {}, "a part 'sent' of phase send is not what is stated: tensors: an array of 1 expected, found 0"),
        ("sent", {"rows": NOISE[:0]}, "a part 'sent' of phase send is not what is stated: shape of rows: .*"),
        ("shown", {"rows": NOISE}, r"a part 'shown' of phase send is written, but sent is stated \(`parts`\)"),
    ],
)
def test_a_part_that_a_method_writes_otherwise_than_it_states_is_told(
    config: LearningConfig, monkeypatch: pytest.MonkeyPatch, kind: str, part: Any, message: str
) -> None:
    monkeypatch.setattr(Writing, "kind", kind)
    monkeypatch.setattr(Writing, "part", part)
    players = Players(replace(config, method=f"{__name__}:Writing"))
    players.play("show", 0, range(3))
    with pytest.raises(OwnCodeFailed, match=f"^{message}$"):
        players.learner.contribute(2, "send", 1, players.known)


@pytest.mark.parametrize("number", [np.nan, np.inf, 2e6])
def test_who_writes_unsound_numbers_into_a_part_has_diverged(
    config: LearningConfig, monkeypatch: pytest.MonkeyPatch, number: float
) -> None:
    monkeypatch.setattr(Writing, "part", {"rows": np.full((8, 64), number, np.float32)})
    players = Players(replace(config, method=f"{__name__}:Writing"))
    players.play("show", 0, range(3))
    with pytest.raises(TrainingDiverged, match=r"^peer 2, round 1: elements of rows: .* expected, found "):
        players.learner.contribute(2, "send", 1, players.known)


def test_a_part_is_what_its_post_lists(config: LearningConfig) -> None:
    players = Players(config)
    payload = players.learner.contribute(0, "show", 0, b"").payload
    ((part_hash, size, _),) = players.rules.parts("show", payload)
    players.rules.check_part("show", payload, part_hash, players.store.read(part_hash))
    with pytest.raises(InvalidPayload, match=f"{size} bytes listed, found"):
        players.rules.check_part("show", payload, part_hash, written({"rows": NOISE}))


@pytest.mark.parametrize("wrong", [NOISE[:, :32].copy(), NOISE.astype(np.float16), NOISE * 1e7])
def test_tensors_of_a_part_follow_its_kind(wrong: NDArray[Any]) -> None:
    with pytest.raises(InvalidPayload, match="rows"):
        decode_part(written({"rows": wrong}), SPECS)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"parts.size": np.array([10], np.int64)}, "as many hashes as sizes"),
        ({"parts.unpacked": np.array([2100, PART_SIZE_MAX], np.int64)}, "bytes expected of kind rows"),
        ({"parts.size": np.array([10, PART_SIZE_MAX], np.int64)}, f"{PART_SIZE_MAX} bytes of a document that has"),
    ],
)
def test_a_list_that_contradicts_itself_is_refused(change: Tensors, message: str) -> None:
    kinds = {"rows": SPECS}
    good = dict(manifest([_ref(), _ref()], kinds))
    check_manifest(good, kinds, 2**20)
    with pytest.raises(InvalidPayload, match=message):
        check_manifest(good | dict(change), kinds, 2**20)
    with pytest.raises(InvalidPayload, match="at most 3 bytes expected together"):
        check_manifest(good, kinds, 3)


@pytest.mark.parametrize(
    ("method", "model", "phase", "allowed"),
    [
        ("fededs", "plain-cnn", "encrypt", {"encrypted": {EVERYBODY}}),
        ("fedict", "resnet2-56", "update", {"examples": {AGGREGATOR}, "late labels": {AGGREGATOR}}),
        ("fedict", "resnet2-56", "distill", {"answers": {0, 1}, "server": {NEXT_AGGREGATOR}}),
    ],
)
def test_a_part_is_listed_for_readers_of_its_kind_alone(
    method: str, model: str, phase: str, allowed: dict[str, set[int]]
) -> None:
    """Features of examples are for the aggregator: whoever lists them for all is refused."""
    members = [bytes([place + 1]) * 32 for place in range(2)]
    rules = Application(LearningConfig(method=method, model=model, clients=2), members)
    (own,) = (item for item in (*rules.method.setup, *rules.method.phases) if item.name == phase)
    kinds = rules.method.parts(own, rules.info)
    assert kinds.keys() == allowed.keys()
    for kind, readers in allowed.items():
        for reader in (0, 1, EVERYBODY, AGGREGATOR, NEXT_AGGREGATOR):
            payload = encode(manifest([replace(_ref(), kind=kind, reader=reader, size=100)], kinds))
            occasion = OffChain(phase, 0 if own in rules.method.setup else 1, members)
            if reader in readers:
                rules.check(occasion, members[0], b"", payload)
            else:
                with pytest.raises(InvalidPayload, match=rf"^parts\[0\]: kind {kind} is not for reader {reader}$"):
                    rules.check(occasion, members[0], b"", payload)


def test_parts_are_compressed_where_that_pays() -> None:
    zeros = written({"rows": np.zeros((8, 64), np.float32)})
    noise = written({"rows": NOISE})
    assert len(zeros) < 100 < 2048 < len(noise)
    assert np.array_equal(decode_part(noise, SPECS)["rows"], NOISE)
    assert not decode_part(zeros, SPECS)["rows"].any()


def test_a_small_part_that_is_large_inside_is_not_listed_a_thousand_times() -> None:
    data = written({"rows": np.zeros((8, 64), np.float32)})
    inside, kinds = bulk.unpacked_size(data), {"rows": SPECS}
    assert inside > 20 * len(data)
    refs = [PartRef(sha256(data), len(data), "rows", AGGREGATOR, unpacked=inside)] * 101
    check_manifest(manifest(refs[:100], kinds), kinds, 100 * inside)
    with pytest.raises(InvalidPayload, match="bytes expected together"):
        check_manifest(manifest(refs, kinds), kinds, 100 * inside)


def test_a_part_has_the_size_inside_that_its_post_lists(config: LearningConfig) -> None:
    players = Players(config)
    payload = players.learner.contribute(0, "show", 0, b"").payload
    ((part_hash, _, _),) = players.rules.parts("show", payload)
    tensors = dict(decode(payload, players.rules._payload_specs["show"]))
    lie = encode(tensors | {"parts.unpacked": tensors["parts.unpacked"] + 1})
    data = players.store.read(part_hash)
    with pytest.raises(InvalidPayload, match="bytes listed when unpacked, it says"):
        players.rules.check_part("show", lie, part_hash, data)


def test_a_bomb_is_not_unpacked() -> None:
    bomb = b"\1" + zstandard.ZstdCompressor().compress(bytes(2**28))
    with pytest.raises(InvalidPayload, match=r"at most .* bytes expected when unpacked, found 268435456"):
        decode_part(bomb, SPECS)
    unsized = b"\1" + zstandard.ZstdCompressor(write_content_size=False).compress(bytes(2**28))
    with pytest.raises(InvalidPayload, match="unpacked"):
        decode_part(unsized, SPECS)


@pytest.mark.parametrize("data", [b"", b"\0", b"\1", b"\2" + bytes(40), b"\1" + bytes(40)])
def test_no_bytes_get_through_that_are_no_part(data: bytes) -> None:
    with pytest.raises(InvalidPayload):
        decode_part(data, SPECS)


@pytest.mark.parametrize("seed", range(200))
def test_a_changed_byte_is_refused_or_another_number(seed: int) -> None:
    draw = np.random.default_rng(seed)
    data = bytearray(written({"rows": NOISE if seed % 2 else np.ones((8, 64), np.float32)}))
    data[draw.integers(len(data))] ^= 1 << int(draw.integers(8))
    try:
        tensors = decode_part(bytes(data), SPECS)
    except InvalidPayload:
        return
    assert tensors["rows"].shape[1] == 64
    assert np.isfinite(tensors["rows"]).all()


def _ref() -> PartRef:
    data = written({"rows": NOISE})
    return PartRef(sha256(data), len(data), "rows", AGGREGATOR, unpacked=bulk.unpacked_size(data))


def test_one_sender_lists_a_whole_part_or_64_times_what_the_median_one_does() -> None:
    assert oversized({}) == {}
    assert oversized({7: 2**30}) == {}, "there is nobody else"
    assert oversized({0: 10, 1: 20, 2: PART_SIZE_MAX}) == {}
    assert {*oversized({0: 10, 1: 20, 2: PART_SIZE_MAX + 1})} == {2}
    median = PART_SIZE_MAX
    assert oversized({0: 10, 1: median, 2: 64 * median}) == {}
    assert oversized({0: 10, 1: median, 2: 64 * median + 1}) == {
        2: "it lists parts of 1073741825 bytes unpacked, and at most 1073741824 are taken from one member"
    }
    assert {*oversized({0: 10, 1: 2**30})} == {1}, "of two the smaller one counts as the median"
