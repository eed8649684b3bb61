"""What a malicious member, miner, relay or slow peer tries, and what a node makes of it."""

from dataclasses import replace

import pytest

from fedchain.chain.block import Block
from fedchain.chain.genesis import AggregatorRule
from fedchain.chain.proof_of_work import search_nonce
from fedchain.chain.transaction import sign_transaction
from fedchain.chain.vote import sign_vote
from fedchain.crypto.hashing import sha256
from fedchain.network.messages import (
    CHUNK_SIZE,
    BlockMessage,
    Chunk,
    GetBlocks,
    GetContent,
    PostMessage,
    Status,
    VoteMessage,
)
from fedchain.network.sync import to_bitmap
from fedchain.network.verdict import Verdict, verdict
from fedchain.node.core.answers import UNKNOWN_MAX
from fedchain.node.core.effects import Blame, Contribute, Effect, Mine, Persist, Publish, Refuse
from fedchain.node.core.events import Contributed, Mined
from fedchain.node.core.pools import UNPLACED_OF_MINER_MAX
from tests.chain.builders import CREATED_MS, GLOBAL, UPDATE, genesis, keys, payload
from tests.node.attacks import Scene, errors, own_votes, published, sent
from tests.node.driver import BlobRules, Federation, Peer, check_agreement

FORGED = bytes(64)


def _verdict(effects: list[Effect]) -> Verdict:
    refused = [effect.error for effect in effects if isinstance(effect, Refuse)]
    return verdict(refused[-1] if refused else None)


# --- blocks under a good header


def _forgeries(block: Block) -> dict[str, Block]:
    vote, post = block.votes[0], block.transactions[0]
    return {
        "forged vote": replace(block, votes=(replace(vote, signature=FORGED), *block.votes[1:])),
        "fewer votes": replace(block, votes=block.votes[:-1]),
        "forged post": replace(block, transactions=(replace(post, signature=FORGED), *block.transactions[1:])),
        "redated post": replace(block, transactions=(replace(post, timestamp_ms=1), *block.transactions[1:])),
        "no posts": replace(block, transactions=()),
        "forged signature": replace(block, signature=FORGED),
    }


FORGERIES = ["forged vote", "fewer votes", "forged post", "redated post", "no posts", "forged signature"]


@pytest.mark.parametrize("name", FORGERIES)
def test_a_known_block_with_another_body_is_not_passed_on(name: str) -> None:
    scene = Scene(genesis(4))
    _, block = scene.accept(2)
    before = scene.digest()
    effects = scene.receive(BlockMessage(_forgeries(block)[name]))
    assert errors(effects) == ["InvalidBlock"]
    assert scene.node.tree.block(block.hash) == block
    assert scene.digest() == before


@pytest.mark.parametrize("name", FORGERIES)
def test_a_forged_body_does_not_take_the_place_of_a_block_that_waits(name: str) -> None:
    scene = Scene(genesis(4))
    scene.accept(1)
    parent = scene.chain.extend()
    block = scene.chain.extend()
    assert errors(scene.block(block, payloads=False)) == ["UnknownParent"]
    assert errors(scene.receive(BlockMessage(_forgeries(block)[name]))) == ["InvalidBlock"]
    scene.block(parent)
    for post in block.transactions:
        scene.post(post)
    scene.receive(BlockMessage(block))
    assert scene.node.tree.block(block.hash) == block


def test_a_second_signature_of_the_miner_is_not_passed_on_without_end() -> None:
    # Ed25519 lets a key's owner make many signatures of one message; here the test's stand-in is a trusting check.
    scene = Scene(genesis(4))
    (block,) = scene.accept(1)
    scene.victim.node._verification._blocks[block.hash] = twin = replace(block, signature=FORGED)
    effects = scene.receive(BlockMessage(twin))
    assert errors(effects) == ["LimitReached"]
    assert scene.node.tree.block(block.hash) == block


# --- votes


@pytest.mark.parametrize("early", [True, False])
def test_a_vote_for_another_phase_does_not_count_whenever_it_comes(early: bool) -> None:
    scene = Scene(genesis(4), 3)
    block = scene.chain.extend()
    bad = sign_vote(keys(1)[0], scene.genesis.chain_id, block.hash, block.header.round + 1, 0)
    if early:
        assert errors(scene.receive(VoteMessage(bad))) == ["UnknownBlock"]
        effects = scene.block(block)
        assert _verdict(effects) is Verdict.ACCEPT, "whoever sent the block is not to blame for the vote"
    else:
        scene.block(block)
        effects = scene.receive(VoteMessage(bad))
        assert _verdict(effects) is Verdict.REJECT
    assert "InvalidVote" in errors(effects)
    assert keys(1)[0].public_key not in scene.node.tree.votes(block.hash)


def test_an_early_vote_of_a_member_outside_the_committee_does_not_count() -> None:
    founding = genesis(6, committee_size=2)
    scene = Scene(founding)
    block = scene.chain.extend()
    electors = scene.chain.states[founding.chain_id].electors
    outside = [member for member in founding.members if member not in electors]
    for vote in scene.chain.votes(block.hash, outside):
        scene.receive(VoteMessage(vote))
    assert "InvalidVote" in errors(scene.block(block))
    assert not set(scene.node.tree.votes(block.hash)) & set(outside)


def test_a_vote_counts_once_and_a_second_signature_is_not_passed_on() -> None:
    scene = Scene(genesis(7), 6)
    block = scene.chain.extend()
    scene.block(block)
    vote = scene.chain.votes(block.hash)[0]
    assert _verdict(scene.receive(VoteMessage(vote))) is Verdict.ACCEPT
    held = len(scene.node.tree.votes(block.hash))
    assert scene.receive(VoteMessage(vote)) == []
    twin = replace(vote, signature=FORGED)
    scene.victim.node._verification._checked[twin.voter, FORGED, twin.signing_message(scene.genesis.chain_id)] = None
    assert errors(scene.receive(VoteMessage(twin))) == ["LimitReached"]
    assert len(scene.node.tree.votes(block.hash)) == held


def test_no_vote_for_a_block_that_omits_what_was_held_for_long() -> None:
    for slack_ms, voted in ((1, False), (60_000, True)):
        scene = Scene(genesis(4, omission_slack_ms=slack_ms, phase_timeout_ms=1_000), 3)
        posts = scene.chain.posts()
        scene.tick()
        scene.now_ms = posts[0].timestamp_ms
        for post in posts:
            scene.post(post)
        scene.now_ms += 5_000
        block = scene.chain.extend(posts=posts[1:], timestamp_ms=scene.now_ms)
        assert bool(own_votes(scene.receive(BlockMessage(block)))) == voted
        assert bool(own_votes(scene.tick(60))) is False


def test_no_vote_for_a_block_that_did_not_wait_until_the_phase_timed_out() -> None:
    scene = Scene(genesis(4, phase_timeout_ms=30_000), 3)
    scene.tick()
    block = scene.chain.extend(posts=scene.chain.posts(members=[keys(1)[0].public_key]))
    assert own_votes(scene.block(block)) == []
    assert own_votes(scene.tick(1)) == []
    assert [vote.block_hash for vote in own_votes(scene.tick(30))] == [block.hash]


def test_no_vote_for_a_block_whose_miner_swapped_its_own_post() -> None:
    scene = Scene(genesis(3), 2)
    posts = scene.chain.posts()
    for post in posts:
        scene.now_ms = post.timestamp_ms
        scene.post(post)
    miner = next(key for key in keys(3) if key.public_key == posts[0].sender)
    later = sign_transaction(miner, scene.genesis.chain_id, 1, 0, payload(99), posts[0].timestamp_ms + 500)
    scene.chain.contents[later.payload_hash] = payload(99)
    block = scene.chain.extend(posts=(later, *posts[1:]), miner=miner)
    scene.now_ms = block.header.timestamp_ms
    scene.receive(BlockMessage(block))
    effects = scene.receive(Chunk(later.payload_hash, 0, payload(99)))
    assert block.hash in scene.node.tree, "the block is valid"
    assert own_votes(effects) == []


@pytest.mark.parametrize(("depth", "limit", "voted"), [(1, 1, True), (2, 1, False), (2, 2, True), (1, 0, False)])
def test_no_vote_for_a_fork_deeper_than_the_limit(depth: int, limit: int, voted: bool) -> None:
    scene = Scene(genesis(4, reorg_depth_max=limit, omission_slack_ms=60_000, clock_ahead_max_ms=60_000), 3)
    blocks = scene.accept(4)
    fork = blocks[-1 - depth].hash
    rival = scene.chain.extend(fork, payload_of=40)
    scene.now_ms = scene.now_ms + 1
    for post in rival.transactions:
        data = scene.chain.contents[post.payload_hash]
        scene.victim.store._contents[sha256(data)] = data
    effects = scene.receive(BlockMessage(rival))
    assert rival.hash in scene.node.tree
    assert bool(own_votes(effects)) == voted


# --- posts


def test_an_equivocator_is_heard_once_and_the_relay_is_not_to_blame() -> None:
    scene = Scene(genesis(4))
    key = keys(2)[1]
    first, second, redated = (
        sign_transaction(key, scene.genesis.chain_id, 1, 0, payload(number), CREATED_MS + late)
        for number, late in ((1, 0), (2, 0), (1, 1))
    )
    assert _verdict(scene.receive(PostMessage(first, payload(1)))) is Verdict.ACCEPT
    assert _verdict(scene.receive(PostMessage(first, payload(1)))) is Verdict.ACCEPT
    for message in (PostMessage(second, payload(2)), PostMessage(second, None), PostMessage(redated, payload(1))):
        effects = scene.receive(message)
        assert errors(effects) == ["Equivocation"]
        assert _verdict(effects) is Verdict.IGNORE
        assert sent(effects) == []
    assert scene.node.mempool.get((1, 0), key.public_key) == first


def test_who_sends_its_own_second_post_is_to_blame() -> None:
    scene = Scene(genesis(4))
    key = keys(2)[1]
    first, second = (
        sign_transaction(key, scene.genesis.chain_id, 1, 0, payload(number), CREATED_MS) for number in (1, 2)
    )
    scene.receive(PostMessage(first, payload(1)), key.public_key)
    assert _verdict(scene.receive(PostMessage(second, payload(2)), key.public_key)) is Verdict.REJECT


def test_a_second_post_is_not_passed_on_while_the_first_ones_payload_is_on_its_way() -> None:
    scene = Scene(genesis(4))
    key = keys(2)[1]
    posts = [sign_transaction(key, scene.genesis.chain_id, 1, 0, payload(number), CREATED_MS) for number in (1, 2)]
    redated = sign_transaction(key, scene.genesis.chain_id, 1, 0, payload(1), CREATED_MS + 1)
    assert sent(scene.receive(PostMessage(posts[0], None))) == [GetContent(posts[0].payload_hash, 0)]
    assert errors(scene.receive(PostMessage(posts[1], None))) == ["Equivocation"]
    assert errors(scene.receive(PostMessage(redated, None))) == ["Equivocation"]
    assert scene.receive(PostMessage(posts[0], None)) == [], "the same post again names one more provider"
    scene.receive(Chunk(posts[0].payload_hash, 0, payload(1)))
    assert scene.node.mempool.get((1, 0), key.public_key) == posts[0]


def test_posts_of_the_past_and_of_the_far_future_are_not_kept() -> None:
    scene = Scene(genesis(4))
    scene.accept(2)
    for round_number, expected in ((1, ["OutOfWindow"]), (2, ["OutOfWindow"]), (4, []), (5, ["OutOfWindow"])):
        key = keys(2)[1]
        post = sign_transaction(key, scene.genesis.chain_id, round_number, 0, payload(5), CREATED_MS)
        assert errors(scene.receive(PostMessage(post, payload(5)))) == expected


def test_a_post_from_a_clock_ahead_is_not_kept() -> None:
    scene = Scene(genesis(4, clock_ahead_max_ms=2_000))
    key = keys(2)[1]
    for late, expected in ((2_001, ["FutureTimestamp"]), (2_000, [])):
        post = sign_transaction(key, scene.genesis.chain_id, 1, 0, payload(5), CREATED_MS + late)
        assert errors(scene.receive(PostMessage(post, payload(5)))) == expected


def test_a_payload_of_nonsense_is_its_signers_fault_and_not_its_providers() -> None:
    scene = Scene(genesis(4))
    key, junk = keys(2)[1], b"not eight numbers"
    post = sign_transaction(key, scene.genesis.chain_id, 1, 0, junk, CREATED_MS)
    scene.receive(PostMessage(post, None))
    effects = scene.receive(Chunk(post.payload_hash, 0, junk))
    assert [(effect.peer, type(effect.error).__name__) for effect in effects if isinstance(effect, Blame)] == [
        (key.public_key, "InvalidPayload")
    ]
    assert len(scene.node.mempool) == 0


def test_whoever_shows_a_post_in_its_status_is_one_more_provider() -> None:
    scene = Scene(genesis(4))
    post = scene.chain.posts()[1]
    data = scene.chain.contents[post.payload_hash]
    scene.now_ms = post.timestamp_ms
    scene.receive(PostMessage(post, None))
    holder = keys(4)[3].public_key
    place = scene.genesis.index[post.sender]
    head = scene.node.head
    scene.receive(Status(head.block_hash, head.height, to_bitmap([place], 4), ()), holder)
    assert [message for message in sent(scene.tick(3)) if isinstance(message, GetContent)]
    scene.receive(Chunk(post.payload_hash, 0, data), holder)
    assert scene.node.mempool.get((1, 0), post.sender) == post


# --- what this peer says itself


def _contribution(scene: Scene, data: bytes) -> list[Effect]:
    return scene.victim.handle(Contributed(1, 0, data), scene.now_ms)


def test_a_payload_that_nobody_would_take_is_not_posted() -> None:
    scene = Scene(genesis(4))
    scene.tick()
    effects = _contribution(scene, b"a model that diverged")
    assert errors(effects) == ["InvalidPayload"]
    assert published(effects) == []
    assert not [effect for effect in effects if isinstance(effect, Persist)]
    assert not [effect for effect in scene.tick(1) if isinstance(effect, (Publish, Contribute))]


def test_who_finds_its_own_post_on_the_network_does_not_make_another() -> None:
    scene = Scene(genesis(4))
    assert [effect for effect in scene.tick() if isinstance(effect, Contribute)]
    key = scene.victim.key
    before = sign_transaction(key, scene.genesis.chain_id, 1, 0, payload(1), CREATED_MS)
    scene.receive(PostMessage(before, payload(1)))
    assert _contribution(scene, payload(2)) == []
    assert scene.node.mempool.get((1, 0), key.public_key) == before


def test_results_of_old_rounds_are_ignored() -> None:
    scene = Scene(genesis(4))
    scene.tick()
    scene.accept(1)
    for event in (Contributed(1, 0, payload(1)), Contributed(3, 0, payload(1)), Contributed(2, 1, payload(1))):
        assert scene.victim.handle(event, scene.now_ms) == []


def _mining(number: int = 0) -> tuple[Scene, Mine]:
    scene = Scene(genesis(3), number)
    posts = scene.chain.posts()
    scene.now_ms = posts[0].timestamp_ms
    effects = [effect for post in posts for effect in scene.post(post)]
    (mine,) = [effect for effect in effects if isinstance(effect, Mine)]
    assert scene.node.is_mining(mine.header)
    return scene, mine


def test_a_mined_header_that_is_not_the_draft_is_ignored() -> None:
    scene, mine = _mining()
    header = mine.header
    for wrong in (
        replace(header, parent_hash=sha256(b"")),
        replace(header, knowledge_root=sha256(b"")),
        replace(header, miner=keys(2)[1].public_key),
        replace(header, timestamp_ms=header.timestamp_ms - 1),
        replace(header, bits=header.bits - 1),
        replace(header, transactions_root=sha256(b"")),
    ):
        assert scene.victim.handle(Mined(wrong), scene.now_ms) == []
    sealed = search_nonce("sha256d", replace(header, timestamp_ms=header.timestamp_ms + 700), 0, 1_000)
    assert sealed is not None
    effects = scene.victim.handle(Mined(sealed), scene.now_ms + 700)
    assert [message.block.header for message in published(effects) if isinstance(message, BlockMessage)] == [sealed]
    assert isinstance(effects[0], Persist)
    assert scene.victim.handle(Mined(sealed), scene.now_ms + 700) == []


def test_an_unsealed_header_from_our_own_miner_is_refused_and_a_new_draft_made() -> None:
    scene, mine = _mining()
    unsealed = next(
        header
        for header in (replace(mine.header, nonce=nonce) for nonce in range(100))
        if search_nonce("sha256d", header, header.nonce, 1) is None
    )
    effects = scene.victim.handle(Mined(unsealed), scene.now_ms)
    assert errors(effects) == ["InvalidBlock"]
    assert published(effects) == []
    assert [effect for effect in scene.tick(1) if isinstance(effect, Mine)], "it would never mine again"


def test_mining_stops_after_a_vote_and_goes_on_after_the_timeout() -> None:
    scene = Scene(genesis(5, phase_timeout_ms=10_000), 4)
    posts = scene.chain.posts()
    scene.now_ms = posts[0].timestamp_ms
    mining = [effect for post in posts for effect in scene.post(post) if isinstance(effect, Mine)]
    assert mining
    block = scene.chain.extend(posts=posts)
    assert own_votes(scene.block(block))
    assert not scene.node.is_mining(mining[-1].header)
    for _ in range(9):
        assert not [effect for effect in scene.tick(1) if isinstance(effect, Mine)]
    (again,) = [effect for effect in scene.tick(1) if isinstance(effect, Mine)]
    assert scene.node.is_mining(again.header)


def test_a_late_post_makes_a_new_draft() -> None:
    scene = Scene(genesis(4, phase_timeout_ms=5_000), 0)
    scene.tick()
    posts = scene.chain.posts()
    scene.now_ms = posts[0].timestamp_ms
    for post in posts[:2]:
        scene.post(post)
    assert scene.node.waiting_for() == {post.sender for post in posts[2:]}
    (first,) = [effect for effect in scene.tick(5) if isinstance(effect, Mine)]
    (second,) = [effect for effect in scene.post(posts[2]) if isinstance(effect, Mine)]
    assert first.header.transactions_root != second.header.transactions_root
    assert not scene.node.is_mining(first.header)
    assert scene.node.is_mining(second.header)
    assert not [effect for effect in scene.tick(1) if isinstance(effect, Mine)], "the same draft is mined once"


def test_an_empty_block_is_drafted_when_it_is_valid_although_the_parents_clock_was_ahead() -> None:
    founding = genesis(3, phases=(UPDATE, GLOBAL), aggregator=AggregatorRule.FIXED, phase_timeout_ms=5_000)
    scene = Scene(founding, 2)
    block = scene.chain.extend()
    scene.now_ms = block.header.timestamp_ms - 2_000
    for post in block.transactions:
        scene.post(post)
    scene.receive(BlockMessage(block))
    scene.votes(block)
    assert scene.node.head.phase == 1
    mines: list[Mine] = []
    while not mines:
        mines = [effect for effect in scene.tick(0.5) if isinstance(effect, Mine)]
    sealed = search_nonce("sha256d", mines[0].header, 0, 1_000)
    assert sealed is not None
    assert errors(scene.victim.handle(Mined(sealed), scene.now_ms)) == []


# --- slow and missing providers, blocks out of order


def test_a_peer_that_lacks_a_payload_is_not_asked_in_circles() -> None:
    scene = Scene(genesis(4))
    post = scene.chain.posts()[1]
    scene.now_ms = post.timestamp_ms
    requests = sent(scene.receive(PostMessage(post, None)))
    for _ in range(50):
        if not requests:
            break
        requests = sent(scene.receive(Chunk(post.payload_hash, 0, b"")))
    assert requests == []
    assert GetContent(post.payload_hash, 0) in sent(scene.tick(1))


def test_what_was_fetched_for_a_block_that_had_to_go_is_given_up() -> None:
    scene = Scene(genesis(4))
    root = scene.genesis.chain_id
    miner = scene.chain.key(scene.genesis.members[0])
    for number in range(UNPLACED_OF_MINER_MAX + 5):
        block = scene.chain.extend(root, payload_of=100 * number, timestamp_ms=CREATED_MS + 5_000 + number, miner=miner)
        scene.block(block, payloads=False)
    assert len(scene.node._contents._downloads) == 4 * UNPLACED_OF_MINER_MAX


def test_one_status_asks_for_few_unknown_blocks() -> None:
    scene = Scene(genesis(4))
    unknown = tuple((sha256(bytes([number])), b"") for number in range(16))
    requests = sent(scene.receive(Status(scene.genesis.chain_id, 0, b"", unknown)))
    assert len(requests) == UNKNOWN_MAX


def test_a_byte_at_a_time_is_not_a_download() -> None:
    scene = Scene(genesis(4, inline_size_max=0), rules=BlobRules())
    data = bytes(2 * CHUNK_SIZE)
    post = sign_transaction(keys(2)[1], scene.genesis.chain_id, 1, 0, data, CREATED_MS)
    scene.receive(PostMessage(post, None))
    assert errors(scene.receive(Chunk(post.payload_hash, 0, b"\x00"))) == ["InvalidPayload"]


@pytest.mark.parametrize("seed", range(3))
def test_catching_up_over_a_network_that_reorders_does_not_multiply_blocks(seed: int) -> None:
    federation = Federation(genesis(3, target_mining_time_ms=100), seed, silent=[2])
    federation.run_to_height(60, limit_s=1_000)
    federation.sent.clear()
    height = federation.peers[0].node.head.height
    federation.restart(2)
    federation.run(lambda: federation.peers[2].node.head.height >= height, limit_s=60)
    check_agreement(federation)
    blocks = sum(receiver == 2 and isinstance(message, BlockMessage) for _, receiver, message in federation.sent)
    asked = sum(sender == 2 and isinstance(message, GetBlocks) for sender, _, message in federation.sent)
    assert blocks <= 6 * height, f"{blocks} blocks were sent to catch up with {height}"
    assert asked <= height


def test_more_siblings_than_the_tree_holds_do_not_keep_a_peer_from_restarting() -> None:
    scene = Scene(genesis(4), 3)
    root = scene.genesis.chain_id
    taken = 0
    for number in range(70):
        block = scene.chain.extend(root, payload_of=10 * number, timestamp_ms=CREATED_MS + 5_000 + number)
        for post in block.transactions:
            data = scene.chain.contents[post.payload_hash]
            scene.victim.store._contents[sha256(data)] = data
        scene.now_ms = CREATED_MS + 6_000
        effects = scene.receive(BlockMessage(block))
        taken += "LimitReached" not in errors(effects)
        if number in (2, 40):
            scene.votes(block)
    assert taken == 70, "a newer block of a miner takes the place of its oldest"
    again = Peer(3, scene.victim.key, scene.genesis, scene.chain.rules)
    again.store = scene.victim.store
    assert again.new_node().head == scene.node.head
