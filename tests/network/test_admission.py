"""Members, budgets, blame and bans."""

from pathlib import Path
from unittest.mock import patch

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedchain.crypto.keys import PublicKey
from fedchain.network import admission
from fedchain.network.admission import EXCESS, GUESTS, SETTLED_MIN, Gate
from fedchain.network.bans import Ban
from fedchain.network.limits import Limits, TokenBucket
from fedchain.network.membership import Membership
from tests.support.chain.builders import keys
from tests.support.network.gate import LIMITS, MEMBERS, NOON_S, Calendar, gate

ONE, TWO, THREE = MEMBERS
STRANGER = bytes(32)


def test_members_are_admitted_and_nobody_else() -> None:
    assert all(gate().admits(member, 0.0) for member in MEMBERS)
    assert not gate().admits(STRANGER, 0.0)


def test_messages_are_counted_and_refill() -> None:
    door = gate()
    assert [door.pays(ONE, 0.0) for _ in range(5)] == [True] * 4 + [False]
    assert [door.pays(ONE, 1.0) for _ in range(3)] == [True, True, False]
    assert door.pays(TWO, 1.0)


def pause_s(door: Gate, peer: PublicKey, size: int, now_s: float) -> float:
    """How long to wait after bytes have come."""
    door.charge(peer, bytes_in=size, now_s=now_s)
    return door.pause_s(peer, now_s)


def test_bytes_beyond_the_budget_are_waited_for() -> None:
    door = gate()
    assert pause_s(door, ONE, 100, 0.0) == 0.0
    assert pause_s(door, ONE, 1, 0.0) == pytest.approx(0.1)
    assert pause_s(door, ONE, 10, 0.1) == pytest.approx(1.0)
    assert pause_s(door, ONE, 5, 10.0) == 0.0
    assert pause_s(door, TWO, 100, 0.0) == 0.0
    assert door.admits(ONE, 10.0)


def test_time_beyond_the_share_is_waited_for_and_not_held_against_anybody() -> None:
    door = gate()
    door.charge(ONE, cpu_s=5.0, now_s=0.0)
    assert door.pause_s(ONE, 0.0) == 0.0
    door.charge(ONE, cpu_s=1.0, now_s=0.0)
    assert door.pause_s(ONE, 0.0) == pytest.approx(4.0)
    assert door.pause_s(ONE, 3.0) == pytest.approx(1.0)
    assert door.pause_s(ONE, 4.0) == 0.0
    assert door.pause_s(TWO, 0.0) == 0.0
    for _ in range(1_000):
        door.charge(ONE, cpu_s=100.0, bytes_out=10**9, now_s=4.0)
    assert door.admits(ONE, 4.0)
    assert not door.blame(ONE, 9.0, "the first blame", 4.0)


def test_all_that_may_lie_take_no_more_than_half_of_our_time() -> None:
    members = [key.public_key for key in keys(13)]
    door = Gate(Membership(members), LIMITS, wall=Calendar())
    honest, *liars = members[:5]
    until_s, taken_s, now_s = dict.fromkeys(liars, 0.0), 0.0, 0.0
    while now_s < 1_000.0:
        liar = min(until_s, key=until_s.__getitem__)  # the next one that is read
        now_s = max(now_s, until_s[liar]) + 0.5
        door.charge(liar, cpu_s=0.5, now_s=now_s)
        taken_s += 0.5
        until_s[liar] = now_s + door.pause_s(liar, now_s)
        assert door.pause_s(honest, now_s) == 0.0, "who takes its part does not wait for liars"
        door.charge(honest, cpu_s=0.03, now_s=now_s)
    assert 0.45 * now_s < taken_s < 0.5 * now_s + 2 * LIMITS.cpu_burst_s


def test_new_and_good_gossip_is_no_part_of_what_liars_could_take() -> None:
    door = Gate(Membership([key.public_key for key in keys(13)]), LIMITS, wall=Calendar())
    one, two, three = (key.public_key for key in keys(3))
    door.charge(one, cpu_s=5.0, is_new=True, now_s=0.0)
    door.charge(two, cpu_s=10.0, now_s=0.0)
    door.charge(two, cpu_s=10.0, now_s=0.0)
    door.charge(three, cpu_s=1.0, now_s=0.0)
    assert [door.pause_s(peer, 0.0) for peer in (one, two, three)] == [0.0, pytest.approx(60.0), 0.0]
    door.charge(three, cpu_s=0.5, now_s=0.0)
    assert door.pause_s(three, 0.0) == pytest.approx(4.0), "it took more than its part, as another one did"


def test_guests_take_no_part_from_members() -> None:
    peers = [key.public_key for key in keys(20)]
    membership = Membership(peers)
    membership.guests = frozenset(peers[6:])
    door = Gate(membership, LIMITS, wall=Calendar())
    for peer in peers[:6]:
        door.charge(peer, cpu_s=4.0, now_s=0.0)
        door.charge(peer, cpu_s=1.0, now_s=0.0)
    assert [door.pause_s(peer, 0.0) for peer in peers[:6]] == [0.0] * 6, "of six members one may lie"


@pytest.mark.parametrize(
    ("cost", "wait_s"), [({"cpu_s": 6.0}, 4.0), ({"bytes_out": 1_200}, 2.0)], ids=["time", "bytes"]
)
def test_who_has_cost_too_much_gets_no_answers_until_that_is_paid(cost: dict[str, float], wait_s: float) -> None:
    door = gate()
    assert door.may_ask(ONE, 0.0)
    door.charge(ONE, now_s=0.0, **cost)  # type: ignore[arg-type]
    assert not door.may_ask(ONE, 0.0)
    assert not door.may_ask(ONE, 0.9 * wait_s)
    assert door.may_ask(ONE, 1.01 * wait_s)
    assert door.may_ask(TWO, 0.0)


def test_answers_up_to_the_burst_are_free() -> None:
    door = gate()
    door.charge(ONE, cpu_s=5.0, bytes_out=1_000, now_s=0.0)
    assert door.may_ask(ONE, 0.0)


def test_blame_adds_up_is_forgiven_and_bans_for_the_last_reason() -> None:
    door = gate()
    assert not door.blame(ONE, 9.0, "this", 0.0)
    assert not door.blame(ONE, 5.0, "that", 5.0)  # 9 − 5 + 5
    assert door.admits(ONE, 5.0)
    assert door.blame(ONE, 1.0, "something else", 5.0)
    assert not door.admits(ONE, 64.9)
    assert door.bans(64.9) == (Ban(ONE, "something else", NOON_S, NOON_S + 60.0),)
    assert door.admits(ONE, 65.0)
    assert door.bans(65.0) == ()
    assert not door.blame(ONE, 9.0, "it begins anew", 65.0)


def test_who_is_over_its_budget_is_slowed_down_and_blamed_only_far_beyond_it() -> None:
    door = gate()
    for _ in range(4):
        assert door.pays(ONE, 0.0)
    assert door.pause_s(ONE, 0.0) == 0.0
    beyond = round((EXCESS - 1.0) * 4)
    for _ in range(beyond):
        assert not door.pays(ONE, 0.0)
        assert door.pause_s(ONE, 0.0) == pytest.approx(0.5)
        assert door.pause_s(ONE, 0.0) == 0.0, "it is waited for once"
    assert not door.blame(ONE, 9.95, "nothing was held against it before", 0.0)
    assert not door.pays(ONE, 0.0)
    assert not door.admits(ONE, 0.0)
    assert "messages" in door.bans(0.0)[0].reason


def test_whoever_goes_on_far_beyond_its_budget_is_banned() -> None:
    door = gate()
    for number in range(1_000):
        door.pays(ONE, 0.001 * number)
    assert not door.admits(ONE, 1.0)


@given(
    offered=st.lists(st.tuples(st.floats(0.0, 3.0), st.integers(0, 20)), max_size=60),
)
def test_nobody_within_four_times_its_budget_is_ever_blamed(offered: list[tuple[float, int]]) -> None:
    door, allowed, now_s = gate(), TokenBucket(EXCESS * 2.0, EXCESS * 4.0 - 4.0, 0.0), 0.0
    for pause_s, count in offered:
        now_s += pause_s
        for _ in range(count):
            if allowed.spends(1.0, now_s):
                door.pays(ONE, now_s)
    assert not door.blame(ONE, 9.99, "the first blame", now_s)


def test_guests_have_one_budget_together_and_blame_of_their_own() -> None:
    membership = Membership(MEMBERS)
    membership.guests = frozenset((ONE, TWO))
    door = Gate(membership, LIMITS, wall=Calendar())
    assert [door.pays(guest, 0.0) for guest in (ONE, TWO, ONE, TWO, ONE, TWO)] == [True] * 4 + [False] * 2
    door.charge(ONE, cpu_s=6.0, bytes_out=1_200, now_s=0.0)
    assert not door.may_ask(TWO, 0.0), "a liar that vouches for many has no more than one"
    assert door.pause_s(TWO, 0.0) == pytest.approx(4.0 + 0.5)
    assert door.pays(THREE, 0.0)
    assert door.may_ask(THREE, 0.0)
    assert door.pause_s(THREE, 0.0) == 0.0, "members have theirs"
    assert not door.blame(TWO, 9.95, "nothing was held against it before", 0.0)
    for _ in range(200):
        door.pays(ONE, 0.0)
    assert [door.admits(guest, 0.0) for guest in (ONE, TWO)] == [False, True]
    membership.guests = frozenset()
    assert door.pays(TWO, 0.0), "it is a member now"
    assert door.may_ask(TWO, 0.0)


def test_each_message_that_is_dropped_delays_what_comes_behind_it() -> None:
    door = gate()
    assert [door.pays(ONE, 0.0) for _ in range(7)] == [True] * 4 + [False] * 3
    assert door.pause_s(ONE, 0.0) == pytest.approx(3 / LIMITS.messages_per_s)
    assert door.pause_s(ONE, 0.0) == 0.0


def test_a_ban_pays_for_the_blame_that_led_to_it() -> None:
    door = gate()
    assert door.blame(ONE, 10.0, "it lied", 0.0)
    assert not door.blame(ONE, 9.0, "it was slow", 0.0)


def test_the_messages_of_a_next_key_are_not_forgotten_for_those_of_the_one_before() -> None:
    door = gate()
    assert door.pays(ONE, 0.0)
    assert [door.pays(TWO, 0.0) for _ in range(4)] == [True] * 4
    door.follow({ONE: TWO}, 0.0)
    assert not door.pays(TWO, 0.0)


def test_a_next_key_has_no_messages_besides_those_of_the_one_before() -> None:
    """A member would have another budget otherwise as often as it takes another key."""
    door = gate()
    assert [door.pays(ONE, 0.0) for _ in range(4)] == [True] * 4
    door.follow({ONE: TWO}, 0.0)
    assert not door.pays(TWO, 0.0)


def test_a_pardon_forgets_blame(tmp_path: Path) -> None:
    door = gate()
    door.blame(ONE, 9.0, "almost", 0.0)
    door.pardon(ONE, 0.0)
    assert not door.blame(ONE, 9.0, "again", 0.0)


def test_a_member_is_admitted_from_the_height_at_which_it_is_tracked() -> None:
    membership = Membership(MEMBERS[:2])
    door = Gate(membership, LIMITS, wall=Calendar())
    assert [door.admits(member, 0.0) for member in MEMBERS[:3]] == [True, True, False]
    assert membership.track(7, MEMBERS[1:3]) == (frozenset(MEMBERS[2:3]), frozenset(MEMBERS[:1]))
    assert [door.admits(member, 0.0) for member in MEMBERS[:3]] == [False, True, True]
    assert (membership.height, len(membership)) == (7, 2)


def test_a_whole_burst_may_come_at_once() -> None:
    door = Gate(Membership(MEMBERS), Limits(), wall=Calendar(), now_s=NOON_S)
    assert [door.pays(ONE, NOON_S) for _ in range(4_001)] == [True] * 4_000 + [False]


@pytest.mark.parametrize("settled_min", [0, 64])
@given(pauses=st.lists(st.floats(0.25, 1.25), max_size=8))
def test_messages_that_are_surely_paid_are_charged_like_others(settled_min: int, pauses: list[float]) -> None:
    one, other, now_s = gate(), gate(), 0.0
    with patch.object(admission, "SETTLED_MIN", settled_min):
        for pause_s in pauses:
            now_s += pause_s
            if one.is_calm:
                one.pay([(ONE, now_s), (TWO, now_s + 0.25)])
                assert other.pays(ONE, now_s)
                assert other.pays(TWO, now_s + 0.25)
                assert one.pays(THREE, now_s + 0.25) == other.pays(THREE, now_s + 0.25)
        for member in MEMBERS:
            later_s = [now_s + 1.0] * 6
            assert [one.pays(member, at_s) for at_s in later_s] == [other.pays(member, at_s) for at_s in later_s]


def test_what_a_silent_member_did_not_use_is_not_saved_up() -> None:
    door = gate()
    for now_s in (0.0, 100.0):
        door.pay([(ONE, now_s)])
    assert [door.pays(ONE, 100.0) for _ in range(4)] == [True] * 3 + [False]


def test_of_members_whose_budgets_are_full_again_nothing_is_kept() -> None:
    members = [number.to_bytes(32) for number in range(1, SETTLED_MIN + 1)]
    door = Gate(Membership(members), Limits(messages_per_s=2.0), wall=Calendar(), now_s=0.0)
    door.pay([(member, 0.0) for member in members[:-1]])
    assert door._even_s.keys() == {GUESTS, *members[:-1]}
    door.pay([(members[-1], 0.5)])
    assert door._even_s.keys() == {GUESTS, members[-1]}


def test_all_is_calm_until_a_member_has_used_half_of_its_budget() -> None:
    door = gate()
    calm = []
    for _ in range(4):
        door.pays(ONE, 0.0)
        door.pays(TWO, 0.0)
        calm.append(door.is_calm)
    assert calm == [True, True, True, False]


def test_no_account_is_kept_of_strangers() -> None:
    door = gate()
    held = len(door._even_s)
    assert all(door.pays(bytes([number] * 32), 0.0) for number in range(100) for _ in range(9))
    assert len(door._even_s) == held
