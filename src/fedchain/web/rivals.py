"""Blocks for the same height: the one that became final, and those that lost, as far as the folders record them."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from fedchain.chain.exceptions import ChainError
from fedchain.crypto.address import address
from fedchain.node.shell.timeline import SeenBlock
from fedchain.web.chains import Chain


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
    after_ms: int | None
    """When the first reporting node received it, in milliseconds after the block before was final there."""
    seen_by: int
    """Nodes that report that they received it."""


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

    A store keeps only those losing candidates that its own node mined; a node's timeline lists the others, too.
    """
    by_height = dict[int, dict[str, Rival]]()
    for height, rival in [*_mined(chain, first, last), *_seen(seen)]:
        known = by_height.setdefault(height, {})
        known[rival.hash] = _joined(known[rival.hash], rival) if rival.hash in known else rival
    return {height: tuple(sorted(known.values(), key=_in_order)) for height, known in by_height.items()}


def _mined(chain: Chain, first: int, last: int) -> Iterable[tuple[int, Rival]]:
    for holder in chain.holders:
        try:
            store, _ = holder.look()
            blocks = list(store.own_candidates(first, last))
        except ChainError:
            continue
        for block in blocks:
            header = block.header
            mined = Rival(
                hash=block.hash.hex(),
                miner=address(header.miner),
                posts=len(block.transactions),
                knowledge_root=header.knowledge_root.hex(),
                after_ms=None,
                seen_by=0,
            )
            yield header.height, mined


def _seen(seen: Seen) -> Iterable[tuple[int, Rival]]:
    for height, blocks in seen.items():
        for item in (item for block in blocks for item in block.candidates):
            yield height, Rival(item.hash, item.miner, item.posts, item.knowledge_root, item.after_ms, 1)


def _joined(one: Rival, other: Rival) -> Rival:
    times = [time for time in (one.after_ms, other.after_ms) if time is not None]
    return replace(one, after_ms=min(times, default=None), seen_by=one.seen_by + other.seen_by)


def _in_order(rival: Rival) -> tuple[bool, int, str]:
    return rival.after_ms is None, rival.after_ms or 0, rival.hash
