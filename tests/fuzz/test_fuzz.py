"""Hundreds of damaged inputs for every target, those that once did harm, and proof that a defect is noticed."""

from contextlib import suppress
from pathlib import Path
from random import Random

import msgpack
import pytest

from fedchain.chain.encoding import decode, encode
from fedchain.chain.exceptions import InvalidEncoding
from tests.fuzz.__main__ import TARGETS, report
from tests.fuzz.engine import CORPUS, FINDINGS_MAX, Finding, Outcome, Session, Target, fuzz, replay
from tests.fuzz.mutation import mutate, mutate_text
from tests.fuzz.victim import NODE, Victim
from tests.support.chain.builders import genesis

EXECUTIONS = {"node": 100, "conversation": 20, "payload": 200, "knowledge": 200, "genesis": 100, "scenario": 60}
STORED = sorted(path for path in CORPUS.glob("*/*") if path.is_file())


@pytest.mark.long
@pytest.mark.parametrize("target", TARGETS, ids=lambda target: target.name)
def test_damaged_input_does_no_harm(target: Target) -> None:
    executions = EXECUTIONS.get(target.name.split("-")[0], 300)
    outcome = fuzz(target, 1, executions_max=executions)
    assert outcome.executions >= executions
    assert len(outcome.behaviours) > 1
    assert [finding.trace for finding in outcome.findings.values()] == []


@pytest.mark.parametrize("path", STORED, ids=lambda path: f"{path.parent.name}/{path.name}")
def test_what_once_did_harm_does_no_more(path: Path) -> None:
    (target,) = (target for target in TARGETS if target.name == path.parent.name)
    finding = replay(target, path.read_bytes())
    assert finding is None, finding.trace


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("genesis", genesis(1, learning=(("seed", "[" * 5_000),)).encode()),
        ("scenario", b"peers = 0x" + b"f" * 5_000),
        ("scenario", b"peers = " + b"9" * 5_000),
        ("encoding", (b"\xdd" + (2**15 - 5_000).to_bytes(4, "big")) * 900 + bytes(2**15 - 4_500)),
    ],
    ids=["endless brackets", "endless hexadecimals", "endless digits", "lists that announce too much"],
)
def test_what_is_too_long_for_a_file_does_no_harm(name: str, data: bytes) -> None:
    (target,) = (target for target in TARGETS if target.name == name)
    finding = replay(target, data)
    assert finding is None, finding.trace


def test_the_valid_stories_lead_somewhere() -> None:
    victim = Victim()
    heights = [victim.run(story).partition(":")[0] for story in NODE.open().seeds[:8]]
    assert heights == ["3", "3", "3", "3", "4", "4", "3", "3"]


@pytest.mark.slow
@pytest.mark.long
def test_a_node_that_checks_no_signatures_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fedchain.crypto.signature_memory.is_valid_signature", lambda *_: True)
    outcome = fuzz(NODE, 2, executions_max=1_500)
    assert any("damaged" in finding.what for finding in outcome.findings.values())


def _careless(data: bytes) -> str:
    value = msgpack.unpackb(data)
    return f"{type(value).__name__}"


def _greedy(data: bytes) -> str:
    return f"{len(bytes(2**26))} for {len(data)}"


def test_a_defect_is_found_and_written_down(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.fuzz.__main__.CORPUS", tmp_path)
    seeds = [encode([1, b"two", ["three"]])]
    careless = Target("careless", lambda: Session(seeds, _careless))
    outcome = fuzz(careless, 1, executions_max=500)
    assert 0 < len(outcome.findings) <= FINDINGS_MAX
    report(careless, outcome)
    written = {path.read_bytes() for path in tmp_path.glob("careless/*")}
    assert written == {finding.data for finding in outcome.findings.values()}
    greedy = fuzz(Target("greedy", lambda: Session(seeds, _greedy)), 1, executions_max=50)
    assert [("allocated" in finding.what) for finding in greedy.findings.values()] == [True]


def test_the_same_seed_gives_the_same_inputs() -> None:
    seeds = [encode([1, b"two" * 30, ["three"]]), encode([b"x", 2**40])]
    for damage in (mutate, mutate_text):
        runs = [[damage(seeds[0], seeds[1], Random(n)) for n in range(200)] for _ in range(2)]
        assert runs[0] == runs[1]
        assert len(set(runs[0])) > 100


def test_structured_damage_often_stays_readable() -> None:
    data, readable = encode([1, b"two", ["three", 4, 5, b"six"]]), 0
    for number in range(500):
        with suppress(InvalidEncoding):
            decode(mutate(data, data, Random(number)), 2**16)
            readable += 1
    assert readable > 50


def test_findings_show_their_error_and_not_their_input() -> None:
    assert repr(Finding(b"secret", "what", "trace")) == "Finding(what='what')"
    assert Outcome().executions == 0
