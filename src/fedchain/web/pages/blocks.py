"""Pages of blocks, of their posts, and of proofs."""

from fedchain.chain.explorer.explorer import Explorer
from fedchain.chain.explorer.views import BlockView, Recomputation, TransactionProof, TransactionView, is_proven
from fedchain.web.chains import Chain, Reading
from fedchain.web.course.voting import voting
from fedchain.web.observed.participation import why_missing
from fedchain.web.observed.rivals import rivals, seen_blocks, with_rivals
from fedchain.web.pages.accuracy import measured_of
from fedchain.web.pages.asked import Context, Question, happened, number_in, whole
from fedchain.web.timeline import Timed, timed

BLOCKS_A_PAGE = 40
"""Blocks on one page of the list."""


def blocks(chain: Chain, reading: Reading, question: Question) -> Context:
    """The blocks, newest first, each with a breakdown of its time."""
    held = reading.explorer.held
    last = min(held.stop - 1, number_in(question, "to", held.stop - 1))
    first = max(held.start, last - BLOCKS_A_PAGE + 1)
    return {
        "blocks": timed_blocks(chain, reading, first, last)[::-1],
        "first": first,
        "last": last,
        "held": held,
        "step": BLOCKS_A_PAGE,
    }


def block(chain: Chain, reading: Reading, name: str) -> Context:
    """One block in full. Raises NotFound."""
    view = block_view(chain, reading, name)
    height, held = view.summary.height, reading.explorer.held
    shown = timed_blocks(chain, reading, height, height) if view.is_final else ()
    places, seen = reading.numbers, seen_blocks(chain, height, height)
    why = why_missing(view.summary.hash.hex(), seen.get(height, ()))
    return {
        "block": view,
        "posts": sorted(view.transactions, key=lambda item: places.get(item.sender, -1)),
        "voting": voting(chain, view, reading.numbers) if view.is_final else None,
        "candidates": rivals(chain, height, height, seen).get(height, ()),
        "why_missing": {number: reason for number, (_, reason) in why.items()},
        "timed": shown[0] if shown else None,
        "below": height - 1 if height - 1 in held else None,
        "above": height + 1 if view.is_final and height + 1 in held else None,
    }


def block_view(chain: Chain, reading: Reading, name: str) -> BlockView:
    """One block, with what peers saw of those that lost to it. Raises NotFound."""
    return with_observations(chain, reading.explorer.block(name))


def with_observations(chain: Chain, view: BlockView) -> BlockView:
    """A block with what peers saw of those that lost to it."""
    height = view.summary.height
    seen = seen_blocks(chain, height, height)
    found = rivals(chain, height, height, seen).get(height, ())
    return with_rivals(view, found, seen.get(height, ()))


def timed_blocks(chain: Chain, reading: Reading, first: int, last: int) -> tuple[Timed, ...]:
    """Blocks from one height to another, each with a breakdown of its time, oldest first."""
    first = max(first, reading.explorer.held.start)
    lines = list(reading.columns.lines(first - 1, last))
    before = lines.pop(0).time_ms if lines and lines[0].height == first - 1 else None
    if before is None and first == 1:
        before = chain.genesis.created_ms
    summaries = [reading.columns.summary(line) for line in lines]
    measured = measured_of(chain) if len(chain.holders) == 1 else {}
    seen = seen_blocks(chain, first, last)
    intervals_ms = {line.height: reading.rule("round_interval_ms", line.height) for line in lines}
    items = timed(lines, summaries, before, measured, rivals(chain, first, last, seen), seen, intervals_ms)
    began_ms = dict(zip((line.height for line in lines), (before, *(line.time_ms for line in lines)), strict=False))
    meanwhile = dict[int, list[tuple[int, str]]]()
    for line, at_ms, text in happened(chain, reading):
        if (since_ms := began_ms.get(line.height)) is not None:
            meanwhile.setdefault(line.height, []).append((chain.genesis.created_ms + at_ms - since_ms, text))
    return tuple(item.with_moments(meanwhile.get(item.summary.height, ())) for item in items)


def recompute(chain: Chain, height: int) -> Recomputation:
    """Recompute a block's knowledge, in a separate store. Raises NotFound."""
    rules = chain.rules()
    with chain.apart() as store:
        return Explorer(store).kept.recompute(rules, height)


def transaction(chain: Chain, reading: Reading, name: str) -> Context:
    """One post. Raises NotFound."""
    return {"tx": find_transaction(reading, name)}


def proof(chain: Chain, reading: Reading, name: str) -> Context:
    """The proof that a block counts a post. Raises NotFound."""
    found = find_proof(reading, name)
    tx = reading.explorer.transaction(found.merkle.leaf.hex(), whole(reading))
    return {"proof": found, "holds": is_proven(found), "tx": tx}


def find_transaction(reading: Reading, name: str) -> TransactionView:
    """A post by its hash or the beginning of it. Raises NotFound."""
    return reading.explorer.transaction(name, whole(reading))


def find_proof(reading: Reading, name: str) -> TransactionProof:
    """The proof of a post by its hash or the beginning of it. Raises NotFound."""
    return reading.explorer.proof(name, whole(reading))
