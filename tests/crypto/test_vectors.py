"""A node that judges signatures otherwise than the others says so before it starts."""

import pytest

from fedchain.crypto import vectors
from fedchain.crypto.exceptions import WrongSignatures
from fedchain.crypto.vectors import check_signatures, signature_cases


def test_the_library_that_is_installed_judges_as_the_protocol_says() -> None:
    check_signatures()
    assert [found for _, found in signature_cases()] == [number in (0, 4) for number in range(13)]


@pytest.mark.parametrize(("answer", "message"), [(True, "takes it: key and R of small"), (False, "refuses it: as ev")])
def test_a_library_that_judges_otherwise_is_named_by_the_first_case(
    answer: bool, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(vectors, "is_valid_signature", lambda *_: answer)
    with pytest.raises(WrongSignatures, match=message):
        check_signatures()


def test_a_library_that_lets_a_key_of_mixed_order_be_a_member_s_is_named_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """That of PyNaCl before 1.6.2 does: some nodes would count a block with such a newcomer, and others would not."""
    monkeypatch.setattr(vectors, "is_valid_public_key", lambda key: key != vectors.SPECCHECK[3].public_key)
    with pytest.raises(WrongSignatures, match="takes it: a key with a part of order 2"):
        check_signatures()
