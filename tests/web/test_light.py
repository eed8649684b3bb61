"""A light client of explorers says what it verified, believes little else, and names what a server lied about."""

import json
import signal
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from fedchain.chain.exceptions import InvalidBlock, InvalidCertificate, InvalidEncoding, NotFound, OutOfWindow
from fedchain.chain.explorer.light_blocks import LightBlocks
from fedchain.chain.genesis import Genesis
from fedchain.chain.light.bisection import ConflictingBlocks, Gap
from fedchain.chain.light.light_block import LightBlock
from fedchain.chain.light.verification import TRUST_PERIOD_MS
from fedchain.chain.state import genesis_state
from fedchain.chain.storage.sqlite import Store
from fedchain.web.light import Server, tell, verify_served
from tests.support.chain.builders import ChainBuilder, double_vote, genesis, keys
from tests.support.chain.explored import FakeRules, write, write_joined
from tests.support.chain.light import renewed_chain
from tests.support.web.lying import Lie, flooding, lying
from tests.support.web.site import HOME, site

NOW_MS = 1_700_000_100_000
GENESIS = genesis(4)


def write_chain(folder: Path, chain: ChainBuilder) -> Path:
    with Store.create(folder / "chain", chain.genesis) as store:
        write(store, chain)
    return folder


def pages(*folders: Path) -> TestClient:
    return TestClient(site(*folders, rules=lambda document: FakeRules()).app, base_url=HOME)


@pytest.fixture(scope="module")
def chain() -> ChainBuilder:
    builder = ChainBuilder(GENESIS)
    builder.extend_many(5)
    return builder


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory, chain: ChainBuilder) -> Iterator[TestClient]:
    with pages(write_chain(tmp_path_factory.mktemp("honest") / "run", chain)) as client:
        yield client


@pytest.fixture(scope="module")
def address(client: TestClient) -> Iterator[str]:
    with lying(client, {}) as address:
        yield address


def test_the_head_is_verified_and_five_lines_say_how(address: str, chain: ChainBuilder) -> None:
    report = verify_served([f"{address}#{GENESIS.chain_id.hex()}"], NOW_MS)
    header = chain.blocks[chain.tip].header
    assert (report.height, report.block_hash, report.round) == (5, chain.tip, 5)
    assert report.knowledge_root == header.knowledge_root
    assert (report.certificates, report.signatures, report.skipped, report.begun_at) == (1, 3, 4, 0)
    assert tell(report) == (
        f"federation  test, 4 members; chain id {GENESIS.chain_id.hex()}",
        f"verified    height 5, block {chain.tip.hex()}; 1 server has it",
        "verified    1 certificate with 3 votes, from the founding document on, 4 heights skipped",
        f"verified    knowledge {header.knowledge_root.hex()} after round 5: the votes are for its hash",
        "believed    the chain id: it is the one that you gave; that at most 1 of 4 members lie, that the voters "
        "recomputed what they voted for, and that no newer block is kept back",
    )


def test_members_that_change_are_followed_and_a_set_before_the_change_is_refused(tmp_path: Path) -> None:
    chain = renewed_chain(6, 8, 2)
    with pages(write_chain(tmp_path / "run", chain)) as client:
        with lying(client, {}) as address:
            report = verify_served([f"{address}#{chain.genesis.chain_id.hex()}"], NOW_MS)
        assert (report.height, report.block_hash, report.members, report.members_change) == (8, chain.tip, 8, True)
        assert 1 < report.certificates < 8
        line = "at most 2 of 8 members lie, and as few in each earlier set, even of those that have left since, that"
        assert line in tell(report)[4]
        yesterday = spoilt(lambda block: replace(block, members=genesis_state(chain.genesis).member_set))
        with (
            lying(client, {"/api/v1/run/light/8": yesterday}) as address,
            pytest.raises(InvalidBlock, match="member set"),
        ):
            verify_served([f"{address}#{chain.genesis.chain_id.hex()}"], NOW_MS)


def test_a_node_that_joined_serves_the_blocks_that_led_it_to_its_head(tmp_path: Path) -> None:
    """It has no others of the blocks below its head at first."""
    chain = renewed_chain(6, 8, 2)
    with Store.create(tmp_path / "run" / "chain", chain.genesis) as store:
        between = write_joined(store, chain)[:-1]
        assert 0 < len(between) < 7
    with pages(tmp_path / "run") as client, lying(client, {}) as address:
        report = verify_served([f"{address}#{chain.genesis.chain_id.hex()}"], NOW_MS)
        assert (report.block_hash, report.begun_at, report.certificates) == (chain.tip, 0, len(between) + 1)
        other = next(height for height in range(1, 8) if height not in between)
        assert client.get(f"/api/v1/run/light/{other}").status_code == 404
        given = client.get(f"/api/v1/run/light/{other}?low=0&high=8").json()["height"]
        assert given in between
        for gap in (f"low={given}&high={given + 1}", "low=8&high=20", "low=x&high=", "low=5&high=1"):
            found = client.get(f"/api/v1/run/light/{other}?{gap}")
            assert found.status_code == 404 or found.json()["height"] in between


def test_a_block_outside_of_the_gap_leads_nowhere(tmp_path: Path) -> None:
    chain = renewed_chain(6, 8, 2)
    with Store.create(tmp_path / "run" / "chain", chain.genesis) as store:
        write_joined(store, chain)
    with pages(tmp_path / "run") as client:
        head = client.get("/api/v1/run/light/8").json()["bytes"]
        beyond = {"/api/v1/run/light/4": lambda body: json.dumps({"bytes": head}).encode()}
        with lying(client, beyond) as address, pytest.raises(InvalidBlock, match="8 found, 4, which was asked for"):
            verify_served([f"{address}#{chain.genesis.chain_id.hex()}"], NOW_MS)


def test_a_document_that_nobody_named_is_believed_and_the_line_says_so(address: str) -> None:
    report = verify_served([f"{address}/run/"], NOW_MS)
    assert not report.is_compared
    assert "believed    the chain id: compare it with one from elsewhere" in tell(report)[4]


def test_a_block_that_is_named_is_trusted_while_it_is_young(
    address: str, chain: ChainBuilder, client: TestClient
) -> None:
    third = light_block(client, 3)
    url = f"{address}#{GENESIS.chain_id.hex()}/3/{third.header.hash.hex()}"
    report = verify_served([url], NOW_MS)
    assert (report.begun_at, report.block_hash, report.skipped) == (3, chain.tip, 1)
    assert "from block 3, which you named, on" in tell(report)[2]
    too_late = light_block(client, 2).certificate.clock_ms + TRUST_PERIOD_MS + 1
    with pytest.raises(OutOfWindow, match="trust period"):
        verify_served([url], too_late)
    verify_served([url], too_late - 1)
    first = f"{address}#{GENESIS.chain_id.hex()}/1/{light_block(client, 1).header.hash.hex()}"
    assert verify_served([first], NOW_MS).begun_at == 1
    without = {"/api/v1/run/light/3/below": lambda body: b'{"bytes": ""}'}
    with lying(client, without) as liar, pytest.raises(InvalidBlock, match="certificate below: "):
        verify_served([url.replace(address, liar)], NOW_MS)
    with pytest.raises(InvalidBlock, match="trusted block"):
        verify_served([f"{address}#{GENESIS.chain_id.hex()}/3/{'00' * 32}"], NOW_MS)
    of_head = f"{address}#{GENESIS.chain_id.hex()}/5/{chain.tip.hex()}"
    head = verify_served([of_head], NOW_MS)
    assert (head.certificates, head.height) == (0, 5)
    stale = {"/api/v1/run/status": altered(lambda found: found | {"height": 4})}
    behind = "is behind: its head is at height 4, below block 5, which you named"
    with lying(client, stale) as second, pytest.raises(NotFound, match=f"^{second} {behind}$"):
        verify_served([of_head, second], NOW_MS)
    other = spoilt(lambda block: replace(block, header=replace(block.header, knowledge_root=bytes(32))))
    with lying(client, {HEAD: other}) as second:
        for url in (of_head, address):
            with pytest.raises(InvalidBlock, match=f"another server: {second} has another block"):
                verify_served([url, second], NOW_MS)


def test_an_empty_chain_has_nothing_to_verify_but_its_document(tmp_path: Path) -> None:
    with pages(write_chain(tmp_path / "run", ChainBuilder(GENESIS))) as client, lying(client, {}) as address:
        report = verify_served([address], NOW_MS)
    assert (report.height, report.certificates, report.knowledge_root) == (0, 0, None)
    assert "knowledge none yet" in tell(report)[3]


def test_convictions_are_told(tmp_path: Path) -> None:
    builder = ChainBuilder(GENESIS)
    builder.extend(evidence=[double_vote(keys(4)[3], GENESIS, 1)])
    builder.extend_many(2)
    with pages(write_chain(tmp_path / "run", builder)) as client, lying(client, {}) as address:
        report = verify_served([address], NOW_MS)
    assert (report.convicted, report.height) == (1, 3)
    assert "4 members, 1 of them convicted;" in tell(report)[0]


def test_a_chain_with_small_committees_is_walked_by_few_questions(tmp_path: Path) -> None:
    builder = ChainBuilder(genesis(10, committee_size=3))
    builder.extend_many(120)
    asked = list[str]()

    def note(path: str) -> Lie:
        def unchanged(body: bytes) -> bytes:
            asked.append(path)
            return body

        return unchanged

    with pages(write_chain(tmp_path / "run", builder)) as client:
        listed = "/api/v1/run/light"
        single = [f"{listed}/{height}" for height in range(1, 121)]
        with lying(client, {path: note(path) for path in (listed, *single)}) as address:
            report = verify_served([address], NOW_MS)
    assert (report.certificates, report.skipped, report.block_hash) == (120, 0, builder.tip)
    assert asked.count(listed) < 70
    assert len(asked) < 190


# --- the interface


def light_block(client: TestClient, height: int) -> LightBlock:
    return LightBlock.decode(bytes.fromhex(client.get(f"/api/v1/run/light/{height}").json()["bytes"]), 2**16)


def test_the_interface_gives_light_blocks_in_bounds(client: TestClient, chain: ChainBuilder) -> None:
    block = light_block(client, 4)
    assert block.state == chain.states[block.header.parent_hash].encode()
    listed = client.get("/api/v1/run/light?from=2&limit=2").json()
    assert [item["height"] for item in listed] == [2, 3]
    assert bytes.fromhex(listed[1]["bytes"]) == replace(light_block(client, 3), state=b"").encode()
    assert [item["height"] for item in client.get("/api/v1/run/light").json()] == [1, 2, 3, 4, 5]
    assert client.get("/api/v1/run/light?from=6").json() == []
    assert len(client.get("/api/v1/run/light?limit=0").json()) == 1
    for height in (0, 6, "x", 10**20):
        assert client.get(f"/api/v1/run/light/{height}").status_code == 404


def test_an_answer_ends_at_its_bound(client: TestClient, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fedchain.web.interface.LIGHT_BYTES_MAX", 1_000)
    assert len(client.get("/api/v1/run/light").json()) == 2
    monkeypatch.setattr("fedchain.web.interface.LIGHT_MAX", 1)
    assert len(client.get("/api/v1/run/light?limit=5").json()) == 1


# --- lies


def altered(change: Callable[[Any], Any]) -> Lie:
    """A lie that changes an answer in JSON."""
    return lambda body: json.dumps(change(json.loads(body))).encode()


def spoilt(change: Callable[[LightBlock], LightBlock]) -> Lie:
    """A lie that changes a light block."""

    def lie(found: dict[str, Any]) -> dict[str, Any]:
        block = LightBlock.decode(bytes.fromhex(found["bytes"]), 2**16)
        return found | {"bytes": change(block).encode().hex()}

    return altered(lie)


def forge(block: LightBlock) -> LightBlock:
    first, *others = block.certificate.votes
    return replace(block, certificate=replace(block.certificate, votes=(replace(first, signature=bytes(64)), *others)))


HEAD = "/api/v1/run/light/5"
OTHER = genesis(4, name="other")

LIES: dict[str, tuple[dict[str, Lie], type[Exception], str]] = {
    "a forged signature": ({HEAD: spoilt(forge)}, InvalidCertificate, "signature"),
    "other knowledge": (
        {HEAD: spoilt(lambda block: replace(block, header=replace(block.header, knowledge_root=bytes(32))))},
        InvalidCertificate,
        "certificate's block",
    ),
    "another founding document": (
        {"/run/genesis.fedchain": lambda body: OTHER.encode()},
        InvalidBlock,
        f"serves {OTHER.chain_id.hex()}, {GENESIS.chain_id.hex()} expected",
    ),
    "no founding document": ({"/run/genesis.fedchain": lambda body: b"<html>"}, InvalidEncoding, "msgpack"),
    "a head that is not there": (
        {"/api/v1/run/status": altered(lambda found: found | {"height": 9})},
        NotFound,
        "status 404",
    ),
    "a head that is no number": (
        {"/api/v1/run/status": altered(lambda found: found | {"height": "9"})},
        InvalidEncoding,
        "its height is no number",
    ),
    "another form": ({"/api/v1/run/status": lambda body: b"[]"}, InvalidEncoding, "as no explorer does"),
    "no JSON": ({"/api/v1/run/status": lambda body: b"{"}, InvalidEncoding, "as no explorer does"),
    "many values": (
        {HEAD: altered(lambda found: found | {"more": [{}] * 2**16})},
        InvalidEncoding,
        "as no explorer does",
    ),
    "a deep list": ({"/api/v1/run/status": lambda body: b"[" * 100_000}, InvalidEncoding, "as no explorer does"),
    "no bytes": ({HEAD: altered(lambda found: {"bytes": 7})}, InvalidEncoding, "holds no bytes"),
    "too many bytes": ({HEAD: lambda body: body + b" " * 5 * 2**20}, InvalidEncoding, "with more than"),
    "no list of chains": ({"/api/v1/chains": altered(lambda found: [])}, NotFound, "serves 0 chains"),
    "a name that leads elsewhere": (
        {"/api/v1/chains": altered(lambda found: [{"key": "../etc"}])},
        NotFound,
        "names no chain",
    ),
}


@pytest.mark.parametrize("about", LIES)
def test_a_lie_is_named(about: str, client: TestClient) -> None:
    lies, error, words = LIES[about]
    with lying(client, lies) as address, pytest.raises(error, match=words):
        verify_served([f"{address}#{GENESIS.chain_id.hex()}"], NOW_MS)


def test_two_servers_agree_or_one_of_them_is_convicted(
    address: str, client: TestClient, chain: ChainBuilder, tmp_path: Path
) -> None:
    with lying(client, {}) as second:
        assert verify_served([address, second], NOW_MS).servers == 2
    twin = ChainBuilder(GENESIS)
    twin.extend_many(4)
    twin.extend(payload_of=9)
    with pages(write_chain(tmp_path / "run", twin)) as other, lying(other, {}) as second:
        with pytest.raises(ConflictingBlocks, match="height 5 has two certified blocks") as caught:
            verify_served([address, second], NOW_MS)
        assert len(caught.value.crimes) == 3
    with lying(client, {HEAD: spoilt(forge)}) as second:
        # Its header is the verified one; its certificate does not matter any more.
        assert verify_served([address, second], NOW_MS).block_hash == chain.tip


@pytest.mark.parametrize(
    "url",
    [
        *(
            "ftp://localhost/",
            "http://",
            "http://h:x/",
            "http://a:b@localhost/",
            "http://localhost/?q=1",
            "http://[::1/",
        ),
        *("http://a..b/", f"http://{'a' * 64}.org/", "http://\udcff/"),
    ],
)
def test_what_is_no_address_is_refused(url: str) -> None:
    with pytest.raises(NotFound, match="is not the address of an explorer"):
        Server(url)


def test_what_stands_behind_the_address_is_a_chain_id_or_more(address: str) -> None:
    for fragment in ("abc", GENESIS.chain_id.hex() + "/3", GENESIS.chain_id.hex() + "/0/" + "00" * 32):
        with pytest.raises(NotFound, match="is neither CHAIN-ID nor"):
            verify_served([f"{address}#{fragment}"], NOW_MS)


def test_a_server_that_is_gone_is_named(client: TestClient) -> None:
    with lying(client, {}) as address:
        pass
    with pytest.raises(NotFound, match=rf"^{address} does not answer: "):
        verify_served([address], NOW_MS)


CHUNKED = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n"
ENDLESS: dict[str, tuple[bytes, bytes]] = {
    "words that an answer will come": (b"", b"HTTP/1.1 100 Continue\r\n\r\n" * 100),
    "words about the answer": (CHUNKED + b"2\r\n{}\r\n0\r\n", b"more: words\r\n" * 100),
    "words about its parts": (CHUNKED, b"1;" + b"x" * 60_000 + b"\r\n \r\n"),
    "words about the last answer": (
        CHUNKED.replace(b"\r\n\r\n", b"\r\nconnection: close\r\n\r\n") + b"2\r\n{}\r\n0\r\n",
        b"more: words\r\n" * 100,
    ),
}


@pytest.mark.parametrize("about", ENDLESS)
def test_an_answer_without_an_end_is_not_waited_for(about: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fedchain.web.light.ANSWER_S", 0.2)
    with flooding(*ENDLESS[about]) as address:
        said = rf"^{address}/run does not answer: .*( takes longer than 0\.2 s|more than \d+ .*)$"  # Python 3.14 counts
        with pytest.raises(NotFound, match=said):
            verify_served([f"{address}/run"], NOW_MS)
        for thread in threading.enumerate():
            if thread.name == "fedchain-light":
                thread.join(20)
                assert not thread.is_alive()


def test_an_interrupt_does_not_wait_for_the_rest_of_an_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fedchain.web.light.TIMEOUT_S", 600.0)
    interrupt = threading.Timer(0.2, signal.pthread_kill, (threading.get_ident(), signal.SIGINT))
    with flooding(b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\n", b"") as address:
        interrupt.start()
        with pytest.raises(KeyboardInterrupt):
            verify_served([f"{address}/run"], NOW_MS)


def test_an_answer_with_a_negative_size_is_none() -> None:
    with (
        flooding(CHUNKED + b"-5\r\n{}\r\n", b"") as address,
        pytest.raises(NotFound, match=rf"^{address}/run does not answer: "),
    ):
        verify_served([f"{address}/run"], NOW_MS)


def test_a_server_of_several_chains_asks_for_one(tmp_path: Path) -> None:
    folders = []
    for name in ("one", "two"):
        builder = ChainBuilder(genesis(4, name=name))
        builder.extend()
        folders.append(write_chain(tmp_path / name, builder))
    with pages(*folders) as client, lying(client, {}) as address:
        with pytest.raises(NotFound, match="serves 2 chains; put one of one, two behind it"):
            verify_served([address], NOW_MS)
        assert verify_served([f"{address}/two"], NOW_MS).name == "two"


def test_the_document_is_asked_for_once(address: str) -> None:
    with Server(address) as server:
        found: Genesis = server.genesis()
        assert server.genesis() is found


def test_light_blocks_are_computed_once_and_few_are_kept(
    tmp_path: Path, chain: ChainBuilder, monkeypatch: pytest.MonkeyPatch
) -> None:
    computed = list[int]()
    compute = LightBlocks.light_block

    def counted(self: LightBlocks, height: int, gap: Gap | None = None) -> LightBlock:
        computed.append(height)
        return compute(self, height, gap=gap)

    monkeypatch.setattr(LightBlocks, "light_block", counted)
    monkeypatch.setattr("fedchain.web.chains.LIGHTS_KEPT", 2)
    with pages(write_chain(tmp_path / "run", chain)) as client:
        for height in (1, 2, 1, 2, 3, 2, 1):
            assert light_block(client, height).header.height == height
        assert client.get("/api/v1/none/light/1").status_code == 404
    assert computed == [1, 2, 3, 1], "the oldest makes room"


def test_light_blocks_are_read_from_one_store_that_stays_open_and_is_looked_at_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened, open_store = list[Path](), Store.open

    def counted(folder: Path, *others: Any, **how: Any) -> Store:
        opened.append(folder)
        return open_store(folder, *others, **how)

    chain = ChainBuilder(GENESIS)
    chain.extend_many(4)
    folder = write_chain(tmp_path / "run", chain)
    monkeypatch.setattr(Store, "open", counted)
    with pages(folder) as client:
        light_block(client, 1)
        before = len(opened)
        for height in (2, 3, 4):
            assert light_block(client, height).header.height == height
        assert len(opened) == before
        with open_store(folder / "chain") as store:
            store.append([chain.final(chain.extend())])
        assert light_block(client, 5).header == chain.blocks[chain.tip].header
