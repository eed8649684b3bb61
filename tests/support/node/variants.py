"""Blocks of one height that differ, and what a ledger keeps of them."""

from collections.abc import Collection, Iterable
from contextlib import suppress

from fedchain.chain.block import Block, sign_block
from fedchain.chain.exceptions import LimitReached
from fedchain.chain.proof_of_work import search_nonce
from fedchain.chain.storage.store import MemoryStore
from fedchain.node.core.ledger import Entry, Ledger
from tests.support.node.stage import Stage


def variants(stage: Stage, block: Block, count: int) -> list[Block]:
    """Other valid blocks of the same miner over the same posts, best first."""
    found, start, miner = list[Block](), 0, stage.chain.key(block.header.miner)
    while len(found) < count:
        header = search_nonce(stage.genesis.proof_function, block.header, start, 1_000)
        assert header is not None
        start = header.nonce + 1
        chain_id = stage.genesis.chain_id
        found.append(sign_block(miner, chain_id, header, block.transactions, block.certificate, block.evidence))
    return sorted(found, key=lambda item: item.hash)


def entries(stage: Stage, blocks: list[Block]) -> list[Entry]:
    return [Entry(block, stage.chain.states[stage.chain.tip], 0) for block in blocks]


def keep(stage: Stage, entries: Iterable[Entry], wanted: Collection[bytes] = ()) -> set[bytes]:
    ledger = Ledger(stage.genesis, MemoryStore())
    for entry in entries:
        with suppress(LimitReached):
            ledger.add(entry, ledger.to_replace(entry.block, wanted))
    return set(ledger.entries)
