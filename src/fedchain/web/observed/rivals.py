"""Blocks for the same height: the one that became final, and those that lost, as far as the folders record them."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from fedchain.chain.block import Block
from fedchain.chain.exceptions import ChainError
from fedchain.chain.explorer.views import BlockView, FailedAttemptView, LostBlock
from fedchain.crypto.address import address
from fedchain.node.shell.timeline import SeenBlock, SeenCandidate, members_in
from fedchain.web.chains import Chain

Peers = frozenset[int]
"""Numbers of members."""


@dataclass(frozen=True, slots=True)
class Rival:
    """A block that was a candidate for a height that has a final block."""

    hash: str
    """Its identity, in hexadecimal."""
    miner: str
    """Address of the member that mined it."""
    posts: int
    """Posts that it counts."""
    knowledge_root: str
    """The aggregate that it would have left behind: SHA-256 of the knowledge, in hexadecimal."""
    after_ms: int | None = None
    """When the first reporting node received it, in milliseconds after the block before was final there."""
    seen_by: int = 0
    """Peers that received it, as far as they report it."""
    valid: Peers = frozenset()
    """Those that found it valid."""
    refused: tuple[tuple[str, Peers], ...] = ()
    """Those that refused it, by their reason."""
    is_own: bool = False
    """Whether it is known from a store of the node that mined it, which found it valid."""

    @property
    def verdict(self) -> str:
        """Judgement of the peers, as :class:`LostBlock` has it."""
        if self.valid or self.is_own:
            return "not taken"
        return "refused" if self.refused else "not judged"

    @property
    def reasons(self) -> tuple[str, ...]:
        """Why peers refused it, each reason with its peers."""
        return tuple(map(_told, self.refused))


Seen = Mapping[int, Sequence[SeenBlock]]
"""Observations of several nodes, by height."""


def seen_blocks(chain: Chain, first: int, last: int) -> dict[int, list[SeenBlock]]:
    """Observations of blocks between two heights by the nodes of a chain's folders, by height."""
    found = dict[int, list[SeenBlock]]()
    for holder in chain.holders:
        for block in holder.seen.blocks(first, last):
            found.setdefault(block.height, []).append(block)
    return found


def rivals(chain: Chain, first: int, last: int, seen: Seen) -> dict[int, tuple[Rival, ...]]:
    """All candidates between two heights, by height and in the order in which they came.

    A store keeps only those losing candidates that its own node mined; a timeline lists the others, too. A simulation
    keeps a store of one peer: if that one lies, its blocks count as far as honest peers saw them, in the timeline.
    """
    troubles = () if chain.scenario is None else chain.scenario.troubles
    liars = {number for item in troubles if item.kind == "lying" for number in item.peers}
    mined = _own(chain, first, last)
    return rivals_of((block for block in mined if chain.head.roster.seats.get(block.header.miner) not in liars), seen)


def rivals_of(mined: Iterable[Block], seen: Seen) -> dict[int, tuple[Rival, ...]]:
    """All candidates that nodes mined or saw, by height and in the order in which they came."""
    by_height = dict[int, dict[str, Rival]]()
    told = [(height, _seen(item)) for height, blocks in seen.items() for block in blocks for item in block.candidates]
    for height, rival in [*((block.header.height, _mined(block)) for block in mined), *told]:
        known = by_height.setdefault(height, {})
        known[rival.hash] = _joined(known[rival.hash], rival) if rival.hash in known else rival
    return {height: tuple(sorted(known.values(), key=_in_order)) for height, known in by_height.items()}


def with_rivals(view: BlockView, candidates: Sequence[Rival], seen: Sequence[SeenBlock]) -> BlockView:
    """A final block with the blocks that lost to it, and the attempts that failed before its voters agreed."""
    if not view.is_final or not (candidates or seen):
        return view
    lost = tuple(
        LostBlock(item.hash, item.miner, item.posts, item.knowledge_root, item.seen_by, item.verdict, item.reasons)
        for item in candidates
        if item.hash != view.summary.hash.hex()
    )
    failed = dict[int, dict[str, Peers]]()
    for attempt in (attempt for block in seen for attempt in block.failed):
        if view.certificate is not None and attempt.attempt < view.certificate.attempt:
            failed[attempt.attempt] = _united(failed.get(attempt.attempt, {}), _peers(attempt.why))
    attempts = (FailedAttemptView(number, tuple(map(_told, why.items()))) for number, why in sorted(failed.items()))
    return replace(view, lost=lost, failed=tuple(attempts))


def _own(chain: Chain, first: int, last: int) -> Iterator[Block]:
    for holder in chain.holders:
        try:
            store, _ = holder.look()
            yield from list(store.own_candidates(first, last))
        except ChainError:
            continue


def _mined(block: Block) -> Rival:
    header = block.header
    return Rival(
        block.hash.hex(), address(header.miner), len(block.transactions), header.knowledge_root.hex(), is_own=True
    )


def _seen(item: SeenCandidate) -> Rival:
    return Rival(
        item.hash,
        item.miner,
        item.posts,
        item.knowledge_root,
        item.after_ms,
        max(1, sum(1 for _ in members_in(item.seen))),
        frozenset(members_in(item.valid)),
        tuple(_peers(item.refused).items()),
    )


def _joined(one: Rival, other: Rival) -> Rival:
    times = [time for time in (one.after_ms, other.after_ms) if time is not None]
    valid, refused = one.valid | other.valid, _united(dict(one.refused), dict(other.refused))
    return replace(
        one,
        after_ms=min(times, default=None),
        seen_by=one.seen_by + other.seen_by,
        valid=valid,
        refused=tuple((reason, left) for reason, peers in refused.items() if (left := peers - valid)),
        is_own=one.is_own or other.is_own,
    )


def _peers(texts: Mapping[str, str]) -> dict[str, Peers]:
    return {reason: frozenset(members_in(text)) for reason, text in texts.items()}


def _united(one: Mapping[str, Peers], other: Mapping[str, Peers]) -> dict[str, Peers]:
    return {reason: one.get(reason, frozenset()) | other.get(reason, frozenset()) for reason in (*one, *other)}


def _told(why: tuple[str, Peers]) -> str:
    """A reason with the peers that had it."""
    reason, peers = why
    shown = ", ".join(map(str, sorted(peers)[:12])) + (f" and {len(peers) - 12} more" if len(peers) > 12 else "")
    return f"{reason} (peer{'s' if len(peers) > 1 else ''} {shown})" if peers else reason


def _in_order(rival: Rival) -> tuple[bool, int, str]:
    return rival.after_ms is None, rival.after_ms or 0, rival.hash
