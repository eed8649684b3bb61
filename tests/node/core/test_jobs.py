"""Two computations are the same if what determines their result is."""

from dataclasses import replace

from fedchain.node.core.jobs import Recompute
from tests.support.chain.records import BUILDER, FIRST, POST, SECOND

STATE = BUILDER.states[FIRST.hash]


def test_the_head_and_the_posts_make_the_key_and_where_contents_lie_does_not() -> None:
    job = Recompute(STATE, SECOND.transactions, {})
    assert job.key == Recompute(STATE, SECOND.transactions, {POST.payload_hash: b"here"}).key
    assert job == replace(job, contents={POST.payload_hash: b"here"})
    others = [
        Recompute(BUILDER.state, SECOND.transactions, {}),
        Recompute(STATE, SECOND.transactions[1:], {}),
        Recompute(STATE, SECOND.transactions[::-1], {}),
    ]
    assert len({job.key, *(other.key for other in others)}) == 4
