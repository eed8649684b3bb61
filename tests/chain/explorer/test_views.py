"""Answers about posts, convictions and proofs."""

from dataclasses import replace

import pytest

from fedchain.chain.explorer.explorer import Explorer
from fedchain.chain.explorer.member_views import Conviction
from fedchain.chain.explorer.views import is_proven
from fedchain.crypto.address import address
from fedchain.crypto.hashing import sha256
from tests.support.chain.builders import (
    ChainBuilder,
    double_post,
    double_vote,
    genesis,
)
from tests.support.chain.explored import (
    Explore,
    main_chain,
)
from tests.support.chain.explored import chain as chain
from tests.support.chain.explored import explore as explore
from tests.support.chain.explored import explorer as explorer


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
