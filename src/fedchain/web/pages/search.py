"""The search: what a text may mean."""

from fedchain.chain.exceptions import NotFound
from fedchain.chain.explorer.names import PREFIX_SIZE_MIN, find_member, range_of, read_number
from fedchain.crypto.address import address
from fedchain.crypto.exceptions import InvalidAddress
from fedchain.web.chains import Chain, Reading
from fedchain.web.pages.asked import Context, Question, has_block
from fedchain.web.pages.blocks import find_transaction


def search(chain: Chain, reading: Reading, question: Question) -> Context:
    """Heights, rounds, hashes, addresses and peer numbers that a text may mean, as (kind, name, address) each."""
    text = question.get("q", "").strip()[:200]
    return {"query": text, "hits": find(chain, reading, text) if text else []}


def find(chain: Chain, reading: Reading, text: str) -> list[tuple[str, str, str]]:
    """The things that ``text`` may mean: kind, name and the address of the page, below the chain's."""
    hits = list[tuple[str, str, str]]()
    held, members_ = reading.explorer.held, reading.explorer.state.roster.members
    number = read_number(text)
    if number is not None:
        if number == 0:
            hits.append(("block", "height 0, the genesis document", "genesis"))
        if number in held:
            hits.append(("block", f"height {number}", f"block/{number}"))
        if has_block(reading, number):
            hits.append(("round", f"round {number}", f"round/{number}"))
        if number < len(members_):
            hits.append(("member", f"peer {number}", f"member/{number}"))
    try:
        key = find_member(text, members_, reading.numbers) if not text.isdecimal() else None
    except (NotFound, InvalidAddress):
        key = None
    if key is not None:
        place = reading.explorer.state.roster.seats[key]
        hits.append(("member", f"peer {place}, {address(key)}", f"member/{address(key)}"))
    prefix = text.lower().rstrip("….")
    between = range_of(prefix)
    if between is not None and len(prefix) >= PREFIX_SIZE_MIN:
        found = list(reading.store.hashes(held.start, held.stop - 1, between))
        hits += [("block", f"height {height}, {item.hex()}", f"block/{item.hex()}") for item, height in found[:20]]
        if chain.genesis.chain_id.hex().startswith(prefix):
            hits.append(("block", "height 0, the genesis document", "genesis"))
        try:
            post = find_transaction(reading, prefix).post
            hits.append(("post", post.hash.hex(), f"tx/{post.hash.hex()}"))
        except NotFound as error:
            if str(error)[0].isdecimal():  # several
                hits.append(("post", str(error), ""))
    return hits
