"""The peers that final blocks are asked of: a claim gets nobody a seat, and a liar costs copies, not time."""

from random import Random

import pytest

from fedchain.chain.state import NUMBER_MAX
from fedchain.network.messages import FINALS_MAX, GetFinal
from fedchain.network.source import STALL_MS
from fedchain.network.sync import (
    AT_ONCE,
    COMPARE_MS,
    OWED_MAX,
    PACE_MS_MAX,
    PASSED_OVER_MS,
    PASSED_OVER_MS_MAX,
    CatchUp,
    Wanted,
)

HONEST, OTHER, LIAR, SECOND_LIAR = (bytes([number]) * 32 for number in range(4))
STRANGER = bytes([9]) * 32
FAR = 10**9


def a_catch_up(faulty: int = 1) -> CatchUp:
    """Catching up in a federation of these four members."""
    return CatchUp([HONEST, OTHER, LIAR, SECOND_LIAR], faulty)


def test_nobody_is_asked_for_what_is_here() -> None:
    catch_up = a_catch_up()
    catch_up.claim(HONEST, 7)
    assert catch_up.ask(7, 0, 8) == []
    assert catch_up.ask(6, 0, 8) == [(HONEST, GetFinal(7, FINALS_MAX))]


def test_several_are_asked_at_once_and_no_more_before_they_answer_or_stall() -> None:
    catch_up = a_catch_up()
    for peer in (HONEST, OTHER, LIAR):
        catch_up.claim(peer, 5)
    assert len(catch_up.ask(0, 0, 8)) == AT_ONCE
    assert catch_up.ask(0, STALL_MS - 1, 8) == []
    assert [peer for peer, _ in catch_up.ask(0, STALL_MS, 8)] == [LIAR], "those that stalled are passed over"


def test_a_peer_that_was_asked_for_what_came_otherwise_did_not_stall() -> None:
    catch_up = a_catch_up()
    catch_up.claim(HONEST, 5)
    assert catch_up.ask(4, 0, 8) == [(HONEST, GetFinal(5, FINALS_MAX))]
    catch_up.reached(5)
    catch_up.claim(HONEST, 6)
    assert catch_up.ask(5, STALL_MS, 8) == [(HONEST, GetFinal(6, FINALS_MAX))]


def test_who_takes_a_claim_back_is_ahead_no_more() -> None:
    catch_up = a_catch_up()
    for height, highest in ((FAR, FAR), (7, 9), (8, 9), (9, 9), (10, 10)):
        catch_up.claim(LIAR, height)
        catch_up.claim(HONEST, 9)
        assert catch_up.highest == highest


def test_two_that_claim_what_they_do_not_have_cost_one_stall() -> None:
    catch_up = a_catch_up()
    catch_up.claim(LIAR, FAR)
    catch_up.claim(SECOND_LIAR, FAR)
    catch_up.claim(HONEST, 5)
    first = [peer for peer, _ in catch_up.ask(0, 0, 8)]
    assert set(first) == {LIAR, SECOND_LIAR}, "the worst case"
    assert catch_up.ask(0, STALL_MS, 8) == [(HONEST, GetFinal(1, FINALS_MAX))]
    catch_up.delivered(HONEST, 5, STALL_MS + 10)
    catch_up.claim(HONEST, 6)
    asked = catch_up.ask(5, STALL_MS + 20, 8)
    assert asked[0] == (HONEST, GetFinal(6, FINALS_MAX)), "who delivers comes first"


def test_a_claim_is_at_most_as_high_as_a_state_may_be() -> None:
    catch_up = a_catch_up()
    catch_up.claim(LIAR, 2**64 - 1)
    assert catch_up.ask(0, 0, 8) == [(LIAR, GetFinal(NUMBER_MAX, 1))]
    assert catch_up.take(LIAR, 2**64 - 1) is None, "no block above was asked for"
    catch_up.claim(SECOND_LIAR, 2**64 - 1)
    assert catch_up.confirmed == NUMBER_MAX
    assert catch_up.ask(0, 0, 2**63) == [(SECOND_LIAR, GetFinal(1, FINALS_MAX))], "however far, block by block"


def test_while_last_blocks_wait_only_near_peers_are_asked_and_far_ones_are_not_hurried() -> None:
    catch_up = a_catch_up()
    catch_up.claim(LIAR, FAR)
    catch_up.claim(SECOND_LIAR, FAR)
    assert len(catch_up.ask(0, 0, 8)) == AT_ONCE
    catch_up.claim(OTHER, FAR)
    catch_up.claim(HONEST, 5)
    assert catch_up.ask(0, STALL_MS, 8, is_walking=True) == [(HONEST, GetFinal(1, FINALS_MAX))]
    catch_up.goes_on(LIAR, STALL_MS)
    catch_up.drop(SECOND_LIAR)
    catch_up.drop(HONEST)
    assert [peer for peer, _ in catch_up.ask(0, STALL_MS + PASSED_OVER_MS, 8)] == [OTHER], "its time begins there"


def test_who_does_not_deliver_is_passed_over_for_longer_and_longer() -> None:
    catch_up, pauses = a_catch_up(), list[int]()
    catch_up.claim(LIAR, FAR)
    now_ms = 0
    for _ in range(4):
        assert catch_up.ask(0, now_ms, 8), "it is asked"
        stalled_ms = now_ms = now_ms + STALL_MS
        while not catch_up.ask(0, now_ms, 8):
            now_ms += 500
        pauses.append(now_ms - stalled_ms)
        catch_up.delivered(OTHER, 1, now_ms)  # somebody else's success changes nothing
        now_ms += STALL_MS
        catch_up.ask(0, now_ms, 8)
        now_ms += 2 * PASSED_OVER_MS_MAX
    assert pauses == sorted(pauses)
    assert pauses[0] == PASSED_OVER_MS
    assert pauses[-1] == PASSED_OVER_MS_MAX


def test_of_who_is_far_ahead_only_the_last_block_is_wanted() -> None:
    catch_up = a_catch_up()
    catch_up.claim(HONEST, 100)
    catch_up.claim(OTHER, 3)
    assert set(catch_up.ask(0, 0, 8)) == {(HONEST, GetFinal(100, 1)), (OTHER, GetFinal(1, FINALS_MAX))}


def test_who_delivers_half_a_batch_is_asked_for_the_next_one_which_travels_meanwhile() -> None:
    catch_up, half = a_catch_up(), FINALS_MAX // 2
    catch_up.claim(HONEST, 2 * FINALS_MAX + half)
    catch_up.ask(0, 0, 100)
    for height in range(1, half):
        catch_up.delivered(HONEST, height, height)
        assert catch_up.ask(height, height, 100) == []
    catch_up.delivered(HONEST, half, half)
    assert catch_up.ask(half, half, 100) == [(HONEST, GetFinal(FINALS_MAX + 1, FINALS_MAX))]
    assert catch_up.take(HONEST, 2 * FINALS_MAX) is Wanted.NEXT
    assert catch_up.take(HONEST, 2 * FINALS_MAX + 1) is None
    for height in range(half + 1, FINALS_MAX + half):
        catch_up.delivered(HONEST, height, height)
        assert catch_up.ask(height, height, 100) == []
    catch_up.delivered(HONEST, FINALS_MAX + half, 50)
    assert catch_up.ask(FINALS_MAX + half, 50, 100) == [(HONEST, GetFinal(2 * FINALS_MAX + 1, FINALS_MAX))]
    for height in range(FINALS_MAX + half + 1, 2 * FINALS_MAX + half + 1):
        catch_up.delivered(HONEST, height, 60)
        assert catch_up.ask(height, 60, 100) == [], "it has no more"


def test_no_more_is_asked_for_than_fits_and_an_answer_that_was_cut_short_is_held_against_nobody() -> None:
    catch_up = a_catch_up()
    catch_up.claim(HONEST, 40)
    assert catch_up.ask(0, 0, 100, 3) == [(HONEST, GetFinal(1, 3))]
    catch_up.delivered(HONEST, 1, 10)
    assert catch_up.ask(1, 10, 100, 3) == [(HONEST, GetFinal(4, 3))]
    catch_up.delivered(HONEST, 2, 10)
    catch_up.delivered(HONEST, 4, 20)
    assert catch_up.ask(4, 20 + STALL_MS, 100, 3) == [(HONEST, GetFinal(5, 3))]


def test_who_does_not_deliver_is_not_asked_for_more_because_another_one_does() -> None:
    catch_up, half = a_catch_up(), FINALS_MAX // 2
    catch_up.claim(LIAR, 100)
    catch_up.claim(HONEST, 100)
    assert {peer for peer, _ in catch_up.ask(0, 0, 1_000)} == {LIAR, HONEST}
    for height in range(1, half + 1):
        catch_up.delivered(HONEST, height, 10)
    assert [peer for peer, _ in catch_up.ask(half, 10, 1_000)] == [HONEST]
    assert catch_up.ask(half, STALL_MS, 1_000) == []
    catch_up.delivered(HONEST, FINALS_MAX, STALL_MS + 10)
    catch_up.delivered(HONEST, 2 * FINALS_MAX, STALL_MS + 10)
    assert [peer for peer, _ in catch_up.ask(2 * FINALS_MAX, STALL_MS + 10, 1_000)] == [HONEST], "the other one rests"


def test_a_claim_counts_with_as_many_as_make_it() -> None:
    catch_up = a_catch_up()
    catch_up.claim(LIAR, FAR)
    catch_up.claim(HONEST, 5)
    catch_up.claim(OTHER, 6)
    assert (catch_up.claimed_by(1), catch_up.claimed_by(2), catch_up.claimed_by(3)) == (FAR, 6, 5)
    assert catch_up.claimed_by(4) == catch_up.claimed_by(0) == 0
    catch_up.drop(LIAR)
    assert catch_up.claimed_by(1) == 6
    assert catch_up.heard() == 2


def test_who_is_no_member_claims_nothing() -> None:
    catch_up = a_catch_up(faulty=0)
    catch_up.claim(STRANGER, FAR)
    assert (catch_up.confirmed, catch_up.heard(), catch_up.claimed_by(1), catch_up.at_least(0)) == (0, 0, 0, [])
    assert catch_up.ask(0, 0, 8) == []


def test_a_height_is_confirmed_by_more_than_may_lie_and_then_for_good() -> None:
    catch_up = a_catch_up()
    for height in (FAR, 10 * FAR):
        catch_up.claim(LIAR, height)
        assert catch_up.confirmed == 0, "one is heard once, whatever it says"
    catch_up.claim(HONEST, 6)
    assert catch_up.confirmed == 6
    for height in (0, 5, 7):
        catch_up.claim(OTHER, height)
    assert catch_up.confirmed == 7, "two of them are at 7 or above, one of which is honest"
    catch_up.drop(OTHER)
    catch_up.claim(HONEST, 3)
    catch_up.claim(LIAR, FAR + 1)
    assert catch_up.confirmed == 7


def _confirmed_and_gone() -> CatchUp:
    """Catching up where two members confirmed height 3 and are gone, one of them after it claimed 5."""
    catch_up = a_catch_up()
    for peer, height in ((HONEST, 3), (OTHER, 3), (HONEST, 5)):
        catch_up.claim(peer, height)
    catch_up.drop(HONEST)
    catch_up.drop(OTHER)
    assert catch_up.confirmed == 3
    return catch_up


def test_members_that_go_confirm_nothing_and_take_nothing_back() -> None:
    catch_up = _confirmed_and_gone()
    catch_up.claim(LIAR, 6)
    assert catch_up.confirmed == 3, "one claims more"
    catch_up.claim(SECOND_LIAR, 7)
    assert catch_up.confirmed == 6


def test_claims_that_fall_confirm_nothing_and_take_nothing_back() -> None:
    catch_up = _confirmed_and_gone()
    catch_up.claim(LIAR, 9)
    catch_up.claim(LIAR, 0)
    catch_up.claim(SECOND_LIAR, 6)
    assert catch_up.confirmed == 3, "one claims more by now"
    catch_up.claim(HONEST, 7)
    assert catch_up.confirmed == 6


def test_where_nobody_lies_one_claim_confirms() -> None:
    catch_up = a_catch_up(faulty=0)
    catch_up.claim(HONEST, 5)
    assert catch_up.confirmed == 5


def test_an_answer_is_taken_for_the_question_that_was_asked_and_once() -> None:
    catch_up = a_catch_up()
    catch_up.claim(LIAR, 100)
    catch_up.claim(HONEST, 5)
    assert catch_up.take(LIAR, 100) is None, "nobody asked it"
    catch_up.ask(0, 0, 8)
    assert [catch_up.take(LIAR, height) for height in (99, 100, 100)] == [None, Wanted.HEAD, None]
    assert [catch_up.take(HONEST, height) for height in (5, 6, 5)] == [Wanted.NEXT, None, None]
    catch_up.expect(HONEST, 100)
    assert [catch_up.take(HONEST, 100) for _ in range(2)] == [Wanted.HEAD, None]


def test_an_answer_that_is_late_is_taken_and_what_is_remembered_of_questions_is_bounded() -> None:
    catch_up, now_ms = a_catch_up(), 0
    for number in range(2 * OWED_MAX):
        catch_up.claim(LIAR, 1_000 + number)
        assert catch_up.ask(0, now_ms, 8)
        assert not catch_up.ask(0, now_ms + STALL_MS, 8)
        now_ms += STALL_MS + PASSED_OVER_MS_MAX
    owed = [height for height in range(1_000, 1_000 + 2 * OWED_MAX) if catch_up.take(LIAR, height)]
    assert owed == [*range(1_000 + OWED_MAX, 1_000 + 2 * OWED_MAX)], "the newest"


def test_who_sends_what_is_refused_is_passed_over_at_once() -> None:
    catch_up = a_catch_up()
    for peer in (LIAR, SECOND_LIAR, HONEST):
        catch_up.claim(peer, 5)
    catch_up.ask(0, 0, 8)
    catch_up.failed(LIAR, 10)
    assert [peer for peer, _ in catch_up.ask(0, 10, 8)] == [HONEST]
    catch_up.failed(SECOND_LIAR, 20)
    catch_up.failed(HONEST, 30)
    assert catch_up.ask(0, PASSED_OVER_MS, 8) == [], "all three rest"


def test_who_sends_what_is_refused_behind_good_blocks_is_passed_over_too() -> None:
    catch_up = a_catch_up()
    catch_up.claim(LIAR, 5)
    catch_up.ask(0, 0, 8)
    catch_up.delivered(LIAR, 1, 10)
    catch_up.failed(LIAR, 20)
    assert catch_up.ask(1, 30, 8) == []


def test_who_has_sent_nothing_is_asked_for_nothing_more_until_it_stalls() -> None:
    catch_up = a_catch_up()
    catch_up.claim(HONEST, 30)
    assert catch_up.ask(0, 0, 40, 4) == [(HONEST, GetFinal(1, 4))]
    assert catch_up.ask(0, 10, 40, 4) == [], "few are owed, and none has come"
    catch_up.reached(2)
    assert catch_up.ask(2, 20, 40, 4) == [], "what another one sent is no answer of this one"


def test_those_that_drip_blocks_make_way_for_others() -> None:
    """One each before every stall kept two liars where they were."""
    catch_up = a_catch_up()
    for peer in (LIAR, SECOND_LIAR, HONEST):
        catch_up.claim(peer, 100)
    assert [peer for peer, _ in catch_up.ask(0, 0, 1_000)] == [LIAR, SECOND_LIAR]
    catch_up.delivered(LIAR, 1, 900)
    catch_up.delivered(SECOND_LIAR, 2, 1_800)
    assert HONEST in [peer for peer, _ in catch_up.ask(2, STALL_MS, 1_000)]
    for height in range(3, FINALS_MAX + 3):
        catch_up.delivered(HONEST, height, STALL_MS + 100)
    now_ms = 2 * STALL_MS + 100
    assert [peer for peer, _ in catch_up.ask(FINALS_MAX + 2, now_ms, 1_000)] == [HONEST], "it is good enough alone"


def test_who_is_quick_with_one_block_and_then_silent_is_not_good_enough_to_be_asked_alone() -> None:
    catch_up = a_catch_up()
    catch_up.claim(LIAR, 100)
    assert catch_up.ask(0, 0, 1_000)
    catch_up.delivered(LIAR, 1, 10)
    for peer in (OTHER, HONEST):
        catch_up.claim(peer, 100)
    assert [peer for peer, _ in catch_up.ask(1, STALL_MS, 1_000)] == [OTHER, HONEST]


def test_beside_one_that_is_good_enough_another_is_tried_at_times_and_the_better_one_is_asked() -> None:
    catch_up, height = a_catch_up(), 0

    def answer(peer: bytes, now_ms: int, pace_ms: int) -> None:
        for number in range(FINALS_MAX):
            catch_up.delivered(peer, height + 1 + number, now_ms + pace_ms * (number + 1))

    catch_up.claim(LIAR, 1_000)
    catch_up.ask(0, 0, 10_000)
    catch_up.claim(HONEST, 1_000)
    pace_ms = {LIAR: PACE_MS_MAX // 2, HONEST: 5}
    answer(LIAR, 0, pace_ms[LIAR])
    asked = list[list[bytes]]()
    now_ms = STALL_MS
    while now_ms < 3 * COMPARE_MS:
        height += FINALS_MAX
        peers = [peer for peer, _ in catch_up.ask(height, now_ms, 10_000)]
        for peer in peers:
            answer(peer, now_ms, pace_ms[peer])
        asked.append(peers)
        now_ms += STALL_MS
    assert asked[:3] == [[LIAR]] * 3
    assert [LIAR, HONEST] in asked
    assert asked[asked.index([LIAR, HONEST]) + 1] == [HONEST]


def test_who_says_that_it_is_far_below_the_others_comes_last() -> None:
    """It would hand out a block at a time, where the others have a head to join at."""
    catch_up = a_catch_up()
    for peer, height in ((LIAR, 8), (SECOND_LIAR, 8), (HONEST, 100), (OTHER, 100)):
        catch_up.claim(peer, height)
    assert [peer for peer, _ in catch_up.ask(0, 0, 8)] == [HONEST, OTHER]


def test_where_members_may_have_come_strangers_are_asked_and_have_no_say() -> None:
    catch_up = CatchUp([HONEST, OTHER, LIAR, SECOND_LIAR], 1, hears_all=True)
    catch_up.claim(STRANGER, FAR)
    catch_up.claim(bytes([10]) * 32, FAR)
    catch_up.claim(HONEST, FAR)
    assert catch_up.confirmed == 0, "f + 1 members have to say so"
    assert (catch_up.claims_above(0), catch_up.claimed_by(1), catch_up.highest) == (1, FAR, FAR)
    assert (catch_up.claims(), catch_up.heard(), catch_up.sources()) == ({HONEST: FAR}, 1, 3), "a node speaks by these"
    assert STRANGER in [peer for peer, _ in catch_up.ask(0, 0, 8)]
    catch_up.claim(OTHER, 7)
    assert catch_up.confirmed == 7, "two of them say that it has come so far"
    catch_up.drop(bytes([10]) * 32)
    catch_up.claim(OTHER, FAR)
    assert catch_up.confirmed == FAR
    catch_up.track([STRANGER, HONEST], 0)
    assert catch_up.claims_above(0) == 2, "those that came have a say now, and those that went have none"
    catch_up.claim(HONEST, FAR + 1)
    assert catch_up.confirmed == FAR + 1


def test_who_goes_on_towards_its_head_has_as_long_again() -> None:
    catch_up = a_catch_up()
    catch_up.claim(HONEST, FAR)
    catch_up.claim(OTHER, 0)
    assert catch_up.ask(0, 0, 8) == [(HONEST, GetFinal(FAR, 1))]
    catch_up.goes_on(HONEST, STALL_MS - 1)
    catch_up.goes_on(OTHER, STALL_MS - 1)
    assert catch_up.ask(0, STALL_MS, 8) == []
    assert catch_up.ask(0, 2 * STALL_MS - 1, 8) == []
    assert catch_up.ask(0, 2 * STALL_MS - 1 + PASSED_OVER_MS, 8) == [(HONEST, GetFinal(FAR, 1))]


@pytest.mark.parametrize("seed", range(20))
def test_counts_that_are_kept_are_those_of_the_claims(seed: int) -> None:
    draw, peers = Random(seed), [bytes([number]) * 32 for number in range(9)]
    catch_up, members = CatchUp(peers[:5], 1, hears_all=bool(seed % 2)), set(peers[:5])
    for _ in range(60):
        peer = draw.choice(peers)
        match draw.randrange(5):
            case 0:
                catch_up.drop(peer)
            case 1:
                members = set(draw.sample(peers, 5))
                catch_up.track(members, 1)
            case _:
                catch_up.claim(peer, draw.randrange(4))
        claims = catch_up.claims()
        assert claims.keys() <= members
        assert catch_up.heard() == len(claims)
        assert catch_up._above == catch_up.claims_above(catch_up.confirmed)
