"""The node: one peer as a pure state machine. It takes every decision and does no I/O.

``handle`` turns an event into effects; whatever drives it (sockets, or the simulator) carries them out. What it
refuses leaves it as it was, so a log of its events replays to the same state.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from fedchain.chain.fork_choice import BlockTree, Reorg

from fedchain.chain.block import Block, Header, sign_block
from fedchain.chain.exceptions import (
    Equivocation,
    FutureTimestamp,
    InvalidTransaction,
    LimitReached,
    MissingPayload,
    Refused,
    UnknownBlock,
    UnknownParent,
)
from fedchain.chain.genesis import Genesis
from fedchain.chain.knowledge import EMPTY_ROOT, ContentLookup, missing_contents
from fedchain.chain.state import (
    EMPTY_KNOWLEDGE,
    State,
    expected_contributors,
    phase_rule,
    votes_required,
)
from fedchain.chain.storage.store import Content, Record, fill_tree
from fedchain.chain.transaction import PostKey, Transaction, sign_transaction
from fedchain.chain.validation import validate_knowledge, validate_on, validate_vote_on, validate_window
from fedchain.chain.vote import Vote, sign_vote
from fedchain.crypto.hashing import Hash
from fedchain.crypto.keys import PrivateKey, PublicKey
from fedchain.network.messages import (
    BlockMessage,
    Chunk,
    GetContent,
    Message,
    PostMessage,
    Status,
    VoteMessage,
)
from fedchain.network.sync import CatchUp, from_bitmap
from fedchain.node.core.answers import Answers
from fedchain.node.core.checks import Verification
from fedchain.node.core.content_cache import Contents, Intern, PartLookup
from fedchain.node.core.effects import Blame, Contribute, Effect, Mine, Persist, Publish, Refuse, Retain, Send
from fedchain.node.core.events import Contributed, Event, MessageReceived, Mined, PeerConnected, PeerDisconnected, Tick
from fedchain.node.core.mempool import Mempool
from fedchain.node.core.pools import EarlyVotes, UnplacedBlocks
from fedchain.node.core.production import Step, draft_header, is_same_work, next_step, owes_post
from fedchain.node.core.retention import contents_of_last, is_time_to_sweep
from fedchain.node.core.vote_policy import Opinion, judge

STATUS_PEERS = 2
"""Peers that hear our status at every tick."""

GREETED_PEERS = 8
"""Peers that hear our status as soon as they are connected."""

CONTENT_WINDOW = 8
"""Blocks below the head whose payloads are kept in memory; older ones come from the store."""


class Node:
    """One peer: its view of the chain, what it promised, and what it is waiting for.

    Args:
        genesis: what the federation agreed on.
        key: this peer's key; one that is not a member's follows the chain and says nothing.
        verification: the costly checks.
        records: what this peer had persisted before a restart, in the store's order.
        stored: contents that this peer persisted.
        stored_part: the same part by part, for large ones.
        intern: the copy of a content to hold, where many nodes share a process.
    """

    def __init__(
        self,
        genesis: Genesis,
        key: PrivateKey,
        verification: Verification,
        records: Iterable[Record] = (),
        stored: ContentLookup = lambda _: None,
        stored_part: PartLookup = lambda _, start, size: None,
        intern: Intern = lambda _, data: data,
    ) -> None:
        kept = list(records)
        self.genesis = genesis
        self.tree = BlockTree(genesis, verification.apply)
        fill_tree(self.tree, kept)
        self.mempool = Mempool()
        self._key = key
        self._me: PublicKey = key.public_key
        self._verification = verification
        self._contents = Contents(genesis, stored, stored_part, intern)
        self._answers = Answers(genesis, self.tree, self.mempool, self._contents.get)
        self._peers: dict[PublicKey, None] = {}  # in order of connection
        self._turn = genesis.index.get(self._me, 0)

        self._own_posts: dict[PostKey, Transaction] = {post.key: post for post in kept if isinstance(post, Transaction)}
        self._asked: tuple[int, int] | None = None  # the phase that a Contribute effect was last emitted for
        self._unplaced = UnplacedBlocks()
        self._early_votes = EarlyVotes()
        self._catch_up = CatchUp()

        self._phase_since_ms: int | None = None  # when our head moved last; set by the first event
        self._missing: set[PublicKey] = set()  # expected contributors whose posts are not in
        self._draft: Draft | None = None
        self._mine_after_ms = 0

    @property
    def head(self) -> State:
        """The state of the chain as this peer sees it."""
        return self.tree.head

    def content(self, content_hash: Hash) -> bytes | None:
        """A payload or knowledge by its hash, from memory or from the store."""
        return self._contents.get(content_hash)

    def knowledge(self) -> bytes | None:
        """What the federation knows at the head; None while it has to be fetched."""
        root = self.head.knowledge_root
        return EMPTY_KNOWLEDGE if root == EMPTY_ROOT else self.content(root)

    def catching_up_to(self) -> int:
        """Height that another peer has and whose blocks are being fetched; 0: there is none."""
        return self._catch_up.height

    def waiting_for(self) -> frozenset[PublicKey]:
        """Expected contributors of the open phase whose posts are not in."""
        return frozenset(self._missing)

    def is_mining(self, header: Header) -> bool:
        """Whether ``header`` is the draft that a nonce is wanted for, so that a miner can stop early."""
        return self._draft is not None and self._draft.header == header

    def handle(self, event: Event, now_ms: int) -> list[Effect]:
        """Take ``event`` at ``now_ms`` (milliseconds) and say what follows from it, in order."""
        if self._phase_since_ms is None:
            self._open_phase(now_ms)
        match event:
            case MessageReceived(peer, message):
                try:
                    return self._on_message(peer, message, now_ms)
                except Refused as error:
                    return [Refuse(peer, error)]
            case PeerConnected(peer):
                self._peers[peer] = None
                # The first few tell us at once what we lack; the others hear from us at the ticks.
                return [Send(peer, self._answers.status())] if len(self._peers) <= GREETED_PEERS else []
            case PeerDisconnected(peer):
                self._peers.pop(peer, None)
                self._catch_up.drop(peer)
                return _to_sends(self._contents.drop_provider(peer, now_ms, list(self._peers)))
            case Contributed(round_number, phase, payload):
                return self._on_contributed(round_number, phase, payload, now_ms)
            case Mined(header):
                return self._on_mined(header, now_ms)
            case Tick():
                return self._on_tick(now_ms)

    def _on_message(self, peer: PublicKey, message: Message, now_ms: int) -> list[Effect]:
        match message:
            case PostMessage(transaction, payload):
                return self._on_post(peer, transaction, payload, now_ms)
            case BlockMessage(block):
                return self._on_block(peer, block, now_ms)
            case VoteMessage(vote):
                return self._on_vote(vote, now_ms)
            case GetContent():
                chunk = self._contents.chunk(peer, message)
                return [] if chunk is None else [Send(peer, chunk)]
            case Chunk():
                return self._on_chunk(peer, message, now_ms)
            case Status():
                return self._on_status(peer, message, now_ms)
            case request:
                return [Send(peer, answer) for answer in self._answers.answer(request)]

    def _on_tick(self, now_ms: int) -> list[Effect]:
        peers = list(self._peers)
        self._catch_up.on_tick(now_ms)
        effects = _to_sends(self._contents.on_tick(now_ms, peers))
        for _ in range(min(STATUS_PEERS, len(peers))):
            self._turn = (self._turn + 1) % len(peers)
            effects.append(Send(peers[self._turn], self._answers.status()))
        return effects + self._vote_again(now_ms) + self._advance(now_ms)

    def _on_status(self, peer: PublicKey, status: Status, now_ms: int) -> list[Effect]:
        waited_for = self._contents.senders_waited_for()
        if waited_for and status.head_hash == self.head.block_hash:
            members = self.genesis.members
            for place in from_bitmap(status.posts, len(members)):
                self._contents.add_provider(members[place], peer, now_ms)
        questions = [(peer, question) for question in self._answers.questions(status, waited_for)]
        return _to_sends(questions) + self._catch_up_with(peer, status.head_hash, status.height, now_ms)

    def _catch_up_with(self, peer: PublicKey, stop: Hash, height: int, now_ms: int) -> list[Effect]:
        """Ask ``peer`` for the blocks up to ``stop``, unless we have it or somebody is being asked already."""
        if stop in self.tree or not self._catch_up.may_ask(peer, now_ms):
            return []
        return _to_sends(self._catch_up.begin(self.tree, peer, stop, height, now_ms))

    # posts

    def _on_post(self, peer: PublicKey, transaction: Transaction, payload: bytes | None, now_ms: int) -> list[Effect]:
        """A member's post: check it, find its payload, keep it."""
        known = self.mempool.get((transaction.round, transaction.phase), transaction.sender)
        if known is not None and known.hash == transaction.hash:
            return []
        validate_window(self.head, transaction)
        self._verification.transaction(transaction)
        latest_ms = now_ms + self.genesis.clock_ahead_max_ms
        if transaction.timestamp_ms > latest_ms:
            raise FutureTimestamp("post's timestamp", f"{transaction.timestamp_ms} found, at most {latest_ms} now")
        first = known or self._contents.waiting(transaction.key) or transaction
        if first.hash != transaction.hash:  # the first post counts; others must not be passed on without end
            at_fault = InvalidTransaction if peer == transaction.sender else Equivocation
            raise at_fault("one post per phase", f"{transaction.hash.hex()} found, {first.hash.hex()} is held")
        if payload is None:
            payload = self.content(transaction.payload_hash)
        if payload is not None:
            return self._keep_post(transaction, payload, now_ms)
        requests = self._contents.await_payload(transaction, peer, now_ms)
        if transaction.sender in self._peers:  # who passed it on may not have the payload yet; its author has
            self._contents.add_provider(transaction.sender, transaction.sender, now_ms)
        return _to_sends(requests)

    def _keep_post(self, transaction: Transaction, payload: bytes, now_ms: int) -> list[Effect]:
        self._verification.payload(transaction, payload)
        if not self.mempool.add(transaction, now_ms):
            return []
        self._contents.put(transaction.payload_hash, payload)
        placed = self._place_ready(now_ms) if len(self._unplaced) else []  # a block may have waited for this payload
        if (transaction.round, transaction.phase) != (self.head.round, self.head.phase):
            return placed
        self._missing.discard(transaction.sender)
        if self._missing and self._draft is None:
            return placed  # not yet; a timeout is noticed at the ticks
        return placed + self._advance(now_ms)

    def _on_contributed(self, round_number: int, phase: int, payload: bytes, now_ms: int) -> list[Effect]:
        """Our own payload is ready: sign it, store it, and only then send it."""
        step = round_number, phase
        if step != (self.head.round, self.head.phase) or self.head.finished:
            if self._asked == step:
                self._asked = None  # should a reorg open this phase again, it is computed again
            return []
        if (*step, self._me) in self._own_posts or self.mempool.get(step, self._me) is not None:
            return []
        own = sign_transaction(self._key, self.genesis.chain_id, round_number, phase, payload, now_ms)
        try:
            self._verification.payload(own, payload)
        except Refused as error:  # nobody would take it: a model that diverged, say
            return [Blame(self._me, error)]
        self._own_posts[own.key] = own
        persist = Persist((Content(own.payload_hash, payload), own))
        return [persist, *self._publish_own(own, payload, now_ms)]

    def _publish_own(self, own: Transaction, payload: bytes, now_ms: int) -> list[Effect]:
        self._contents.put(own.payload_hash, payload)
        return [Publish(self._answers.post(own)), *self._keep_post(own, payload, now_ms)]

    def _on_chunk(self, peer: PublicKey, chunk: Chunk, now_ms: int) -> list[Effect]:
        """A part of a payload; when it is the last one, go on with whatever waited for it."""
        content, requests = self._contents.on_chunk(peer, chunk, now_ms)
        if content is not None or (requests and chunk.data):
            self._catch_up.on_chunk(now_ms)
        if content is None:
            return _to_sends(requests)
        effects = _to_sends(self._contents.take_askers(chunk.content_hash))
        if chunk.content_hash in self._knowledge_wanted():
            effects.append(Persist((Content(chunk.content_hash, content),)))
        for transaction in self._contents.take_waiting(chunk.content_hash):
            try:
                effects += self._keep_post(transaction, content, now_ms)
            except Refused as error:
                effects.append(Blame(transaction.sender, error))
        effects += self._place_ready(now_ms) + self._ask_for_more(now_ms)
        return effects + (self._advance(now_ms) if chunk.content_hash == self.head.knowledge_root else [])

    # blocks

    def _on_block(self, peer: PublicKey, block: Block, now_ms: int) -> list[Effect]:
        """A block: judge it as far as possible, keep it if it waits for something, place it otherwise."""
        self._catch_up.on_block(peer, block.hash, now_ms)
        known = self.tree.block(block.hash)
        self._verification.sealed(block)
        if known is not None:
            if block != known:  # the miner signed it twice; without end, if we passed each on
                raise LimitReached("one signature", f"block {block.hash.hex()} is held with another signature")
            return self._ask_for_more(now_ms)
        try:
            effects = self._place(block, now_ms) + self._place_ready(now_ms)
        except UnknownParent as error:
            self._keep_unplaced(peer, block)
            effects = self._place_ready(now_ms)  # it may carry the votes that its parent waits for
            if block.hash not in self.tree:
                header = block.header
                effects += self._catch_up_with(peer, header.parent_hash, header.height - 1, now_ms)
                effects.append(Refuse(peer, error))
        except MissingPayload as error:
            self._keep_unplaced(peer, block)
            effects = [*self._fetch_contents(peer, block, now_ms), Refuse(peer, error)]
        return effects + self._ask_for_more(now_ms)

    def _keep_unplaced(self, peer: PublicKey, block: Block) -> None:
        if self._unplaced.add(peer, block):
            self._forget()  # what was being fetched for the block that had to go

    def _place(self, block: Block, now_ms: int) -> list[Effect]:
        """Put a sealed block into the tree if every rule holds; vote for it if it deserves it.

        An old block whose payloads nobody needs to have any more is placed on the votes that accepted it.
        """
        parent = self.tree.state(block.header.parent_hash)
        if parent is None:
            raise UnknownParent("parent", f"{block.header.parent_hash.hex()} not known, our head is {self.head.height}")
        validate_on(self.genesis, self.tree.parent_state(parent), parent, block, now_ms)
        contents, certificate = list[Content](), tuple[Vote, ...]()
        if missing := missing_contents(parent, block.transactions, self.content):
            certificate = self._certificate_above(parent, block, now_ms)
            if not certificate:
                raise MissingPayload("payload", f"{len(missing)} of {len(block.transactions) + 1} not held")
        else:
            knowledge = self._verification.recompute(parent, block.transactions, self.content)
            validate_knowledge(block.header, knowledge)
            self._contents.put(block.header.knowledge_root, knowledge)
            hashes = {*(post.payload_hash for post in block.transactions), block.header.knowledge_root}
            contents = [Content(item, self._contents.require(item)) for item in sorted(hashes)]
        reorg = self.tree.add_block(block)
        self._unplaced.drop(block.hash)
        # In one piece: what we did not recompute may not be found without the votes after a restart, and be voted for.
        effects: list[Effect] = [Persist((*contents, block, *certificate))]
        effects += self._on_reorg(reorg, now_ms)
        for vote in (*certificate, *self._early_votes.take(block.hash)):
            try:
                validate_vote_on(parent, block, vote)
                effects += self._count_vote(vote, now_ms)
            except Refused as error:
                effects.append(Blame(vote.voter, error))
        return effects + self._vote(parent, block, now_ms)

    def _is_old(self, block: Block) -> bool:
        """Whether the chain that we catch up with is so long that peers may have dropped the block's payloads."""
        return 0 < self.genesis.retention_blocks <= self._catch_up.height - block.header.height

    def _certificate_above(self, parent: State, block: Block, now_ms: int) -> tuple[Vote, ...]:
        """The votes that accepted an old block, as a block on top of it carries them; none if none has come."""
        if not self._is_old(block):
            return ()
        state = self._verification.apply(self.genesis, parent, block)
        for child in self._unplaced.children(block.hash):
            try:
                validate_on(self.genesis, parent, state, child, now_ms)
            except Refused:
                continue  # it is judged when its turn comes
            return child.votes
        return ()

    def _fetch_contents(self, peer: PublicKey, block: Block, now_ms: int) -> list[Effect]:
        """Fetch what recomputing a block needs; nothing for an old one, which waits for its certificate."""
        if self._is_old(block):
            return []
        requests = self._contents.fetch_payloads(block.transactions, peer, now_ms)
        parent = self.tree.state(block.header.parent_hash)
        assert parent is not None, "only a block whose parent is known is found to lack contents"
        for root in missing_contents(parent, (), self.content):
            requests += self._contents.fetch_knowledge(root, peer, now_ms)
        return _to_sends(requests)

    def _knowledge_wanted(self) -> set[Hash]:
        """Knowledge that may have to be fetched: the head's, and what waiting blocks stand on."""
        parents = (self.tree.state(block.header.parent_hash) for _, block in self._unplaced)
        return {self.head.knowledge_root, *(state.knowledge_root for state in parents if state is not None)}

    def _place_ready(self, now_ms: int) -> list[Effect]:
        """Place blocks that waited for a parent or a payload which is here now."""
        effects: list[Effect] = []
        progress = True
        while progress:
            progress = False
            for peer, block in self._unplaced:
                if block.header.parent_hash not in self.tree or block.hash not in self._unplaced:
                    continue
                try:
                    effects += self._place(block, now_ms)
                    progress = True
                except MissingPayload:
                    effects += self._fetch_contents(peer, block, now_ms)
                except Refused as error:
                    self._unplaced.drop(block.hash)
                    effects.append(Blame(peer, error))
        return effects

    def _ask_for_more(self, now_ms: int) -> list[Effect]:
        """Go on asking the peer that we are catching up with, unless a block still waits for its contents."""
        if any(block.header.parent_hash in self.tree and not self._is_old(block) for _, block in self._unplaced):
            return []
        return _to_sends(self._catch_up.next_batch(self.tree, now_ms))

    # votes

    def _on_vote(self, vote: Vote, now_ms: int) -> list[Effect]:
        self._verification.vote(vote)
        block = self.tree.block(vote.block_hash)
        if block is None:
            self._early_votes.add(vote)
            raise UnknownBlock("vote", f"block {vote.block_hash.hex()} not known, our head is {self.head.height}")
        parent = self.tree.state(block.header.parent_hash)
        assert parent is not None, "a block in the tree has a parent there"
        validate_vote_on(parent, block, vote)
        if self.tree.votes(block.hash).get(vote.voter, vote) != vote:  # signed twice; it must not be passed on
            raise LimitReached("one signature", f"{vote.voter.hex()[:16]}… voted for {block.hash.hex()} before")
        return self._count_vote(vote, now_ms)

    def _count_vote(self, vote: Vote, now_ms: int) -> list[Effect]:
        """Count a vote that ``validate_vote_on`` let pass, once."""
        if vote.voter in self.tree.votes(vote.block_hash):
            return []
        reorg = self.tree.add_vote(vote)
        return [Persist((vote,)), *self._on_reorg(reorg, now_ms)]

    def _vote(self, parent: State, block: Block, now_ms: int) -> list[Effect]:
        """Say that we recomputed a block and find nothing wrong with it."""
        if self._me not in parent.electors or self._me in self.tree.votes(block.hash):
            return []
        since_head_ms = now_ms - self._head_since_ms()
        if judge(self.genesis, self.tree, self.mempool, parent, block, since_head_ms) is not Opinion.VOTE:
            return []
        header = block.header
        if header.parent_hash == self.head.block_hash:  # one good block on the head is enough, for a while
            self._mine_after_ms = now_ms + self.genesis.phase_timeout_ms
            self._draft = None
        vote = sign_vote(self._key, self.genesis.chain_id, block.hash, header.round, header.phase)
        reorg = self.tree.add_vote(vote)
        return [Persist((vote,)), Publish(VoteMessage(vote)), *self._on_reorg(reorg, now_ms)]

    def _vote_again(self, now_ms: int) -> list[Effect]:
        """Look again at blocks that came before their time."""
        parent, effects = self.head, list[Effect]()
        for child in self.tree.children(parent.block_hash):
            block = self.tree.block(child)
            if block is not None:
                effects += self._vote(parent, block, now_ms)
        return effects

    # the head, and what this peer owes

    def _on_reorg(self, reorg: Reorg | None, now_ms: int) -> list[Effect]:
        """The head moved: bring back the posts of blocks that were left, and open the new phase."""
        if reorg is None:
            return []
        for block_hash in reorg.rewound:
            left = self.tree.block(block_hash)
            assert left is not None, "a rewound block stays in the tree"
            for post in left.transactions:
                known = self.mempool.get((post.round, post.phase), post.sender)
                if known is None and self.content(post.payload_hash) is not None:
                    self.mempool.add(post, now_ms)
        self._open_phase(now_ms)
        self._forget()
        return self._retain() + self._advance(now_ms)

    def _open_phase(self, now_ms: int) -> None:
        head = self.head
        self.mempool.drop_before((head.round, head.phase))
        posts = self.mempool.posts((head.round, head.phase))
        # Validity counts an empty phase from the parent's timestamp, which may be ahead of our clock.
        self._phase_since_ms = max(now_ms, head.timestamp_ms)
        self._missing = set() if head.finished else {*expected_contributors(self.genesis, head)} - posts.keys()
        self._draft = None
        self._mine_after_ms = 0

    def _head_since_ms(self) -> int:
        assert self._phase_since_ms is not None, "handle opens the first phase"
        return self._phase_since_ms

    def _forget(self) -> None:
        """Drop what no open phase, candidate or recent block refers to."""
        fetched = self._unplaced.payload_hashes() | self._knowledge_wanted()
        needed = fetched | contents_of_last(self.tree, CONTENT_WINDOW) | {*self.mempool.payload_hashes()}
        self._contents.forget(needed, fetched, (self.head.round, self.head.phase))

    def _retain(self) -> list[Effect]:
        """Let the store drop what has left the retention window."""
        head, window = self.head, self.genesis.retention_blocks
        if not is_time_to_sweep(head.height, window):
            return []
        promised = {post.payload_hash for post in self._own_posts.values() if post.round >= head.round}
        return [Retain(frozenset(contents_of_last(self.tree, window) | promised))]

    def _advance(self, now_ms: int) -> list[Effect]:
        """Do what the open phase asks of this peer: contribute once, and mine when it may."""
        head, effects = self.head, list[Effect]()
        step, knowledge = (head.round, head.phase), self.knowledge()
        if knowledge is None:  # we came here on others' votes; in the middle of a long way nobody needs it
            peer = next(iter(self._peers), None)
            if peer is None or self._catch_up.height:
                return []
            return _to_sends(self._contents.fetch_knowledge(head.knowledge_root, peer, now_ms))
        if owes_post(head, self._me) and self.mempool.get(step, self._me) is None:
            own = self._own_posts.get((*step, self._me))
            if own is not None:
                payload = self.content(own.payload_hash)
                effects += [] if payload is None else self._publish_own(own, payload, now_ms)
            elif self._asked != step:
                self._asked = step
                effects.append(Contribute(*step, phase_rule(self.genesis, head).name, knowledge))
        waited_ms = now_ms - self._head_since_ms()
        if now_ms < self._mine_after_ms or (self._missing and waited_ms < self.genesis.phase_timeout_ms):
            return effects
        held = self.mempool.posts(step)
        posts = {sender: held[sender] for sender in sorted(held) if sender in head.contributors}
        todo = next_step(self.genesis, head, self._me, len(posts), not self._missing, waited_ms)
        if todo is not Step.WAIT and self._me in self.genesis.index:
            effects += self._mine(tuple(posts.values()) if todo is Step.MINE else (), now_ms)
        return effects

    # mining

    def _mine(self, transactions: tuple[Transaction, ...], now_ms: int) -> list[Effect]:
        """Draft a block and have its nonce searched, unless the same one is being searched already."""
        if self._draft is not None and self._draft.transactions == transactions:
            return []
        try:
            knowledge = self._verification.recompute(self.head, transactions, self.content)
        except Refused as error:
            return [Blame(self._me, error)]
        votes = self._certificate()
        header = draft_header(self.head, self._me, transactions, votes, knowledge, now_ms)
        self._draft = Draft(header, transactions, votes)
        return [Mine(header)]

    def _certificate(self) -> tuple[Vote, ...]:
        """Votes that accepted the head, in voter order: as many as are required."""
        parent = self.tree.parent_state(self.head)
        if parent is None:
            return ()
        votes = self.tree.votes(self.head.block_hash)
        return tuple(votes[voter] for voter in sorted(votes)[: votes_required(self.genesis, parent)])

    def _on_mined(self, header: Header, now_ms: int) -> list[Effect]:
        """Our miner sealed a header: if it is still the one we want, the block is ours to publish."""
        draft = self._draft
        if draft is None or not is_same_work(draft.header, header):
            return []
        block = sign_block(self._key, self.genesis.chain_id, header, draft.transactions, draft.votes)
        try:
            self._verification.sealed(block)
            persist, *effects = self._place(block, now_ms)
        except Refused as error:
            self._draft = None  # another one is made at the next tick
            return [Blame(self._me, error)]
        return [persist, Publish(BlockMessage(block)), *effects]


@dataclass(frozen=True, slots=True)
class Draft:
    """A block whose nonce is being searched."""

    header: Header
    transactions: tuple[Transaction, ...]
    votes: tuple[Vote, ...]


def _to_sends(requests: Iterable[tuple[PublicKey, Message]]) -> list[Effect]:
    return [Send(peer, request) for peer, request in requests]
