"""The genesis document as an answer, to people and to programs."""

from dataclasses import replace

from fedchain.chain.explorer.founding import describe_genesis, plain_genesis
from fedchain.crypto.address import address
from tests.support.chain.builders import genesis

GENESIS = replace(genesis(3), name="a\x1b[2Jb", learning=(("material", '[["key", "00ff"]]'), ("odd", "{no json")))


def test_people_get_a_line_for_each_entry_and_members_with_their_numbers() -> None:
    shown = dict(describe_genesis(GENESIS))
    assert shown["chain id"] == GENESIS.chain_id.hex()
    assert [shown[f"member {number}"] for number in range(3)] == [address(member) for member in GENESIS.members]
    assert shown["learning material"] == "key (2 bytes)"
    assert shown["learning odd"] == "{no json"
    assert "\x1b" not in shown["name"]


def test_programs_get_plain_values_by_the_documents_names() -> None:
    plain = plain_genesis(GENESIS)
    assert (plain["height"], plain["chain_id"]) == (0, GENESIS.chain_id.hex())
    assert plain["members"][2] == {"number": 2, "address": address(GENESIS.members[2])}
    assert plain["learning"] == {"material": [["key", "00ff"]], "odd": "{no json"}
    assert [phase["name"] for phase in plain["phases"]] == [phase.name for phase in GENESIS.phases]
    assert plain["name"] == GENESIS.name, "a program quotes it itself"
