"""A proof from the explorer, checked with nothing but Python: run ``python proof_check.py PROOF.json``.

It proves that a block counts a post. That the block is on the chain is for its reader to know: compare the block's hash
with one from a node that you trust.
"""

import hashlib
import json
import sys


def is_proven(proof: dict) -> bool:  # type: ignore[type-arg]
    """Whether the post is in the tree to whose root the header commits, and the header is the block's."""
    header = bytes.fromhex(proof["header_bytes"])
    if hashlib.sha256(header).hexdigest() != proof["block_hash"]:
        return False
    root = transactions_root(header)
    merkle = proof["merkle"]
    node = hashlib.sha256(b"\x00" + bytes.fromhex(merkle["leaf"])).digest()
    place, width, siblings = merkle["index"], merkle["size"], list(merkle["siblings"])
    while width > 1:
        if place ^ 1 < width:
            other = bytes.fromhex(siblings.pop(0)) if siblings else b""
            node = hashlib.sha256(b"\x01" + (other + node if place & 1 else node + other)).digest()
        place, width = place // 2, (width + 1) // 2
    return node == root and not siblings and 0 <= merkle["index"] < merkle["size"]


def transactions_root(header: bytes) -> bytes:
    """The sixth field of a header: MessagePack of integers and byte strings."""
    place, value = 1, b""
    for _ in range(6):
        kind = header[place]
        if kind == 0xC4:  # bytes, with their number in one byte
            value = header[place + 2 : place + 2 + header[place + 1]]
            place += 2 + header[place + 1]
        else:  # an integer: in the byte itself, or in the 1, 2, 4 or 8 bytes behind it
            place += 1 if kind < 0x80 else 1 + (1 << (kind - 0xCC))
    return value


if __name__ == "__main__":
    with open(sys.argv[1], encoding="utf-8") as file:
        holds = is_proven(json.load(file))
    print("The proof holds." if holds else "The proof FAILS.")
    sys.exit(0 if holds else 1)
