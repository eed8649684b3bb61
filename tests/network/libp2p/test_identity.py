"""Names of peers in libp2p and keys of members."""

import pytest
from libp2p.peer.id import ID

from fedchain.crypto.address import address
from fedchain.network.libp2p.identity import _public_key_of, key_pair, peer_id, public_key_of
from tests.support.chain.builders import keys

KEY = keys(1)[0]


def test_a_key_has_one_name_here_and_there() -> None:
    assert key_pair(KEY).public_key.to_bytes() == KEY.public_key
    assert ID.from_pubkey(key_pair(KEY).public_key) == peer_id(KEY.public_key)
    assert peer_id(KEY.public_key).to_base58() == address(KEY.public_key)
    assert public_key_of(peer_id(KEY.public_key)) == KEY.public_key


@pytest.mark.parametrize("data", [b"", b"\x12\x20" + bytes(32), bytes(38), b"\x00\x24" + bytes(2**20)])
def test_other_names_have_no_key(data: bytes) -> None:
    assert public_key_of(ID(data)) is None


def test_names_too_long_to_be_a_keys_are_not_remembered() -> None:
    before = _public_key_of.cache_info()
    for number in range(10):
        public_key_of(ID(number.to_bytes(1_000, "big")))
    assert _public_key_of.cache_info() == before
