"""Merkle trees against the recursive definition of RFC 6962, written independently."""

from dataclasses import replace
from hashlib import sha256

import pytest

from fedchain.chain.merkle import MerkleProof, is_in_tree, merkle_proof, merkle_root

LEAVES = [sha256(b"leaf %d" % index).digest() for index in range(40)]


def _oracle(leaves: list[bytes]) -> bytes:
    """MTH(D[n]) of RFC 6962, section 2.1: split at the largest power of two below n."""
    if len(leaves) == 1:
        return sha256(b"\x00" + leaves[0]).digest()
    split = 1
    while split * 2 < len(leaves):
        split *= 2
    return sha256(b"\x01" + _oracle(leaves[:split]) + _oracle(leaves[split:])).digest()


@pytest.mark.parametrize("size", range(1, 41))
def test_the_root_is_that_of_rfc_6962(size: int) -> None:
    assert merkle_root(LEAVES[:size]) == _oracle(LEAVES[:size])


def test_the_root_of_nothing_is_zero() -> None:
    assert merkle_root([]) == bytes(32)


def test_a_fixed_root() -> None:
    # Certificate Transparency's reference tree starts like this: one empty leaf.
    assert merkle_root([b""]).hex() == "6e340b9cffb37a989ca544e6bb780a2c78901d3fb33738768511a30617afa01d"
    assert merkle_root([b"", b"\x00"]).hex() == "fac54203e7cc696cf0dfcb42c92a1d9dbaf70ad9e621f4bd8d98662f00e3c125"


@pytest.mark.parametrize("size", range(1, 41))
def test_every_leaf_of_every_size_is_proved_and_forgeries_are_not(size: int) -> None:
    leaves, root = LEAVES[:size], merkle_root(LEAVES[:size])
    for index in range(size):
        proof = merkle_proof(leaves, index)
        assert is_in_tree(proof, root)
        assert proof.leaf == leaves[index]
        for forged in _forgeries(proof):
            assert not is_in_tree(forged, root), forged
        assert not is_in_tree(proof, bytes(32))


def _forgeries(proof: MerkleProof) -> list[MerkleProof]:
    siblings = proof.siblings
    forged = [
        replace(proof, leaf=sha256(b"stranger").digest()),
        replace(proof, index=-1),
        replace(proof, index=proof.size),
        replace(proof, siblings=(*siblings, bytes(32))),
    ]
    forged += [replace(proof, index=other) for other in range(proof.size) if other != proof.index]
    for place in range(len(siblings)):
        forged.append(replace(proof, siblings=siblings[:place] + siblings[place + 1 :]))
        forged.append(replace(proof, siblings=(*siblings[:place], bytes(32), *siblings[place + 1 :])))
    return forged


def test_nothing_is_in_an_empty_tree() -> None:
    assert not is_in_tree(MerkleProof(bytes(32), 0, 0, ()), merkle_root([]))


def test_an_inner_node_does_not_pass_for_a_leaf() -> None:
    left, right = (sha256(b"\x00" + leaf).digest() for leaf in LEAVES[:2])
    assert merkle_root([left + right]) != merkle_root(LEAVES[:2])
    inner = MerkleProof(left + right, 0, 1, ())
    assert not is_in_tree(inner, merkle_root(LEAVES[:2]))


def test_doubling_the_last_leaf_changes_the_root() -> None:
    # CVE-2012-2459: where an odd node is paired with itself these two are equal.
    assert merkle_root(LEAVES[:3]) != merkle_root([*LEAVES[:3], LEAVES[2]])
