"""Damage: how a valid input becomes one that nobody meant to send. All randomness is the caller's."""

import re
import struct
from collections.abc import Sequence
from random import Random
from typing import Any, Literal

import msgpack

SIZE_MAX = 2**16
"""Bytes of a mutated input; longer ones find little and cost much."""

PLACES_MAX = 512
"""Places of a structure that a mutation chooses from."""

BOUNDARIES = sorted(
    {0, 1, 2, 50, 99, 100, 2**30, 2**40, *(2**bits + off for bits in (7, 8, 15, 16, 31, 32, 63) for off in (-1, 0, 1))}
    | {2**64 - 1}
)
ODD_VALUES: tuple[Any, ...] = (
    *(None, True, False, -1, -(2**63), 0.0, 1.5, float("nan"), "", b"", [], [[]], {}, {"a": 1}),
    *(msgpack.ExtType(7, b"x"), msgpack.Timestamp(1, 1), [[[[[[[[[[]]]]]]]]]], "\udcff", bytes(32), bytes(64)),
)
ODD_WORDS = (b"\0\0\xc0\x7f", b"\0\0\x80\x7f", b"\0\0\x80\xff", b"\xff\xff\x7f\x7f", b"\1\0\0\0", b"\0\0\0\x80")
"""Little-endian float32: not a number, both infinities, the largest and smallest number, minus zero."""
TEXT_TOKENS = (
    *(
        b" ",
        b"\n",
        b"\t",
        b"\0",
        b"\xff",
        b"\xe2\x82\xac",
        b'"',
        b"'''",
        b"=",
        b"[",
        b"]",
        b"[[faults]]\n",
        b"{}",
        b"#",
    ),
    *(b"nan", b"inf", b"-inf", b"1e999", b"-1", b"true", b"1979-05-27", b"9" * 400, b"9" * 5000, b"[" * 2000),
    *(b'"kind"', b"0x" + b"f" * 5000, b"peers", b"null", b"a.b.c = 1\n", b"\\u0000", b"0x7f", b"1_0"),
)

# kind of msgpack head: (tag, bytes of the length) from short to long; -1 is the form with the length in the tag
_HEADS: dict[type, tuple[tuple[int, int], ...]] = {
    bytes: ((0xC4, 1), (0xC5, 2), (0xC6, 4)),
    str: ((0xA0, -1), (0xD9, 1), (0xDA, 2), (0xDB, 4)),
    list: ((0x90, -1), (0xDC, 2), (0xDD, 4)),
}
_INTEGERS = ((0xCC, 1), (0xCD, 2), (0xCE, 4), (0xCF, 8))


def mutate(data: bytes, donor: bytes, rng: Random) -> bytes:
    """A damaged ``data``; parts may come from ``donor``."""
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        if rng.random() < 0.5 and (changed := mutate_structure(data, donor, rng)) is not None:
            data = changed
        else:
            data = mutate_bytes(data, donor, rng)
    return data[:SIZE_MAX]


def mutate_text(data: bytes, donor: bytes, rng: Random) -> bytes:
    """As :func:`mutate`, for texts of lines and numbers."""
    for _ in range(rng.choice((1, 1, 2, 4))):
        place = rng.choice((0, len(data), rng.randrange(len(data) + 1)))
        numbers = list(re.finditer(rb"-?\d[\d._]*", data))
        match rng.randrange(6):
            case 0:
                data = data[:place] + rng.choice(TEXT_TOKENS) + data[place:]
            case 1 if numbers:
                found = rng.choice(numbers)
                new = rng.choice((str(rng.choice(BOUNDARIES)).encode(), rng.choice(TEXT_TOKENS)))
                data = data[: found.start()] + new + data[found.end() :]
            case 2:
                lines = data.splitlines(keepends=True) + donor.splitlines(keepends=True)
                rng.shuffle(lines)
                data = b"".join(lines[: max(1, len(lines) // 2)])
            case 3:
                data = data.replace(b"=", b"= " + rng.choice(TEXT_TOKENS) + b" #", 1)
            case _:
                data = mutate_bytes(data, donor, rng)
    return data[:SIZE_MAX]


def mutate_bytes(data: bytes, donor: bytes, rng: Random) -> bytes:
    """Damage that knows no structure."""
    place = rng.randrange(len(data) + 1)
    width = rng.choice((1, 2, 4, 8))
    match rng.randrange(9):
        case 0 if data:
            bit = rng.randrange(8 * len(data))
            return (int.from_bytes(data, "big") ^ 1 << bit).to_bytes(len(data), "big")
        case 1:
            return data[:place] + rng.randbytes(rng.randrange(1, 9)) + data[place:]
        case 2:
            return data[:place] + data[place + rng.randrange(1, 9) :]
        case 3:
            return data[:place] + donor[rng.randrange(len(donor) + 1) :]
        case 4:
            return data[:place]
        case 5:
            order: Literal["big", "little"] = rng.choice(("big", "little"))
            word = _low_bytes(rng.choice(BOUNDARIES), width, order)
            return data[:place] + word + data[place + width :]
        case 6:
            start = rng.randrange(len(donor) + 1)
            piece = donor[start : start + rng.randrange(1, 65)]
            return data[:place] + piece + data[place + rng.choice((0, len(piece))) :]
        case 7:
            return data[:place] + rng.choice(ODD_WORDS) + data[place + 4 :]
        case _:
            return _lie(data, place, rng)


def _lie(data: bytes, place: int, rng: Random) -> bytes:
    """Heads that announce more than follows, one inside the other."""
    tag, width = rng.choice([*_HEADS[bytes], *_HEADS[str][1:], *_HEADS[list][1:] * 4, (0xDE, 2), (0xDF, 4), (0xC9, 4)])
    claim = rng.choice((len(data), len(data) // 2, rng.choice(BOUNDARIES)))
    head = bytes([tag]) + _low_bytes(claim, width)
    return data[:place] + head * rng.choice((1, 1, 2, 8, 400)) + data[place:]


def mutate_structure(data: bytes, donor: bytes, rng: Random) -> bytes | None:
    """Damage inside a msgpack document, written anew; None if ``data`` is none."""
    root, gifts = _read(data), _read(donor)
    if root is None:
        return None
    places = _places(root)
    presents = _places(gifts) if gifts is not None else places
    for _ in range(rng.choice((1, 1, 1, 2, 4))):
        container, index = rng.choice(places)
        if index >= len(container):
            continue
        giver, which = rng.choice(presents)
        gift = giver[which] if which < len(giver) else 0
        match rng.randrange(12):
            case 0 if container is not root:
                del container[index]
            case 1 if container is not root:
                container.insert(index, gift)
            case 2:
                other = rng.randrange(len(container))
                container[index], container[other] = container[other], container[index]
            case 3:
                container[index] = gift
            case 4:
                container[index] = rng.choice(ODD_VALUES)
            case _:
                container[index] = _changed(container[index], gift, rng)
    try:
        return write(root[0], rng, rng.choice((0.0, 0.0, 0.0, 0.05)), depth_max=40)
    except (ValueError, OverflowError, TypeError):
        return None


def _changed(value: Any, gift: Any, rng: Random) -> Any:
    """Another value of the same kind."""
    if type(value) is int:
        return rng.choice((rng.choice(BOUNDARIES), value + 1, value - 1, rng.getrandbits(64), value ^ 1))
    if isinstance(value, bytes):
        donor = gift if isinstance(gift, bytes) else b""
        if len(value) > 64 and rng.random() < 0.7:  # it may be a message in its own right
            return mutate(value, donor, rng)
        same_size = rng.randbytes(len(value)), donor[: len(value)].ljust(len(value), b"\0")
        return rng.choice((mutate_bytes(value, donor, rng), value[:-1], value + b"\0", *same_size))
    if isinstance(value, str):
        changed = mutate_text(value.encode("utf-8", "surrogateescape"), b"", rng)
        return changed.decode("utf-8", "surrogateescape")
    if isinstance(value, list):
        return rng.choice((value * 2, [value], value[::-1], value[:-1], [*value, gift], value[1:], value * 20))
    return gift


def write(value: Any, rng: Random, oddness: float, depth_max: int) -> bytes:
    """Msgpack of ``value``; with probability ``oddness`` a head is longer than it need be, or lies."""
    kind: type = type(value)
    is_odd = rng.random() < oddness
    if kind is int and value >= 0 and is_odd:
        tag, width = rng.choice(_INTEGERS)
        return bytes([tag]) + _low_bytes(value, width)
    if kind not in _HEADS or depth_max == 0:
        packed: bytes = msgpack.packb(value, use_bin_type=True, unicode_errors="surrogateescape")
        return packed
    if kind is list:
        body = b"".join(write(item, rng, oddness, depth_max - 1) for item in value)
    else:
        body = value.encode("utf-8", "surrogateescape") if kind is str else value
    size = len(value) if kind is list else len(body)
    forms = _HEADS[kind]
    if is_odd:
        size = max(0, size + rng.choice((0, 0, -1, 1, 255, 2**31)))
    fitting = [form for form in forms if size < (2 ** (8 * form[1]) if form[1] > 0 else 16 if kind is list else 32)]
    tag, width = rng.choice(fitting) if is_odd else fitting[0]
    return (bytes([tag | size]) if width < 0 else bytes([tag]) + size.to_bytes(width, "big")) + body


def _low_bytes(value: int, width: int, order: Literal["big", "little"] = "big") -> bytes:
    return (value & (1 << 8 * width) - 1).to_bytes(width, order)


def _read(data: bytes) -> list[Any] | None:
    try:
        return [
            msgpack.unpackb(data, raw=False, strict_map_key=False, unicode_errors="surrogateescape", max_array_len=4096)
        ]
    except (ValueError, TypeError, OverflowError, struct.error, msgpack.UnpackException):
        return None


def _places(root: list[Any]) -> Sequence[tuple[list[Any], int]]:
    """Where a value stands in its list, breadth first."""
    found: list[tuple[list[Any], int]] = []
    queue = [root]
    while queue and len(found) < PLACES_MAX:
        container = queue.pop(0)
        for index, item in enumerate(container[:PLACES_MAX]):
            found.append((container, index))
            if isinstance(item, list):
                queue.append(item)
    return found
