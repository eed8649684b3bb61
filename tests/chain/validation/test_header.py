"""Each rule of a header: a valid block is changed so that this rule breaks, and mined and signed anew."""

from dataclasses import replace

import pytest

from fedchain.chain.block import Block, sign_block
from fedchain.chain.exceptions import (
    InvalidBlock,
    InvalidSignature,
    UnknownParent,
)
from fedchain.chain.proof_of_work import is_sealed
from fedchain.chain.transition import judge_block
from tests.support.chain.builders import (
    EASY_BITS,
    UPDATE,
)
from tests.support.chain.scene import (
    KEYS,
    STRANGER,
    Case,
    Scene,
    at_aggregator_phase,
    expect_cost,
    expect_refusal,
    with_conviction,
)


def _version() -> tuple[Scene, Block, str]:
    scene = Scene()
    return scene, scene.remake(version=1), "version: 1 found, 2 expected"


def _end() -> tuple[Scene, Block, str]:
    scene = Scene(rounds=3)
    scene.step()
    return scene, scene.propose(), "end: round 4 found, the last is 3"


def _height() -> tuple[Scene, Block, str]:
    scene = Scene()
    return scene, scene.remake(height=4), "height: 4 found, 3 expected"


def _round() -> tuple[Scene, Block, str]:
    scene = Scene()
    return scene, scene.remake(round=4), "round: 4 found, 3 expected"


def _phase() -> tuple[Scene, Block, str]:
    scene = Scene(phases=(UPDATE, UPDATE))
    return scene, scene.remake(phase=1), "phase: 1 found, 0 expected"


def _state_root() -> tuple[Scene, Block, str]:
    scene = Scene()
    found, expected = bytes(32).hex(), scene.parent.root.hex()
    return scene, scene.remake(state_root=bytes(32)), f"state root: {found} found, {expected} expected"


def _bits() -> tuple[Scene, Block, str]:
    scene = Scene()
    return scene, scene.remake(bits=0x203FFFFF), f"bits: 0x203fffff found, {EASY_BITS:#x} expected"


def _bits_not_canonical() -> tuple[Scene, Block, str]:
    scene = Scene()
    return scene, scene.remake(bits=0x2100FFFF), f"bits: 0x2100ffff found, {EASY_BITS:#x} expected"


def _proof_of_work() -> tuple[Scene, Block, str]:
    scene = Scene()
    header = replace(scene.block.header, nonce=0)
    while is_sealed(scene.genesis.proof_function, header):
        header = replace(header, nonce=header.nonce + 1)
    block = sign_block(KEYS[0], scene.genesis.chain_id, header, scene.posts, scene.certificate)
    message = f"proof of work: nonce {header.nonce} does not bring the hash to the target {EASY_BITS:#x}"
    return scene, block, message


def _knowledge_root() -> tuple[Scene, Block, str]:
    scene = Scene()
    found, expected = bytes(32).hex(), scene.block.header.knowledge_root.hex()
    return scene, scene.remake(knowledge_root=bytes(32)), f"knowledge root: {found} found, recomputed {expected}"


def _knowledge_of_an_empty_block() -> tuple[Scene, Block, str]:
    scene = at_aggregator_phase()
    found, expected = bytes(32).hex(), scene.parent.knowledge_root.hex()
    block = scene.remake(transactions=(), knowledge_root=bytes(32))
    return scene, block, f"knowledge root: {found} found, recomputed {expected}"


BLOCK_CASES: list[Case] = [
    _version,
    _end,
    _height,
    _round,
    _phase,
    _state_root,
    _bits,
    _bits_not_canonical,
    _proof_of_work,
    _knowledge_root,
    _knowledge_of_an_empty_block,
]


@pytest.mark.parametrize("case", BLOCK_CASES, ids=[case.__name__.strip("_") for case in BLOCK_CASES])
def test_a_block_that_breaks_a_rule_is_its_miners_fault(case: Case) -> None:
    scene, block, message = case()
    if case is not _end:
        scene.peer.judge(scene.block)  # as it was, the block is valid
    expect_refusal(scene, block, InvalidBlock, message)


def test_a_valid_block_is_taken() -> None:
    scene = Scene()
    before = scene.peer.snapshot()
    scene.peer.receive_block(scene.block.encode())
    assert scene.block.hash in scene.peer.candidates
    assert scene.peer.snapshot() != before


def _miner_stranger() -> tuple[Scene, Block, str]:
    scene = Scene()
    return scene, scene.remake(key=STRANGER), f"miner: {STRANGER.public_key.hex()} is no active member"


def _miner_convicted() -> tuple[Scene, Block, str]:
    scene = with_conviction()
    return scene, scene.remake(key=KEYS[1]), f"miner: {KEYS[1].public_key.hex()} is no active member"


def _miner_signature() -> tuple[Scene, Block, str]:
    scene = Scene()
    block = scene.block
    other = sign_block(KEYS[1], scene.genesis.chain_id, block.header, block.transactions, block.certificate)
    said, miner, block_hash = other.signature.hex()[:16], block.header.miner.hex()[:16], block.hash.hex()[:16]
    return scene, other, f"miner signature: {said}… is not {miner}…'s over block {block_hash}…"


SENDER_CASES: list[Case] = [
    _miner_stranger,
    _miner_convicted,
    _miner_signature,
]


@pytest.mark.parametrize("case", SENDER_CASES, ids=[case.__name__.strip("_") for case in SENDER_CASES])
def test_a_block_that_its_miner_did_not_write_is_its_senders_fault(case: Case) -> None:
    scene, block, message = case()
    scene.peer.judge(scene.block)
    expect_refusal(scene, block, InvalidSignature, message)


def test_a_block_of_another_height_may_heal() -> None:
    scene = Scene()
    for block in (scene.builder.extend(scene.block.hash), scene.second, scene.first):
        found, head = block.header.parent_hash.hex(), scene.second.hash.hex()
        expect_refusal(scene, block, UnknownParent, f"parent: {found} found, the block at height 2 is {head}")


COSTS: list[tuple[Case, int]] = [
    (_miner_stranger, 0),
    (_miner_convicted, 0),
    (_miner_signature, 1),
    (_bits_not_canonical, 1),
    (_proof_of_work, 1),
]
"""Checks of a signature before a block is refused: one for its header, then the body in order up to what is wrong."""


@pytest.mark.parametrize(("case", "checks"), COSTS, ids=[case.__name__.strip("_") for case, _ in COSTS])
def test_cheap_rules_come_before_costly_ones(case: Case, checks: int) -> None:
    expect_cost(case, checks)


def test_a_stale_block_costs_no_signature_check() -> None:
    scene = Scene()

    def never(*_: object) -> bool:
        raise AssertionError("no signature has to be looked at")

    with pytest.raises(UnknownParent):
        judge_block(scene.genesis, scene.parent, scene.first, None, never)
