"""The explorer in a browser over a long chain: how long its pages take, and how much memory it holds."""

from pathlib import Path

from fedchain.chain.storage.sqlite import Store
from fedchain.chain.storage.store import Content
from tests.chain.builders import ChainBuilder, genesis

BLOCKS_AT_ONCE = 100


def write_long_chain(folder: Path, blocks: int, members: int) -> None:
    """A valid chain of so many blocks, each with a post of every member, of which only the end is held in memory."""
    chain = ChainBuilder(genesis(members))
    with Store.create(folder / "chain", chain.genesis) as store:
        for _ in range(0, blocks, BLOCKS_AT_ONCE):
            added = chain.extend_many(BLOCKS_AT_ONCE)
            contents = [Content(key, data) for key, data in chain.contents.items()]
            store.append([*map(chain.final, added), *contents])
            tip = added[-1]
            before = tip.header.parent_hash
            chain.blocks = {tip.hash: tip}
            chain.states = {before: chain.states[before], tip.hash: chain.states[tip.hash]}
            root = tip.header.knowledge_root
            chain.contents = {root: chain.contents[root]}
