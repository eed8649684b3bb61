"""The oracle of sets agrees with the chain about every kind of change, and notices a state that says otherwise."""

from dataclasses import replace

from fedchain.chain.genesis import AggregatorRule
from fedchain.chain.membership.amendment import amendment_of
from fedchain.chain.membership.change import (
    Change,
    ChangeKind,
    propose_amendment,
    propose_recovery,
    propose_removal,
    sign_rekey,
)
from fedchain.chain.membership.in_force import rules_of
from fedchain.simulator.oracles.sets import Sets
from tests.support.chain.builders import ChainBuilder, double_vote, keys
from tests.support.chain.changes import UNTIL, approved, joining, living, own


class Followed:
    """A chain and the oracle beside it."""

    def __init__(self) -> None:
        self.chain = living(8, away_after=2, contribution_quorum=1)
        self.sets = Sets(self.chain.genesis)

    def extend(self, *changes: Change, silent: int = 0) -> None:
        before = self.chain.state
        posts = [post for post in self.chain.posts() if before.roster.seats[post.sender] >= silent]
        crimes = [double_vote(keys(8)[7], self.chain.genesis, 1, attempt=3)] if before.height == 9 else []
        self.sets.follow(before, self.chain.extend(changes=changes, posts=posts, evidence=crimes))
        assert self.sets.differences(self.chain.state) == []


def test_the_oracle_and_the_chain_agree_about_every_kind_of_change() -> None:
    followed = Followed()
    chain: ChainBuilder = followed.chain
    first, second, *_ = chain.genesis.members
    said = {"sequence": 0, "until": UNTIL}
    amendment = propose_amendment(amendment_of({"vote_timeout_ms": 7, "rounds": 40}), "", **said)
    rekey = sign_rekey(keys(1)[0], keys(10)[9], chain.genesis.chain_id, sequence=0, until=UNTIL)
    recovery = propose_recovery(second, keys(11)[10], chain.genesis.chain_id, "lost", sequence=0, until=UNTIL)
    removal = propose_removal(chain.genesis.members[2], "gone", sequence=0, until=UNTIL)
    followed.extend(joining(chain, 8), own(chain, 1), rekey, approved(chain, amendment))
    followed.extend(approved(chain, recovery), approved(chain, removal))
    followed.extend(own(chain, 3, ChangeKind.AWAY))
    for _ in range(4):
        followed.extend()
    followed.extend(own(chain, 3, ChangeKind.BACK))
    for _ in range(12):
        followed.extend(silent=6)
    standings = [record.standing.name for record in chain.state.records]
    assert standings[2] == "REMOVED"
    assert standings.count("AWAY") >= 1
    assert chain.state.roster.culprits == {keys(8)[7].public_key}
    assert first not in chain.state.roster.members


def test_the_oracle_and_the_chain_agree_about_one_member_that_writes_the_chain() -> None:
    chain, server = living(6, away_after=2, aggregator=AggregatorRule.DEDICATED, centralized=True), keys(6)[5]
    sets = Sets(chain.genesis)
    for is_empty in (False, True, False, True, True):
        assert chain.state.roster.is_active(server.public_key)
        before = chain.state
        voters = sorted(before.deciders - {server.public_key})
        certificate = chain.certificate(chain.tip, voters) if voters else None
        miner, posts = (keys(1)[0], ()) if is_empty else (server, None)
        sets.follow(before, chain.extend(posts=posts, certificate=certificate, miner=miner))
        assert sets.differences(chain.state) == []
    assert not chain.state.roster.is_active(server.public_key)


def test_a_state_with_other_members_keys_or_rules_is_noticed() -> None:
    followed = Followed()
    followed.extend()
    state = followed.chain.state
    roster = state.roster
    fewer = replace(state, roster=replace(roster, counting=roster.counting[1:]))
    assert followed.sets.differences(fewer) == ["1 members count, or do not"]
    others = replace(state, rules=rules_of(followed.chain.genesis, (("vote_timeout_ms", 7),)))
    assert followed.sets.differences(others) == ["vote_timeout_ms is 7, 1000 is in force"]
    moved = replace(state, roster=replace(roster, members=roster.members[::-1]))
    assert followed.sets.differences(moved) == ["places have other keys"]
    cut_off = replace(state, roster=replace(roster, gone=frozenset(roster.members[:2])))
    assert followed.sets.differences(cut_off) == ["2 members may be connected, or may not"]


def test_a_state_with_another_aggregator_or_with_contributors_that_have_no_data_is_noticed() -> None:
    chain = living(6, aggregator=AggregatorRule.DEDICATED, centralized=True)
    sets, roster, server = Sets(chain.genesis), chain.state.roster, keys(6)[5].public_key
    assert sets.differences(chain.state) == []
    everybody = replace(chain.state, roster=replace(roster, contributors=frozenset(roster.members)))
    assert sets.differences(everybody) == ["1 that have no data, or the role, contribute"]
    other = replace(chain.state, roster=replace(roster, holder=roster.members[0]))
    assert sets.differences(other) == [f"{server.hex()[:16]} is the aggregator"]
    named = replace(chain.state, amendments=chain.state.amendments.followed_by(3))
    assert sets.differences(named) == ["place 3 has the role, 5 is named for it"]
