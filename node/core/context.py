"""Context: the memory that the parts of a node share: rules, chain, contents, and the effects of the current event.

Nearly every part reads the head and the time and emits, so clock and outbox are not handed out one by one. A part keeps
what it alone decides, such as evidence or silence; others get it through their constructors.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from fedchain.chain.evidence import Statement
from fedchain.chain.genesis import Genesis
from fedchain.chain.knowledge import EMPTY_ROOT
from fedchain.chain.post import Post, PostKey
from fedchain.chain.state import EMPTY_KNOWLEDGE, State
from fedchain.chain.storage.store import Storage
from fedchain.chain.vote import Vote
from fedchain.crypto.hashing import Hash
from fedchain.crypto.keys import PrivateKey, PublicKey
from fedchain.crypto.signature_memory import SignatureMemory
from fedchain.network.messages import Message
from fedchain.network.peers import Peers
from fedchain.network.session import Session
from fedchain.network.sync import CatchUp
from fedchain.node.core.checks import Checks
from fedchain.node.core.contents.content_cache import ContentCache
from fedchain.node.core.effects import Effect, Send, Tell, WriteJournal
from fedchain.node.core.events import Moment
from fedchain.node.core.ledger import Ledger
from fedchain.node.core.membership.change_pool import ChangePool
from fedchain.node.core.mempool import Mempool
from fedchain.node.core.notices import Notice
from fedchain.node.core.voting.journal import Journal


@dataclass(slots=True)
class PhaseClock:
    """Times of the open phase, by the monotonic clock in milliseconds."""

    since_ms: int
    """Time of the head's move."""
    quorum_ms: int | None = None
    """Time from which enough posts for a block were held; None if they are not yet."""
    mining_ms: int | None = None
    """Time from which a block could be mined; None if it cannot yet."""


@dataclass(slots=True)
class Context:
    """One peer's memory. The parts read and change it; only effects reach the outside."""

    genesis: Genesis
    key: PrivateKey
    checks: Checks
    storage: Storage
    ledger: Ledger
    contents: ContentCache
    journal: Journal
    now: Moment
    """Time of the current event."""
    clock: PhaseClock
    catch_up: CatchUp
    mempool: Mempool = field(default_factory=Mempool)
    changes: ChangePool = field(default_factory=ChangePool)
    peers: Peers = field(default_factory=Peers)
    """Connected peers, in order of connection."""
    effects: list[Effect] = field(default_factory=list)
    """Effects of the current event, in order."""
    me: PublicKey = field(init=False)
    """Our public key."""

    def __post_init__(self) -> None:
        self.me = self.key.public_key

    @property
    def signatures(self) -> SignatureMemory:
        """Verifies signatures, each once."""
        return self.checks.signatures

    @property
    def head(self) -> State:
        """The state after the newest final block."""
        return self.ledger.head

    @property
    def phase(self) -> tuple[int, int]:
        """The open (round, phase)."""
        return self.ledger.head.round, self.ledger.head.phase

    @property
    def since_head_ms(self) -> int:
        """Milliseconds since the head moved."""
        return self.now.ms - self.clock.since_ms

    def is_signed(self, member: PublicKey, statement: Statement | Session) -> bool:
        """Whether ``member`` signed a statement."""
        return self.signatures(member, statement.signature, statement.signing_message(self.genesis.chain_id))

    def note_own(self, statement: Vote | Post | Session) -> None:
        """Note that we have signed a statement, so that nobody with our checks verifies its signature."""
        message = statement.signing_message(self.genesis.chain_id)
        self.signatures.note([(self.me, statement.signature, message)])

    def emit(self, *effects: Effect) -> None:
        """Ask the shell for something."""
        self.effects.extend(effects)

    def send(self, requests: Iterable[tuple[PublicKey, Message]]) -> None:
        """Send messages, each to one peer."""
        self.effects.extend(Send(peer, message) for peer, message in requests)

    def is_pending(self, post: PostKey) -> bool:
        """Whether a post may be counted by a block after the head: its sender counts, and its phase is not over."""
        is_due = post[:2] >= self.phase or self.head.owed_to(post) is not None
        return is_due and self.head.roster.is_active(post[2])

    def is_countable(self, post: PostKey) -> bool:
        """Whether a post is for the open phase, or owed to an earlier one, and its sender counts."""
        is_due = post[:2] == self.phase or self.head.owed_to(post) is not None
        return is_due and self.head.roster.is_active(post[2])

    def late_posts(self, held_before_ms: int | None = None) -> list[Post]:
        """Posts of earlier rounds that the next block may count, as far as they are held.

        Args:
            held_before_ms: only those that are demanded and have been held since before this time; None: all.
        """
        head, found = self.head, []
        for item in head.owed:
            if item.phase == head.phase:
                key = item.round, item.phase
                posts = self.mempool.posts(key)
                senders = posts if held_before_ms is None else self.mempool.held_before(key, held_before_ms)
                found += [posts[sender] for sender in senders if head.roster.is_active(sender)]
        return found

    def fetch_knowledge(self, peer: PublicKey) -> None:
        """Fetch the federation's knowledge at the head from a peer, and what late posts are made from, if not here."""
        has_knowledge, owed = self.knowledge() is not None, self.head.owed
        if has_knowledge and not owed:  # as a rule; each status asks
            return
        missing = [] if has_knowledge else [self.head.knowledge_root]
        missing += [item.knowledge_root for item in owed if not self._holds(item.knowledge_root)]
        for root in dict.fromkeys(missing):
            self.send(self.contents.fetch(root, peer, self.now.ms))

    def _holds(self, content_hash: Hash) -> bool:
        """Whether a content is here; asked of every status, so that it should not be read for it."""
        return self.storage.holds_content(content_hash) or self.contents.get(content_hash) is not None

    def publish(self, *content_hashes: Hash) -> None:
        """Release contents that have arrived to peers that ask for them, and to those that have asked already."""
        if not self.contents.has_askers:  # as a rule nobody waits for any of a block's contents
            return
        for content_hash in content_hashes:
            self.contents.publish(content_hash)
            self.send(self.contents.take_askers(content_hash))

    def tell(self, notice: Notice) -> None:
        """Tell the operator."""
        self.effects.append(Tell(notice))

    def write_journal(self, journal: Journal) -> None:
        """Write down the statements that are about to be sent."""
        self.journal = journal
        self.effects.append(WriteJournal(journal))

    def content(self, content_hash: Hash) -> bytes | None:
        """A payload, knowledge or recent state by its hash."""
        if content_hash == EMPTY_ROOT:
            return EMPTY_KNOWLEDGE
        held = self.contents.get(content_hash)
        return self.ledger.state(content_hash) if held is None else held

    def contents_here(self, content_hashes: Sequence[Hash]) -> Mapping[Hash, bytes]:
        """Those of some contents that are here, as of :meth:`content`, by their hashes and in that order."""
        found = self.contents.get_all(content_hashes)
        if len(found) == len(content_hashes):
            return found
        return {item: data for item in content_hashes if (data := self.content(item)) is not None}

    def base_of(self, post: PostKey) -> bytes | None:
        """The knowledge that a countable post is made from; None while it is missing."""
        owed = self.head.owed_to(post)
        return self.knowledge() if owed is None else self.content(owed.knowledge_root)

    def knowledge(self) -> bytes | None:
        """The federation's knowledge at the head; None while it is missing. It stays in memory: each event reads it."""
        root = self.ledger.head.knowledge_root
        return EMPTY_KNOWLEDGE if root == EMPTY_ROOT else self.contents.hold(root)
