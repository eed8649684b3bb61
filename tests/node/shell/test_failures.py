"""A node goes on where its learning method's own code fails, and blames nobody."""

import logging
from collections.abc import Sequence
from dataclasses import replace

import pytest

from fedchain.chain.exceptions import InvalidPayload, MethodFailed
from fedchain.chain.knowledge import Occasion
from fedchain.crypto.keys import PublicKey
from fedchain.network.verdict import Verdict, verdict
from fedchain.node.core.checks import Checks
from fedchain.node.core.jobs import CheckPost, Recompute
from fedchain.node.shell.failures import LoggedFailures
from tests.support.chain.builders import ChainBuilder, SumRules, genesis

BUILDER = ChainBuilder(genesis(4))


class Failing(SumRules):
    """Its own code fails, as the rules of a genesis document tell it."""

    def check(self, occasion: Occasion, sender: PublicKey, knowledge: bytes, payload: bytes) -> None:
        super().check(occasion, sender, knowledge, payload)
        if sender == BUILDER.posts()[0].sender:
            raise MethodFailed("method", "check of phase update: KeyError: 'x' (own.py, line 3)")

    def aggregate(self, occasion: Occasion, knowledge: bytes, posts: Sequence[tuple[PublicKey, bytes]]) -> bytes:
        raise MethodFailed("method", "aggregate of phase update: ValueError: boom (own.py, line 5)")


def test_what_the_method_fails_on_is_refused_for_now_and_logged_once_for_a_head(
    caplog: pytest.LogCaptureFixture,
) -> None:
    checks, state, posts = Checks(BUILDER.genesis, Failing(), failures=LoggedFailures()), BUILDER.state, BUILDER.posts()
    payload = BUILDER.contents[posts[0].payload_hash]
    with caplog.at_level(logging.ERROR, "fedchain.node"):
        refusals = [
            checks.run(CheckPost(state, BUILDER.contents[state.knowledge_root], posts[0], payload)),
            checks.run(Recompute(state, posts[1:], dict(BUILDER.contents))),
        ]
    for refusal in refusals:
        assert isinstance(refusal, MethodFailed)
        assert verdict(refusal) is Verdict.IGNORE
    assert str(refusals[1]) == "method: aggregate of phase update: ValueError: boom (own.py, line 5)"
    assert checks.failures.after(state) == "method: check of phase update: KeyError: 'x' (own.py, line 3)"
    assert not checks.failures.after(replace(state, block_hash=bytes(32))), "the next block may be well"
    assert caplog.messages == [
        "the method fails after height=0: method: check of phase update: KeyError: 'x' (own.py, line 3)"
    ]


def test_bad_bytes_are_the_sender_s_fault_as_ever() -> None:
    checks, state, post = (
        Checks(BUILDER.genesis, Failing(), failures=LoggedFailures()),
        BUILDER.state,
        BUILDER.posts()[1],
    )
    refusal = checks.run(CheckPost(state, BUILDER.contents[state.knowledge_root], post, b"short"))
    assert isinstance(refusal, InvalidPayload)
