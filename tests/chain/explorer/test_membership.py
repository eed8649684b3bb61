"""The members at each height: their places, their standings, and the rules that they amended."""

import pytest

from fedchain.chain.exceptions import NotFound
from fedchain.chain.genesis import Admission, AggregatorRule
from tests.support.chain.builders import GLOBAL, UPDATE, ChainBuilder
from tests.support.chain.changes import handing, joining, living, own
from tests.support.chain.explored import GENESIS, Explore
from tests.support.chain.explored import explore as explore


def test_places_are_those_of_the_height_that_is_asked_for(explore: Explore) -> None:
    chain = living(5)
    chain.extend(changes=[joining(chain, 5), own(chain, 1)])
    chain.extend_many(4)
    membership = explore(chain).membership
    standings = {height: [item.standing for item in membership.places(height)] for height in (1, 2, 3)}
    assert standings[1] == ["active"] * 5
    assert standings[2] == [*["active"] * 5, "coming"]
    assert standings[3] == ["active", "left", *["active"] * 4]
    assert [item.following for item in membership.places(2)] == ["", "left", "", "", "", "active"]
    assert membership.places() == membership.places(6)
    for height in (0, 7):
        with pytest.raises(NotFound, match=f"the members at height {height} are not known here"):
            membership.places(height)


def test_an_amended_rule_is_shown_and_who_attends_by_it(explore: Explore) -> None:
    chain = living(6, phases=(UPDATE, GLOBAL), aggregator=AggregatorRule.DEDICATED, admission=Admission.CLOSED)
    chain.extend(changes=[handing(chain, 2)])
    chain.extend_many(5)
    membership = explore(chain).membership
    (amended,) = membership.rules().amended
    assert (amended.name, amended.founded, amended.value) == ("aggregator", 5, 2)
    assert membership.rules(1).amended == ()
    assert [(height, sorted(there.idle)) for height, there in membership.attending(4, 5)] == [(4, [5]), (5, [2, 5])]


def test_members_that_are_the_same_for_ever_have_neither_places_nor_lives(explore: Explore) -> None:
    chain = ChainBuilder(GENESIS)
    chain.extend_many(2)
    membership = explore(chain).membership
    assert (membership.places(), [*membership.attending(1, 2)], membership.lives().lives) == ((), [], ())


def test_an_aggregator_that_has_data_contributes_as_all_do(explore: Explore) -> None:
    chain = living(6, phases=(UPDATE, GLOBAL), aggregator=AggregatorRule.FIXED, admission=Admission.CLOSED)
    chain.extend(changes=[handing(chain, 2)])
    chain.extend_many(5)
    assert chain.state.roster.holder == chain.genesis.members[2]
    attending = [there for _, there in explore(chain).membership.attending(4, 6)]
    assert [(sorted(there.active), sorted(there.idle)) for there in attending] == [([*range(6)], [])] * 3
