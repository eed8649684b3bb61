"""Parameters that change: how amendments are written, when they are valid, and from when on all readers obey them."""

from typing import Any

import pytest

from fedchain.chain.difficulty import next_bits
from fedchain.chain.exceptions import InvalidChange, InvalidEncoding, OutOfWindow
from fedchain.chain.genesis import Admission
from fedchain.chain.membership.amendment import Amendment, amendment_of
from fedchain.chain.membership.change import Change, propose_amendment
from fedchain.chain.membership.rules import validate_approvals, validate_change
from fedchain.chain.state import may_close_empty
from fedchain.chain.transition import judge_block
from fedchain.chain.validation import validate_post
from fedchain.crypto.keys import is_valid_signature
from tests.support.chain.builders import ChainBuilder, keys, payload, post
from tests.support.chain.changes import UNTIL, approved, joining, living
from tests.support.chain.states import read_anew


def amend(chain: ChainBuilder, begin: int = 0, approvers: int | None = None, **values: Any) -> Change:
    said: dict[str, Any] = {"sequence": chain.state.amendments.count, "until": UNTIL}
    return approved(chain, propose_amendment(amendment_of(values, begin), "better", **said), approvers)


def judge(chain: ChainBuilder, change: Change) -> None:
    validate_change(chain.genesis, chain.state, change, is_valid_signature)
    validate_approvals(chain.genesis, chain.state, change)


def play(chain: ChainBuilder, count: int = 1, **body: list[Change]) -> None:
    for _ in range(count):
        before, block = chain.state, chain.extend(**body)  # type: ignore[arg-type]
        judge_block(chain.genesis, before, block, block.header.knowledge_root, is_valid_signature)
        assert read_anew(chain.genesis, chain.state) == chain.state


def test_values_hold_from_the_second_round_on_and_the_document_stays() -> None:
    chain = living(rounds=9)
    document = chain.genesis.encode()
    play(chain, changes=[amend(chain, phase_timeout_ms=7_000, contributors_per_round=4)])
    assert chain.state.rules.phase_timeout_ms == chain.genesis.phase_timeout_ms
    assert len(chain.state.roster.contributors) == 5
    assert not may_close_empty(chain.genesis, chain.state)
    play(chain)
    assert may_close_empty(chain.genesis, chain.state), "few are drawn"
    assert (chain.state.rules.phase_timeout_ms, chain.state.rules.contributors_per_round) == (7_000, 4)
    assert len(chain.state.roster.contributors) == 4
    assert chain.state.rules.chain_id == chain.genesis.chain_id
    assert chain.genesis.encode() == document
    play(chain, 2)


def test_an_amendment_may_name_its_round() -> None:
    chain = living()
    play(chain, changes=[amend(chain, 5, vote_timeout_ms=9)])
    play(chain, changes=[amend(chain, vote_timeout_ms=8)])
    timeouts = []
    for _ in range(4):
        timeouts.append((chain.state.round, chain.state.rules.vote_timeout_ms))
        play(chain)
    assert timeouts == [(3, 1_000), (4, 8), (5, 9), (6, 9)]
    with pytest.raises(OutOfWindow, match="round 7 found, the next that it can begin is 9"):
        judge(chain, amend(chain, 7, vote_timeout_ms=7))


def test_a_quorum_approves_whatever_the_admission() -> None:
    for fields in ({"admission": Admission.SPONSORS, "sponsors": 1}, {"admission": Admission.CLOSED}):
        chain = living(**fields)
        judge(chain, amend(chain, rounds=8))
        with pytest.raises(InvalidChange, match="approvals: 3 found, 4 required"):
            judge(chain, amend(chain, 0, 3, rounds=8))


def test_no_committee_approves_in_the_others_place() -> None:
    chain = living(7, committee_size=3)
    with pytest.raises(InvalidChange, match="approvals: 4 found, 5 required"):
        judge(chain, amend(chain, 0, 4, committee_size=1))
    judge(chain, amend(chain, 0, 5, committee_size=1))


def test_of_two_that_begin_at_once_the_one_that_was_counted_last_holds() -> None:
    chain = living()
    for values in ({"vote_timeout_ms": 9, "phase_floor_ms": 7}, {"vote_timeout_ms": 8}):
        play(chain, changes=[amend(chain, 5, **values)])
    play(chain, 2)
    assert (chain.state.round, chain.state.rules.vote_timeout_ms, chain.state.rules.phase_floor_ms) == (5, 8, 7)
    assert chain.state.amendments.coming == ()


def test_an_amendment_is_counted_once() -> None:
    chain = living()
    change, other = amend(chain, rounds=8), amend(chain, rounds=9)
    play(chain, changes=[change])
    for late in (change, other):
        with pytest.raises(OutOfWindow, match="sequence: 0 found, 1 were counted"):
            judge(chain, late)
    with pytest.raises(InvalidChange, match="sequence: 5 found, 1 expected"):
        judge(chain, approved(chain, propose_amendment(amendment_of({"rounds": 9}), "", sequence=5, until=UNTIL)))


def test_the_rules_make_sense_in_every_round() -> None:
    chain = living(contribution_quorum=4)
    for values, message in (
        ({"rounds": 2}, "rounds is 2, an amendment begins with round 3"),
        ({"contributors_per_round": 3}, "contribution_quorum is 4, it must be between 0 and 3"),
        ({"version": 3}, "version is 3, after 3 comes a later one"),
        ({"version": 0}, "version is 0, after 3 comes a later one"),
    ):
        with pytest.raises(InvalidChange, match=message):
            judge(chain, amend(chain, **values))
    play(chain, changes=[amend(chain, 6, contribution_quorum=2)])
    with pytest.raises(InvalidChange, match="contribution_quorum is 4"):
        judge(chain, amend(chain, 5, contributors_per_round=3))
    judge(chain, amend(chain, 6, contributors_per_round=3))


def test_a_version_comes_after_those_that_are_on_their_way() -> None:
    chain = living()
    play(chain, changes=[amend(chain, 9, version=5)])
    with pytest.raises(InvalidChange, match="version is 4, after 5 comes a later one"):
        judge(chain, amend(chain, version=4))
    judge(chain, amend(chain, 10, version=6))


def test_who_posts_to_a_round_that_an_amendment_may_have_added_is_not_to_blame() -> None:
    chain = living(rounds=2)
    play(chain)
    early = post(keys(1)[0], chain.genesis, 3, payload(1))
    with pytest.raises(OutOfWindow, match="round: 3 found, the last is 2"):
        validate_post(chain.genesis, chain.state, early, is_valid_signature)


@pytest.mark.parametrize(
    "record",
    [
        [0],
        [0, "rounds"],
        [0, "rounds", 1, "rounds", 2],
        [0, "rounds", 1, "away_after", 2],
        [0, "members", 3],
        [0, "rounds", "3"],
        [0, "admission", 1],
        [0, "admission", "q" * 65],
        [0, "hyperparameters.learning_rate", 1],
        [0, "hyperparameters.two words", "1"],
        [0, "hyperparameters.learning_rate", "1" * 65],
        [0, *(part for number in range(33) for part in (f"hyperparameters.a{number:02}", "1"))],
        ["0", "rounds", 1],
    ],
)
def test_other_forms_are_refused(record: list[Any]) -> None:
    with pytest.raises(InvalidEncoding, match="amendment"):
        Amendment.from_record(record)


def test_changes_survive_being_encoded_and_only_an_amendment_has_values() -> None:
    chain = living()
    change = amend(chain, 9, rounds=12, away_after=3)
    assert Change.from_record(change.to_record()) == change
    record = change.to_record()
    record[6] = []
    with pytest.raises(InvalidEncoding, match="change amendment"):
        Change.from_record(record)


def test_a_hyper_parameter_stands_among_what_the_method_reads_from_its_round_on() -> None:
    chain, name = living(rounds=9), "hyperparameters.learning_rate"
    founded = chain.genesis.learning
    first: dict[str, Any] = {name: "0.05", "rounds": 12}
    second: dict[str, Any] = {name: "0.01"}
    play(chain, changes=[amend(chain, **first)])
    assert (chain.state.rules.learning, chain.state.amendments.hyperparameters) == (founded, ())
    play(chain)
    assert dict(chain.state.rules.learning) == dict(founded) | {name: "0.05"}
    assert chain.state.amendments.hyperparameters == (("learning_rate", "0.05"),)
    play(chain, changes=[amend(chain, **second)])
    play(chain)
    assert (dict(chain.state.rules.learning)[name], chain.state.rules.rounds) == ("0.01", 12)


def test_blocks_are_mined_towards_another_time_from_its_round_on() -> None:
    chain = living()
    play(chain, changes=[amend(chain, target_mining_time_ms=16_000)])
    goals = []
    for _ in range(3):
        before, certificate = chain.state, chain.certificate(chain.blocks[chain.tip])
        play(chain)
        steps = {goal: next_bits(before.bits, certificate.mining_ms, goal) for goal in (4_000, 16_000)}
        assert len(set(steps.values())) == 2
        goals += [goal for goal, bits in steps.items() if bits == chain.state.bits]
    assert goals == [4_000, 16_000, 16_000]


def test_fewer_members_admit_from_then_on_if_a_quorum_wants_it() -> None:
    chain = living()
    play(chain, changes=[amend(chain, admission="sponsors", sponsors=2)])
    with pytest.raises(InvalidChange, match="approvals: 2 found, 4 required"):
        judge(chain, joining(chain, 5, 2))
    play(chain)
    judge(chain, joining(chain, 5, 2))
    with pytest.raises(InvalidChange, match="approvals: 1 found, 2 required"):
        judge(chain, joining(chain, 5, 1))
    judge(chain, amend(chain, admission="quorum", sponsors=0))
    with pytest.raises(InvalidChange, match="approvals: 2 found, 4 required"):
        judge(chain, amend(chain, 0, 2, admission="quorum", sponsors=0))


@pytest.mark.parametrize(
    ("founded", "values", "message"),
    [
        ("quorum", {"admission": "closed"}, "admission is closed, it was founded as quorum"),
        ("closed", {"admission": "quorum"}, "admission is quorum, it was founded as closed"),
        ("quorum", {"admission": "anybody"}, "admission is 'anybody', it must be one of closed, quorum, sponsors"),
        ("quorum", {"admission": "sponsors"}, "sponsors is 0, it must be between 1 and 5"),
        ("quorum", {"sponsors": 2}, "sponsors is 2, it must be 0 unless admission is sponsors"),
        ("quorum", {"admission": "sponsors", "sponsors": 6}, "sponsors is 6, it must be between 1 and 5"),
    ],
)
def test_a_closed_federation_stays_closed_and_no_other_one_is_closed(
    founded: str, values: dict[str, Any], message: str
) -> None:
    chain = living(admission=Admission(founded))
    with pytest.raises(InvalidChange, match=message):
        judge(chain, amend(chain, **values))


def drawn(chain: ChainBuilder) -> tuple[int, int | None]:
    """The number of electors, and the size that the set names."""
    return len(chain.state.roster.electors), chain.state.member_set.committee_size


def test_a_committee_is_drawn_by_another_size_and_headers_say_so() -> None:
    chain = living(5)
    assert drawn(chain) == (5, None)
    play(chain, changes=[amend(chain, committee_size=3)])
    play(chain)
    assert drawn(chain) == (3, 3)
    play(chain, changes=[amend(chain, committee_size=99)])
    play(chain)
    assert drawn(chain) == (5, 99)


def test_where_members_come_more_may_be_drawn_than_founded() -> None:
    chain = living(5)
    play(chain, changes=[amend(chain, contributors_per_round=7, contribution_quorum=6)])
    play(chain, 2)
    assert len(chain.state.roster.contributors) == 5, "as many as there are"
    closed = living(5, admission=Admission.CLOSED)
    for name in ("committee_size", "contributors_per_round", "contribution_quorum"):
        judge(closed, amend(closed, **{name: 5}))
        with pytest.raises(InvalidChange, match=f"{name} is 6, it must be between 0 and 5"):
            judge(closed, amend(closed, **{name: 6}))


def test_a_federation_ends_later_or_earlier() -> None:
    chain = living(rounds=4)
    play(chain, changes=[amend(chain, rounds=6)])
    play(chain, 3)
    assert not chain.state.finished
    play(chain, 2)
    assert chain.state.finished
    chain = living(rounds=9)
    play(chain, changes=[amend(chain, rounds=3)])
    play(chain, 2)
    assert chain.state.finished


def test_fewer_posts_close_a_phase_from_then_on() -> None:
    chain = living()
    play(chain, changes=[amend(chain, contribution_quorum=1)])
    play(chain)
    play(chain, posts=chain.posts(members=[chain.genesis.members[2]]))  # type: ignore[arg-type]


def test_who_is_silent_goes_away_sooner() -> None:
    chain = living(6, contribution_quorum=1)
    silent = chain.genesis.members[5]
    play(chain, changes=[amend(chain, away_after=2)])
    others = [key for key in sorted(chain.genesis.members) if key != silent]
    for _ in range(4):
        block = chain.blocks[chain.tip]
        chain.extend(posts=chain.posts(members=others), certificate=chain.certificate(block, others))
    assert not chain.state.roster.is_active(silent)


def test_a_block_of_a_version_that_this_program_does_not_know_is_not_judged() -> None:
    chain = living()
    play(chain, changes=[amend(chain, version=4)])
    play(chain)
    with pytest.raises(OutOfWindow, match="version: 4 begins with round 3, this program speaks 3"):
        play(chain)
