"""One part: each event moves it from one state to another, and its listings go with it."""

import pytest

from fedchain.node.core.contents.tracked_part import Claim, PartState, TrackedPart
from tests.support.chain.builders import genesis, keys, post

ALICE, BOB = keys(2)
LISTED = Claim(4, ALICE.public_key, post(ALICE, genesis(), 1, b"list"), b"list")
KNOWN = Claim(4, BOB.public_key, None, b"")


def claimed(*claims: Claim) -> TrackedPart:
    """A part that is wanted for some listings."""
    part = TrackedPart()
    part.begin()
    part.claims += claims
    return part


@pytest.mark.parametrize("claims", [(LISTED, KNOWN), (KNOWN, LISTED)])
def test_a_part_is_checked_by_the_listing_of_the_knowledge_if_there_is_one(claims: tuple[Claim, ...]) -> None:
    part = claimed(*claims)
    assert part.arrive() is KNOWN
    assert part.state is PartState.KEEPING
    assert claimed(LISTED).arrive() is LISTED


def test_a_part_that_was_written_is_here_and_nothing_waits_for_it() -> None:
    part = claimed(LISTED)
    part.is_awaited = True
    part.arrive()
    assert part.is_under_way
    part.keep()
    assert (part.state, part.claims, part.is_awaited, part.is_spared) == (PartState.HERE, [], False, True)
    assert not part.is_under_way


def test_a_part_that_was_not_written_hands_its_listings_back() -> None:
    part = claimed(LISTED, KNOWN)
    part.arrive()
    assert part.refuse() == [LISTED, KNOWN]
    assert (part.state, part.claims) == (PartState.UNKNOWN, [])


def test_another_head_ends_a_download_but_not_the_writing() -> None:
    wanted, written = claimed(LISTED), claimed(LISTED)
    written.arrive()
    for part in (wanted, written):
        part.claim_anew([KNOWN])
    assert (wanted.state, wanted.claims) == (PartState.UNKNOWN, [])
    assert (written.state, written.claims) == (PartState.KEEPING, [KNOWN])


def test_only_what_was_found_on_the_disk_is_doubted() -> None:
    found, wanted = TrackedPart(), claimed(LISTED)
    found.find()
    for part in (found, wanted):
        part.doubt()
    assert (found.state, wanted.state) == (PartState.UNKNOWN, PartState.WANTED)


def test_a_part_of_which_nothing_is_known_need_not_be_remembered() -> None:
    assert not TrackedPart().is_of_use()
    for remembered in (TrackedPart(judged={b"post": False}), TrackedPart(is_spared=True), claimed(LISTED)):
        assert remembered.is_of_use()
    awaited = TrackedPart(is_awaited=True)
    awaited.give_up()
    assert not awaited.is_awaited
    assert awaited.is_of_use()
