"""Merkle trees as in Certificate Transparency (RFC 6962, section 2.1).

Leaves and inner nodes are hashed under different prefixes, so an inner node cannot pass for a leaf, and an odd
node is carried up instead of being paired with itself (which let Bitcoin blocks be mutated, CVE-2012-2459).
"""

from collections.abc import Sequence
from dataclasses import dataclass

from fedchain.crypto.hashing import ZERO_HASH, Hash, sha256


@dataclass(frozen=True, slots=True)
class MerkleProof:
    """Proof that a leaf is at a certain place of a tree."""

    leaf: Hash
    """32 bytes: the hash that was put into the tree."""
    index: int
    """Place of the leaf, from 0."""
    size: int
    """Number of leaves of the tree."""
    siblings: tuple[Hash, ...]
    """Hashes beside the path, from the leaf up to the root."""


def merkle_root(leaves: Sequence[Hash]) -> Hash:
    """Root over ``leaves``; an empty tree has the zero hash."""
    level = [_hash_leaf(leaf) for leaf in leaves]
    while len(level) > 1:
        level = _next_level(level)
    return level[0] if level else ZERO_HASH


def merkle_proof(leaves: Sequence[Hash], index: int) -> MerkleProof:
    """Prove that ``leaves[index]`` is in the tree over ``leaves``."""
    level = [_hash_leaf(leaf) for leaf in leaves]
    siblings, place = [], index
    while len(level) > 1:
        if (sibling := place ^ 1) < len(level):
            siblings.append(level[sibling])
        level, place = _next_level(level), place // 2
    return MerkleProof(leaves[index], index, len(leaves), tuple(siblings))


def is_in_tree(proof: MerkleProof, root: Hash) -> bool:
    """Whether ``proof`` leads to ``root``."""
    if not 0 <= proof.index < proof.size:
        return False
    node, place, width = _hash_leaf(proof.leaf), proof.index, proof.size
    siblings = iter(proof.siblings)
    while width > 1:
        if place ^ 1 < width:
            sibling = next(siblings, None)
            if sibling is None:
                return False
            node = _hash_node(sibling, node) if place & 1 else _hash_node(node, sibling)
        place, width = place // 2, (width + 1) // 2
    return node == root and next(siblings, None) is None


def _next_level(level: list[Hash]) -> list[Hash]:
    pairs = [_hash_node(level[i], level[i + 1]) for i in range(0, len(level) - 1, 2)]
    return pairs + level[-1:] if len(level) % 2 else pairs


def _hash_leaf(leaf: Hash) -> Hash:
    return sha256(b"\x00" + leaf)


def _hash_node(left: Hash, right: Hash) -> Hash:
    return sha256(b"\x01" + left + right)
