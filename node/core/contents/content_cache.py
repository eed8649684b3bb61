"""The content cache: payloads and knowledges that a node holds in memory, and those that it is fetching.

Contents of blocks are in the store too, so memory is needed only for the open phase and the last few blocks.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Protocol

from fedchain.chain.exceptions import LimitReached
from fedchain.chain.genesis import Genesis
from fedchain.chain.knowledge import PART_SIZE_MAX, ContentLookup
from fedchain.chain.post import Post, PostKey
from fedchain.chain.state import genesis_state
from fedchain.chain.validation import POST_ROUNDS_AHEAD
from fedchain.crypto.hashing import Hash
from fedchain.crypto.keys import PublicKey
from fedchain.files.spool import InMemory, Spools, path_of
from fedchain.network.downloads import DOWNLOADS_MAX, Downloads, Request
from fedchain.network.messages import CHUNK_SIZE, Chunk, GetContent

ASKERS_MAX = 16
"""Most peers for each content that get it as soon as it arrives here; others ask again."""

AHEAD_MAX = 2_048
"""Most contents of blocks above our head that are fetched at a time, to leave room for those of the open height."""

RECENT_SIZE_MAX = 64 * 2**20
"""Default for the bytes of contents of the last blocks that stay in memory; others are read from the store."""

OFFSET_MAX = 2**40
"""No content is as long as this: a file is not read from further on, which the system refuses from some offset on."""

RangeLookup = Callable[[Hash, int, int], bytes | None]
"""``stored_range(content_hash, start, size)``: a range of a content's bytes; None if the content is not held."""


Intern = Callable[[Hash, bytes], bytes]
"""``intern(content_hash, data)``: the copy of ``data`` to hold, if many nodes share a process."""


class Copies(Protocol):
    """The contents that the nodes of a process hold, as one object each."""

    @property
    def stored_size_min(self) -> int:
        """Size in bytes from which a content that is in a store need not be in memory: smaller ones always are."""

    def intern(self, content_hash: Hash, data: bytes) -> bytes:
        """The copy of ``data`` to hold."""

    def known(self, content_hash: Hash) -> bytes | None:
        """A content that this process has hashed; None if there is none, or each node is to hash for itself."""

    def together(self, content_hashes: tuple[Hash, ...], contents: Iterable[bytes]) -> Mapping[Hash, bytes]:
        """Contents by their hashes and in that order, not to be changed: as one object for all nodes that hold them."""


class _OwnCopies:
    """Those of a node alone in its process."""

    stored_size_min = 0
    """See :class:`Copies`."""

    def intern(self, _: Hash, data: bytes) -> bytes:
        """See :class:`Copies`: it is held as it came."""
        return data

    def known(self, content_hash: Hash) -> bytes | None:
        """See :class:`Copies`: a node fetches what it does not hold."""
        return None

    def together(self, content_hashes: tuple[Hash, ...], contents: Iterable[bytes]) -> Mapping[Hash, bytes]:
        """See :class:`Copies`: there are no others."""
        return dict(zip(content_hashes, contents, strict=True))


OWN_COPIES = _OwnCopies()
"""For a node alone in its process."""


class ContentCache:
    """Content-addressed bytes, and the posts whose payloads are on their way.

    Args:
        genesis: bounds the sizes of contents that are fetched.
        stored: looks up contents that the node persisted.
        stored_range: the same, for a range of bytes.
        copies: the contents that nodes of this process hold.
        recent_size_max: bytes of contents that stay in memory although nothing open needs them.
        spools: begins contents where they are put together.
        holds_back: whether fetched contents are given to nobody before they are published. If posts list parts that
            not everybody may read, any member can sign that such a part is its payload, and so have a reader fetch it.
    """

    def __init__(
        self,
        genesis: Genesis,
        stored: ContentLookup,
        stored_range: RangeLookup,
        copies: Copies,
        recent_size_max: int = RECENT_SIZE_MAX,
        spools: Spools = InMemory,
        *,
        holds_back: bool = False,
    ) -> None:
        self._stored, self._stored_range = stored, stored_range
        self._intern, self._together = copies.intern, copies.together
        self._holds_back, self.spools = holds_back, spools
        self._payload_size_max = genesis.payload_size_max
        self._held: dict[Hash, bytes] = {}  # contents that others may have, too
        self._unchecked: dict[Hash, bytes] = {}  # contents that have come, but may be for their reader alone
        self._recent_size_max, self._recent_size_min = recent_size_max, copies.stored_size_min
        phases = (1 + POST_ROUNDS_AHEAD + genesis.late_rounds) * max(len(genesis.setup), len(genesis.phases))
        posts_max = len(genesis_state(genesis).roster) * phases  # most posts whose payloads may be missing
        size_max = max(genesis.knowledge_size_max, PART_SIZE_MAX)
        self.downloads = Downloads(size_max, DOWNLOADS_MAX + posts_max, spools, copies.known)
        """Downloads that are under way."""
        self._as_content: set[Hash] = set()  # downloads that are to be held when complete
        self._ahead: set[Hash] = set()  # downloads for blocks above our head
        self._waiting: dict[PostKey, Post] = {}
        self._askers: dict[Hash, dict[PublicKey, GetContent]] = {}
        self.extra: ContentLookup = lambda _: None
        """Looks up contents that are held elsewhere, and handed out as well."""
        self.wanted: Callable[[], set[Hash]] = set
        """The downloads that are still wanted, besides the payloads of posts that wait."""
        self.is_part: Callable[[Hash], bool] = lambda _: False
        """Whether a download is wanted as a part."""

    def get(self, content_hash: Hash) -> bytes | None:
        """Bytes by their hash, from memory or from the store."""
        held = self._held.get(content_hash)  # as a rule it is there, and each event reads some
        if held is None and (held := self._unchecked.get(content_hash)) is None:
            held = self._stored(content_hash)
        return held

    def get_all(self, content_hashes: Sequence[Hash]) -> Mapping[Hash, bytes]:
        """Those of some contents that are here, by their hashes and in that order."""
        with suppress(KeyError):  # as a rule all are in memory; a block has as many as members post
            return self._together(tuple(content_hashes), map(self._held.__getitem__, content_hashes))
        return {item: data for item in content_hashes if (data := self.get(item)) is not None}

    def hold(self, content_hash: Hash) -> bytes | None:
        """As :meth:`get`; bytes from the store stay in memory."""
        held = self._held.get(content_hash)
        if held is None and (held := self.get(content_hash)) is not None and content_hash not in self._unchecked:
            held = self._held[content_hash] = self._intern(content_hash, held)
        return held

    def put(self, content_hash: Hash, data: bytes) -> None:
        """Hold bytes that hash to ``content_hash``, for peers that ask for them as well."""
        self._unchecked.pop(content_hash, None)
        self._held[content_hash] = self._intern(content_hash, data)

    def hold_all(self, contents: Iterable[tuple[Hash, bytes]]) -> None:
        """Hold contents that peers of this process hold, too, and that nobody has asked for here."""
        self._held.update(contents)

    def publish(self, content_hash: Hash) -> None:
        """Release a content to peers that ask for it: it was found to be the one that its post, or the chain, names."""
        if (data := self._unchecked.pop(content_hash, None)) is not None:
            self._held[content_hash] = data

    @property
    def has_waiting(self) -> bool:
        """Whether any post waits for its payload."""
        return bool(self._waiting)

    @property
    def has_askers(self) -> bool:
        """Whether anybody waits for a content to be here, or to be released."""
        return bool(self._askers or self._unchecked)

    def is_public(self, content_hash: Hash) -> bool:
        """Whether a content that any peer may have is held or stored."""
        return content_hash in self._held or self._stored(content_hash) is not None

    def waiting(self, key: PostKey) -> Post | None:
        """The post of a member for a phase that waits for its payload; None if there is none."""
        return self._waiting.get(key) if self._waiting else None

    def arriving(self) -> Iterator[tuple[Post, int]]:
        """Posts whose payloads are coming in several chunks, and the bytes that have come of each."""
        for post in self._waiting.values():
            if post.payload_size > CHUNK_SIZE:
                yield post, self.downloads.arrived(post.payload_hash)

    def senders_waited_for(self) -> set[PublicKey]:
        """Members whose posts wait for their payloads."""
        return {post.sender for post in self._waiting.values()}

    # for others

    def sizes(self) -> Iterator[tuple[str, int]]:
        """Numbers of held items, by the names that `Node.sizes` gives them."""
        yield "posts without payloads", len(self._waiting)
        yield "contents", len(self._held)
        yield "downloads", len(self.downloads)

    def chunk(self, peer: PublicKey, request: GetContent) -> Chunk | None:
        """The chunk that ``peer`` asks for; empty if the content is not held, None while the content is on its way.

        A content that has arrived but is not published counts as on its way.
        """
        held = self._held.get(request.content_hash) or self.extra(request.content_hash)
        if held is not None:
            data: bytes | None = held[request.offset : request.offset + CHUNK_SIZE]
        elif request.offset > OFFSET_MAX:
            data = b""
        else:
            data = self._stored_range(request.content_hash, request.offset, CHUNK_SIZE)
        if data is None and self._is_coming(request.content_hash):
            askers = self._askers.setdefault(request.content_hash, {})
            if peer in askers or len(askers) < ASKERS_MAX:
                askers[peer] = request
                return None
        return Chunk(request.content_hash, request.offset, data or b"")

    def _is_coming(self, content_hash: Hash) -> bool:
        return content_hash in self._as_content or content_hash in self._unchecked

    def take_askers(self, content_hash: Hash) -> list[tuple[PublicKey, Chunk]]:
        """Chunks for the peers that asked for a content before it was here and published."""
        if content_hash in self._unchecked:
            return []
        asked = self._askers.pop(content_hash, {})
        chunks = ((peer, self.chunk(peer, request)) for peer, request in asked.items())
        return [(peer, chunk) for peer, chunk in chunks if chunk is not None]

    # from others

    def await_payload(self, post: Post, provider: PublicKey, now_ms: int) -> list[Request]:
        """Fetch the payload of ``post``, and keep the post meanwhile. Raises LimitReached."""
        requests = self._want_payload(post, provider, now_ms)
        self._as_content.add(post.payload_hash)
        self._waiting[post.key] = post
        return requests

    def add_provider(self, member: PublicKey, provider: PublicKey, now_ms: int) -> None:
        """Note that ``provider`` has the post of ``member``, and thus the payload that we may be fetching."""
        for post in self._waiting.values():
            if post.sender == member and post.payload_hash in self.downloads:
                self._want_payload(post, provider, now_ms)

    def fetch_payloads(
        self, posts: Iterable[Post], provider: PublicKey, now_ms: int, *, is_ahead: bool = False
    ) -> list[Request]:
        """Fetch missing payloads of a block's posts, limited by the room for downloads.

        Args:
            posts: the block's posts.
            provider: a peer that should have them.
            now_ms: now, on the clock of :class:`Downloads`.
            is_ahead: whether the block is above the open height.
        """
        requests: list[Request] = []
        for post in self.without_payload(posts):
            size, size_max = post.payload_size, self._payload_size_max
            requests += self._fetch(post.payload_hash, size, size_max, provider, now_ms, is_ahead=is_ahead)
        return requests

    def without_payload(self, posts: Iterable[Post]) -> list[Post]:
        """Those of a block's posts whose payloads are not here: few as a rule, and a block has as many as members."""
        absent = [post for post in posts if post.payload_hash not in self._held]
        return [post for post in absent if self.get(post.payload_hash) is None]

    def fetch(self, content_hash: Hash, provider: PublicKey, now_ms: int, size_max: int | None = None) -> list[Request]:
        """Fetch a knowledge or a state by its hash; the chain does not state its size.

        Args:
            content_hash: 32 bytes.
            provider: a peer that should have it.
            now_ms: now, on the clock of :class:`Downloads`.
            size_max: most bytes that it may have; None for the limit of a knowledge.
        """
        return self._fetch(content_hash, None, size_max, provider, now_ms, is_ahead=False)

    def release(self, *content_hashes: Hash) -> None:
        """Stop fetching contents that one user has given up, unless another one wants them (:attr:`wanted`)."""
        dropped = [item for item in content_hashes if self._is_coming(item)]
        if not dropped:
            return
        wanted = self.wanted() | {post.payload_hash for post in self._waiting.values()}
        for content_hash in dropped:
            if content_hash not in wanted:
                self._as_content.discard(content_hash)
                self._ahead.discard(content_hash)
                self._unchecked.pop(content_hash, None)
                if not self.is_part(content_hash):
                    self.downloads.give_up(content_hash)

    def stop_part(self, part_hash: Hash) -> None:
        """Stop fetching a part, unless it is awaited as a content, too."""
        if part_hash not in self._as_content:
            self.downloads.give_up(part_hash)

    def on_chunk(self, peer: PublicKey, chunk: Chunk, now_ms: int) -> tuple[bytes | None, list[Request]]:
        """Take a chunk as :meth:`Downloads.on_chunk` does; hold a complete content, unless it is wanted only as a part.

        If contents are held back, the content is for this peer alone until it is published.
        """
        content, requests = self.downloads.on_chunk(peer, chunk, now_ms)
        if content is not None and chunk.content_hash in self._as_content:
            self._as_content.discard(chunk.content_hash)
            held = self._unchecked if self._holds_back else self._held
            content = held[chunk.content_hash] = self._intern(chunk.content_hash, content)
        return content, requests

    def _want_payload(self, post: Post, provider: PublicKey, now_ms: int) -> list[Request]:
        return self.downloads.want(post.payload_hash, post.payload_size, provider, now_ms, self._payload_size_max)

    def take_waiting(self, content_hash: Hash) -> list[Post]:
        """Take the posts that waited for a payload, which is here now."""
        ready = [post for post in self._waiting.values() if post.payload_hash == content_hash]
        for post in ready:
            del self._waiting[post.key]
        return ready

    def on_tick(self, now_ms: int, peers: Sequence[PublicKey]) -> list[Request]:
        """Replace providers that do not answer, if necessary by any of ``peers``."""
        return self.downloads.on_tick(now_ms, peers)

    def drop_provider(self, peer: PublicKey, now_ms: int, peers: Sequence[PublicKey]) -> list[Request]:
        """A peer is gone: go on with other providers, or with any of ``peers``."""
        return self.downloads.drop(peer, now_ms, peers)

    def forget(
        self, needed: set[Hash], recent: Iterable[Hash], fetched: set[Hash], is_pending: Callable[[PostKey], bool]
    ) -> None:
        """Drop contents not ``needed``, downloads not in ``fetched``, and waiting posts that are not ``is_pending``.

        Contents that are ``recent`` stay as long as there is room, in the given order of preference. Those that are
        read in place from files take none.
        """
        self._waiting = {key: post for key, post in self._waiting.items() if is_pending(key)}
        awaited = {post.payload_hash for post in self._waiting.values()}
        self.downloads.keep_only(awaited | fetched)
        self._as_content = {item for item in self._as_content & (awaited | self.wanted()) if item in self.downloads}
        self._ahead &= self._as_content
        self._held = self._fitting(needed, recent)
        self._unchecked = {item: data for item, data in self._unchecked.items() if item in needed}
        self._askers = {item: askers for item, askers in self._askers.items() if self._is_coming(item)}

    def _fitting(self, needed: set[Hash], recent: Iterable[Hash]) -> dict[Hash, bytes]:
        """Held contents that are needed, and recent ones as long as there is room; none that a store has in memory."""
        kept, spare = dict[Hash, bytes](), dict[Hash, bytes]()
        for item, data in self._held.items():
            if item in needed:
                kept[item] = data
            elif len(data) >= self._recent_size_min:
                spare[item] = data
        room = self._recent_size_max
        for item in recent if spare else ():
            if (held := spare.get(item)) is None:
                continue
            size = len(held) if type(held) is bytes or path_of(held) is None else 0
            if size <= room:
                kept[item] = held
                room -= size
        return kept

    def _fetch(
        self,
        content_hash: Hash,
        size: int | None,
        size_max: int | None,
        provider: PublicKey,
        now_ms: int,
        *,
        is_ahead: bool,
    ) -> list[Request]:
        if is_ahead and content_hash not in self.downloads:
            if len(self._ahead) >= AHEAD_MAX:
                self._ahead = {item for item in self._ahead if item in self.downloads}
            if len(self._ahead) >= AHEAD_MAX:
                return []
            self._ahead.add(content_hash)
        try:
            requests = self.downloads.want(content_hash, size, provider, now_ms, size_max)
            self._as_content.add(content_hash)
            return requests
        except LimitReached:
            return []  # the caller asks again
