"""Knowledge follows from the chain: the same posts on the same knowledge give the same bytes."""

from collections.abc import Sequence

import pytest

from fedchain.chain.exceptions import MissingPayload
from fedchain.chain.knowledge import missing_contents, recompute
from fedchain.crypto.hashing import Hash, sha256
from fedchain.crypto.keys import PublicKey
from tests.chain.builders import ChainBuilder, SumRules, genesis

BUILDER = ChainBuilder(genesis(3))
FIRST, SECOND = BUILDER.extend_many(2)
PARENT = BUILDER.states[FIRST.hash]


def _without(*hashes: Hash) -> dict[Hash, bytes]:
    return {key: value for key, value in BUILDER.contents.items() if key not in hashes}


def test_knowledge_is_the_sum_of_all_posts() -> None:
    knowledge = recompute(BUILDER.genesis, SumRules(), PARENT, SECOND.transactions, BUILDER.contents.get)
    numbers = [int.from_bytes(knowledge[place : place + 8], "little") for place in range(0, 64, 8)]
    # Both rounds: members 1 + 2 + 3; their rounds 3·1 + 3·2; phase 0; and 7 from each post.
    assert numbers == [12, 9, 0, 42, 0, 0, 0, 0]
    assert sha256(knowledge) == SECOND.header.knowledge_root


class _NeedsPosts(SumRules):
    def aggregate(
        self, phase: str, round_number: int, knowledge: bytes, posts: Sequence[tuple[PublicKey, bytes]]
    ) -> bytes:
        raise AssertionError("a mean of nothing is asked of no method")


def test_without_posts_the_knowledge_stays_and_no_method_is_asked() -> None:
    knowledge = recompute(BUILDER.genesis, _NeedsPosts(), PARENT, (), BUILDER.contents.get)
    assert sha256(knowledge) == FIRST.header.knowledge_root


@pytest.mark.parametrize("turn", [1, -1])
def test_payloads_are_checked_and_passed_on_in_the_order_of_the_posts(turn: int) -> None:
    seen: list[tuple[str, int, list[PublicKey]]] = []

    class Recording(SumRules):
        def aggregate(
            self, phase: str, round_number: int, knowledge: bytes, posts: Sequence[tuple[PublicKey, bytes]]
        ) -> bytes:
            seen.append((phase, round_number, [sender for sender, _ in posts]))
            return super().aggregate(phase, round_number, knowledge, posts)

    transactions = SECOND.transactions[::turn]
    recompute(BUILDER.genesis, Recording(), PARENT, transactions, BUILDER.contents.get)
    assert seen == [("update", 2, [transaction.sender for transaction in transactions])]


def test_what_is_missing_is_listed_in_order() -> None:
    post = SECOND.transactions[1].payload_hash
    contents = _without(post, PARENT.knowledge_root)
    assert missing_contents(PARENT, SECOND.transactions, contents.get) == [PARENT.knowledge_root, post]
    assert missing_contents(PARENT, SECOND.transactions, BUILDER.contents.get) == []
    assert missing_contents(PARENT, (), contents.get) == [PARENT.knowledge_root]


def test_missing_knowledge_is_asked_for_like_a_payload() -> None:
    contents = _without(PARENT.knowledge_root)
    with pytest.raises(MissingPayload) as caught:
        recompute(BUILDER.genesis, SumRules(), PARENT, SECOND.transactions, contents.get)
    assert str(caught.value) == f"payload: 1 of 4 contents not held, the first is {PARENT.knowledge_root.hex()}"
