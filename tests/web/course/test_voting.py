"""The voting on a height: certificates, and the votes that nodes keep of their own."""

from dataclasses import replace
from pathlib import Path

import pytest
from starlette.testclient import TestClient

from fedchain.chain.storage.sqlite import Store
from fedchain.chain.vote import NIL, VoteKind, sign_vote
from fedchain.crypto.address import address
from fedchain.web.chains import open_chains
from fedchain.web.course.voting import Voting, turnout, voting
from fedchain.web.places import find_places
from tests.support.chain.builders import CREATED_MS, ChainBuilder, genesis, keys
from tests.support.chain.explored import FakeRules, write
from tests.support.web.pages import text_of
from tests.support.web.sightings import line_of
from tests.support.web.site import HOME, site

KEYS = keys(4)
MEMBERS = [address(key.public_key) for key in KEYS]
LATE = max(range(4), key=lambda place: KEYS[place].public_key)
"""Number of the member whose votes come too late: certificates are of the first three in key order."""
CLOCK_MS = CREATED_MS + 20_000


@pytest.fixture
def net(tmp_path: Path) -> Path:
    """Two nodes, one of them the late member's. The first attempt at height 2 failed."""
    chain = ChainBuilder(genesis(4))
    chain.extend()
    second = chain.extend()
    electors = sorted(chain.genesis.members)[:3]
    clocks = {voter: CLOCK_MS + 10 * place for place, voter in enumerate(electors)}
    chain.extend(certificate=chain.certificate(second, electors, attempt=1, clock_ms=clocks))
    late = KEYS[LATE].public_key
    own = [sign_vote(KEYS[LATE], chain.genesis.chain_id, (2, 0, int(kind)), NIL) for kind in VoteKind]
    own.append(chain.vote(late, second, kind=VoteKind.PREVOTE, attempt=1))
    own.append(chain.vote(late, second, attempt=1, clock_ms=CLOCK_MS + 250))
    for number in range(4):
        with Store.create(tmp_path / "net" / f"node-{number}" / "chain", chain.genesis) as store:
            write(store, chain)
            if number == LATE:
                store.append(own)
    return tmp_path / "net"


def _voting(folder: Path, height: int) -> Voting:
    (chain,) = open_chains(find_places([folder]), lambda _: FakeRules())
    with chain.reading() as reading:
        return voting(chain, reading.explorer.block(str(height)), reading.explorer.numbers)


def test_votes_of_certificates_and_of_nodes_are_put_together(net: Path) -> None:
    found = _voting(net, 2)
    assert [ballot.member for ballot in found.ballots] == MEMBERS
    late, others = found.ballots[LATE], [*found.ballots[:LATE], *found.ballots[LATE + 1 :]]
    assert {ballot.prevotes for ballot in others} == {()}, "a certificate has no prevotes"
    assert {ballot.precommits for ballot in others} == {("this block in attempt 2",)}
    assert late.prevotes == late.precommits == ("no block", "this block in attempt 2")
    assert sorted(ballot.ahead_ms or 0 for ballot in others) == [-10, 0, 10]
    assert (late.ahead_ms, found.first_ms) == (240, -10)
    assert (found.watched, found.unknown) == (1, ())
    assert (found.places, found.drawn_ms) == ((0.0, 40.0, 80.0, 1000.0), 250)


def test_a_vote_that_several_nodes_keep_is_shown_once(net: Path) -> None:
    """A node keeps votes of others, too, if its own rest on them."""
    other = (LATE + 1) % 4
    with Store.open(net / f"node-{LATE}" / "chain") as late:
        votes = list(late.votes(2))
        given_up = sign_vote(KEYS[other], late.genesis.chain_id, (2, 0, int(VoteKind.PREVOTE)), NIL)
        late.append([given_up])
    with Store.open(net / f"node-{other}" / "chain") as store:
        store.append([*reversed(votes), given_up])
    found = _voting(net, 2)
    assert found.ballots[LATE].prevotes == found.ballots[LATE].precommits == ("no block", "this block in attempt 2")
    assert (found.ballots[other].prevotes, found.watched) == (("no block",), 2)


def test_members_without_a_known_vote_are_named(net: Path) -> None:
    found = _voting(net, 1)
    assert (found.unknown, found.watched) == ((MEMBERS[LATE],), 0)


def test_the_page_of_a_block_shows_its_voting_and_says_what_is_not_known(net: Path) -> None:
    client = TestClient(site(net, rules=lambda _: FakeRules()).app, base_url=HOME)
    shown = text_of(client, "/net/block/2")
    assert "precommits of the certificate, in attempt 2</small>" in shown
    assert "<td>no block, this block in attempt 2</td>" in shown
    assert '<td class="num">250 ms</td><td class="num">+0.240 s</td>' in shown
    assert "4 precommits within 250 ms" in shown
    assert "folders are here: 1 of 4 members" in shown
    assert f'No vote is known of <a class="member" href="/net/member/{LATE}" title="{MEMBERS[LATE]}"' in text_of(
        client, "/net/block/1"
    )


def test_a_clock_that_is_far_off_does_not_squeeze_the_others(net: Path) -> None:
    with Store.open(net / f"node-{LATE}" / "chain") as store:
        block, key = [*store.votes(2)][-1].block_hash, KEYS[LATE]
        store.append([sign_vote(key, store.genesis.chain_id, (2, 2, 2), block, clock_ms=CLOCK_MS + 86_400_000)])
    found = _voting(net, 2)
    assert found.places == (0.0, 500.0, 1000.0)
    assert found.ballots[LATE].ahead_ms == 86_400_000 - 10


def test_turnout_counts_votes_and_runs_without(tmp_path: Path) -> None:
    line = line_of(_one_block(), tmp_path)
    present, missing = line, replace(line, voters=line.voters[:0])
    place = line.voters[0]
    lines = [
        replace(item, height=height) for height, item in enumerate((present, missing, missing, present, missing), 1)
    ]
    found = turnout(lines, place)
    assert (found.voted, found.longest, found.current) == (2, (2, 3), 1)
    assert turnout(lines[:1], place).longest is None
    assert turnout(lines[:1], place).current == 0
    assert turnout([], place).marks == ()


def _one_block() -> ChainBuilder:
    chain = ChainBuilder(genesis(4))
    chain.extend()
    return chain


def test_a_member_s_page_tells_its_turnout(net: Path) -> None:
    client = TestClient(site(net, rules=lambda _: FakeRules()).app, base_url=HOME)
    shown = text_of(client, f"/net/member/{(LATE + 1) % 4}")
    assert "in 100 % of the certificates" in shown
    assert "No block is without." in shown
    absent = text_of(client, f"/net/member/{LATE}")
    assert "in 0 % of the certificates" in absent
    assert "Longest run without: 3 blocks" in absent
    assert "Current run: 3." in absent
