"""The chain explorer: questions about a stored chain, answered from its records alone.

It prints nothing and changes nothing. Members are named by their address and hashes are raw bytes. Counts over the
whole chain come from its :class:`Columns`, which are read when they are first needed; a caller that has read them
already passes them in. Nothing else holds more of the chain than it shows.
"""

from collections.abc import Iterator, Set
from functools import cached_property

from fedchain.chain.block import Block
from fedchain.chain.difficulty import work_from_bits
from fedchain.chain.exceptions import NotFound
from fedchain.chain.explorer.audit import ChainAudit, audit_chain
from fedchain.chain.explorer.block_views import (
    phase_name,
    summarize,
    summarize_candidate,
    view_block,
    view_candidate,
    view_conviction,
    view_post,
)
from fedchain.chain.explorer.columns import Columns
from fedchain.chain.explorer.held import HeldChain
from fedchain.chain.explorer.history import Entry
from fedchain.chain.explorer.kept import KeptContents
from fedchain.chain.explorer.light_blocks import LightBlocks
from fedchain.chain.explorer.member_views import (
    Conviction,
    MemberSummary,
    PeerView,
)
from fedchain.chain.explorer.membership import Membership
from fedchain.chain.explorer.names import (
    PREFIX_SIZE_MIN,
    begins_with,
    find_hash,
    find_member,
    range_of,
    read_number,
    read_prefix,
)
from fedchain.chain.explorer.views import (
    Absence,
    BlockSummary,
    BlockView,
    ChainStatus,
    RoundView,
    TransactionProof,
    TransactionView,
)
from fedchain.chain.knowledge import (
    Rules,
)
from fedchain.chain.merkle import merkle_proof
from fedchain.chain.post import Post
from fedchain.chain.roster import Roster
from fedchain.chain.state import State, block_time_ms, expected_contributors, votes_required
from fedchain.chain.storage.sqlite import Store
from fedchain.crypto.address import address
from fedchain.crypto.hashing import Hash
from fedchain.crypto.signatures import PublicKey


class Explorer:
    """Answers about the chain in a store, up to the head that it had when the explorer was made."""

    def __init__(self, store: Store) -> None:
        """Raises StoreCorrupt or InvalidEncoding if the head cannot be read."""
        self.genesis = store.genesis
        self._store = store
        self._chain = chain = HeldChain(store)
        self.membership = Membership(chain)
        """Answers about the members at each height."""
        self.kept = KeptContents(chain)
        """Answers about payloads and knowledge."""
        self.light = LightBlocks(chain)
        """The blocks as light clients get them."""

    @property
    def held(self) -> range:
        """Heights of the final blocks, from the base to the head."""
        return self._chain.heights

    @property
    def state(self) -> State:
        """The state behind the head."""
        return self._chain.state

    def candidates(self) -> tuple[Block, ...]:
        """Open candidates: blocks that may still become final."""
        return self._chain.candidates()

    def status(self) -> ChainStatus:
        """The chain at a glance."""
        genesis, head, state = self.genesis, self._chain.head, self.state
        posts, payload_bytes = self._store.totals(self.held.start, state.height)
        count = len(state.roster.electors)
        return ChainStatus(
            chain_id=genesis.chain_id,
            name=genesis.name,
            created_ms=genesis.created_ms,
            height=state.height,
            base=self.held.start,
            head=state.block_hash,
            time_ms=genesis.created_ms if head is None else block_time_ms(state, head.certificate),
            state_root=state.root,
            round=self._round_number,
            phase=None if state.finished else phase_name(genesis, state.round, state.phase),
            finished=state.finished,
            work=state.work,
            bits=state.bits,
            hashes_per_block=work_from_bits(state.bits),
            members=len(state.roster),
            aggregator=self._aggregator_of(self._round_number),
            fault_model=genesis.fault_model.value,
            electors=count,
            quorum=votes_required(genesis, state.roster.electors),
            liars_max=genesis.fault_model.faulty(count),
            votes=0 if head is None else len(head.certificate.votes),
            candidates=len(self.candidates()),
            posts=posts,
            payload_bytes=payload_bytes,
            convictions=self._convictions,
        )

    def blocks(self, limit: int) -> tuple[BlockSummary, ...]:
        """The newest final blocks, head first, at most ``limit``."""
        first = max(self.held.start, self.state.height - limit + 1)
        return tuple(summarize(self.genesis, entry) for entry in self._chain.entries(first, self.state.height))[::-1]

    def block(self, name: str) -> BlockView:
        """A final block by its height, its hash or the beginning of it, or an open candidate. Raises NotFound."""
        number = read_number(name)
        if number is not None and self.held.start <= number <= self.state.height:
            return self._view(self._chain.entry(number))
        if name.isdecimal() and len(name) < PREFIX_SIZE_MIN:
            raise self._chain.not_held(name)
        known: dict[Hash, int | Block] = {candidate.hash: candidate for candidate in self.candidates()}
        prefix = read_prefix(name, "block")
        if (between := range_of(prefix)) is not None:
            known |= dict(self._store.hashes(self.held.start, self.state.height, between))
        found = known[find_hash(name, known, "block")]
        if isinstance(found, Block):
            return view_candidate(self._store, found, self.state.roster)
        return self._view(self._chain.entry(found))

    def _view(self, entry: Entry) -> BlockView:
        header = entry.block.header
        return view_block(self._store, entry, self.roster(header.height, header.round, header.phase))

    def roster(self, height: int, round_number: int, phase: int) -> Roster | None:
        """The members and their rights at the block that closed a phase; None if its round's first is not held."""
        return self._chain.roster(height, round_number, phase)

    def transaction(self, name: str, columns: Columns | None = None) -> TransactionView:
        """A counted post by its hash or the beginning of it. Raises NotFound."""
        found, place = self._find_transaction(name, columns)
        post = view_post(self._store, found)
        if isinstance(place, Block):
            return TransactionView(post, summarize_candidate(self.genesis, place), False)
        return TransactionView(post, summarize(self.genesis, self._chain.entry(place)), True)

    def peer(self, name: str, columns: Columns | None = None) -> PeerView:
        """A member by its number, its address or the end of it.

        Raises:
            NotFound: no member, or several.
            InvalidAddress: not an address at all.
        """
        return self.peer_of(find_member(name, self.state.roster.members, self.numbers_by(columns)), columns)

    def peer_of(self, member: PublicKey, columns: Columns | None) -> PeerView:
        """A member by the key that it has."""
        counts = (self._columns if columns is None else columns).count(member)
        state = self.state
        convicted = zip(self._convictions, self._chain.crimes, strict=True)
        crimes = (view for view, (_, crime) in convicted if state.roster.current(crime.culprit) == member)
        return PeerView(
            number=state.roster.seats[member],
            address=address(member),
            public_key=member,
            elector=member in state.roster.electors,
            aggregator=address(member) == self._aggregator_of(self._round_number),
            expected=member in self._expected,
            posts=counts.posts,
            payload_bytes=counts.payload_bytes,
            last_round=counts.last_round,
            blocks_mined=counts.blocks_mined,
            hashes_per_block=work_from_bits(state.bits_of(member)) if state.roster.is_active(member) else None,
            votes=counts.votes,
            clock_offset_ms=counts.clock_offset_ms,
            conviction=next(crimes, None),
        )

    @property
    def numbers(self) -> dict[str, int]:
        """Number of each member by its address, newcomers and former keys included."""
        return self.numbers_by()

    def numbers_by(self, columns: Columns | None = None) -> dict[str, int]:
        """The same. A state forgets all former keys but the first and the last; blocks tell the ones between."""
        has_others = any(item.sequence > 1 for item in self.state.records)
        known = (self._columns if columns is None else columns).seats if has_others else {}
        former = {address(key): place for key, place in known.items()}
        former |= {address(item.former.key): place for place, item in enumerate(self.state.records) if item.former}
        former |= {address(item.first): place for place, item in enumerate(self.state.records) if item.first}
        return former | {address(member): place for member, place in self.state.roster.seats.items()}

    def members(self, columns: Columns | None = None) -> tuple[MemberSummary, ...]:
        """All members in the order of their numbers, each with a summary of its part in the chain."""
        return tuple(self._member(member, columns) for member in self.state.roster.members)

    def _member(self, member: PublicKey, columns: Columns | None) -> MemberSummary:
        view = self.peer_of(member, columns)
        return MemberSummary(
            number=view.number,
            address=view.address,
            posts=view.posts,
            blocks_mined=view.blocks_mined,
            votes=view.votes,
            elector=view.elector,
            expected=view.expected,
            last_round=view.last_round,
            clock_offset_ms=view.clock_offset_ms,
            crime="" if view.conviction is None else view.conviction.crime,
        )

    def round(self, number: int) -> RoundView:
        """A round of which a block can be read. Raises NotFound."""
        heights = self._chain.heights_of(number)
        if not heights:
            raise NotFound(f"no block of round {number}: {self._chain.progress()}")
        entries = [*self._chain.entries(heights[0], heights[-1])] or [self._chain.entry(heights[0])]  # raises
        views = [*map(self._view, entries)]
        return RoundView(
            round=number,
            finished=number < self.state.round,
            aggregator=self._aggregator_of(number, heights[0]),
            blocks=tuple(view.summary for view in views),
            transactions=tuple(post for view in views for post in view.transactions),
            missing=tuple(Absence(view.summary.phase, member) for view in views for member in view.missing or ()),
        )

    @property
    def _round_number(self) -> int:
        """The round that is open; the last round, once that is closed."""
        return self.state.rules.rounds if self.state.finished else self.state.round

    def _aggregator_of(self, round_number: int, height: int | None = None) -> str | None:
        """Address of the aggregator of a round as it is at a height, by default the open one; None if there is none."""
        at = self._store.state_before(height) if height is not None and self.state.records else None
        member = (at or self.state).roster.aggregator_of(round_number)
        return None if member is None else address(member)

    def views(self) -> Iterator[BlockView]:
        """The final blocks in full, oldest first."""
        return map(self._view, self._chain.entries(self.held.start, self.state.height))

    def proof(self, name: str, columns: Columns | None = None) -> TransactionProof:
        """Prove that a final block counts a post, named as in :meth:`transaction`. Raises NotFound."""
        post, place = self._find_transaction(name, columns)
        block = place if isinstance(place, Block) else self._chain.block(place)
        leaves = [item.hash for item in block.transactions]
        return TransactionProof(block.hash, block.header, merkle_proof(leaves, leaves.index(post.hash)))

    def verify(self, rules: Rules) -> ChainAudit:
        """Judge every final block again, as a member that sees it for the first time would."""
        return audit_chain(self._store, self.held.start, self.state.height, rules, self._chain.content)

    @cached_property
    def _expected(self) -> Set[PublicKey]:
        """Members whose posts the open phase waits for."""
        return expected_contributors(self.state)

    @cached_property
    def _convictions(self) -> tuple[Conviction, ...]:
        return tuple(view_conviction(self.genesis, crime, height) for height, crime in self._chain.crimes)

    @cached_property
    def _columns(self) -> Columns:
        columns = Columns(self.genesis)
        columns.read(self._store, self.held.start, self.state.height)
        return columns

    def _find_transaction(self, name: str, columns: Columns | None) -> tuple[Post, int | Block]:
        """A post, and the height of the final block or the candidate that counts it."""
        prefix = read_prefix(name, "transaction")
        found: dict[Hash, tuple[Post, int | Block]] = {}
        for candidate in self.candidates():
            found |= {post.hash: (post, candidate) for post in candidate.transactions if begins_with(post.hash, prefix)}
        if range_of(prefix) is not None:
            for height in (self._columns if columns is None else columns).heights_of_post(prefix):
                posts = self._chain.block(height).transactions
                found |= {post.hash: (post, height) for post in posts if begins_with(post.hash, prefix)}
        return found[find_hash(name, found, "transaction")]
