"""The blocks of a stored chain as light clients get them: with what proves their electors, or alone."""

from pathlib import Path

import pytest

from fedchain.chain.exceptions import NotFound
from fedchain.chain.explorer.explorer import Explorer
from fedchain.chain.light.bisection import bisect
from fedchain.chain.light.verification import trust_genesis
from fedchain.chain.storage.sqlite import Store
from fedchain.crypto.keys import is_valid_signature
from tests.support.chain.builders import ChainBuilder
from tests.support.chain.changes import living
from tests.support.chain.explored import Explore, finals, write_joined
from tests.support.chain.explored import chain as chain
from tests.support.chain.explored import explore as explore
from tests.support.chain.light import light


def changing() -> ChainBuilder:
    built = living()
    built.extend_many(4)
    return built


@pytest.mark.parametrize("changes", [False, True])
def test_a_block_is_given_with_its_proof_or_alone(chain: ChainBuilder, explore: Explore, changes: bool) -> None:
    built = changing() if changes else chain
    blocks = explore(built).light
    hashes = [record.block.hash for record in finals(built)]
    for height, block_hash in enumerate(hashes, 1):
        assert blocks.light_block(height) == light(built, block_hash)
        alone = blocks.light_block(height, with_proof=False)
        assert (alone.header.hash, alone) == (block_hash, alone.alone())
    assert [block.header.hash for block in blocks.between(0, 3)] == hashes[:3]
    assert [block.header.hash for block in blocks.between(3, 99)] == hashes[2:]
    for height in (0, 5):
        with pytest.raises(NotFound, match=f"no block at height {height}: the chain has heights 1 to 4"):
            blocks.light_block(height)


def test_a_stored_chain_convinces_a_light_client(explore: Explore) -> None:
    built = changing()
    found = bisect(built.genesis, trust_genesis(built.genesis), explore(built).light, 4, is_valid_signature)
    assert found.trusted.block_hash == built.tip


def test_a_node_that_joined_gives_a_block_between_in_place_of_one_that_it_lacks(tmp_path: Path) -> None:
    built = changing()
    with Store.create(tmp_path / "chain", built.genesis) as store:
        held = write_joined(store, built)
        lacking = next(height for height in range(1, 5) if height not in held)
        blocks = Explorer(store).light
        assert blocks.light_block(lacking, gap=(0, 9)).header.height in held
        with pytest.raises(NotFound, match=f"no block at height {lacking}"):
            blocks.light_block(lacking)
        (head,) = blocks.between(4, 4)
        assert (head, blocks.light_block(4, with_proof=False)) == (head.alone(), head)
        assert blocks.light_block(4) != head, "with its proof"
