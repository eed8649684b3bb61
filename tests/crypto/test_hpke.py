"""A seal is opened by its receiver, for its context, and in auth mode from its sender alone."""

import pytest

from fedchain.crypto.exceptions import SealBroken
from fedchain.crypto.hpke import ENCAPSULATED_SIZE, TAG_SIZE, seal, unseal
from tests.support.chain.builders import keys

ONE, TWO, THREE = keys(3)
DATA, INFO = b"a share", b"chain"


def test_the_receiver_opens_it_and_it_is_a_key_and_a_tag_longer() -> None:
    sealed = seal(DATA, ONE.public_key, INFO)
    assert unseal(sealed, ONE, INFO) == DATA
    assert len(sealed) == ENCAPSULATED_SIZE + len(DATA) + TAG_SIZE
    assert seal(DATA, ONE.public_key, INFO) != sealed, "no two seals are alike"


def test_a_seal_may_hide_nothing_and_is_no_shorter_than_that() -> None:
    sealed = seal(b"", ONE.public_key, INFO)
    assert unseal(sealed, ONE, INFO) == b""
    with pytest.raises(SealBroken, match="47 bytes, a seal alone has 48"):
        unseal(sealed[:-1], ONE, INFO)


def test_another_key_or_context_does_not_open_it() -> None:
    sealed = seal(DATA, ONE.public_key, INFO)
    for key, info in ((TWO, INFO), (ONE, b"another chain")):
        with pytest.raises(SealBroken):
            unseal(sealed, key, info)


def test_a_sender_is_proven_in_auth_mode_alone() -> None:
    sealed = seal(DATA, ONE.public_key, INFO, TWO)
    assert unseal(sealed, ONE, INFO, TWO.public_key) == DATA
    for sender in (None, THREE.public_key):
        with pytest.raises(SealBroken):
            unseal(sealed, ONE, INFO, sender)
    with pytest.raises(SealBroken):
        unseal(seal(DATA, ONE.public_key, INFO), ONE, INFO, TWO.public_key)


@pytest.mark.parametrize("place", [0, 31, 32, -1])
def test_no_damaged_byte_and_no_missing_one_is_passed_over(place: int) -> None:
    sealed = bytearray(seal(DATA, ONE.public_key, INFO))
    sealed[place] ^= 1
    with pytest.raises(SealBroken):
        unseal(bytes(sealed), ONE, INFO)
    with pytest.raises(SealBroken):
        unseal(bytes(sealed[:20]), ONE, INFO)
