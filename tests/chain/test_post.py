"""Posts: what a signature covers, and equal bytes for equal posts."""

from dataclasses import replace
from typing import Any

import pytest

from fedchain.chain.encoding import encode
from fedchain.chain.post import Post
from fedchain.crypto.keys import is_valid_signature
from tests.support.chain.builders import keys, payload, post
from tests.support.chain.records import GENESIS


@pytest.mark.parametrize(
    "changes",
    [
        {"round": 2},
        {"phase": 1},
        {"sender": keys(2)[1].public_key},
        {"payload_hash": bytes(32)},
        {"payload_size": 1},
    ],
    ids=str,
)
def test_a_posts_signature_covers_every_field(changes: dict[str, Any]) -> None:
    original = post(keys(1)[0], GENESIS, 1, payload(1))
    assert _is_signed(original)
    assert not _is_signed(replace(original, **changes))
    assert replace(original, **changes).hash != original.hash


def _is_signed(post: Post) -> bool:
    message = post.signing_message(GENESIS.chain_id)
    return is_valid_signature(post.sender, post.signature, message)


def test_a_post_that_was_read_for_one_chain_is_signed_for_no_other() -> None:
    signed = post(keys(1)[0], GENESIS, 1, payload(1))
    other = bytes(32)
    assert _is_signed(signed)
    assert not is_valid_signature(signed.sender, signed.signature, signed.signing_message(other))
    assert _is_signed(signed)


def test_the_same_post_has_the_same_bytes() -> None:
    first, second = (post(keys(1)[0], GENESIS, 1, payload(1)) for _ in range(2))
    assert first == second
    assert encode(first.to_record()) == encode(second.to_record())
