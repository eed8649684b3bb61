"""The account of members: who counts, what is on its way, who approves, for programs and for people."""

import json
from typing import Any

from fedchain.chain.genesis import Admission
from fedchain.chain.membership.amendment import amendment_of
from fedchain.chain.membership.change import ChangeKind, propose_amendment
from fedchain.crypto.address import address
from fedchain.node.membership.account import PURPOSES, account, account_lines, admission_text, follows_text
from tests.support.chain.builders import keys
from tests.support.chain.changes import UNTIL, approved, joining, living, living_genesis, own


def test_members_changes_and_requests_are_accounted_for() -> None:
    chain = living(5, away_after=7)
    chain.extend(changes=[own(chain, 4)])
    change, request = joining(chain, 5, 2, text="clinic\x1b"), joining(chain, 6, 0)
    found = account(chain.genesis, chain.state, [change], [request])
    assert json.loads(json.dumps(found)) == found
    assert (found["active"], found["quorum"], found["round"]) == (5, 4, 2)
    assert [member["standing"] for member in found["members"]] == ["active"] * 5
    assert (found["members"][4]["next"], found["members"][4]["next_round"]) == ("left", 3)
    (open_change,) = found["changes"]
    assert open_change["missing"] == [address(key.public_key) for key in keys(5)[2:]]
    names = [address(key.public_key) for key in keys(7)]
    assert list(account_lines(found)) == [
        "height      1, round 2",
        "members     5 of 5 count, a quorum is 4",
        "admission   a quorum approves, 4 now",
        "away        after 7 silent rounds",
        *(f"   {number}  {names[number]}  active" for number in range(4)),
        f"   4  {names[4]}  active, left from round 3 on",
        "",
        "waits for a block, or for approval",
        f"{change.hash.hex()[:8]}  {names[5]} joins (clinic�): 2 of 4 approve (peer 0, peer 1); "
        "not yet: peer 2, peer 3, peer 4, until height 50",
        "",
        "asks, nobody approves yet",
        f"{request.hash.hex()[:8]}  {names[6]} joins (peer 6): 0 of 4 approve; "
        "not yet: peer 0, peer 1, peer 2, peer 3, peer 4, until height 50",
    ]


def test_after_the_last_round_the_account_names_that_round_as_the_status_does() -> None:
    chain = living(5, rounds=2)
    chain.extend_many(2)
    assert chain.state.finished
    lines = list(account_lines(account(chain.genesis, chain.state, [], [])))
    assert lines[0] == "height      2, round 2"


def test_values_that_were_amended_are_said() -> None:
    chain = living(5, rounds=9)
    for begin, values in ((0, {"rounds": 12}), (8, {"committee_size": 4})):
        said: dict[str, Any] = {"sequence": chain.state.amendments.count, "until": UNTIL}
        chain.extend(changes=[approved(chain, propose_amendment(amendment_of(values, begin), "", **said))])
    lines = list(account_lines(account(chain.genesis, chain.state, [], [])))
    assert lines[4:6] == ["amended     rounds 12, founded with 9", "amended     committee_size 4, from round 8 on"]


def test_what_would_hold_after_the_last_round_is_said_to_come_too_late() -> None:
    """The end is put off two rounds before, and a change that is on its way counts."""
    chain = living(5, rounds=4)
    chain.extend()

    def follows(values: dict[str, int | str], approvers: int | None = None) -> str:
        change = propose_amendment(amendment_of(values), "", sequence=chain.state.amendments.count, until=UNTIL)
        return follows_text(chain.genesis, chain.state, approved(chain, change, approvers))

    later = propose_amendment(amendment_of({"rounds": 5}), "", sequence=0, until=UNTIL)
    chain.extend(changes=[approved(chain, later)])  # in round 2, so that it holds from round 4 on
    assert follows({"rounds": 9}) == "the next block can count it; the values hold from round 5 on"
    chain.extend()
    assert follows({"rounds": 9}) == "it would hold from round 6 on, and round 5 is the last"
    assert follows({"rounds": 9}, 1) == follows({"rounds": 9}), "nobody is asked to approve in vain"
    leave = own(chain, 4)
    assert follows_text(chain.genesis, chain.state, leave) == "it would hold from round 6 on, and round 5 is the last"


def test_members_that_are_the_same_for_ever_have_an_account_too() -> None:
    document = living_genesis(4, version=2, admission=Admission.CLOSED)
    chain = living(4, version=2, admission=Admission.CLOSED)
    found = account(document, chain.state, [], [])
    assert [member["standing"] for member in found["members"]] == ["active"] * 4
    assert list(account_lines(found))[2:4] == ["admission   closed: nobody joins or is removed", "away        never"]


def test_a_rule_of_admission_in_words() -> None:
    assert admission_text("sponsors", 1, 3) == "1 member approves"
    assert admission_text("sponsors", 2, 3) == "2 members approve"


def test_every_kind_of_change_has_words() -> None:
    assert PURPOSES.keys() == set(ChangeKind)


def test_approvals_beyond_those_required_are_not_said_to_be_of_them() -> None:
    """It read "4 of 3 approve"."""
    chain = living(5, admission=Admission.SPONSORS, sponsors=3)
    three, four = (account(chain.genesis, chain.state, [joining(chain, 5, count)], []) for count in (3, 4))
    assert any(": 3 of 3 approve (peer 0, peer 1, peer 2), until" in line for line in account_lines(three))
    assert any(": 4 approve (peer 0, peer 1, peer 2, peer 3), until" in line for line in account_lines(four))
