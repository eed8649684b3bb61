"""Answers as plain values."""

from dataclasses import dataclass
from pathlib import Path

from fedchain.chain.explorer.plain import numbers_of, plain, plain_proof
from fedchain.chain.explorer.views import TransactionProof
from fedchain.chain.merkle import merkle_proof
from fedchain.crypto.address import address
from tests.support.chain.builders import ChainBuilder, genesis, keys

NUMBERS = {"one": 1, "two": 2}


@dataclass
class Block:
    hash: bytes
    miner: str
    reader: str
    aggregator: str | None
    missing: tuple[str, ...]
    folder: Path


@dataclass
class Member:
    number: int
    address: str


def test_numbers_follow_the_addresses_of_members_and_nothing_else() -> None:
    block = Block(b"\x01", "two", "everybody", None, ("one", "two"), Path("/one"))
    assert plain(block, NUMBERS) == {
        "hash": "01",
        "miner": "two",
        "miner_number": 2,
        "reader": "everybody",
        "aggregator": None,
        "missing": ["one", "two"],
        "missing_numbers": [1, 2],
        "folder": "/one",
    }
    assert "miner_number" not in plain(block)
    of_strangers = plain(Block(b"", "three", "two", None, ("one", "three"), Path()), NUMBERS)
    assert of_strangers.keys() & {"miner_number", "missing_numbers"} == set(), "places of some would be those of others"
    assert plain([Member(1, "one")], NUMBERS) == [{"number": 1, "address": "one"}]


def test_numbers_are_places_in_the_genesis_document() -> None:
    assert numbers_of(genesis(3)) == {address(key.public_key): number for number, key in enumerate(keys(3))}


def test_a_header_s_miner_is_a_member_like_others_and_in_a_proof_the_key_that_is_hashed() -> None:
    chain = ChainBuilder(genesis(4))
    block = chain.extend()
    key = block.header.miner
    shown = plain(block.header, numbers_of(chain.genesis))
    assert (shown["miner"], shown["miner_number"]) == (address(key), chain.genesis.index[key])
    proof = TransactionProof(block.hash, block.header, merkle_proof([b"leaf"], 0))
    assert plain_proof(proof)["header"]["miner"] == key.hex()
