"""A session's words are its member's, of one chain."""

from dataclasses import replace
from typing import Any

import pytest

from fedchain.chain.exceptions import InvalidEncoding
from fedchain.crypto.keys import is_valid_signature
from fedchain.network.session import SESSION_SIZE, Session, sign_session
from tests.support.chain.builders import keys

KEY = keys(1)[0]
CHAIN = bytes(32)
OTHER = b"\1" * SESSION_SIZE
SESSION = sign_session(KEY, CHAIN, bytes(SESSION_SIZE), height=3, sequence=2)


def test_it_is_read_back_and_its_signature_covers_each_field() -> None:
    assert Session.from_record(SESSION.to_record()) == SESSION
    changes: list[dict[str, Any]] = [{}, {"number": OTHER}, {"heard": OTHER}, {"height": 4}, {"sequence": 3}]
    said = [replace(SESSION, **change) for change in changes]
    assert [is_valid_signature(KEY.public_key, one.signature, one.signing_message(CHAIN)) for one in said] == [
        True,
        False,
        False,
        False,
        False,
    ]
    assert is_valid_signature(KEY.public_key, SESSION.signature, SESSION.signing_message(CHAIN))
    assert not is_valid_signature(KEY.public_key, SESSION.signature, SESSION.signing_message(b"\1" * 32))


@pytest.mark.parametrize(("place", "value"), [(0, b"short"), (1, b"short"), (2, b"short"), (3, "4"), (5, b"short")])
def test_a_malformed_one_is_refused(place: int, value: object) -> None:
    record = SESSION.to_record()
    record[place] = value
    with pytest.raises(InvalidEncoding):
        Session.from_record(record)
