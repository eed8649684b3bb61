"""The protocol written anew from ``docs/protocol.md``, with hashes and integers and nothing of the program.

It is an oracle for the published vectors, and shows that the page says enough. Records are plain lists here.
"""

import hashlib
from collections.abc import Sequence
from typing import Any

ORDER = 2**252 + 27742317777372353535851937790883648493
FIELD = 2**255 - 19
CURVE = -121665 * pow(121666, -1, FIELD) % FIELD

Point = tuple[int, int]
NEUTRAL: Point = (0, 1)


def sha256(data: bytes) -> bytes:
    return hashlib.sha256(data).digest()


# --- Encoding


def encode(value: Any) -> bytes:
    """Msgpack in its shortest form."""
    match value:
        case int():
            return _head(value, 0x7F, 0x00, (0xCC, 0xCD, 0xCE, 0xCF), (1, 2, 4, 8))
        case bytes():
            return _head(len(value), -1, 0x00, (0xC4, 0xC5, 0xC6), (1, 2, 4)) + value
        case str():
            data = value.encode()
            return _head(len(data), 31, 0xA0, (0xD9, 0xDA, 0xDB), (1, 2, 4)) + data
        case list():
            return _head(len(value), 15, 0x90, (0xDC, 0xDD), (2, 4)) + b"".join(map(encode, value))
    raise TypeError(type(value).__name__)


def _head(number: int, fixed_max: int, fixed: int, kinds: Sequence[int], sizes: Sequence[int]) -> bytes:
    if number <= fixed_max:
        return bytes([fixed | number])
    kind, size = next((kind, size) for kind, size in zip(kinds, sizes, strict=True) if number < 256**size)
    return bytes([kind]) + number.to_bytes(size, "big")


# --- Signatures


def is_valid(key: bytes, signature: bytes, message: bytes) -> bool:
    """S in range, key and R canonical, on the curve and not of small order, the equation without a cofactor."""
    public, commitment, scalar = _decompress(key), _decompress(signature[:32]), int.from_bytes(signature[32:], "little")
    if public is None or commitment is None or scalar >= ORDER:
        return False
    if _times(8, public) == NEUTRAL or _times(8, commitment) == NEUTRAL:
        return False
    challenge = int.from_bytes(hashlib.sha512(signature[:32] + key + message).digest(), "little") % ORDER
    base_y = 4 * pow(5, -1, FIELD) % FIELD
    base = _decompress(base_y.to_bytes(32, "little"))
    assert base is not None
    return _times(scalar, base) == _plus(commitment, _times(challenge, public))


def _decompress(data: bytes) -> Point | None:
    number = int.from_bytes(data, "little")
    sign, y = number >> 255, number & 2**255 - 1
    if y >= FIELD:
        return None
    square = (y * y - 1) * pow(CURVE * y * y + 1, -1, FIELD) % FIELD
    x = pow(square, (FIELD + 3) // 8, FIELD)
    if (x * x - square) % FIELD:
        x = x * pow(2, (FIELD - 1) // 4, FIELD) % FIELD
    if (x * x - square) % FIELD or (x == 0 and sign):
        return None
    return (x if x & 1 == sign else FIELD - x), y


def _plus(one: Point, other: Point) -> Point:
    (x1, y1), (x2, y2) = one, other
    product = CURVE * x1 * x2 * y1 * y2 % FIELD
    inverse = pow(1 - product * product, -1, FIELD)
    x = (x1 * y2 + x2 * y1) * (1 - product) * inverse % FIELD
    return x, (y1 * y2 + x1 * x2) * (1 + product) * inverse % FIELD


def _times(count: int, point: Point) -> Point:
    total = NEUTRAL
    for bit in bin(count)[2:]:
        total = _plus(total, total)
        total = _plus(total, point) if bit == "1" else total
    return total


# --- Records


def block_hash(header: list[Any]) -> bytes:
    return sha256(encode(header))


def proof(header: list[Any], function: str) -> bytes:
    data = sha256(encode(header[:-1])) + header[-1].to_bytes(8, "big")
    return (
        sha256(sha256(data)) if function == "sha256d" else hashlib.scrypt(data, salt=data, n=1024, r=1, p=1, dklen=32)
    )


def merkle_root(leaves: Sequence[bytes]) -> bytes:
    level = [sha256(b"\0" + leaf) for leaf in leaves]
    while len(level) > 1:
        odd = level[-1:] if len(level) % 2 else []
        level = [sha256(b"\1" + level[i] + level[i + 1]) for i in range(0, len(level) - 1, 2)] + odd
    return level[0] if level else bytes(32)


def sign_message(chain_id: bytes, kind: str, body: bytes) -> bytes:
    return b"fedchain/2/" + chain_id + kind.encode() + b"/" + body


# --- Difficulty and quorums


def target_of(bits: int) -> int:
    exponent, mantissa = bits >> 24, bits & 0xFFFFFF
    return (mantissa << 8 * exponent) >> 24


def compact(target: int) -> int:
    """The canonical form: the shortest exponent for which the mantissa keeps its highest bit clear."""
    for exponent in range(1, 34):
        mantissa = (target << 24) >> 8 * exponent
        if mantissa < 2**23:
            return exponent << 24 | mantissa
    raise ValueError(target)


def next_bits(bits: int, mining_ms: int, goal_ms: int) -> int:
    clamped = min(max(mining_ms, goal_ms // 4), 4 * goal_ms)
    target = target_of(bits) * (3 * goal_ms + clamped) // (4 * goal_ms)
    return compact(min(max(target, 1), 2**255 - 1))


def bits_of(bits: int, weight: int, weights: Sequence[int]) -> int:
    """A member's difficulty, by its weight among those of all active members."""
    target = target_of(bits) * len(weights) * 2 ** (weight + 12) // sum(2 ** (other + 12) for other in weights)
    return compact(min(max(target, 1), 2**255 - 1))


def weights_after(weights: Sequence[int], miner: int) -> list[int]:
    fallen = [weight - (place == miner) for place, weight in enumerate(weights)]
    reference = sorted(fallen)[len(fallen) // 3]
    return [min(max(weight - reference, -12), 4) for weight in fallen]


def wait_after(rules: dict[str, int], active: int, record: dict[str, int], seen: dict[str, int], mining_ms: int) -> Any:
    """Debt of a member after a phase, how often the longest wait for it is shortened, and what the next phase grants
    it if this one's block counts it."""
    timeout_ms, quorum_ms, waited_ms = rules["phase_timeout_ms"], seen["quorum_ms"], seen["waited_ms"]
    paid_ms = (quorum_ms + mining_ms) * rules["patience_percent"] // (100 * max(1, faulty(active)))
    owed_ms, shortened = max(0, record["owed_ms"] - paid_ms), record["shortened"]
    if record["due"]:
        owed_ms += waited_ms if seen["awaited"] else 0
        late_ms = waited_ms if seen["awaited"] else waited_ms // 2
        needed_ms = max(2 * late_ms, rules["phase_floor_ms"], quorum_ms + rules["target_mining_time_ms"])
        steps = [step for step in range(shortened + 2) if step <= 64 and timeout_ms * 7**step // 8**step >= needed_ms]
        shortened = max(steps, default=0) if seen["punctual"] else 0
    left_ms = max(0, timeout_ms - owed_ms)
    is_waited_for = seen["punctual"] or not (owed_ms or record["idle"])
    return owed_ms, shortened, min(left_ms, timeout_ms * 7**shortened // 8**shortened) if is_waited_for else 0


def faulty(electors: int) -> int:
    return (electors - 1) // 3


def quorum(electors: int, liars: int) -> int:
    return (electors + liars) // 2 + 1


def draw(members: Sequence[bytes], count: int, seed: bytes) -> set[bytes]:
    ranked = sorted(members, key=lambda member: sha256(seed + member))
    return set(ranked[:count] if count else ranked)


def draw_places(places: Sequence[int], count: int, chain_id: bytes, what: str, number: int) -> list[int]:
    """Places that a height draws as electors, or a round as contributors, in version 3."""
    seed = chain_id + what.encode() + number.to_bytes(8, "big")
    ranked = sorted(places, key=lambda place: sha256(seed + place.to_bytes(8, "big")))
    return sorted(ranked[:count] if count else ranked)


# --- State, for a federation of one participant phase without draws


def state_after(state: list[Any], block: list[Any], goal_ms: int) -> list[Any]:
    """The 16 values after a block, from those before it."""
    header, _, posts, certificate, evidence = block
    _, height, round_number, _, _, _, work, bits, counted, time_ms, delays, _, members, punctuality, convicted, _ = (
        state
    )
    keys = [members[i : i + 32] for i in range(0, len(members), 32)]
    guilty = {crime[1][6] if crime[0] == 1 else crime[1][2] for crime in convicted}
    target = target_of(header[10])
    if certificate:
        votes = certificate[0][4]
        settled = max(time_ms + 1, _lower_median([vote[1] for vote in votes]))
        mining_ms = _lower_median([vote[2] for vote in votes])
        if counted and round_number > 1:
            delays = [[*delays[0], max(0, settled - mining_ms - time_ms)][-16:]]
        bits, time_ms = next_bits(bits, mining_ms, goal_ms), settled
    senders = {post[2] for post in posts}
    on_time = [
        was if key in guilty else min(2, was + 1) if key in senders else 0
        for key, was in zip(keys, punctuality, strict=True)
    ]
    return [
        block_hash(header),
        height + 1,
        round_number + 1,
        0,
        0,
        header[9],
        (int.from_bytes(work, "big") + 2**256 // (target + 1)).to_bytes(40, "big"),
        bits,
        len(posts),
        time_ms,
        delays,
        block_hash(header),
        members,
        bytes(on_time) if posts else punctuality,
        [*convicted, *evidence],
        bytes(key not in guilty for key in keys),
    ]


def _lower_median(values: Sequence[int]) -> int:
    return sorted(values)[(len(values) - 1) // 2]
