"""Peers are found, found again, and dialled as long as they are gone."""

import socket
import threading
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import trio
from libp2p.abc import INetStream
from libp2p.peer.id import ID

from fedchain.crypto.keys import PublicKey
from fedchain.files.layout import ADDRESS_FILE
from fedchain.network.libp2p.addresses import AddressBook
from fedchain.network.libp2p.finder import LOOK_UPS_MAX, Finder
from fedchain.network.limits import Limits
from fedchain.network.messages import PostMessage
from fedchain.testing.networks import gossip
from tests.support.network.real import MEMBERS, TIMEOUT_S, Inbox, meshed, on_trio, peer, until, works


def post(number: int, size: int = 64) -> PostMessage:
    """One of many different gossip messages."""
    return PostMessage(gossip().post, number.to_bytes(8, "big") + bytes(size))


@on_trio
async def test_a_peer_that_is_gone_is_dialled_until_it_is_back_and_its_gossip_is_heard() -> None:
    async with peer(0) as one:
        inbox = Inbox(one)
        async with peer(1, one) as two:
            await meshed(one, two)
            for number in range(50):
                two.publish(post(number))
            await until(lambda: len(inbox.messages) == 50)
            listen = two.listen_addresses()[0]
        await until(lambda: not one.peers())
        one.book.add_fixed(MEMBERS[1], listen.partition("/p2p/")[0])
        await until(lambda: one.book._contacts[MEMBERS[1]].failures >= 2, "two attempts")
        async with peer(1, listen=listen.partition("/p2p/")[0]) as two:  # without a bootstrap of its own
            await meshed(one, two)
            two.publish(post(50))
            await until(lambda: len(inbox.messages) == 51)


@on_trio
async def test_peers_learn_of_each_other_from_a_third_one() -> None:
    limits = Limits(redial_min_s=0.1, exchange_interval_s=0.6)
    async with (
        peer(0, limits=limits) as hub,
        peer(1, hub, limits=limits) as one,
        peer(2, hub, limits=limits) as two,
    ):
        await until(lambda: MEMBERS[2] in one.peers() and MEMBERS[1] in two.peers(), "the third side")


@on_trio
async def test_nobody_s_word_replaces_that_of_a_member_on_where_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    limits, asked = Limits(redial_min_s=0.1, peers_wanted=0, exchange_interval_s=0.2), list[PublicKey]()
    true, false = "/ip4/127.0.0.1/tcp/1", "/ip4/127.0.0.1/tcp/2"

    def lie(asker: PublicKey) -> list[tuple[PublicKey, list[str]]]:
        asked.append(asker)
        return [(MEMBERS[2], [false])]

    async with peer(0, limits=limits) as liar:
        monkeypatch.setattr(liar.book, "sample", lie)
        async with peer(1, liar, limits=limits) as one:
            one.book.add_told(MEMBERS[2], [true], by_itself=True)
            before = len(asked)
            await until(lambda: len(asked) >= before + 3, "it was told three times")
            assert one.book.known()[MEMBERS[2]] == [true]


@on_trio
async def test_a_peer_finds_the_others_again_without_those_that_it_was_started_from(tmp_path: Path) -> None:
    limits = Limits(redial_min_s=0.1, exchange_interval_s=3.0)
    async with peer(1, limits=limits) as other:
        async with peer(0, other, limits=limits) as hub, peer(2, hub, limits=limits, folder=tmp_path) as one:
            await until(lambda: MEMBERS[1] in one.peers(), "the third side")
            await until(lambda: one.book.sample(MEMBERS[0]))
        await until(lambda: not other.peers())
        async with peer(2, limits=limits, folder=tmp_path) as one:
            await until(lambda: one.peers() == [MEMBERS[1]], "the peer that is left")


@on_trio
async def test_addresses_are_saved_while_it_runs_and_a_full_disk_ends_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("fedchain.network.libp2p.network.SAVE_INTERVAL_S", 0.01)
    path, save, saves = tmp_path / "sub" / ADDRESS_FILE, AddressBook.save, list[AddressBook]()

    def count(book: AddressBook) -> None:
        saves.append(book)
        save(book)

    monkeypatch.setattr(AddressBook, "save", count)
    async with peer(0, folder=path.parent) as one:
        one.book.add_told(MEMBERS[3], ["/ip4/127.0.0.1/tcp/9"], by_itself=True)
        await works(one)
        await until(lambda: len(saves) >= 3, "three attempts")
        path.parent.mkdir()
        await until(path.exists, "a file")
    assert caplog.text.count("known addresses cannot be saved") == 1


@on_trio
async def test_who_is_pardoned_is_dialled_at_once() -> None:
    patient = Limits(redial_min_s=0.4, redial_max_s=1e6, peers_wanted=0)
    async with peer(1, limits=patient) as two, peer(0, two, limits=patient) as one:
        await until(one.peers)
        one.blame(MEMBERS[1], 2 * patient.blame_max, "it lied")
        await until(lambda: one.book._contacts[MEMBERS[1]].failures >= 3, "three attempts that are none")
        for _ in range(20):
            one.book.on_failure(MEMBERS[1], trio.current_time())
        assert one.pardon(MEMBERS[1])
        await until(one.peers)


@on_trio
async def test_who_is_slow_to_answer_is_not_asked_again_meanwhile(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where answers take longer than the time between two questions, streams would pile up until all are refused."""
    limits, asked = Limits(redial_min_s=0.04, exchange_interval_s=0.01), Counter[ID]()

    async def count(finder: Finder, stream: INetStream) -> None:
        asked[finder._host.get_id()] += 1
        if finder._host is slow.host:
            await trio.sleep_forever()
        await answer(finder, stream)

    answer = Finder._answer
    monkeypatch.setattr(Finder, "_answer", count)
    async with peer(0) as slow, peer(1) as quick, peer(2, slow, quick, limits=limits) as one:
        await until(lambda: len(one.peers()) == 2)
        await until(lambda: asked[quick.host.get_id()] > 40, "many questions to the quick one")
        assert asked[slow.host.get_id()] == 1


@on_trio
async def test_slow_name_servers_take_no_thread_from_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """A liar chooses names, of its own, its guests' and members that are away, and how long their servers take."""
    limits = Limits(redial_min_s=0.05, redial_max_s=0.05, handshake_timeout_s=0.1)
    answers, asked, look_up = threading.Event(), list[str](), socket.getaddrinfo

    def hang(host: str, *rest: Any, **words: Any) -> Any:
        if ".example" not in host or (len(rest) > 4 and rest[4]) or words.get("flags"):
            return look_up(host, *rest, **words)
        asked.append(host)
        answers.wait(TIMEOUT_S)
        raise socket.gaierror(socket.EAI_AGAIN, "Temporary failure in name resolution")

    async with peer(0, limits=limits, members=MEMBERS) as one:
        monkeypatch.setattr(socket, "getaddrinfo", hang)
        one.track(1, MEMBERS, guests=MEMBERS[4:])
        for number, member in enumerate(MEMBERS[1:]):
            names = [f"/dns4/{number}-{place}.example/tcp/1" for place in range(4)]
            one.book.add_told(member, names, by_itself=False)
        try:
            await until(lambda: all(one.book._contacts[member].failures >= 4 for member in MEMBERS[1:]), "attempts")
            assert trio.to_thread.current_default_thread_limiter().borrowed_tokens == 0, "the disk's"
            assert len(asked) == LOOK_UPS_MAX * 4, "three members, and all guests"
        finally:
            answers.set()
