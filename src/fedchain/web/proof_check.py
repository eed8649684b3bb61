"""A proof from the explorer, checked with nothing but Python: run ``python proof_check.py PROOF.json``.

It proves that a block counts a post, and prints both with the height and the round that the block's header states. The
printed values are read from the bytes that are hashed. It does not prove that the block is on the chain: compare the
block's hash with one from a node that you trust. Exit codes: 0, the proof holds; 1, it does not; 2, it is no proof.
"""

import hashlib
import json
import sys
from typing import Any

HEADER = (
    *("version", "parent_hash", "height", "round", "phase", "transactions_root", "certificate_root", "evidence_root"),
    *("state_root", "knowledge_root", "bits", "miner", "nonce"),
)
"""The fields of a header in the order of its bytes."""

CHANGES = "changes_root", "members_root"
"""Two more, before the nonce, where members may change: from version 3 on."""


def main(arguments: list[str]) -> int:
    """Check the proof in a file, and print what it proves."""
    if len(arguments) != 1:
        return _refuse("name one file: python3 proof_check.py PROOF.json")
    path = arguments[0]
    try:
        with open(path, encoding="utf-8") as file:
            proof = json.load(file)
        fault, header, post = find_fault(proof), header_of(proof), bytes.fromhex(proof["merkle"]["leaf"])
    except OSError as error:
        return _refuse(f"{path}: {error.strerror}")
    except KeyError as error:
        return _refuse(f"{path} is no proof of the explorer: it lacks {error}")
    except ValueError as error:
        return _refuse(f"{path} is no proof of the explorer: {error}")
    except (TypeError, AttributeError, IndexError, RecursionError):
        return _refuse(f"{path} is no proof of the explorer: its values are not those of one")
    if fault:
        print(f"The proof FAILS: {fault}.")
        return 1
    print("The proof holds.")
    for name, value in (("block", header["hash"]), ("height", header["height"]), ("round", header["round"])):
        print(f"{name:8}{value}")
    print(f"{'post':8}{post.hex()}")
    return 0


def find_fault(proof: dict[str, Any]) -> str:
    """Why the proof does not hold; empty if the header is the block's and commits to a tree that the post is in."""
    header, merkle = header_of(proof), proof["merkle"]
    if header["hash"] != proof["block_hash"]:
        return f"the header's bytes have the hash {header['hash']}, not the block's"
    if header != proof["header"]:
        names = [name for name, value in header.items() if proof["header"].get(name) != value]
        return f"the header does not say what its bytes say: {', '.join(names) or 'it has other fields'}"
    node = hashlib.sha256(b"\x00" + bytes.fromhex(merkle["leaf"])).digest()
    place, width, siblings = merkle["index"], merkle["size"], list(merkle["siblings"])
    while width > 1:
        if place ^ 1 < width:
            other = bytes.fromhex(siblings.pop(0)) if siblings else b""
            node = hashlib.sha256(b"\x01" + (other + node if place & 1 else node + other)).digest()
        place, width = place // 2, (width + 1) // 2
    if node.hex() == header["transactions_root"] and not siblings and 0 <= merkle["index"] < merkle["size"]:
        return ""
    return "the post is not in the tree to whose root the header commits"


def header_of(proof: dict[str, Any]) -> dict[str, Any]:
    """The fields of the header and its hash, read from its bytes: MessagePack of integers and byte strings."""
    data = bytes.fromhex(proof["header_bytes"])
    header, place = dict[str, Any](), 1
    fields = HEADER if data[0] == 0x90 + len(HEADER) else (*HEADER[:-1], *CHANGES, HEADER[-1])
    for name in fields:
        kind, place = data[place], place + 1
        if kind < 0x80:  # an integer in the byte itself
            header[name], size = kind, 0
        elif kind == 0xC4:  # bytes, with their number in one byte
            size = 1 + data[place]
            header[name] = data[place + 1 : place + size].hex()
        elif kind in (0xCC, 0xCD, 0xCE, 0xCF):  # an integer in the 1, 2, 4 or 8 bytes behind it
            size = 1 << (kind - 0xCC)
            header[name] = int.from_bytes(data[place : place + size], "big")
        else:
            raise ValueError(f"its header has {kind:#x} where {name} begins")
        place += size
    if data[0] != 0x90 + len(fields) or place != len(data):
        raise ValueError(f"its header is {len(data)} bytes long, and its {len(fields)} fields end at {place}")
    return header | {"hash": hashlib.sha256(data).hexdigest()}


def _refuse(text: str) -> int:
    print(f"proof_check: {text}", file=sys.stderr)
    return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
