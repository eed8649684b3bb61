"""The law of scale: its sizes are those of encoded messages, small runs send what it says, and its page quotes it."""

import re
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from fedchain.chain.block import Block, sign_block
from fedchain.chain.certificate import Certificate, certify
from fedchain.chain.encoding import decode, encode, encode_list
from fedchain.chain.exceptions import InvalidEncoding
from fedchain.chain.membership.change import CHANGES_VERSION
from fedchain.chain.membership.member_set import MemberSet
from fedchain.chain.membership.turnout import MARKS_SIZE_MAX, Turnout
from fedchain.chain.post import Post, sign_post
from fedchain.chain.state import genesis_state
from fedchain.chain.vote import VoteKind, sign_vote
from fedchain.crypto.hashing import sha256
from fedchain.crypto.keys import PUBLIC_KEY_SIZE
from fedchain.network.limits import Limits
from fedchain.network.messages import (
    MESSAGE_SIZE_MAX,
    CandidateMessage,
    Chunk,
    FinalMessage,
    GetContent,
    HeldVotes,
    PostMessage,
    Status,
    VoteMessage,
    encode_message,
)
from tests.bench.processes import Cost
from tests.bench.scale_law import Found, Setting, fit, own_terms, predicted_cpu_s, terms
from tests.support.chain import builders
from tests.support.paths import ROOT
from tests.support.simulator import scale
from tests.support.simulator.scale import Shape, bytes_of_run, padded_simulation, sent_by_name, shape_of
from tests.support.simulator.trivial import trivial_scenario

HASH, CLOCK_MS, MINING_MS = sha256(b"block"), 1_700_000_000_000, 4_000
MEMBERS = 160
"""As many that the law's share of their marks is a whole number of bytes."""

RUNS: dict[str, tuple[dict[str, Any], int]] = {
    "all post and vote": ({"peers": 8}, 12),
    "some post and some vote": ({"peers": 24, "contributors_per_round": 10, "committee_size": 7}, 700),
    "a mesh": ({"peers": 24, "degree": 4, "committee_size": 10}, 300),
    "payloads that are fetched": ({"peers": 6}, 300_000),
}


def shape(members: int, **values: Any) -> Shape:
    return Shape(**({"members": members, "contributors": members, "committee": members, "payload": 12} | values))


def posts(count: int, payload: int) -> tuple[Post, ...]:
    """Posts of the right size; nobody looks at their signatures."""
    (key,) = builders.keys(1)
    return (sign_post(key, HASH, 1, 0, bytes(payload)),) * count


def turnout(members: int) -> Turnout:
    """Marks that are as long as those of the law: the second ones are a share of the first."""
    marks = b"\xff" * min((members + 7) // 8, MARKS_SIZE_MAX)
    return Turnout(1_000, 200, marks, marks[: round(scale.AWAITED * len(marks))])


def certificate(votes: int, said: Turnout) -> Certificate:
    slot, measured = (7, 0, VoteKind.PRECOMMIT), {"clock_ms": CLOCK_MS, "mining_ms": MINING_MS}
    return certify(sign_vote(key, HASH, slot, HASH, turnout=said, **measured) for key in builders.keys(votes))


def block(count: int, votes: int, payload: int, members: int = MEMBERS) -> Block:
    header = replace(builders.ChainBuilder(builders.genesis(version=CHANGES_VERSION)).extend().header, nonce=2**63)
    key = builders.keys(1)[0]
    return sign_block(key, HASH, header, posts(count, payload), certificate(votes, turnout(members)) if votes else None)


@pytest.mark.parametrize("payload", [12, 200, 4_000, 70_000])
def test_posts_have_the_sizes_of_the_law(payload: int) -> None:
    (post,) = posts(1, payload)
    inline = bytes(payload) if payload <= 2**16 else None
    assert len(encode_message(PostMessage(post, inline))) == scale.post_size(payload)


def test_votes_have_the_sizes_of_the_law() -> None:
    key = builders.keys(1)[0]
    prevote = sign_vote(key, HASH, (7, 0, VoteKind.PREVOTE), HASH)
    precommit = certificate(1, turnout(MEMBERS)).votes[0]
    assert len(encode_message(VoteMessage(prevote))) == scale.prevote_size()
    assert len(encode_message(VoteMessage(precommit))) == scale.precommit_size(MEMBERS)


@pytest.mark.parametrize(("count", "votes"), [(3, 0), (3, 3), (40, 20)])
def test_blocks_have_the_sizes_of_the_law(count: int, votes: int) -> None:
    candidate = block(count, votes, 12)
    assert len(encode_message(CandidateMessage(candidate))) == scale.block_size(MEMBERS, count, votes, 12)
    if votes:
        final = FinalMessage(candidate, certificate(votes, turnout(MEMBERS)))
        assert len(encode_message(final)) == scale.final_size(MEMBERS, count, votes, 12)


@pytest.mark.parametrize("members", [5, 400, 65_000])
def test_statuses_have_the_sizes_of_the_law(members: int) -> None:
    marked = bytes((members + 7) // 8)
    quiet = Status(7, HASH, marked, (), (), None)
    votes = HeldVotes(VoteKind.PREVOTE, 0, marked), HeldVotes(VoteKind.PRECOMMIT, 0, marked)
    voting = Status(7, HASH, marked, (HASH,), votes, (0, HASH))
    sizes = len(encode_message(quiet)), len(encode_message(voting)) - len(encode_message(quiet))
    assert sizes == (scale.status_size(shape(members)), scale.status_extra(shape(members)))


def test_fetching_has_the_size_of_the_law() -> None:
    sent = 0
    for offset, part in ((0, 2**18), (2**18, 2**18), (2**19, 75_712)):
        sent += len(encode_message(GetContent(HASH, offset))) + len(encode_message(Chunk(HASH, offset, bytes(part))))
    assert sent == scale.chunks_size(600_000)


@pytest.mark.parametrize("name", RUNS)
def test_a_run_sends_what_the_law_says(name: str) -> None:
    values, payload = RUNS[name]
    scenario = trivial_scenario(**values)
    simulation = padded_simulation(scenario, payload)
    outcome = simulation.run()
    sent = sent_by_name(outcome)
    law = bytes_of_run(shape_of(scenario, simulation, outcome, payload), scenario.rounds, outcome.virtual_s)
    assert sum(sent.values()) == sum(simulation.network.sent_bytes)
    assert sum(law.values()) == pytest.approx(sum(sent.values()), rel=0.02)
    for kind in ("posts", "payloads", "votes", "candidates", "sessions", "statuses"):
        assert law[kind] == pytest.approx(sent[kind], rel=0.06), kind


def test_the_limits_are_the_last_sizes_that_fit() -> None:
    assert scale.largest(lambda number: number <= 768) == 768
    assert scale.largest(lambda number: number <= 1) == 1
    walls = scale.walls()
    most = walls["the same where 32 vote"]
    sizes = [len(encode_message(CandidateMessage(block(most + more, 22, 2**18, most + more)))) for more in (-8, 8)]
    assert sizes[0] < Limits().gossip_size_max < sizes[1]
    read = walls["the members of a light block"]
    keys = [number.to_bytes(PUBLIC_KEY_SIZE) for number in range(read + 1)]
    decode(encode(MemberSet(tuple(keys[:-1]), tuple(range(read))).to_record()), MESSAGE_SIZE_MAX)
    with pytest.raises(InvalidEncoding):
        decode(encode(MemberSet(tuple(keys), tuple(range(read + 1))).to_record()), MESSAGE_SIZE_MAX)
    (record, *_) = genesis_state(builders.genesis(4, version=CHANGES_VERSION)).records
    records, items = encode_list([record.encode()] * 10), 2 + 10 * scale.RECORD_ITEMS
    decode(records, len(records), items)
    with pytest.raises(InvalidEncoding, match="items"):
        decode(records, len(records), items - 1)


def test_constants_are_those_of_the_runs_to_fit() -> None:
    true = np.array([2e-3, 2e-5, 5e-5, 7e-6])
    shapes = [shape(20), shape(100), replace(shape(100), committee=70), shape(60, degree=6.0), shape(50)]
    runs = [found(item, predicted_cpu_s(item, terms, true), is_fitted=True) for item in shapes[:4]]
    held_out = found(shapes[4], 1e9, is_fitted=False)
    assert fit([*runs, held_out], terms) == pytest.approx(true)


def test_posts_cost_what_other_messages_do_where_every_peer_verifies() -> None:
    true = np.array([2e-3, 2e-4])
    runs = [found(item, predicted_cpu_s(item, own_terms, true), is_fitted=True) for item in (shape(20), shape(80))]
    assert fit(runs, own_terms) == pytest.approx(true)


def test_a_constant_that_would_be_negative_is_left_out() -> None:
    shapes = [shape(20), shape(40), shape(100)]
    runs = [found(item, item.members**3 * 1e-6, is_fitted=True) for item in shapes]
    peer, post, other, copy = fit(runs, terms)
    assert (peer, other, copy) == (0, 0, 0)
    assert post > 0


def test_the_page_quotes_the_sizes_and_limits() -> None:
    text = (ROOT / "docs" / "scale.md").read_text(encoding="utf-8")
    rows = {name.strip(): said.strip() for name, said in re.findall(r"^\| ([^|]+)\| ([^|]+)\|", text, re.MULTILINE)}
    per_post = scale.block_size(400, 101, 0, 12) - scale.block_size(400, 100, 0, 12)
    marks = f"{1 + scale.AWAITED} n ⁄ 8"
    plain, before = scale.turnout_size(0), scale.block_size(400, 100, 22, 12) - 22 * (113 + scale.turnout_size(400))
    sizes = {
        "post": f"{scale.post_size(4_000) - 4_000} + p",
        "prevote; precommit": f"{scale.prevote_size()}; {scale.precommit_size(0):.0f} + {marks}",
        "candidate": f"{before - 100 * per_post:.0f} + {per_post:.0f} m + ({113 + plain:.0f} + {marks}) q",
        "status": f"{scale.status_size(shape(400)) - 50} + n ⁄ 8",
        "session": "126",
    }
    assert {name: rows[name] for name in sizes} == sizes
    assert {name: rows[name] for name in scale.walls()} == {name: f"{count:,}" for name, count in scale.walls().items()}


def found(item: Shape, cpu_s: float, *, is_fitted: bool) -> Found:
    return Found(Setting({}, is_fitted=is_fitted), Cost(0.0, 0.0, 0.0, 0.0, {"cpu_s": [cpu_s]}), item)
