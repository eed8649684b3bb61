"""Knowledge follows from the chain: the same posts on the same knowledge give the same bytes."""

from collections.abc import Sequence
from dataclasses import replace

import pytest

from fedchain.chain.exceptions import InvalidBlock, InvalidPayload, MissingPayload
from fedchain.chain.knowledge import EMPTY_ROOT, Occasion, check_post, missing_contents, recompute
from fedchain.chain.post import Post
from fedchain.chain.state import State
from fedchain.crypto.hashing import Hash, sha256
from fedchain.crypto.keys import PublicKey
from tests.support.chain.builders import ChainBuilder, SumRules, genesis, keys, payload, post

BUILDER = ChainBuilder(genesis(3))
FIRST, SECOND = BUILDER.extend_many(2)
PARENT = BUILDER.states[FIRST.hash]
KNOWLEDGE = BUILDER.contents[PARENT.knowledge_root]


def _without(*hashes: Hash) -> dict[Hash, bytes]:
    return {key: value for key, value in BUILDER.contents.items() if key not in hashes}


def test_knowledge_is_the_sum_of_all_posts() -> None:
    knowledge = recompute(BUILDER.genesis, SumRules(), PARENT, SECOND.transactions, BUILDER.contents.get)
    numbers = [int.from_bytes(knowledge[place : place + 8], "little") for place in range(0, 64, 8)]
    # Both rounds: members 1 + 2 + 3; their rounds 3·1 + 3·2; phase 0; and 7 from each post.
    assert numbers == [12, 9, 0, 42, 0, 0, 0, 0]
    assert sha256(knowledge) == SECOND.header.knowledge_root


class _NeedsPosts(SumRules):
    def aggregate(self, occasion: Occasion, knowledge: bytes, posts: Sequence[tuple[PublicKey, bytes]]) -> bytes:
        raise AssertionError("a mean of nothing is asked of no method")


def test_without_posts_the_knowledge_stays_and_no_method_is_asked() -> None:
    knowledge = recompute(BUILDER.genesis, _NeedsPosts(), PARENT, (), BUILDER.contents.get)
    assert sha256(knowledge) == FIRST.header.knowledge_root


class _Recording(SumRules):
    def __init__(self) -> None:
        self.checked: list[tuple[str, PublicKey, int, bytes, bytes]] = []
        self.aggregated: list[tuple[str, int, bytes, list[PublicKey]]] = []

    def check(self, occasion: Occasion, sender: PublicKey, knowledge: bytes, payload: bytes) -> None:
        self.checked.append((occasion.phase, sender, occasion.round, knowledge, payload))

    def aggregate(self, occasion: Occasion, knowledge: bytes, posts: Sequence[tuple[PublicKey, bytes]]) -> bytes:
        self.aggregated.append((occasion.phase, occasion.round, knowledge, [sender for sender, _ in posts]))
        return b""


@pytest.mark.parametrize("turn", [1, -1])
def test_check_sees_sender_and_knowledge_of_each_post_in_order(turn: int) -> None:
    rules, transactions = _Recording(), SECOND.transactions[::turn]
    recompute(BUILDER.genesis, rules, PARENT, transactions, BUILDER.contents.get)
    assert rules.checked == [
        ("update", item.sender, 2, KNOWLEDGE, BUILDER.contents[item.payload_hash]) for item in transactions
    ]
    assert rules.aggregated == [("update", 2, KNOWLEDGE, [item.sender for item in transactions])]


def test_the_rules_are_told_the_roster_of_the_state_and_not_the_founders() -> None:
    present: list[tuple[PublicKey, ...]] = []

    class Roll(SumRules):
        def check(self, occasion: Occasion, sender: PublicKey, knowledge: bytes, payload: bytes) -> None:
            present.append(occasion.members)

        def aggregate(self, occasion: Occasion, knowledge: bytes, posts: Sequence[tuple[PublicKey, bytes]]) -> bytes:
            present.append(occasion.members)
            return b""

    members = (*PARENT.roster.members, bytes(32))
    later = replace(PARENT, roster=replace(PARENT.roster, members=members), punctuality=bytes(len(members)))
    recompute(BUILDER.genesis, Roll(), later, SECOND.transactions, BUILDER.contents.get)
    assert present == [members] * (len(SECOND.transactions) + 1)


def test_a_cache_may_stand_before_the_check() -> None:
    asked: list[Post] = []

    def cached(genesis: object, rules: object, state: State, knowledge: bytes, item: Post, data: bytes) -> None:
        assert (state, knowledge, data) == (PARENT, KNOWLEDGE, BUILDER.contents[item.payload_hash])
        asked.append(item)

    rules = _Recording()
    recompute(BUILDER.genesis, rules, PARENT, SECOND.transactions, BUILDER.contents.get, cached)
    assert asked == list(SECOND.transactions)
    assert rules.checked == []


def test_a_payload_is_what_was_signed_and_what_the_method_reads() -> None:
    content, short = payload(5), payload(5)[:-1]
    item = post(keys(1)[0], BUILDER.genesis, 2, content)
    check_post(BUILDER.genesis, SumRules(), PARENT, KNOWLEDGE, item, content)
    with pytest.raises(InvalidPayload, match=r"^payload hash: "):
        check_post(BUILDER.genesis, SumRules(), PARENT, KNOWLEDGE, item, payload(6))
    bad = post(keys(1)[0], BUILDER.genesis, 2, short)
    with pytest.raises(InvalidPayload, match=r"^content: 31 bytes found, update has 32$"):
        check_post(BUILDER.genesis, SumRules(), PARENT, KNOWLEDGE, bad, short)


def test_one_bad_post_makes_the_block_invalid_before_anything_is_aggregated() -> None:
    bad = b"short"
    item = post(keys(1)[0], BUILDER.genesis, 2, bad)
    posts = (item, *SECOND.transactions[1:])
    contents = BUILDER.contents | {sha256(bad): bad}
    with pytest.raises(InvalidPayload, match=r"^content: 5 bytes found"):
        recompute(BUILDER.genesis, _NeedsPosts(), PARENT, posts, contents.get)


def test_stored_contents_that_changed_are_noticed() -> None:
    item = SECOND.transactions[0]
    contents = BUILDER.contents | {item.payload_hash: payload(9)}
    with pytest.raises(InvalidPayload, match=r"^payload hash: "):
        recompute(BUILDER.genesis, SumRules(), PARENT, SECOND.transactions, contents.get)


class _Picky(SumRules):
    def aggregate(self, occasion: Occasion, knowledge: bytes, posts: Sequence[tuple[PublicKey, bytes]]) -> bytes:
        raise ValueError("shapes (3, 2) and (2, 3) do not fit")


def test_posts_that_do_not_fit_together_make_an_invalid_block() -> None:
    with pytest.raises(InvalidBlock) as caught:
        recompute(BUILDER.genesis, _Picky(), PARENT, SECOND.transactions, BUILDER.contents.get)
    assert str(caught.value) == "aggregate: shapes (3, 2) and (2, 3) do not fit"


# --- what is missing


def test_what_is_missing_is_listed_in_order() -> None:
    needed = SECOND.transactions[1].payload_hash
    contents = _without(needed, PARENT.knowledge_root)
    assert missing_contents(PARENT, SECOND.transactions, contents.get) == [PARENT.knowledge_root, needed]
    assert missing_contents(PARENT, SECOND.transactions, BUILDER.contents.get) == []
    assert missing_contents(PARENT, (), contents.get) == [PARENT.knowledge_root]


def test_missing_knowledge_is_asked_for_like_a_payload() -> None:
    contents = _without(PARENT.knowledge_root)
    with pytest.raises(MissingPayload) as caught:
        recompute(BUILDER.genesis, SumRules(), PARENT, SECOND.transactions, contents.get)
    assert str(caught.value) == f"payload: 1 of 4 contents not held, the first is {PARENT.knowledge_root.hex()}"


def test_nothing_has_to_be_held_to_know_what_is_empty() -> None:
    """Before the first block there is no knowledge, and a member may post no bytes at all."""
    start = BUILDER.states[BUILDER.genesis.chain_id]
    empty, nothing = post(keys(1)[0], BUILDER.genesis, 1, b""), dict[Hash, bytes]()
    assert start.knowledge_root == empty.payload_hash == EMPTY_ROOT
    assert missing_contents(start, (empty,), nothing.get) == []
    rules = _Recording()
    recompute(BUILDER.genesis, rules, start, (empty,), nothing.get)
    assert rules.checked == [("update", empty.sender, 1, b"", b"")]
    sized = replace(empty, payload_size=1)
    with pytest.raises(InvalidPayload, match=r"^payload size: 0 bytes found, 1 signed$"):
        recompute(BUILDER.genesis, rules, start, (sized,), nothing.get)
