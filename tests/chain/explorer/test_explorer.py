from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fedchain.chain.block import Block
from fedchain.chain.difficulty import bits_from_attempts, work_from_bits
from fedchain.chain.exceptions import NotFound, StoreCorrupt
from fedchain.chain.explorer.audit import ChainAudit
from fedchain.chain.explorer.explorer import Explorer
from fedchain.chain.genesis import Admission, AggregatorRule, FaultModel, Genesis
from fedchain.chain.membership.change import sign_rekey
from fedchain.chain.storage.sqlite import Store
from fedchain.chain.storage.store import Candidate
from fedchain.crypto.address import address
from fedchain.crypto.exceptions import InvalidAddress
from fedchain.crypto.hashing import sha256
from tests.support.chain.builders import (
    BLOCK_MS,
    CREATED_MS,
    GLOBAL,
    UPDATE,
    ChainBuilder,
    SumRules,
    double_vote,
    genesis,
    keys,
)
from tests.support.chain.changes import handing, joining, living, own, twice_rekeyed
from tests.support.chain.explored import (
    GENESIS,
    Explore,
    FakeRules,
    clocks,
    execute,
    finals,
    main_chain,
    verdicts,
    write,
)
from tests.support.chain.explored import chain as chain
from tests.support.chain.explored import explore as explore
from tests.support.chain.explored import explorer as explorer

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
    assert explorer.kept.knowledge(FakeRules()).round == 2
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


def test_a_conviction_by_a_former_key_is_shown_with_its_member(explore: Explore) -> None:
    chain = living(5)
    member, following = chain.genesis.members[0], keys(6)[5]
    chain.extend(changes=[sign_rekey(chain.key(member), following, chain.genesis.chain_id, sequence=0, until=9)])
    chain.extend(evidence=[double_vote(keys(1)[0], chain.genesis, 1)])
    shown = [peer.conviction for peer in (explore(chain).peer(str(number)) for number in range(5))]
    assert [item and (item.member, item.height) for item in shown] == [(address(member), 2), None, None, None, None]


def test_each_member_s_own_difficulty_is_shown(explore: Explore) -> None:
    chain = living(4, initial_bits=bits_from_attempts(64))
    chain.extend_many(4)
    chain.extend(miner=keys(4)[1], evidence=[double_vote(keys(4)[3], chain.genesis, 1)])
    shown = [explore(chain).peer(address(member)).hashes_per_block for member in chain.genesis.members]
    assert shown[3] is None, "a convict mines no more"
    works = [work_from_bits(chain.state.bits_of(member)) for member in chain.genesis.members[:3]]
    assert shown[:3] == works
    assert works[0] > works[1] > works[2]


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
    assert explorer.kept.knowledge(FakeRules()).round == 1
    assert explorer.kept.knowledge(FakeRules(), 0).round == 0
    with pytest.raises(NotFound, match="no knowledge of round 2: the chain is in round 2"):
        explorer.kept.knowledge(FakeRules(), 2)


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


def test_a_role_that_passed_on_is_named_for_each_round(explore: Explore) -> None:
    chain = living(6, phases=(UPDATE, GLOBAL), aggregator=AggregatorRule.DEDICATED, admission=Admission.CLOSED)
    chain.extend(changes=[handing(chain, 2)])
    chain.extend_many(5)
    explorer, names = explore(chain), [address(member) for member in chain.genesis.members]
    assert [explorer.round(number).aggregator for number in (1, 2, 3)] == [names[5], names[5], names[2]]
    assert explorer.status().aggregator == names[2]


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


def test_blocks_below_the_first_state_are_shown_as_well(explore: Explore, chain: ChainBuilder) -> None:
    explorer = explore(chain, base=3)
    second = finals(chain)[1]
    explorer._store.append([replace(second, state=b"")])
    explorer = Explorer(explorer._store)
    assert explorer._store.state_before(2) is None
    assert explorer.block("2") == explore(chain).block("2")
    assert [block.height for block in explorer.blocks(9)] == [4, 3, 2]


# --- verification


def test_a_round_whose_only_block_is_damaged_is_not_an_empty_one(explorer: Explorer) -> None:
    explorer = execute(explorer, "UPDATE finals SET certificate = x'00' WHERE height = 2")
    with pytest.raises(NotFound, match="the block at height 2 is damaged"):
        explorer.round(2)
    assert explorer.round(3).finished


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


def test_all_keys_that_a_member_ever_had_are_its_own(explore: Explore) -> None:
    chain = twice_rekeyed()
    explorer = explore(chain)
    others, had = (0, 1, 3, 4), (2, 9, 10)
    names = [address(key.public_key) for key in keys(11)]
    senders = {post.sender for height in (1, 3, 6) for post in explorer.block(str(height)).transactions}
    assert senders == {names[number] for number in (*others, *had)}
    assert {name: explorer.numbers[name] for name in senders} == {
        names[number]: 2 if number in had else number for number in (*others, *had)
    }
    assert {explorer.peer(names[number]).address for number in had} == {names[10]}
    assert explorer.peer(names[9][-8:]).number == 2
    with pytest.raises(NotFound, match="is not one of the 5 members"):
        explorer.peer(names[7])


def test_newcomers_and_leavers_are_among_the_members(tmp_path: Path) -> None:
    chain = living(5)
    blocks = [chain.extend(changes=[joining(chain, 5), own(chain, 1)]), *chain.extend_many(4)]
    with Store.create(tmp_path / "chain", chain.genesis) as store:
        store.append([chain.final(block) for block in blocks])
    with Store.open(tmp_path / "chain", read_only=True) as store:
        explorer = Explorer(store)
        shown = explorer.members()
        assert [item.number for item in shown] == [0, 1, 2, 3, 4, 5]
        assert [item.posts for item in shown] == [5, 2, 5, 5, 5, 3]
        assert [item.elector for item in shown] == [True, False, True, True, True, True]
        assert explorer.peer("5").public_key == keys(6)[5].public_key
        newcomer, leaver = address(keys(6)[5].public_key), address(keys(2)[1].public_key)
        changes = {item.kind: item for item in explorer.block("1").changes}
        assert (changes["join"].member, changes["join"].round, len(changes["join"].approvals)) == (newcomer, 3, 4)
        assert (changes["leave"].member, changes["leave"].text, changes["leave"].approvals) == (leaver, "", ())
        assert explorer.block("2").changes == ()
        assert explorer.numbers[newcomer] == 5
