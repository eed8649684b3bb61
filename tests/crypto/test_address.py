"""Addresses against peer ids that libp2p itself published."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedchain.crypto.address import address, public_key_from_address
from fedchain.crypto.exceptions import InvalidAddress
from fedchain.crypto.keys import PrivateKey

PEER_IDS = [
    # The Ed25519 certificate among the test vectors of libp2p's TLS specification.
    (
        "a77f1d92fedb59dddaea5a1c4abd1ac2fbde7d7b879ed364501809923d7c11b9",
        "12D3KooWM6CgA9iBFZmcYAHA6A2qvbAxqfkmrYiRQuz3XEsk4Ksv",
    ),
    # The Ed25519 key among the test vectors of libp2p's peer id specification.
    (
        "1ed1e8fae2c4a144b8be8fd4b47bf3d3b34b871c3cacf6010f0e42d474fce27e",
        "12D3KooWBtg3aaRMjxwedh83aGiUkwSxDwUZkzuJcfaqUmo7R3pq",
    ),
]


@pytest.mark.parametrize(("public_key", "peer_id"), PEER_IDS)
def test_an_address_is_the_libp2p_peer_id(public_key: str, peer_id: str) -> None:
    assert address(bytes.fromhex(public_key)) == peer_id
    assert public_key_from_address(peer_id).hex() == public_key


@given(st.binary(min_size=32, max_size=32))
def test_every_key_is_read_back_from_its_address(seed: bytes) -> None:
    public_key = PrivateKey(seed).public_key
    assert public_key_from_address(address(public_key)) == public_key


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("0OIl", "is not base58"),
        ("12D3KooW é", "is not base58"),
        ("\n", "is not the peer id"),
        ("", "is not the peer id"),
        ("12D3KooW", "is not the peer id"),
        (PEER_IDS[0][1][:-1], "is not the peer id"),
        (PEER_IDS[0][1] + "1", "is not the peer id"),
        ("1" + PEER_IDS[0][1], "is not the peer id"),
        (PEER_IDS[0][1] + " ", "is not how that key's address is written"),
        (address(bytes(32)), "is the peer id of a key that nobody can have"),
        ("QmYyQSo1c1Ym7orWxLYvCrM2EmxFTANf8wXmmE7DWjhx5N", "is not the peer id"),  # of an RSA key
        ("16Uiu2HAkutTMoTzDw1tCvSRtu6YoixJwS46S1ZFxW8hSx9fWHiPs", "is not the peer id"),  # of a secp256k1 key
    ],
)
def test_other_texts_are_refused(text: str, reason: str) -> None:
    with pytest.raises(InvalidAddress, match=reason) as caught:
        public_key_from_address(text)
    assert repr(text) in str(caught.value)


@given(st.text(max_size=60))
def test_no_text_raises_anything_else(text: str) -> None:
    with pytest.raises(InvalidAddress):
        public_key_from_address(text)
