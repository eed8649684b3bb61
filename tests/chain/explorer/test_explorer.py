import os
import sqlite3
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fedchain.chain.block import Block
from fedchain.chain.exceptions import InvalidPayload, MethodFailed, NotFound, StoreCorrupt
from fedchain.chain.explorer import ahead, history
from fedchain.chain.explorer.audit import ChainAudit
from fedchain.chain.explorer.explorer import Explorer
from fedchain.chain.explorer.views import Conviction, Voter, is_proven
from fedchain.chain.genesis import AggregatorRule, FaultModel, Genesis
from fedchain.chain.knowledge import Occasion
from fedchain.chain.signatures import Signed
from fedchain.chain.storage.database import DATABASE
from fedchain.chain.storage.sqlite import Store
from fedchain.chain.storage.store import Candidate, Content, Final
from fedchain.cli.explorer_tables import render
from fedchain.crypto.address import address
from fedchain.crypto.exceptions import InvalidAddress
from fedchain.crypto.hashing import sha256
from fedchain.crypto.keys import PublicKey
from fedchain.crypto.signatures import is_valid_signature
from tests.support.chain.builders import (
    BLOCK_MS,
    CREATED_MS,
    GLOBAL,
    UPDATE,
    ChainBuilder,
    SumRules,
    double_post,
    double_vote,
    genesis,
    keys,
)
from tests.support.chain.explored import GENESIS, FakeRules, finals, write
from tests.support.chain.explored import chain as chain

Explore = Callable[..., Explorer]


@pytest.fixture
def explore(tmp_path: Path) -> Iterator[Explore]:
    """An explorer of what was built, or of final blocks that a test made; ``without`` some contents."""
    with ExitStack() as stores:
        count = 0

        def explore(chain: ChainBuilder, records: Sequence[Final] | None = None, **options: Any) -> Explorer:
            nonlocal count
            count += 1
            store = stores.enter_context(Store.create(tmp_path / f"chain-{count}", chain.genesis))
            if records is None:
                write(store, chain, **options)
            else:
                store.append(records)
                store.append([Content(key, data) for key, data in chain.contents.items()])
            return Explorer(store)

        yield explore


@pytest.fixture
def explorer(chain: ChainBuilder, explore: Explore) -> Explorer:
    return explore(chain)


def main_chain(chain: ChainBuilder) -> list[Block]:
    return [record.block for record in finals(chain)]


# --- status, blocks


def test_status_shows_the_head_and_what_the_whole_chain_counts(explorer: Explorer, chain: ChainBuilder) -> None:
    status, state = explorer.status(), chain.state
    assert (status.chain_id, status.name, status.created_ms) == (GENESIS.chain_id, "test", CREATED_MS)
    assert (status.height, status.base, status.head) == (4, 1, chain.tip)
    assert (status.time_ms, status.state_root) == (CREATED_MS + 4 * BLOCK_MS, state.root)
    assert (status.round, status.phase, status.finished) == (5, "update", False)
    assert (status.work, status.bits, status.hashes_per_block) == (state.work, state.bits, 2)
    assert (status.members, status.fault_model, status.electors) == (4, "byzantine", 4)
    assert (status.quorum, status.liars_max, status.votes) == (3, 1, 3)
    assert (status.candidates, status.posts, status.payload_bytes) == (0, 15, 15 * 32)
    assert status.convictions == ()


def test_status_reads_no_block_but_the_head(chain: ChainBuilder, tmp_path: Path, monkeypatch: Any) -> None:
    with Store.create(tmp_path, GENESIS) as store:
        write(store, chain)
        monkeypatch.setattr(store, "final", None)
        monkeypatch.setattr(store, "encoded", None)
        assert Explorer(store).status().posts == 15


def test_an_empty_chain_has_a_status_and_no_blocks(explore: Explore) -> None:
    explorer = explore(ChainBuilder(GENESIS))
    status = explorer.status()
    assert (status.height, status.head, status.round, status.time_ms) == (0, GENESIS.chain_id, 1, CREATED_MS)
    assert (status.votes, status.quorum) == (0, 3)
    assert explorer.blocks(10) == ()
    assert explorer.verify(SumRules()) == ChainAudit(GENESIS.chain_id, True, 1, 0, (), 1, 1, ())


def test_the_fault_model_is_shown_with_its_quorum(explore: Explore) -> None:
    crash = ChainBuilder(genesis(4, fault_model=FaultModel.CRASH))
    crash.extend()
    status = explore(crash).status()
    assert (status.fault_model, status.quorum, status.liars_max) == ("crash", 3, 0)


def test_a_finished_federation_is_in_its_last_round(explore: Explore) -> None:
    chain = ChainBuilder(genesis(3, rounds=2))
    chain.extend_many(2)
    explorer = explore(chain)
    status = explorer.status()
    assert (status.round, status.phase, status.finished) == (2, None, True)
    assert explorer.round(2).finished
    assert explorer.knowledge(FakeRules()).round == 2
    with pytest.raises(NotFound, match="no block of round 3: the chain ended with round 2"):
        explorer.round(3)


def test_blocks_are_listed_from_the_head_down(explorer: Explorer, chain: ChainBuilder) -> None:
    assert [block.height for block in explorer.blocks(10)] == [4, 3, 2, 1]
    newest, before = explorer.blocks(2)
    assert (newest.hash, before.height) == (chain.tip, 3)
    assert (newest.round, newest.phase, newest.posts, newest.votes) == (4, "update", 4, 3)
    assert (newest.time_ms, newest.mining_time_ms) == (CREATED_MS + 4 * BLOCK_MS, 4_000)
    assert newest.miner == address(GENESIS.members[3])


def test_a_block_is_found_by_height_and_by_hash(explorer: Explorer, chain: ChainBuilder) -> None:
    third = main_chain(chain)[2]
    view = explorer.block("3")
    assert view.header == third.header
    assert view.is_final
    assert [post.sender for post in view.transactions] == [address(item.sender) for item in third.transactions]
    assert view.missing == (address(GENESIS.members[3]),)
    assert view.convictions == ()
    for name in (third.hash.hex(), third.hash.hex()[:8], third.hash.hex()[:8].upper(), f"{third.hash.hex()[:8]}…"):
        assert explorer.block(name) == view


def clocks(voters: Sequence[bytes], *offsets_ms: int, height: int) -> Mapping[bytes, int]:
    return {
        voter: CREATED_MS + height * BLOCK_MS + offset for voter, offset in zip(sorted(voters), offsets_ms, strict=True)
    }


def test_a_block_shows_what_made_it_final_and_whose_clocks_are_off(explore: Explore) -> None:
    chain = ChainBuilder(GENESIS)
    voters = sorted(GENESIS.members)[:3]
    first = chain.extend()
    carried = chain.certificate(
        first, voters, attempt=2, clock_ms=clocks(voters, -700, 0, 90_000, height=1), mining_ms=3_000
    )
    chain.extend(certificate=carried)
    certificate = explore(chain).block("1").certificate
    assert certificate is not None
    assert (certificate.hash, certificate.attempt, certificate.quorum) == (carried.hash, 2, 3)
    assert (certificate.clock_ms, certificate.mining_time_ms) == (CREATED_MS + BLOCK_MS, 3_000)
    view = explore(chain).block("1")
    assert (view.summary.votes, view.summary.mining_time_ms) == (3, 3_000)
    offsets = {address(voter): offset for voter, offset in zip(voters, (-700, 0, 90_000), strict=True)}
    assert view.voters == tuple(Voter(member, offsets[member], 3_000) for member in sorted(offsets))


def test_a_block_has_the_time_of_the_certificate_that_the_next_one_carries(explore: Explore) -> None:
    chain = ChainBuilder(GENESIS)
    first, second = chain.extend_many(2)
    other = sorted(GENESIS.members)[1:]
    held = chain.certificate(first, other, clock_ms=CREATED_MS + 77_000)
    records = [Final(first, held, chain.final(first).state), chain.final(second)]
    explorer = explore(chain, records)
    assert [block.time_ms for block in explorer.blocks(2)] == [CREATED_MS + 2 * BLOCK_MS, CREATED_MS + BLOCK_MS]
    alone = explore(chain, records[:1])
    assert alone.status().time_ms == alone.blocks(1)[0].time_ms == CREATED_MS + 77_000


def test_the_time_of_blocks_never_goes_back(explore: Explore) -> None:
    chain = ChainBuilder(GENESIS)
    first = chain.extend()
    second = chain.extend(certificate=chain.certificate(first, clock_ms=CREATED_MS + 50_000))
    chain.extend(certificate=chain.certificate(second, clock_ms=CREATED_MS + 20_000))
    explorer = explore(chain)
    assert [block.time_ms for block in explorer.blocks(3)] == [CREATED_MS + after for after in (50_002, 50_001, 50_000)]
    assert explorer.status().time_ms == CREATED_MS + 50_002
    assert explorer.block("2").summary.time_ms == CREATED_MS + 50_001


def test_an_open_candidate_is_shown_without_a_time(explorer: Explorer, chain: ChainBuilder) -> None:
    candidate = chain.extend(posts=chain.posts(members=GENESIS.members[:3]))
    stale = chain.extend(main_chain(chain)[2].hash, payload_of=9)
    explorer._store.append([Candidate(candidate, True), Candidate(stale, True)])
    assert explorer.status().candidates == 1
    view = explorer.block(candidate.hash.hex())
    assert (view.is_final, view.certificate, view.voters) == (False, None, ())
    assert (view.summary.height, view.summary.time_ms, view.summary.votes) == (5, None, 0)
    assert view.missing == (address(GENESIS.members[3]),)
    post = candidate.transactions[0]
    found = explorer.transaction(post.hash.hex())
    assert (found.block, found.is_final) == (view.summary, False)
    assert is_proven(explorer.proof(post.hash.hex()))


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("0", "heights 1 to 4"),
        ("5", "heights 1 to 4"),
        ("99999999", "no block has a hash that begins with '99999999'"),
        ("abc", "at least 4 digits"),
        ("zzzz", "no block has"),
        ("", "at least 4 digits"),
        ("²", "at least 4 digits"),
    ],
)
def test_an_unknown_block_is_not_found(explorer: Explorer, name: str, message: str) -> None:
    with pytest.raises(NotFound, match=message):
        explorer.block(name)


def test_a_prefix_of_several_hashes_is_refused(explore: Explore) -> None:
    chain = ChainBuilder(GENESIS)
    first = chain.extend()
    by_prefix: dict[str, Block] = {}
    for number in range(10_000):
        block = chain.remake(first, key=keys(1)[0], nonce=0, knowledge_root=sha256(b"%d" % number))
        other = by_prefix.setdefault(block.hash.hex()[:4], block)
        if other != block:
            break
    explorer = explore(chain, ())
    explorer._store.append([Candidate(block, False), Candidate(other, False)])
    with pytest.raises(NotFound, match="2 blocks have a hash that begins with"):
        explorer.block(block.hash.hex()[:4])
    assert explorer.block(block.hash.hex()[:16]).header == block.header


# --- convictions


def test_convictions_are_shown_with_crime_and_height(explore: Explore) -> None:
    founded = genesis(7)
    chain = ChainBuilder(founded)
    chain.extend()
    liar, cheat = founded.members[1], founded.members[2]
    chain.extend(evidence=[double_vote(chain.key(liar), founded, 1)])
    chain.extend()
    chain.extend(evidence=[double_post(chain.key(cheat), founded, 3)])
    explorer = explore(chain)
    convictions = (
        Conviction(address(liar), "two different precommits at height 1, attempt 0", 2),
        Conviction(address(cheat), "two different posts in round 3, phase update", 4),
    )
    status = explorer.status()
    assert status.convictions == convictions
    assert (status.members, status.electors, status.quorum, status.liars_max) == (7, 5, 4, 1)
    assert explorer.block("2").convictions == convictions[:1]
    assert explorer.block("2").certificate.quorum == 5  # type: ignore[union-attr]
    assert explorer.block("3").certificate.quorum == 4  # type: ignore[union-attr]
    peer = explorer.peer(address(liar))
    assert (peer.conviction, peer.elector, peer.expected, peer.posts) == (convictions[0], False, False, 2)
    assert explorer.peer(address(founded.members[0])).conviction is None
    late = explore(chain, base=3)
    assert late.status().convictions == (replace(convictions[0], height=None), convictions[1])


# --- posts, peers, rounds


def test_a_post_is_found_with_its_block(explorer: Explorer, chain: ChainBuilder) -> None:
    block = main_chain(chain)[3]
    post = block.transactions[1]
    view = explorer.transaction(post.hash.hex()[:10])
    assert (view.block.hash, view.is_final) == (block.hash, True)
    assert (view.post.hash, view.post.sender) == (post.hash, address(post.sender))
    assert (view.post.round, view.post.phase) == (4, "update")
    assert (view.post.payload_hash, view.post.payload_size, view.post.payload_kept) == (post.payload_hash, 32, True)


def test_a_dropped_payload_is_said_to_be_dropped(chain: ChainBuilder, explore: Explore) -> None:
    post = main_chain(chain)[0].transactions[0]
    explorer = explore(chain, without=[post.payload_hash])
    assert explorer.transaction(post.hash.hex()).post.payload_kept is False
    assert [item.payload_kept for item in explorer.block("1").transactions] == [False, True, True, True]


def test_an_unknown_post_is_not_found(explorer: Explorer) -> None:
    with pytest.raises(NotFound, match="no transaction has a hash"):
        explorer.transaction("ff" * 32)


def test_a_peer_is_found_by_its_address(explorer: Explorer) -> None:
    last = sorted(GENESIS.members)[-1]  # its precommits are one too many for a quorum
    peer = explorer.peer(address(GENESIS.members[3]))
    assert (peer.address, peer.public_key) == (address(GENESIS.members[3]), GENESIS.members[3])
    assert (peer.posts, peer.payload_bytes, peer.last_round) == (3, 96, 4)
    assert (peer.blocks_mined, peer.elector, peer.conviction) == (1, True, None)
    assert explorer.peer(peer.address[-8:]) == explorer.peer(f"…{peer.address[-8:]}") == peer
    votes = {member: explorer.peer(address(member)).votes for member in GENESIS.members}
    assert votes == {member: 0 if member == last else 4 for member in GENESIS.members}


def test_who_missed_a_phase_is_waited_for_again_after_two_on_time(explore: Explore) -> None:
    chain = ChainBuilder(GENESIS)
    chain.extend(posts=chain.posts(members=GENESIS.members[:3]))
    silent, expected = address(GENESIS.members[3]), []
    for _ in range(3):
        expected.append(explore(chain).peer(silent).expected)
        chain.extend()
    assert expected == [False, False, True]
    assert explore(chain).peer(silent).posts == 3


def test_a_peer_that_did_nothing_has_neither_rounds_nor_a_clock(explore: Explore) -> None:
    chain = ChainBuilder(GENESIS)
    last = sorted(GENESIS.members)[-1]
    chain.extend(posts=chain.posts(members=[member for member in GENESIS.members if member != last]))
    peer = explore(chain).peer(address(last))
    assert (peer.posts, peer.last_round, peer.votes, peer.clock_offset_ms) == (0, None, 0, None)


def test_a_clock_that_is_off_is_seen_in_the_votes(explore: Explore) -> None:
    chain, voters = ChainBuilder(GENESIS), sorted(GENESIS.members)[:3]
    certificate = None
    for height, offset in enumerate([(0, 10, 9_000), (-20, 10, 8_000), (5, 10, 100)], start=1):
        chain.extend(certificate=certificate)
        certificate = chain.certificate(chain.tip, voters, clock_ms=clocks(voters, *offset, height=height))
    assert certificate is not None
    *records, head = finals(chain)
    records.append(replace(head, certificate=certificate))
    explorer = explore(chain, records)
    assert [explorer.peer(address(voter)).clock_offset_ms for voter in voters] == [-10, 0, 7_990]


def test_a_stranger_is_not_found_and_nonsense_is_no_address(explorer: Explorer) -> None:
    stranger = address(keys(5)[4].public_key)
    with pytest.raises(NotFound, match=f"{stranger} is not one of the 4 members"):
        explorer.peer(stranger)
    for nonsense in ("nobody", "", "…", "0OIl"):
        with pytest.raises(InvalidAddress):
            explorer.peer(nonsense)


def test_a_round_has_its_blocks_its_posts_and_who_was_missing(explorer: Explorer, chain: ChainBuilder) -> None:
    found = explorer.round(3)
    assert (found.round, found.finished) == (3, True)
    assert [block.hash for block in found.blocks] == [main_chain(chain)[2].hash]
    assert found.blocks[0].mining_time_ms == 4_000
    assert {post.sender for post in found.transactions} == {address(member) for member in GENESIS.members[:3]}
    assert [(item.phase, item.member) for item in found.missing] == [("update", address(GENESIS.members[3]))]
    with pytest.raises(NotFound, match="no block of round 9: the chain is in round 5"):
        explorer.round(9)


def test_a_round_of_two_phases_is_finished_by_the_second(explore: Explore) -> None:
    two = genesis(3, setup=(UPDATE,), phases=(UPDATE, GLOBAL), aggregator=AggregatorRule.FIXED)
    chain = ChainBuilder(two)
    chain.extend_many(4)
    explorer = explore(chain)
    assert [block.phase for block in explorer.round(1).blocks] == ["update", "global"]
    assert [(explorer.round(number).finished) for number in (0, 1, 2)] == [True, True, False]
    assert explorer.status().phase == "global"
    assert explorer.knowledge(FakeRules()).round == 1
    assert explorer.knowledge(FakeRules(), 0).round == 0
    with pytest.raises(NotFound, match="no knowledge of round 2: the chain is in round 2"):
        explorer.knowledge(FakeRules(), 2)


def test_the_aggregator_of_a_round_is_named(explore: Explore) -> None:
    rotating = ChainBuilder(genesis(3, phases=(UPDATE, GLOBAL), aggregator=AggregatorRule.ROTATING, rounds=2))
    names = [address(member) for member in rotating.genesis.members]
    rotating.extend_many(2)
    explorer = explore(rotating)
    assert (explorer.status().aggregator, explorer.round(1).aggregator) == (names[2], names[1])
    assert [explorer.peer(name).aggregator for name in names] == [False, False, True]
    rotating.extend_many(2)
    assert (explore(rotating).status().finished, explore(rotating).status().aggregator) == (True, names[2])
    dedicated = ChainBuilder(genesis(4, phases=(UPDATE, GLOBAL), aggregator=AggregatorRule.DEDICATED))
    dedicated.extend_many(2)
    found = explore(dedicated).round(1)
    assert (found.aggregator, found.missing) == (address(dedicated.genesis.members[3]), ())
    assert [post.phase for post in found.transactions] == ["update"] * 3 + ["global"]
    plain = ChainBuilder(GENESIS)
    assert (explore(plain).status().aggregator, explore(plain).peer(names[0]).aggregator) == (None, False)


# --- who joined late


def test_who_joined_late_shows_what_is_held(explore: Explore, chain: ChainBuilder) -> None:
    explorer = explore(chain, base=3)
    status = explorer.status()
    assert (status.height, status.base, status.posts) == (4, 3, 7)
    assert [block.height for block in explorer.blocks(10)] == [4, 3]
    assert explorer.blocks(10) == explore(chain).blocks(2)
    assert explorer.block("3") == explore(chain).block("3")
    with pytest.raises(NotFound, match="no block at height 2: the chain has heights 3 to 4"):
        explorer.block("2")
    with pytest.raises(NotFound, match=r"no block of round 1: .* and blocks are held from height 3 on"):
        explorer.round(1)
    assert explorer.peer(address(GENESIS.members[0])).posts == 2


def test_blocks_below_the_first_state_are_shown_without_what_only_it_tells(
    explore: Explore, chain: ChainBuilder
) -> None:
    explorer = explore(chain, base=3)
    second = finals(chain)[1]
    explorer._store.append([replace(second, state=b"")])
    explorer = Explorer(explorer._store)
    view = explorer.block("2")
    assert view.certificate is not None
    assert (view.missing, view.certificate.quorum) == (None, None)
    assert view.summary == explore(chain).block("2").summary
    assert [block.height for block in explorer.blocks(9)] == [4, 3, 2]


# --- knowledge


def test_knowledge_is_the_newest_rounds_or_any(explorer: Explorer, chain: ChainBuilder) -> None:
    newest, second = explorer.knowledge(FakeRules()), explorer.knowledge(FakeRules(), 2)
    assert (newest.round, newest.height, newest.size_bytes) == (4, 4, 64)
    assert newest.knowledge_root == chain.states[chain.tip].knowledge_root
    assert second.knowledge_root == main_chain(chain)[1].header.knowledge_root
    assert newest.prototypes is not None
    assert [(item.label, item.holders, item.norm, item.cosines) for item in newest.prototypes] == [
        (2, 4, 1.5, (1.0, 0.25)),
        (5, 1, 2.0, (0.25, 1.0)),
    ]
    assert explorer.knowledge(FakeRules(None)).prototypes is None
    assert explorer.safetensors(FakeRules()) == b"tensors:" + chain.contents[newest.knowledge_root]


def test_knowledge_that_is_not_there_is_not_found(chain: ChainBuilder, explore: Explore) -> None:
    root = chain.states[chain.tip].knowledge_root
    with pytest.raises(NotFound, match=f"knowledge of round 4, {root.hex()}, is not kept"):
        explore(chain, without=[root]).knowledge(FakeRules())
    with pytest.raises(NotFound, match="no knowledge of round 1"):
        explore(ChainBuilder(GENESIS)).knowledge(FakeRules())


def test_knowledge_that_the_method_cannot_read_is_named(explore: Explore) -> None:
    chain = ChainBuilder(GENESIS)
    chain.extend(posts=())
    explorer = explore(chain)
    for ask in (explorer.knowledge, explorer.safetensors):
        with pytest.raises(InvalidPayload, match="0 bytes are not a sum"):
            ask(FakeRules())


# --- proofs


@pytest.mark.parametrize("members", [1, 2, 3, 4])
def test_every_post_can_be_proven(members: int, explore: Explore) -> None:
    chain = ChainBuilder(genesis(members))
    block = chain.extend()
    explorer = explore(chain)
    for post in block.transactions:
        proof = explorer.proof(post.hash.hex())
        assert (proof.block_hash, proof.header, proof.merkle.leaf) == (block.hash, block.header, post.hash)
        assert is_proven(proof)


def test_a_forged_proof_is_refused(explorer: Explorer, chain: ChainBuilder) -> None:
    blocks = main_chain(chain)
    proof = explorer.proof(blocks[0].transactions[0].hash.hex())
    forged_root = replace(proof.header, transactions_root=sha256(b"mine"))
    for forged in (
        replace(proof, merkle=replace(proof.merkle, leaf=blocks[1].transactions[0].hash)),
        replace(proof, merkle=replace(proof.merkle, index=1)),
        replace(proof, merkle=replace(proof.merkle, siblings=proof.merkle.siblings[:-1])),
        replace(proof, header=blocks[1].header),
        replace(proof, header=forged_root),
        replace(proof, block_hash=blocks[1].hash),
    ):
        assert not is_proven(forged)


# --- verification


def verdicts(report: ChainAudit) -> list[str]:
    return [check.verdict for check in report.blocks]


def test_a_sound_chain_is_verified(explorer: Explorer, chain: ChainBuilder) -> None:
    report = explorer.verify(SumRules())
    assert (report.is_valid, report.base, report.height, report.damaged) == (True, 1, 4, ())
    assert verdicts(report) == ["ok"] * 4
    assert [check.hash for check in report.blocks] == [block.hash for block in main_chain(chain)]


def test_missing_payloads_leave_a_block_unchecked(chain: ChainBuilder, explore: Explore) -> None:
    dropped = main_chain(chain)[1].transactions[2].payload_hash
    report = explore(chain, without=[dropped]).verify(SumRules())
    assert report.is_valid
    assert verdicts(report) == ["ok", "unchecked", "ok", "ok"]
    assert report.blocks[1].missing == (dropped,)


class FailingRules(SumRules):
    """Rules of a method whose own code fails."""

    def aggregate(self, occasion: Occasion, knowledge: bytes, posts: Sequence[tuple[PublicKey, bytes]]) -> bytes:
        raise MethodFailed("method", "aggregate of phase update: ValueError: boom (own.py, line 5)")


def test_a_method_s_own_fault_is_no_block_s(explorer: Explorer) -> None:
    report = explorer.verify(FailingRules())
    assert report.is_valid
    assert verdicts(report) == ["unchecked"] * 4
    assert report.blocks[0].error == "method: aggregate of phase update: ValueError: boom (own.py, line 5)"
    assert (
        "unchecked: at heights 1–4 the method's own code fails; every rule but the aggregate holds: "
        "method: aggregate of phase update: ValueError: boom (own.py, line 5)"
    ) in list(render(report, explorer.genesis))


def test_knowledge_need_not_be_kept_while_it_can_be_recomputed(chain: ChainBuilder, explore: Explore) -> None:
    roots = [state.knowledge_root for state in chain.states.values()]
    assert verdicts(explore(chain, without=roots).verify(SumRules())) == ["ok"] * 4
    dropped = main_chain(chain)[1].transactions[2].payload_hash
    report = explore(chain, without=[*roots, dropped]).verify(SumRules())
    assert verdicts(report) == ["ok", "unchecked", "unchecked", "unchecked"]
    assert report.blocks[2].missing == (main_chain(chain)[1].header.knowledge_root,)


def test_a_wrong_knowledge_root_is_caught(chain: ChainBuilder, explore: Explore) -> None:
    wrong = sha256(bytes(64))
    chain.contents[wrong] = bytes(64)
    second = main_chain(chain)[1]
    chain.keep(chain.remake(second, knowledge_root=wrong))
    chain.extend_many(4)
    report = explore(chain).verify(SumRules())
    assert not report.is_valid
    # Only the block that lied is at fault: what follows was computed from what it left behind.
    assert verdicts(report) == ["ok", "invalid", "ok", "ok", "ok", "ok"]
    assert report.blocks[1].error.startswith("InvalidBlock: knowledge root: ")
    assert second.header.knowledge_root.hex() in report.blocks[1].error


@pytest.mark.parametrize(
    ("change", "error"),
    [
        ({"round": 3}, "InvalidBlock: round"),
        ({"certificate": None}, "InvalidBlock: certificate"),
        ({"transactions_root": bytes(32)}, "InvalidSignature: transactions root"),
        ({"state_root": bytes(32)}, "InvalidBlock: state root"),
        ({"bits": 0x1F7FFFFF}, "InvalidBlock: bits"),
        ({"version": 3}, "InvalidBlock: version"),
    ],
)
def test_a_broken_rule_is_named(change: dict[str, Any], error: str, explore: Explore) -> None:
    chain = ChainBuilder(GENESIS)
    chain.keep(chain.remake(chain.extend_many(2)[1], **change))
    chain.extend_many(2)
    report = explore(chain).verify(SumRules())
    assert verdicts(report) == ["ok", "invalid", "ok", "ok"]
    assert report.blocks[1].error.startswith(error)
    assert not report.is_valid


def test_a_certificate_without_a_quorum_is_caught(chain: ChainBuilder, explore: Explore) -> None:
    *before, last = finals(chain)
    weak = chain.certificate(last.block, GENESIS.members[:2])
    report = explore(chain, [*before, replace(last, certificate=weak)]).verify(SumRules())
    assert verdicts(report) == ["ok", "ok", "ok", "invalid"]
    assert report.blocks[3].error == "InvalidCertificate: quorum: 2 votes found, 3 of 4 required"


def _die(signed: list[Signed]) -> list[bool]:
    os._exit(1)


@pytest.mark.parametrize("is_broken", [False, True])
def test_other_processes_verify_signatures_and_who_judges_does_where_they_die(
    is_broken: bool, explorer: Explorer, monkeypatch: pytest.MonkeyPatch
) -> None:
    verified = list[bytes]()

    def verify(key: bytes, signature: bytes, message: bytes) -> bool:
        verified.append(signature)
        return is_valid_signature(key, signature, message)

    monkeypatch.setattr(ahead, "is_valid_signature", verify)
    monkeypatch.setattr(ahead, "BLOCKS_MIN", 1)
    monkeypatch.setattr(os, "cpu_count", lambda: 2)
    if is_broken:
        monkeypatch.setattr(ahead, "_verify", _die)
    assert explorer.verify(SumRules()).is_valid
    # 4 miners, 15 posts, and 3 votes for each block, though those for all but the last come twice.
    assert len(verified) == (4 + 15 + 4 * 3 if is_broken else 0)


def test_short_chains_are_judged_by_one_process(explorer: Explorer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ahead, "ProcessPoolExecutor", None)
    assert explorer.verify(SumRules()).is_valid


def test_forged_votes_are_caught(chain: ChainBuilder, explore: Explore) -> None:
    first, *after = finals(chain)
    forged = replace(
        first.certificate, votes=tuple(replace(vote, signature=bytes(64)) for vote in first.certificate.votes)
    )
    report = explore(chain, [replace(first, certificate=forged), *after]).verify(SumRules())
    assert verdicts(report) == ["invalid", "ok", "ok", "ok"]
    assert report.blocks[0].error.startswith("InvalidCertificate: certificate's vote: signature: ")


def test_a_payload_that_the_method_refuses_is_named(explorer: Explorer) -> None:
    class Strict(SumRules):
        def check(self, occasion: Occasion, sender: bytes, knowledge: bytes, payload: bytes) -> None:
            raise ValueError("nothing is good enough")

    report = explorer.verify(Strict())
    assert verdicts(report) == ["invalid"] * 4
    assert report.blocks[0].error == "InvalidPayload: content: nothing is good enough"


def execute(explorer: Explorer, statement: str) -> Explorer:
    """The same chain after somebody changed the database under it."""
    with closing(sqlite3.connect(explorer._store.folder / DATABASE)) as connection, connection:
        assert connection.execute(statement).rowcount != 0
    return Explorer(explorer._store)


def test_a_damaged_block_is_invalid_and_what_no_state_leads_to_is_unchecked(
    explorer: Explorer, chain: ChainBuilder
) -> None:
    explorer = execute(explorer, "UPDATE finals SET certificate = x'00' WHERE height = 2")
    report = explorer.verify(SumRules())
    assert verdicts(report) == ["ok", "invalid", "unchecked", "ok"], "the state before the head is kept"
    assert report.blocks[1].error == "StoreCorrupt: it is damaged, and not held any more"
    assert [line.split(":")[0] for line in report.damaged] == ["finals row with height 2 was altered"]
    assert not report.is_valid
    assert [block.height for block in Explorer(explorer._store).blocks(9)] == [4, 3]


def test_damage_beside_the_chain_is_named(explorer: Explorer, chain: ChainBuilder) -> None:
    explorer._store.append([chain.vote(GENESIS.members[0], chain.tip)])
    assert explorer.verify(SumRules()).is_valid
    report = execute(explorer, "UPDATE votes SET kind = 1").verify(SumRules())
    assert (verdicts(report), report.is_valid) == (["ok"] * 4, False)
    assert report.damaged[0].startswith("votes row with hash")


def test_who_joined_late_is_verified_from_its_first_state_on(explore: Explore, chain: ChainBuilder) -> None:
    explorer = explore(chain, base=3)
    assert verdicts(explorer.verify(SumRules())) == ["ok", "ok"]
    explorer._store.append([replace(record, state=b"") for record in finals(chain)[:2]][1:])
    report = Explorer(explorer._store).verify(SumRules())
    assert (verdicts(report), report.base) == (["unchecked", "ok", "ok"], 2)
    assert (report.blocks[0].missing, report.blocks[0].error) == ((), "")
    explorer._store.append([replace(finals(chain)[0], state=b"")])
    assert verdicts(Explorer(explorer._store).verify(SumRules())) == ["ok"] * 4


def test_whole_chains_are_walked_and_not_held(explore: Explore, monkeypatch: pytest.MonkeyPatch) -> None:
    chain = ChainBuilder(GENESIS)
    chain.extend_many(30)
    explorer = explore(chain)
    alive, most = 0, 0

    class Counted(history.Entry):
        def __init__(self, *arguments: Any) -> None:
            nonlocal alive, most
            super().__init__(*arguments)
            alive += 1
            most = max(most, alive)

        def __del__(self) -> None:
            nonlocal alive
            alive -= 1

    monkeypatch.setattr(history, "Entry", Counted)
    assert sum(1 for _ in explorer.views()) == 30
    assert 0 < most <= 3


def test_a_head_that_cannot_be_read_is_corrupt(explorer: Explorer) -> None:
    with pytest.raises(StoreCorrupt, match="states row with height 4 was altered"):
        execute(explorer, "UPDATE states SET data = x'00' WHERE height = 4")


def test_a_head_of_astronomic_difficulty_is_corrupt(explore: Explore, chain: ChainBuilder) -> None:
    *_, last = finals(chain)
    header = replace(last.block.header, bits=2**63)
    with pytest.raises(StoreCorrupt, match="does not stand on the state"):
        explore(chain, [replace(last, block=replace(last.block, header=header))])


def test_a_chain_of_another_shape_is_read_as_well(explore: Explore) -> None:
    drawn: Genesis = genesis(5, committee_size=3, contributors_per_round=2)
    chain = ChainBuilder(drawn)
    chain.extend_many(3)
    explorer = explore(chain)
    assert verdicts(explorer.verify(SumRules())) == ["ok"] * 3
    assert (explorer.status().electors, explorer.status().quorum) == (3, 2)
    assert [len(explorer.block(str(height)).transactions) for height in (1, 2, 3)] == [2, 2, 2]
