"""Authors of parts: an author whose parts fail to come is not waited for, each time for twice as many heights."""

from fedchain.chain.membership.change import sign_rekey
from fedchain.node.core.contents.authors import TIMES_MAX, Authors
from tests.support.chain.builders import keys
from tests.support.chain.changes import living

ALICE, BOB = (key.public_key for key in keys(2))
ROSTER = living().state.roster


def test_the_pause_doubles_with_each_wait_in_vain() -> None:
    authors = Authors()
    assert authors.is_waited_for(ALICE, 0)
    for height, until in ((10, 12), (12, 16), (16, 24)):
        authors.pass_over(ALICE, height)
        assert not authors.is_waited_for(ALICE, until - 1)
        assert authors.is_waited_for(ALICE, until)
    assert authors.is_waited_for(BOB, 10)


def test_the_pause_is_bounded() -> None:
    authors = Authors()
    for _ in range(TIMES_MAX + 20):
        authors.pass_over(ALICE, 0)
    assert authors.is_waited_for(ALICE, 2 << TIMES_MAX)
    assert not authors.is_waited_for(ALICE, (2 << TIMES_MAX) - 1)


def test_a_part_that_does_not_match_its_list_counts_once_and_from_the_next_phase_on() -> None:
    authors = Authors()
    authors.on_refused(ALICE)
    authors.on_refused(ALICE)
    assert authors.is_waited_for(ALICE, 5)
    authors.on_head(5, ROSTER)
    assert not authors.is_waited_for(ALICE, 6)
    authors.on_head(7, ROSTER)
    assert authors.is_waited_for(ALICE, 7)
    assert authors.is_waited_for(BOB, 5)


def test_the_last_part_of_each_author_is_remembered() -> None:
    authors = Authors()
    assert authors.gave_ms(ALICE) == 0
    authors.on_part(ALICE, 100)
    authors.on_part(ALICE, 300)
    authors.on_part(BOB, 200)
    assert (authors.gave_ms(ALICE), authors.gave_ms(BOB)) == (300, 200)


def test_another_key_does_not_end_a_pause() -> None:
    authors, chain = Authors(), living()
    authors.pass_over(ALICE, 0)
    authors.pass_over(ALICE, 2)
    authors.on_part(ALICE, 100)
    alice, following = keys(1)[0], keys(9)[8]
    chain.extend(changes=[sign_rekey(alice, following, chain.genesis.chain_id, sequence=0, until=9)])
    authors.on_head(1, chain.state.roster)
    assert not authors.is_waited_for(following.public_key, 5)
    assert authors.gave_ms(following.public_key) == 100
    authors.pass_over(following.public_key, 6)
    assert not authors.is_waited_for(following.public_key, 13), "it is the third time"
