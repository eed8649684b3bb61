"""The lives of places: standings, keys and rules over the rounds, whatever a block says of them or does not."""

from pathlib import Path

from fedchain.chain.explorer.explorer import Explorer
from fedchain.chain.explorer.lives import Life, Lives, OtherKey, OtherRules, Span
from fedchain.chain.genesis import AggregatorRule
from fedchain.chain.membership.amendment import amendment_of
from fedchain.chain.membership.change import ChangeKind, propose_amendment, propose_recovery, sign_rekey
from fedchain.chain.storage.sqlite import Store
from fedchain.crypto.address import address
from tests.support.chain.builders import GLOBAL, UPDATE, ChainBuilder, double_vote, genesis, keys
from tests.support.chain.changes import approved, joining, living, own
from tests.support.chain.explored import write


def eventful() -> ChainBuilder:
    """Seven members: one joins, one leaves, one is silent and comes back, two have other keys, one is convicted."""
    chain = living(7, away_after=1, phase_timeout_ms=10_000)
    three, four = chain.genesis.members[3:5]
    first, second = keys(13)[11:]
    rekey = sign_rekey(chain.key(three), first, chain.genesis.chain_id, sequence=0, until=9)
    recovery = approved(chain, propose_recovery(four, second, chain.genesis.chain_id, "stolen", sequence=0, until=9))
    rules = approved(chain, propose_amendment(amendment_of({"rounds": 99}), "", sequence=0, until=9))
    changes = [joining(chain, 7), own(chain, 1), rekey, recovery, rules]
    chain.extend(changes=sorted(changes, key=lambda change: change.hash))
    silent = chain.genesis.members[2]
    others = [member for member in chain.state.roster.contributors if member != silent]
    chain.extend(posts=chain.posts(members=others), certificate=chain.certificate(chain.tip, _without(chain, 2)))
    chain.extend(changes=[own(chain, 2, ChangeKind.BACK)])
    chain.extend(evidence=[double_vote(keys(1)[0], chain.genesis, 3)])
    chain.extend_many(2)
    return chain


def _without(chain: ChainBuilder, number: int) -> list[bytes]:
    """Voters of the last block but one of them, by the keys that they had there."""
    return sorted(key for key in chain.state.deciders if key != chain.genesis.members[number])


def life(number: int, key: bytes, spans: list[tuple[str, int, int | None]], *others: OtherKey) -> Life:
    return Life(number, address(key), tuple(Span(*span) for span in spans), others)


def followed(chain: ChainBuilder, folder: Path) -> Explorer:
    with Store.create(folder, chain.genesis) as store:
        write(store, chain)
    return Explorer(Store.open(folder, read_only=True))


def test_each_place_has_its_life(tmp_path: Path) -> None:
    chain = eventful()
    found = followed(chain, tmp_path / "chain").membership.lives()
    members = chain.genesis.members
    first, second = (key.public_key for key in keys(13)[11:])
    assert (found.height, found.round) == (7, 7)
    assert list(found.lives) == [
        life(0, members[0], [("active", 1, 4), ("convicted", 5, None)]),
        life(1, members[1], [("active", 1, 2), ("left", 3, None)]),
        life(2, members[2], [("active", 1, 2), ("away", 3, 4), ("active", 5, None)]),
        life(3, first, [("active", 1, None)], OtherKey("rekey", 2, 2)),
        life(4, second, [("active", 1, None)], OtherKey("recover", 2, 2)),
        life(5, members[5], [("active", 1, None)]),
        life(6, members[6], [("active", 1, None)]),
        life(7, keys(8)[7].public_key, [("coming", 2, 2), ("active", 3, None)]),
    ]
    assert found.rules == (OtherRules(3, 3, (("rounds", 99),)),)


def test_at_a_height_only_what_held_there_is_known(tmp_path: Path) -> None:
    chain = eventful()
    explorer = followed(chain, tmp_path / "chain")
    first, second, fourth = (explorer.membership.lives(height) for height in (1, 2, 4))
    assert [item.number for item in first.lives] == [*range(7)]
    assert [item.address for item in first.lives] == [address(member) for member in chain.genesis.members]
    assert (second.lives[7].spans, second.rules) == ((Span("coming", 2, None),), ())
    assert fourth.lives[2].spans[-1] == Span("away", 3, None)
    assert (fourth.height, fourth.round, len(fourth.rules)) == (4, 4, 1)


def test_a_chain_is_followed_in_steps_and_anew_when_it_was_cut_back(tmp_path: Path) -> None:
    chain = eventful()
    whole = followed(chain, tmp_path / "whole")
    lives = Lives(chain.genesis)
    with Store.open(tmp_path / "whole", read_only=True) as store:
        assert (lives.height, lives.read(store, 6, 2), lives.height) == (-1, False, 2)
        assert (lives.read(store, 6, 9), lives.height) == (True, 6)
    assert whole.membership.lives(lives=lives) == whole.membership.lives()
    other = living(7, away_after=1, phase_timeout_ms=10_000)
    other.extend_many(7)
    with Store.create(tmp_path / "other", other.genesis) as store:
        write(store, other)
        assert lives.read(store, 7)
    assert {item.spans for item in lives.at(8, 8).lives} == {(Span("active", 1, None),)}


def test_members_that_are_the_same_for_ever_have_no_lives(tmp_path: Path) -> None:
    chain = ChainBuilder(genesis(4))
    chain.extend_many(2)
    assert followed(chain, tmp_path / "chain").membership.lives().lives == ()


def test_a_conviction_holds_in_the_middle_of_a_round(tmp_path: Path) -> None:
    chain = living(5, phases=(UPDATE, GLOBAL), aggregator=AggregatorRule.FIXED)
    chain.extend_many(2)
    chain.extend(evidence=[double_vote(keys(5)[4], chain.genesis, 2)])
    chain.extend_many(2)
    convicted = followed(chain, tmp_path / "chain").membership.lives().lives[4]
    assert convicted.spans == (Span("active", 1, 2), Span("convicted", 2, None)), "it counted in a phase of round 2"


def test_each_amendment_is_told_with_its_own_values(tmp_path: Path) -> None:
    chain = living(5)
    for sequence, values in enumerate(({"rounds": 99}, {"round_interval_ms": 500})):
        change = propose_amendment(amendment_of(values), "", sequence=sequence, until=9)
        chain.extend(changes=[approved(chain, change)])
        chain.extend_many(2)
    rules = followed(chain, tmp_path / "chain").membership.lives().rules
    assert [item.values for item in rules] == [(("rounds", 99),), (("round_interval_ms", 500),)]
