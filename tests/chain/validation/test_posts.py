"""Each rule of a post on its own, and of the content that it signs."""

from dataclasses import replace
from typing import Any

import pytest

from fedchain.chain.exceptions import (
    InvalidPayload,
    InvalidPost,
    InvalidSignature,
    OutOfWindow,
    Refused,
)
from fedchain.chain.genesis import AggregatorRule
from fedchain.chain.validation.posts import validate_content, validate_post, validate_window
from fedchain.crypto.hashing import sha256
from fedchain.crypto.keys import is_valid_signature
from tests.support.chain.builders import (
    GLOBAL,
    UPDATE,
    ChainBuilder,
    genesis,
    payload,
    post,
)
from tests.support.chain.scene import (
    KEYS,
    STRANGER,
    TWO_PHASES,
    Scene,
    with_conviction,
)


def _transaction_cases() -> list[tuple[str, dict[str, Any], type[Refused], str]]:
    stranger = STRANGER.public_key
    return [
        ("sender", {"sender": stranger}, InvalidSignature, f"{stranger.hex()} is no member"),
        ("phase", {"phase": 1}, InvalidPost, "1 found, round 3 has 1"),
        ("phase", {"phase": 2**64 - 1}, InvalidPost, f"{2**64 - 1} found, round 3 has 1"),
        ("phase", {"round": 0}, InvalidPost, "0 found, round 0 has 0"),
        ("round", {"round": 4}, InvalidPost, "4 found, the last is 3"),
        ("round", {"round": 2**64 - 1}, InvalidPost, f"{2**64 - 1} found, the last is 3"),
        ("payload size", {"payload_size": 1_001}, InvalidPost, "1001 bytes found, at most 1000 are allowed"),
        (
            "payload size",
            {"payload_size": 2**64 - 1},
            InvalidPost,
            f"{2**64 - 1} bytes found, at most 1000 are allowed",
        ),
    ]


@pytest.mark.parametrize(
    ("rule", "changes", "error", "message"),
    _transaction_cases(),
    ids=[f"{rule} {changes}" for rule, changes, _, _ in _transaction_cases()],
)
def test_a_post_that_breaks_a_rule_is_refused(
    rule: str, changes: dict[str, Any], error: type[Refused], message: str
) -> None:
    scene = Scene(rounds=3, payload_size_max=1_000, inline_size_max=1_000)
    bad = scene.post(**changes)
    with pytest.raises(error) as caught:
        validate_post(scene.genesis, scene.parent, bad, is_valid_signature)
    assert type(caught.value) is error
    assert (caught.value.rule, str(caught.value)) == (rule, f"{rule}: {message}")


def test_a_post_that_its_sender_did_not_sign_is_the_fault_of_who_passed_it_on() -> None:
    scene, other = Scene(), genesis(4, name="other")
    foreign = post(KEYS[0], other, 3, payload(1))
    for bad in (replace(scene.posts[0], payload_size=33), foreign):
        with pytest.raises(InvalidSignature, match=r"^signature: "):
            validate_post(scene.genesis, scene.parent, bad, is_valid_signature)
    validate_post(other, ChainBuilder(other).state, foreign, is_valid_signature)


def test_only_the_aggregator_posts_to_its_phases() -> None:
    """Anyone else's post could never be counted, and everybody would fetch and keep its payload."""
    scene = Scene(phases=(UPDATE, GLOBAL), aggregator=AggregatorRule.ROTATING)
    for round_number, phase, place in ((3, 1, 3), (4, 1, 0), (4, 0, 2)):
        good = scene.post(round=round_number, phase=phase, sender=KEYS[place].public_key)
        validate_post(scene.genesis, scene.parent, good, is_valid_signature)
    bad = scene.post(round=3, phase=1, sender=KEYS[1].public_key)
    with pytest.raises(InvalidPost) as caught:
        validate_post(scene.genesis, scene.parent, bad, is_valid_signature)
    member, aggregator = KEYS[1].public_key.hex(), KEYS[3].public_key.hex()
    found = f"{member} posts to phase 1 of round 3, which is the aggregator's, {aggregator}"
    assert str(caught.value) == f"contributor: {found}"


def test_a_dedicated_aggregator_posts_to_no_other_phase() -> None:
    scene = Scene(phases=(UPDATE, GLOBAL), aggregator=AggregatorRule.DEDICATED)
    aggregator = scene.genesis.members[-1]
    validate_post(scene.genesis, scene.parent, scene.post(round=3, phase=1, sender=aggregator), is_valid_signature)
    with pytest.raises(InvalidPost) as caught:
        validate_post(scene.genesis, scene.parent, scene.post(round=3, phase=0, sender=aggregator), is_valid_signature)
    found = f"{aggregator.hex()}, without data, posts to phase 0 of round 3, which is the participants'"
    assert str(caught.value) == f"contributor: {found}"


def test_a_post_of_a_convicted_member_is_ignored_and_nobody_is_blamed() -> None:
    scene = with_conviction()
    with pytest.raises(OutOfWindow) as caught:
        validate_post(scene.genesis, scene.parent, scene.post(sender=KEYS[1].public_key), is_valid_signature)
    assert str(caught.value) == f"sender: {KEYS[1].public_key.hex()} was convicted"


def test_the_largest_payload_is_valid() -> None:
    scene = Scene(payload_size_max=1_000, inline_size_max=1_000)
    validate_post(scene.genesis, scene.parent, scene.post(payload_size=1_000), is_valid_signature)


@pytest.mark.parametrize(
    ("step", "inside"),
    [
        ((2, 1), False),
        ((3, 0), False),
        ((3, 1), True),
        ((4, 0), True),
        ((4, 1), True),
        ((5, 0), False),
        ((2**64 - 1, 0), False),
    ],
)
def test_the_window_is_the_open_phase_to_the_end_of_the_next_round(step: tuple[int, int], inside: bool) -> None:
    scene = Scene(**TWO_PHASES)
    state = replace(scene.parent, round=3, phase=1)
    post = scene.post(round=step[0], phase=step[1])
    if inside:
        validate_window(state, post)
        return
    with pytest.raises(OutOfWindow) as caught:
        validate_window(state, post)
    assert str(caught.value) == f"post's round: {step} found, (3, 1) is open"


def test_nothing_is_posted_after_the_end() -> None:
    scene = Scene(rounds=2)
    with pytest.raises(OutOfWindow, match=r"^post's round: \(3, 0\) found"):
        validate_window(scene.parent, scene.post(round=3))


def test_a_payload_is_what_was_signed() -> None:
    content, other = payload(1), payload(2)
    signed = post(KEYS[0], genesis(4), 1, content)
    validate_content(signed.payload_hash, signed.payload_size, content)
    for wrong, message in (
        (content + b"\x00", "payload size: 33 bytes found, 32 signed"),
        (b"", "payload size: 0 bytes found, 32 signed"),
        (other, f"payload hash: {sha256(other).hex()} found, {sha256(content).hex()} signed"),
    ):
        with pytest.raises(InvalidPayload) as caught:
            validate_content(signed.payload_hash, signed.payload_size, wrong)
        assert str(caught.value) == message
