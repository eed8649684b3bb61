"""Late posts at a node: its own work that outlives a phase, those of others, and what they oblige it to."""

from typing import Any

import pytest

from fedchain.chain.block import Block
from fedchain.chain.membership.change import sign_rekey
from fedchain.chain.post import Post, sign_post
from fedchain.crypto.hashing import sha256
from fedchain.network.messages import Chunk, GetContent, GetPosts, PostMessage
from fedchain.node.core.effects import Send
from fedchain.node.core.events import Contributed, NotContributed
from fedchain.node.core.voting.journal import Journal
from fedchain.node.core.voting.vote_policy import deserves_vote, rank
from tests.support.chain.builders import double_vote, keys, payload
from tests.support.chain.late import late_genesis, place
from tests.support.node.driver import check_promises
from tests.support.node.stage import Stage, asked_to_contribute, asked_to_mine, blamed, published, refused, sent


def at_work(late_rounds: int = 2, members: int = 7, **fields: Any) -> Stage:
    """A node whose trainer works for round 2, after a first round that left knowledge."""
    stage = Stage(late_genesis(members, late_rounds, phase_timeout_ms=10_000, **fields))
    stage.contributes = False
    stage.accept()
    assert asked_to_contribute(stage.victim.effects)[-1] == (2, 0)
    return stage


def pass_by(stage: Stage, *late: Post, without: bytes = b"") -> Block:
    """A round closes without the node's post, and with late ones."""
    absent = {stage.me, without}
    stage.chain.contents.update({sha256(payload(7)): payload(7)})
    posts = [post for post in stage.chain.posts(stage.node.head.block_hash) if post.sender not in absent]
    block = stage.block(posts=sorted((*posts, *late), key=place))
    stage.candidate(block)
    stage.final(block)
    assert stage.node.head.block_hash == block.hash
    stage.hear()
    return block


def late_post(stage: Stage, number: int) -> Post:
    """The post of another member for the round that is open now."""
    member = stage.genesis.members[number]
    return next(post for post in stage.chain.posts(stage.node.head.block_hash) if post.sender == member)


def test_a_block_without_a_late_post_that_is_owed_counts_not_all() -> None:
    """A better one may come, so voting does not begin at once."""
    stage = at_work()
    late = [late_post(stage, number) for number in (0, 3)]
    pass_by(stage, without=late[1].sender)
    plain = stage.block()
    for posts, is_complete in ((plain.transactions, False), ((*plain.transactions, *late), True)):
        block = stage.block(posts=sorted(posts, key=place))
        stage.candidate(block)
        assert stage.node.voting.is_complete(block.hash) is is_complete


def test_a_block_is_not_preferred_for_a_late_post_that_its_miner_showed_nobody() -> None:
    stage = at_work()
    late = late_post(stage, 3)
    pass_by(stage, without=late.sender)
    block = stage.block(posts=sorted((*stage.block().transactions, late), key=place))
    stage.candidate(block)
    entry = stage.node.ledger.entries[block.hash]
    (before, _), _ = rank(stage.node._context, entry), stage.post(late)
    assert rank(stage.node._context, entry) == (before - 1, block.hash)


# --- own work


def test_a_late_post_that_is_stored_was_said_although_the_journal_is_lost() -> None:
    """Another one for its round would be a crime."""
    stage = at_work()
    pass_by(stage)
    (said,) = published(stage.contribute(7, 2), PostMessage)
    stage.victim.journal = Journal()
    stage.restart()
    assert stage.node.journal.post(2, 0) == said.post


def test_work_goes_on_when_its_phase_closes_and_the_next_begins_when_it_is_done() -> None:
    stage = at_work()
    before = len(stage.victim.effects)
    pass_by(stage)
    pass_by(stage)
    assert asked_to_contribute(stage.victim.effects[before:]) == [], "one piece of work at a time"
    effects = stage.contribute(7, 2)
    (said,) = published(effects, PostMessage)
    assert ((said.post.round, said.post.phase), said.payload) == ((2, 0), payload(7))
    assert asked_to_contribute(effects) == [(4, 0)], "it goes on with the newest knowledge"
    pass_by(stage, said.post)
    assert stage.node.head.owed_to(said.post.key) is None
    check_promises(stage.victim)


def test_work_that_nobody_can_count_any_more_is_given_up() -> None:
    stage = at_work(1)
    pass_by(stage)
    pass_by(stage)
    assert asked_to_contribute(stage.victim.effects)[-1] == (4, 0)
    assert published(stage.contribute(7, 2), PostMessage) == [], "its phase counts it no more"
    (said,) = published(stage.contribute(8, 4), PostMessage)
    assert (said.post.round, said.payload) == (4, payload(8))
    check_promises(stage.victim)


def test_without_late_posts_each_phase_begins_with_its_head() -> None:
    stage = at_work(0)
    pass_by(stage)
    assert asked_to_contribute(stage.victim.effects)[-1] == (3, 0)
    assert published(stage.contribute(7, 2), PostMessage) == []


def test_late_work_that_fails_makes_way_for_the_open_phase() -> None:
    for event in (NotContributed(2, 0, "it diverged"), NotContributed(2, 0, ""), Contributed(2, 0, b"no payload")):
        stage = at_work()
        pass_by(stage)
        effects = stage.handle(event)
        assert asked_to_contribute(effects) == [(3, 0)]
        assert published(effects, PostMessage) == []


def test_nothing_is_foreseen_while_work_would_outlive_the_open_phase() -> None:
    for late_rounds in (0, 1):
        stage = at_work(late_rounds)
        stage.candidate(stage.block(without=[stage.me]))
        stage.wait(11)
        assert (stage.node.foreseen() is None) == bool(late_rounds)


def test_a_post_that_is_said_outlives_a_restart_until_it_is_counted() -> None:
    stage = at_work()
    (said,) = published(stage.contribute(7, 2), PostMessage)
    pass_by(stage)
    before = len(stage.victim.effects)
    stage.restart()
    stage.wait(20)
    again = [message.post for message in published(stage.victim.effects[before:], PostMessage)]
    assert again == [said.post], "it is said once more, and not signed anew"
    assert stage.node.holds(said.post)
    pass_by(stage, said.post)
    before = len(stage.victim.effects)
    stage.restart()
    stage.wait(20)
    assert published(stage.victim.effects[before:], PostMessage) == []
    check_promises(stage.victim)


def test_a_post_is_sent_again_once_what_it_was_made_from_is_here() -> None:
    """A sweep keeps what blocks leave that are here, and so nothing from below a head that was joined. The node drafted
    a block with the post again and again, and dropped those of others."""
    stage = at_work(3)
    (said,) = published(stage.contribute(7, 2), PostMessage)
    root = stage.node.head.knowledge_root
    pass_by(stage)
    del stage.victim.store._contents[root]
    before = len(stage.victim.effects)
    stage.restart()
    posts = stage.others_posts()
    stage.post(*posts)
    stage.wait(20)
    stage.contribute(1, 3)
    assert asked_to_mine(stage.victim.effects[before:])
    assert {post.sender for post in stage.node.open_posts()} == {*stage.genesis.members}
    assert not stage.node.holds(said.post)
    asked = [item for item in stage.victim.effects[before:] if isinstance(item, Send)]
    peer = next(item.peer for item in asked if item.message == GetContent(root, 0))
    assert said.post in [message.post for message in published(stage.receive(_whole(stage, root), peer), PostMessage)]
    assert stage.node.holds(said.post)


def test_a_late_post_whose_base_was_lost_from_the_disk_costs_no_other_post() -> None:
    stage = at_work()
    late, root = late_post(stage, 3), stage.node.head.knowledge_root
    pass_by(stage, without=late.sender)
    stage.post(late)
    del stage.victim.store._contents[root]
    stage.node._context.contents._held.pop(root, None)
    posts = stage.others_posts()
    stage.post(*posts)
    stage.contribute(1, 2)
    stage.wait(20)
    assert len(stage.node.open_posts()) == len(posts)
    assert stage.node.holds(late)


def _whole(stage: Stage, content_hash: bytes) -> Chunk:
    return Chunk(content_hash, 0, stage.chain.contents[content_hash])


def test_after_a_restart_all_posts_are_sent_again_that_may_still_be_counted() -> None:
    stage = at_work(3)
    said = []
    for number in (2, 3, 4, 5):
        (message,) = published(stage.contribute(7, number), PostMessage)
        said.append(message.post)
        pass_by(stage)
    assert {kept.round for kept in stage.node.journal.posts} == {2, 3, 4, 5}
    before = len(stage.victim.effects)
    stage.restart()
    stage.wait(20)
    again = [message.post for message in published(stage.victim.effects[before:], PostMessage)]
    assert again == said[1:], "those of rounds 3 to 5 may stand in a block of round 6"
    check_promises(stage.victim)


def test_after_a_restart_a_node_begins_with_the_newest_knowledge() -> None:
    stage = at_work()
    pass_by(stage)
    stage.restart()
    assert asked_to_contribute(stage.victim.effects)[-1] == (3, 0)
    assert published(stage.contribute(7, 2), PostMessage) == [], "nobody asked this process for it"


def test_late_work_is_given_up_when_our_key_turns_out_to_have_posted() -> None:
    """The process lost its journal. An earlier one's post is heard while this one, still silent, has another ready."""
    stage = at_work(8)
    said = sign_post(stage.victim.key, stage.genesis.chain_id, 2, 0, payload(9))
    stage.victim.journal = Journal()
    stage.restart(is_heard=False)
    stage.contribute(7, 2)
    stage.receive(PostMessage(said, None))
    before = len(stage.victim.effects)
    stage.hear()
    while stage.node.is_silent():
        pass_by(stage)
        stage.wait(3)
    assert stage.node.head.owed_to(said.key) is not None, "nobody has the payload of the first post"
    posts = [message.post for message in published(stage.victim.effects[before:], PostMessage)]
    assert [post for post in posts if post.round == 2] == [], "the second one would convict it"
    assert asked_to_contribute(stage.victim.effects[before:])[0] == (3, 0), "it went on at once"
    check_promises(stage.victim)


def test_a_node_that_is_silent_when_its_phase_closes_posts_nothing_late() -> None:
    """The process lost its journal, and no status shows the post that its key has said before."""
    stage = at_work(8)
    stage.victim.journal = Journal()
    stage.restart(is_heard=False)
    stage.contribute(7, 2)
    before = len(stage.victim.effects)
    pass_by(stage)
    assert stage.node.is_silent()
    stage.wait(10)
    assert not stage.node.is_silent()
    assert published(stage.victim.effects[before:], PostMessage) == []
    assert asked_to_contribute(stage.victim.effects[before:]) == [(3, 0)], "it went on at once"


def test_late_work_is_given_up_when_an_earlier_post_is_heard_after_its_phase() -> None:
    """Its payload has to be fetched, which takes longer than the work."""
    stage = at_work(8)
    said = sign_post(stage.victim.key, stage.genesis.chain_id, 2, 0, payload(9))
    stage.victim.journal = Journal()
    stage.restart()
    stage.wait(6)
    pass_by(stage)
    assert not stage.node.is_silent()
    assert stage.node.head.owed_to(said.key) is not None
    stage.receive(PostMessage(said, None))
    assert published(stage.contribute(7, 2), PostMessage) == [], "it would convict us"
    assert stage.node.journal.posts == (said,)
    check_promises(stage.victim)


# --- those of others


def test_a_late_post_is_held_and_counted_beside_the_round_s() -> None:
    stage = at_work()
    late = late_post(stage, 3)
    pass_by(stage, without=late.sender)
    assert refused(stage.post(late)) == []
    assert stage.node.holds(late)
    stage.contribute(1, 2)
    effects = stage.contribute(1, 3) + stage.post(*stage.others_posts())
    (mining,) = asked_to_mine(effects)[-1:]
    assert mining.header.round == 3
    draft = stage.node.draft()
    assert draft is not None
    assert late in draft.transactions
    assert list(draft.transactions) == sorted(draft.transactions, key=place)
    stage.mine(effects)
    (entry,) = stage.node.ledger.entries.values()
    assert late in entry.block.transactions


def test_a_post_that_came_in_time_and_was_not_counted_is_still_held() -> None:
    stage = at_work()
    late = late_post(stage, 3)
    stage.post(late)
    pass_by(stage, without=late.sender)
    assert stage.node.holds(late)
    pass_by(stage, late)
    assert not stage.node.holds(late)
    assert refused(stage.post(late)) == ["OutOfWindow"], "a replay"


def test_a_late_post_of_a_member_that_was_convicted_since_is_neither_counted_nor_demanded() -> None:
    """A block that counts it is valid for nobody."""
    stage = at_work()
    late = late_post(stage, 3)
    pass_by(stage, without=late.sender)
    stage.post(late)
    crime = double_vote(stage.chain.key(late.sender), stage.genesis, 1)
    posts = [
        post for post in stage.chain.posts(stage.node.head.block_hash) if post.sender not in (stage.me, late.sender)
    ]
    block = stage.block(posts=posts, evidence=[crime])
    stage.candidate(block)
    stage.final(block)
    assert stage.node.head.roster.culprits == {late.sender}
    stage.hear()
    stage.contribute(1, 2)
    effects = stage.contribute(1, 4) + stage.post(*stage.others_posts())
    draft = stage.node.draft()
    assert draft is not None
    assert late not in draft.transactions
    stage.mine(effects)
    (entry,) = stage.node.ledger.entries.values()
    stage.wait(5)
    assert deserves_vote(stage.node._context, entry)


def test_a_late_post_is_dropped_when_its_last_round_is_over() -> None:
    stage = at_work(1)
    late = late_post(stage, 3)
    pass_by(stage, without=late.sender)
    stage.post(late)
    pass_by(stage)
    assert not stage.node.holds(late)
    assert dict(stage.node.sizes())["posts"] == 0


def test_a_liar_that_posts_twice_for_a_past_round_is_convicted() -> None:
    stage = at_work()
    late = late_post(stage, 3)
    pass_by(stage, without=late.sender)
    stage.post(late)
    settled = stage.node.ledger.settled
    assert settled is not None
    others = stage.chain.posts(settled.before.block_hash, payload_of=50)
    (twin,) = [post for post in others if post.key == late.key]
    assert refused(stage.post(twin)) == ["Equivocation"]
    assert [crime.culprit for crime in stage.node._parts.crimes.for_block()] == [late.sender]


def test_a_late_post_obliges_nobody_to_wait_and_its_omission_is_an_omission() -> None:
    for held_s, is_wanted in ((0.0, True), (5.0, False)):
        stage = at_work(omission_slack_ms=2_000, phase_floor_ms=1)
        late = late_post(stage, 3)
        pass_by(stage, without=late.sender)
        stage.contribute(1, 2)
        stage.post(late)
        stage.wait(held_s)
        block = stage.block(without=[stage.me])
        stage.candidate(block)
        stage.wait(11)
        entry = stage.node.ledger.entries[block.hash]
        assert entry.is_valid
        assert deserves_vote(stage.node._context, entry) == is_wanted


@pytest.mark.parametrize("omitted", [0, 1, 2])
def test_a_block_of_all_contributors_counts_each_late_post_that_was_held(omitted: int) -> None:
    stage = at_work(omission_slack_ms=2_000, phase_floor_ms=1)
    other = late_post(stage, 3)
    pass_by(stage, without=other.sender)
    said = [published(stage.contribute(7, number), PostMessage)[0].post for number in (2, 3)]
    late, of_round = [other, said[0]], [*stage.others_posts(), said[1]]
    stage.post(other, *of_round[:-1])
    stage.wait(5)
    block = stage.block(posts=sorted((*of_round, *late[omitted:]), key=place))
    stage.candidate(block)
    entry = stage.node.ledger.entries[block.hash]
    assert entry.is_valid
    assert deserves_vote(stage.node._context, entry) == (not omitted)


def test_a_block_that_counts_a_late_post_is_recomputed_from_what_it_was_made_from() -> None:
    stage = at_work()
    late = late_post(stage, 3)
    pass_by(stage, without=late.sender)
    posts = [post for post in stage.chain.posts(stage.node.head.block_hash) if post.sender != stage.me]
    good = stage.block(posts=sorted((*posts, late), key=place))
    stage.candidate(good)
    assert stage.node.ledger.entries[good.hash].is_valid
    false = stage.chain.remake(good, knowledge_root=sha256(b"made from something else"))
    stage.candidate(false)
    assert stage.node.ledger.entries[false.hash].is_refuted


def test_a_node_that_lacks_what_late_posts_are_made_from_fetches_it() -> None:
    stage = at_work()
    late = late_post(stage, 3)
    pass_by(stage, without=late.sender)
    root = stage.node.head.owed[0].knowledge_root
    stage.victim.store.retain({stage.node.head.knowledge_root})
    stage.restart(is_heard=False)
    effects = stage.post(late)
    assert not stage.node.holds(late)
    effects += [effect for other in stage.others for effect in stage.receive(stage.status(), other)]
    asked = [item for item in effects if isinstance(item, Send) and isinstance(item.message, GetContent)]
    (provider,) = {item.peer for item in asked if item.message == GetContent(root, 0)}
    stage.receive(Chunk(root, 0, stage.chain.contents[root]), provider)
    assert stage.node.holds(late)
    assert blamed(effects) == []


@pytest.mark.parametrize("late_rounds", [1, 2])
def test_a_node_holds_no_more_than_the_rounds_that_count_need(late_rounds: int) -> None:
    stage = at_work(late_rounds)
    for _ in range(5):
        late = late_post(stage, 3)
        pass_by(stage, without=late.sender)
        stage.post(late)
    assert dict(stage.node.sizes())["posts"] == late_rounds


def test_a_post_of_a_key_that_is_forgotten_is_forgotten_too() -> None:
    """One member's post, whose payload it withholds, and another key for it: all others met a key without a seat."""
    stage = at_work(4, members=8)
    late, following = late_post(stage, 7), keys(9)[8]  # the last bit of the last byte of those that owe a post
    stage.receive(PostMessage(late, None))
    key = stage.chain.key(late.sender)
    change = sign_rekey(key, following, stage.genesis.chain_id, sequence=0, until=50)
    for changes in ((change,), (), (), ()):
        stage.final(stage.block(without=[late.sender, following.public_key], changes=changes))
    assert late.sender not in stage.node.head.roster.seats
    assert stage.node.head.owed, "its member still owes the post"
    assert stage.node.head.owed_to(late.key) is None
    stage.hear()
    assert dict(stage.node.sizes())["posts without payloads"] == 0


def test_a_late_post_that_gossip_lost_is_asked_for() -> None:
    """No status shows it: each peer at our head is asked, for one phase in its turn."""
    stage = at_work()
    late = late_post(stage, 3)
    pass_by(stage, without=late.sender)
    (asked,) = sent(stage.receive(stage.status()), GetPosts)
    assert asked == GetPosts(2, 0, stage.holds(stage.me, late.sender))
    stage.post(late)
    (asked,) = sent(stage.receive(stage.status()), GetPosts)
    assert asked == GetPosts(2, 0, stage.holds(stage.me)), "one that is held is not"
    (found,) = sent(stage.receive(GetPosts(2, 0, stage.holds(*stage.genesis.members))), PostMessage)
    assert found.post == late, "and it is handed on"


def test_a_late_post_is_not_asked_for_while_its_payload_comes() -> None:
    stage = at_work()
    late = late_post(stage, 3)
    pass_by(stage, without=late.sender)
    stage.receive(PostMessage(late, None))
    (asked,) = sent(stage.receive(stage.status()), GetPosts)
    assert asked == GetPosts(2, 0, stage.holds(stage.me))


def test_each_phase_whose_posts_are_owed_has_its_turn() -> None:
    stage = at_work()
    for _ in range(2):
        pass_by(stage)
    rounds = set()
    for _ in range(4):
        stage.tick(1)
        rounds |= {asked.round for asked in sent(stage.receive(stage.status()), GetPosts)}
    assert rounds == {2, 3}
