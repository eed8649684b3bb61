"""Of whom final blocks are asked: nobody gets a seat for a claim, and who lies costs copies, not time."""

from fedchain.network.messages import FINALS_MAX, GetFinal
from fedchain.network.sync import AT_ONCE, PASSED_OVER_MS, PASSED_OVER_MS_MAX, STALL_MS, CatchUp, Wanted

HONEST, OTHER, LIAR, SECOND_LIAR = (bytes([number]) * 32 for number in range(4))
STRANGER = bytes([9]) * 32
FAR = 10**9


def a_catch_up(faulty: int = 1) -> CatchUp:
    """Of a federation in which these four are members."""
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
