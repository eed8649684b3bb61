"""Providers of a content: how many, and in which order they are asked."""

from fedchain.crypto.hashing import sha256
from fedchain.network.downloads import Downloads
from fedchain.network.providers import PROVIDERS_MAX, REST_MS, Providers
from fedchain.network.source import STALL_MS
from tests.support.network.contents import DATA_HASH, A, B, C


def test_when_all_known_providers_stall_every_connected_peer_is_asked() -> None:
    peers = [sha256(bytes([number])) for number in range(3 * PROVIDERS_MAX)]
    downloads, asked = Downloads(2**20), set[bytes]()
    downloads.want(DATA_HASH, 10, A, 0)
    for turn in range(200):
        asked |= {who for who, _ in downloads.on_tick((turn + 1) * STALL_MS, peers)}
    assert asked >= {*peers}


def test_those_that_contradict_a_signed_size_come_last_also_when_others_made_way() -> None:
    providers = Providers(A, asks_others=False)
    for other in (B, C):
        providers.add(other)
    providers.doubt(B)
    providers.rest(A, 0)
    assert providers.rested((), REST_MS - 1) == [C, B]
    assert providers.rested((), REST_MS) == [C, A, B]


def test_there_is_a_limit_to_providers() -> None:
    downloads = Downloads(2**20)
    providers = [sha256(bytes([number])) for number in range(PROVIDERS_MAX + 5)]
    asked = set[bytes]()
    for provider in providers:
        asked |= {who for who, _ in downloads.want(DATA_HASH, 10, provider, 0)}
    for turn in range(30 * PROVIDERS_MAX):
        asked |= {who for who, _ in downloads.on_tick((turn + 1) * STALL_MS)}
    assert asked == set(providers[:PROVIDERS_MAX])
