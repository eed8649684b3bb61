"""Providers that lie, drip and forget, and downloads among them."""

import heapq
import random
from collections.abc import Sequence
from itertools import count

from fedchain.chain.exceptions import InvalidPayload
from fedchain.crypto.hashing import sha256
from fedchain.crypto.keys import PublicKey
from fedchain.network.downloads import Downloads, Request
from fedchain.network.messages import CHUNK_SIZE, Chunk, GetContent
from fedchain.network.source import RATE_MIN


class Provider:
    """How somebody answers: after how long, and with what; None: never."""

    def __init__(self, kind: str, seed: int) -> None:
        self.kind = kind
        self._rng = random.Random(seed)

    def answer(self, request: GetContent, data: bytes) -> tuple[int, bytes] | None:
        right = data[request.offset :][:CHUNK_SIZE]
        delay_ms = self._rng.randrange(1, 60)
        match self.kind:
            case "honest":
                return delay_ms, right
            case "slow":
                return 1_850, right
            case "very slow":
                return 60_000, right
            case "liar":
                return delay_ms, bytes([right[0] ^ 1]) + right[1:]
            case "part-time liar":
                return delay_ms, right if self._rng.random() < 0.8 else bytes(len(right))
            case "slow liar":
                return 1_850, bytes(len(right))
            case "short":
                return delay_ms, right[:-1]
            case "empty":
                return delay_ms, b""
            case "dripping":  # as slowly as is let pass, and without an end
                return 1_000 * CHUNK_SIZE // RATE_MIN - 10, bytes(CHUNK_SIZE)
            case "dripping what fits":
                return 1_000 * CHUNK_SIZE // RATE_MIN - 10, bytes(len(right))
            case "forgetful":
                return (delay_ms, right) if self._rng.random() < 0.7 else None
        return None  # silent


KINDS = (
    "slow",
    "very slow",
    "liar",
    "part-time liar",
    "slow liar",
    "short",
    "empty",
    "forgetful",
    "silent",
    "dripping",
    "dripping what fits",
)

HONEST = {"honest", "slow", "very slow", "empty", "forgetful", "silent"}


def world(
    kinds: Sequence[str],
    data: bytes,
    size: int | None,
    known: int,
    seed: int,
    until_ms: int,
    *,
    size_max: int | None = None,
    are_mixed: bool = True,
) -> tuple[bytes | None, int, set[str]]:
    """Fetch ``data`` from providers of these kinds; what came, when, and the kinds of those that were named.

    One answer of a provider waits for the one before it, as on a link.
    """
    rng = random.Random(seed)
    peers = [sha256(bytes([number])) for number in range(len(kinds))]
    providers = {
        peer: Provider(kind, seed + place) for place, (peer, kind) in enumerate(zip(peers, kinds, strict=True))
    }
    downloads, content_hash, named = Downloads(2**28 if size_max else 2**24), sha256(data), set[str]()
    queue: list[tuple[int, int, PublicKey, Chunk]] = []
    free_ms, order = dict.fromkeys(peers, 0), count()

    def ask(requests: list[Request], now_ms: int) -> None:
        for peer, request in requests:
            if (answered := providers[peer].answer(request, data)) is not None:
                free_ms[peer] = max(free_ms[peer], now_ms) + answered[0]
                chunk = Chunk(content_hash, request.offset, answered[1])
                heapq.heappush(queue, (free_ms[peer], next(order), peer, chunk))

    for peer in rng.sample(peers, known) if are_mixed else peers[:known]:
        ask(downloads.want(content_hash, size, peer, 0, size_max), 0)
    for tick_ms in range(250, until_ms, 250):
        while queue and queue[0][0] <= tick_ms:
            now_ms, _, peer, chunk = heapq.heappop(queue)
            try:
                content, requests = downloads.on_chunk(peer, chunk, now_ms)
            except InvalidPayload:
                named.add(providers[peer].kind)
                ask(downloads.go_on(content_hash, now_ms), now_ms)
                continue
            ask(requests, now_ms)
            if content is not None:
                assert not downloads
                return content, now_ms, named
        if rng.random() < 0.02:
            gone = rng.choice(peers)
            queue = [item for item in queue if item[2] != gone]
            heapq.heapify(queue)
            free_ms[gone] = tick_ms
            ask(downloads.drop(gone, tick_ms, peers), tick_ms)
        ask(downloads.on_tick(tick_ms, peers), tick_ms)
    return None, until_ms, named
