from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import pytest

from fedchain.chain.block import Block
from fedchain.chain.exceptions import InvalidPayload, NotFound
from fedchain.chain.explorer.audit import Verification
from fedchain.chain.explorer.explorer import Explorer
from fedchain.chain.explorer.views import is_proven
from fedchain.chain.genesis import AggregatorRule
from fedchain.chain.storage.store import Content, MemoryStore
from fedchain.crypto.address import address
from fedchain.crypto.exceptions import InvalidAddress
from fedchain.crypto.hashing import Hash, sha256
from tests.chain.builders import CREATED_MS, GLOBAL, UPDATE, ChainBuilder, SumRules, genesis, keys

GENESIS = genesis(4)


@dataclass(frozen=True)
class Summary:
    labels: Sequence[int] = (2, 5)
    holders: Sequence[int] = (4, 1)
    norms: Sequence[float] = (1.5, 2.0)
    cosines: Sequence[Sequence[float]] = ((1.0, 0.25), (0.25, 1.0))


class FakeRules(SumRules):
    """The sum, read as if it were two class prototypes."""

    def __init__(self, found: Summary | None = Summary()) -> None:
        self.found = found

    def summary(self, knowledge: bytes) -> Summary | None:
        if len(knowledge) != 64:
            raise ValueError(f"{len(knowledge)} bytes are not a sum")
        return self.found

    def safetensors(self, knowledge: bytes) -> bytes:
        if len(knowledge) != 64:
            raise ValueError(f"{len(knowledge)} bytes are not a sum")
        return b"tensors:" + knowledge


def stored(chain: ChainBuilder, *, without: Sequence[Hash] = (), voters: Sequence[bytes] | None = None) -> MemoryStore:
    """Everything that was built and votes for the tip."""
    storage = MemoryStore()
    storage.append([*chain.blocks.values(), *chain.votes(chain.tip, voters)])
    storage.append([Content(key, data) for key, data in chain.contents.items() if key not in without])
    return storage


@pytest.fixture
def chain() -> ChainBuilder:
    """Four rounds; the second has a fork, in the third only the first two members posted."""
    builder = ChainBuilder(GENESIS)
    first, second = builder.extend_many(2)
    builder.extend(first.hash, payload_of=50)
    builder.tip = second.hash
    builder.extend(posts=builder.posts(members=GENESIS.members[:2]))
    builder.extend(miner=keys(4)[3])
    return builder


@pytest.fixture
def explorer(chain: ChainBuilder) -> Explorer:
    return Explorer(GENESIS, stored(chain))


def main_chain(chain: ChainBuilder) -> list[Block]:
    blocks, tip = [], chain.tip
    while tip in chain.blocks:
        blocks.append(chain.blocks[tip])
        tip = blocks[-1].header.parent_hash
    return blocks[::-1]


# --- status, blocks


def test_status_counts_the_heads_chain(explorer: Explorer, chain: ChainBuilder) -> None:
    status, state = explorer.status(), chain.states[chain.tip]
    assert (status.chain_id, status.name, status.created_ms) == (GENESIS.chain_id, "test", CREATED_MS)
    assert (status.height, status.head, status.timestamp_ms) == (4, chain.tip, CREATED_MS + 20_000)
    assert (status.round, status.phase, status.finished) == (5, "update", False)
    assert (status.work, status.bits, status.hashes_per_block) == (state.work, state.bits, 2)
    assert (status.members, status.electorate, status.votes, status.votes_required) == (4, 4, 4, 3)
    assert (status.forks, status.posts, status.payload_bytes) == (1, 14, 14 * 32)


def test_an_empty_chain_has_a_status_and_no_blocks() -> None:
    explorer = Explorer(GENESIS, MemoryStore())
    status = explorer.status()
    assert (status.height, status.head, status.round, status.votes_required) == (0, GENESIS.chain_id, 1, 0)
    assert explorer.blocks(10) == ()
    assert explorer.verify(SumRules()) == Verification(GENESIS.chain_id, True, (), 0, 0, ())


def test_a_finished_federation_is_in_its_last_round() -> None:
    two = genesis(3, rounds=2)
    chain = ChainBuilder(two)
    chain.extend_many(2)
    explorer = Explorer(two, stored(chain))
    status = explorer.status()
    assert (status.round, status.phase, status.finished) == (2, None, True)
    with pytest.raises(NotFound, match="no block of round 3: the chain ended with round 2"):
        explorer.round(3)


def test_blocks_are_listed_from_the_head_down(explorer: Explorer, chain: ChainBuilder) -> None:
    assert [block.height for block in explorer.blocks(10)] == [4, 3, 2, 1]
    newest, before = explorer.blocks(2)
    assert (newest.hash, before.height) == (chain.tip, 3)
    assert (newest.round, newest.phase, newest.posts, newest.votes) == (4, "update", 4, 4)
    assert (newest.timestamp_ms, newest.mining_time_ms) == (CREATED_MS + 20_000, 4_000)
    assert newest.miner == address(GENESIS.members[3])


def test_a_block_is_found_by_height_and_by_hash(explorer: Explorer, chain: ChainBuilder) -> None:
    third = main_chain(chain)[2]
    view = explorer.block("3")
    assert view.header == third.header
    assert view.on_head_chain
    assert view.accepted
    assert [post.sender for post in view.transactions] == [address(item.sender) for item in third.transactions]
    assert view.missing == tuple(sorted(address(member) for member in GENESIS.members[2:]))
    assert view.voters == tuple(sorted(map(address, GENESIS.members)))
    for name in (third.hash.hex(), third.hash.hex()[:8], third.hash.hex()[:8].upper(), f"{third.hash.hex()[:8]}…"):
        assert explorer.block(name) == view


def test_a_fork_is_found_by_its_hash_alone(explorer: Explorer, chain: ChainBuilder) -> None:
    (fork,) = set(chain.blocks) - {block.hash for block in main_chain(chain)}
    view = explorer.block(fork.hex())
    assert (view.summary.height, view.on_head_chain, view.accepted) == (2, False, False)
    assert explorer.block("2").header.hash != fork


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


def test_a_prefix_of_several_hashes_is_refused() -> None:
    chain = ChainBuilder(GENESIS)
    by_prefix: dict[str, Hash] = {}
    for number in range(2_000):
        block = chain.extend(GENESIS.chain_id, posts=(), timestamp_ms=CREATED_MS + 60_000 + number)
        other = by_prefix.setdefault(block.hash.hex()[:4], block.hash)
        if other != block.hash:
            break
    storage = MemoryStore()
    storage.append([chain.blocks[other], block])
    with pytest.raises(NotFound, match="2 blocks have a hash that begins with"):
        Explorer(GENESIS, storage).block(other.hex()[:4])


# --- posts, peers, rounds


def test_a_post_is_found_with_its_block(explorer: Explorer, chain: ChainBuilder) -> None:
    block = main_chain(chain)[3]
    post = block.transactions[1]
    view = explorer.transaction(post.hash.hex()[:10])
    assert view.block.hash == block.hash
    assert view.on_head_chain
    assert (view.post.sender, view.post.round, view.post.phase) == (address(post.sender), 4, "update")
    assert (view.post.payload_hash, view.post.payload_size, view.post.payload_kept) == (post.payload_hash, 32, True)


def test_a_post_on_a_fork_and_on_the_chain_is_shown_on_the_chain() -> None:
    chain = ChainBuilder(GENESIS)
    posts = chain.posts()
    forks = [chain.extend(GENESIS.chain_id, posts=posts, timestamp_ms=CREATED_MS + 5_000 + n) for n in range(3)]
    for block in forks:
        chain.tip = block.hash
        view = Explorer(GENESIS, stored(chain)).transaction(posts[0].hash.hex())
        assert (view.block.hash, view.on_head_chain) == (block.hash, True)


def test_a_dropped_payload_is_said_to_be_dropped(chain: ChainBuilder) -> None:
    post = main_chain(chain)[0].transactions[0]
    explorer = Explorer(GENESIS, stored(chain, without=[post.payload_hash]))
    assert explorer.transaction(post.hash.hex()).post.payload_kept is False
    assert [item.payload_kept for item in explorer.block("1").transactions] == [False, True, True, True]


def test_an_unknown_post_is_not_found(explorer: Explorer) -> None:
    with pytest.raises(NotFound, match="no transaction has a hash"):
        explorer.transaction("ff" * 32)


def test_a_peer_is_found_by_its_address(explorer: Explorer) -> None:
    peer = explorer.peer(address(GENESIS.members[3]))
    assert (peer.address, peer.public_key) == (address(GENESIS.members[3]), GENESIS.members[3])
    assert (peer.posts, peer.payload_bytes, peer.last_round, peer.missed) == (3, 96, 4, 0)
    assert (peer.blocks_mined, peer.votes, peer.elector) == (1, 4, True)
    assert explorer.peer(peer.address[-8:]) == explorer.peer(f"…{peer.address[-8:]}") == peer


def test_a_silent_peer_leaves_the_electorate() -> None:
    quick = genesis(4, inactive_after=2)
    chain = ChainBuilder(quick)
    for _ in range(2):
        chain.extend(posts=chain.posts(members=quick.members[:3]))
    peer = Explorer(quick, stored(chain)).peer(address(quick.members[3]))
    assert (peer.posts, peer.last_round, peer.missed, peer.elector) == (0, None, 2, False)


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
    assert {post.sender for post in found.transactions} == {address(member) for member in GENESIS.members[:2]}
    assert {(item.phase, item.member) for item in found.missing} == {
        ("update", address(member)) for member in GENESIS.members[2:]
    }
    with pytest.raises(NotFound, match="no block of round 9: the chain is in round 5"):
        explorer.round(9)


def test_a_round_of_two_phases_is_finished_by_the_second() -> None:
    two = genesis(3, setup=(UPDATE,), phases=(UPDATE, GLOBAL), aggregator=AggregatorRule.FIXED)
    chain = ChainBuilder(two)
    chain.extend_many(4)
    explorer = Explorer(two, stored(chain))
    assert [block.phase for block in explorer.round(1).blocks] == ["update", "global"]
    assert [(explorer.round(number).finished) for number in (0, 1, 2)] == [True, True, False]
    assert explorer.status().phase == "global"
    assert explorer.knowledge(FakeRules()).round == 1
    assert explorer.knowledge(FakeRules(), 0).round == 0
    with pytest.raises(NotFound, match="no knowledge of round 2: the chain is in round 2"):
        explorer.knowledge(FakeRules(), 2)


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


def test_knowledge_that_is_not_there_is_not_found(chain: ChainBuilder) -> None:
    root = chain.states[chain.tip].knowledge_root
    with pytest.raises(NotFound, match=f"knowledge of round 4, {root.hex()}, is not kept"):
        Explorer(GENESIS, stored(chain, without=[root])).knowledge(FakeRules())
    with pytest.raises(NotFound, match="no knowledge of round 1"):
        Explorer(GENESIS, MemoryStore()).knowledge(FakeRules())


def test_knowledge_that_the_method_cannot_read_is_named() -> None:
    chain = ChainBuilder(GENESIS)
    chain.extend(posts=(), timestamp_ms=CREATED_MS + 60_000)
    explorer = Explorer(GENESIS, stored(chain))
    for ask in (explorer.knowledge, explorer.safetensors):
        with pytest.raises(InvalidPayload, match="0 bytes are not a sum"):
            ask(FakeRules())


# --- proofs


@pytest.mark.parametrize("members", [1, 2, 3, 4])
def test_every_post_can_be_proven(members: int) -> None:
    founded = genesis(members)
    chain = ChainBuilder(founded)
    block = chain.extend()
    explorer = Explorer(founded, stored(chain))
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


def verdicts(report: Verification) -> list[str]:
    return [check.verdict for check in report.blocks]


def test_a_sound_chain_is_verified(explorer: Explorer, chain: ChainBuilder) -> None:
    report = explorer.verify(SumRules())
    assert report.is_valid
    assert verdicts(report) == ["ok"] * 4
    assert [check.hash for check in report.blocks] == [block.hash for block in main_chain(chain)]
    assert (report.votes, report.votes_required, report.invalid_votes) == (4, 3, ())


def test_missing_payloads_leave_a_block_unchecked(chain: ChainBuilder) -> None:
    dropped = main_chain(chain)[1].transactions[2].payload_hash
    report = Explorer(GENESIS, stored(chain, without=[dropped])).verify(SumRules())
    assert report.is_valid
    assert verdicts(report) == ["ok", "unchecked", "ok", "ok"]
    assert report.blocks[1].missing == (dropped,)


def test_knowledge_need_not_be_kept_while_it_can_be_recomputed(chain: ChainBuilder) -> None:
    roots = [state.knowledge_root for state in chain.states.values()]
    report = Explorer(GENESIS, stored(chain, without=roots)).verify(SumRules())
    assert verdicts(report) == ["ok"] * 4
    dropped = main_chain(chain)[1].transactions[2].payload_hash
    report = Explorer(GENESIS, stored(chain, without=[*roots, dropped])).verify(SumRules())
    assert verdicts(report) == ["ok", "unchecked", "unchecked", "unchecked"]
    assert report.blocks[2].missing == (main_chain(chain)[1].header.knowledge_root,)


def test_a_wrong_knowledge_root_is_caught(chain: ChainBuilder) -> None:
    wrong = sha256(bytes(64))
    chain.contents[wrong] = bytes(64)
    second = main_chain(chain)[1]
    chain.keep(chain.remake(second, knowledge_root=wrong))
    chain.extend_many(4)
    report = Explorer(GENESIS, stored(chain)).verify(SumRules())
    assert not report.is_valid
    # Only the block that lied is at fault: what follows was computed from what it left behind.
    assert verdicts(report) == ["ok", "invalid", "ok", "ok", "ok", "ok"]
    assert report.blocks[1].error.startswith("InvalidBlock: knowledge root: ")
    assert second.header.knowledge_root.hex() in report.blocks[1].error


@pytest.mark.parametrize(
    ("change", "error"),
    [
        ({"timestamp_ms": CREATED_MS}, "InvalidBlock: post's timestamp"),
        ({"round": 3}, "InvalidBlock: post's phase"),
        ({"votes": ()}, "InvalidBlock: vote quorum"),
        ({"transactions_root": bytes(32)}, "InvalidBlock: transactions root"),
        ({"bits": 0x1F7FFFFF}, "InvalidBlock: bits"),
    ],
)
def test_a_broken_rule_is_named(change: dict[str, Any], error: str) -> None:
    chain, storage = ChainBuilder(GENESIS), MemoryStore()
    first, second = chain.extend_many(2)
    changed = chain.keep(chain.remake(second, **change))
    # Both have the votes of everyone, so the forged block is the head.
    storage.append([first, changed, *chain.votes(first.hash), *chain.votes(changed.hash)])
    storage.append([Content(key, data) for key, data in chain.contents.items()])
    report = Explorer(GENESIS, storage).verify(SumRules())
    assert verdicts(report) == ["ok", "invalid"]
    assert report.blocks[1].error.startswith(error)
    assert not report.is_valid


def test_a_payload_that_the_method_refuses_is_named(chain: ChainBuilder) -> None:
    class Strict(SumRules):
        def check(self, phase: str, payload: bytes) -> None:
            raise ValueError("nothing is good enough")

    report = Explorer(GENESIS, stored(chain)).verify(Strict())
    assert verdicts(report) == ["invalid"] * 4
    assert report.blocks[0].error == "InvalidPayload: content: nothing is good enough"


def test_forged_votes_for_the_head_are_caught(chain: ChainBuilder) -> None:
    storage = stored(chain, voters=GENESIS.members[1:])
    (vote,) = chain.votes(chain.tip, GENESIS.members[:1])
    storage.append([replace(vote, signature=bytes(64))])
    report = Explorer(GENESIS, storage).verify(SumRules())
    assert not report.is_valid
    assert (report.votes, report.votes_required) == (3, 3)
    assert [error.split(":")[:2] for error in report.invalid_votes] == [["InvalidVote", " signature"]]


def test_a_vote_of_a_stranger_is_caught() -> None:
    small = genesis(4, inactive_after=1)
    chain = ChainBuilder(small)
    chain.extend(posts=chain.posts(members=small.members[:3]))
    chain.extend(posts=chain.posts(members=small.members[:3]))
    report = Explorer(small, stored(chain, voters=small.members)).verify(SumRules())
    assert (report.votes, report.is_valid) == (3, False)
    assert report.invalid_votes[0].startswith("InvalidVote: electorate")
