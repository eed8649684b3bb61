"""A light block has one form, and a bounded one."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedchain.chain.evidence import EVIDENCE_MAX
from fedchain.chain.exceptions import (
    Invalid,
    InvalidEncoding,
    UnknownParent,
)
from fedchain.chain.light.light_block import LightBlock, light_block_size_max
from fedchain.chain.light.verification import trust_genesis, verify_skipping
from fedchain.chain.state import STATE_SIZE_MAX
from fedchain.crypto.keys import is_valid_signature
from tests.support.chain.builders import double_vote, keys
from tests.support.chain.changes import living_genesis
from tests.support.chain.light import Server, chain_of, convicting_chain, light

CHAIN = chain_of()
TIP = light(CHAIN, CHAIN.tip)
FIRST = Server(CHAIN).light_block(1, with_proof=True)
BEGIN = trust_genesis(CHAIN.genesis)


# --- bytes


def test_a_light_block_has_one_form() -> None:
    for block in (TIP, replace(TIP, state=b""), Server(convicting_chain()).light_block(3, with_proof=True)):
        assert LightBlock.decode(block.encode(), 2**16) == block
    for record in ([*TIP.to_record()[:4], [b""]], [*TIP.to_record()[:4], [b"a", b"b"]], TIP.to_record()[:4]):
        with pytest.raises(InvalidEncoding):
            LightBlock.from_record(record)


def test_a_light_block_has_room_for_what_a_block_has_and_no_more() -> None:
    chain = convicting_chain()
    crime = double_vote(keys(7)[0], chain.genesis, 1).to_record()
    record = Server(chain).light_block(3, with_proof=True).to_record()
    record[3] = [crime] * (EVIDENCE_MAX + 1)
    with pytest.raises(InvalidEncoding, match="9 crimes found"):
        LightBlock.from_record(record)
    record[3].pop()
    everybody = replace(
        LightBlock.from_record(record),
        certificate=chain.certificate(chain.tip, sorted(chain.state.roster.members), clock_ms=2**48, mining_ms=2**48),
    )
    assert len(everybody.encode()) <= light_block_size_max(chain.genesis)
    assert light_block_size_max(chain.genesis) < 20_000
    assert light_block_size_max(living_genesis(4)) == STATE_SIZE_MAX, "any number of members may come"


@given(st.data())
def test_no_altered_byte_is_taken(data: st.DataObject) -> None:
    """All bytes count: each is signed, hashed by a signed header, or names the chain."""
    encoded = bytearray(TIP.encode())
    place = data.draw(st.integers(0, len(encoded) - 1))
    encoded[place] ^= data.draw(st.integers(1, 255))
    with pytest.raises((Invalid, UnknownParent)):
        verify_skipping(CHAIN.genesis, BEGIN, LightBlock.decode(bytes(encoded), 2**16), is_valid_signature)
