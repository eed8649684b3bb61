"""A block's page checks its certificate in a real browser, and shows a lie of the server that made the page."""

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from playwright.sync_api import Browser, BrowserContext, Error, Locator, Page, Route, expect

from fedchain.chain.block import Block
from fedchain.chain.certificate import certify
from fedchain.chain.encoding import encode
from fedchain.chain.light.electorate import named_by_header
from fedchain.chain.light.light_block import LightBlock
from fedchain.chain.membership.amendment import amendment_of
from fedchain.chain.membership.change import propose_amendment
from fedchain.chain.membership.member_set import MemberSet
from fedchain.chain.membership.turnout import Turnout, mark_seats
from fedchain.chain.state import genesis_state
from fedchain.chain.storage.sqlite import Store
from fedchain.chain.validation import CLOCK_MS_MAX
from fedchain.chain.vote import Vote, VoteKind, sign_vote
from fedchain.crypto.hashing import Hash
from fedchain.crypto.keys import PrivateKey, PublicKey
from tests.support.chain.builders import ChainBuilder, double_post, double_vote, genesis, keys
from tests.support.chain.changes import approved, joining, living, living_genesis, own
from tests.support.chain.explored import FakeRules, write, write_joined
from tests.support.chain.light import light, renewed_chain
from tests.support.web.browsing import AXE, AXE_RUN, CONTRAST, LEVELS_A_AND_AA, NEEDS_CHROMIUM, served
from tests.support.web.browsing import browser as browser
from tests.support.web.builders import append

pytestmark = NEEDS_CHROMIUM

PLAIN = ChainBuilder(genesis(4, name="plain"))
PLAIN.extend_many(3)
DRAWN = ChainBuilder(genesis(7, name="drawn", committee_size=5))
DRAWN.extend_many(2)
FEW = ChainBuilder(genesis(7, name="few", committee_size=3))
FEW.extend_many(2)
GUILTY = ChainBuilder(genesis(7, name="guilty"))
GUILTY.extend(evidence=[double_vote(keys(7)[6], GUILTY.genesis, 1)])
GUILTY.extend(evidence=[double_post(keys(7)[5], GUILTY.genesis, 2)])
GUILTY.extend()
CRASH = ChainBuilder(genesis(4, name="crash", fault_model=PLAIN.genesis.fault_model.CRASH))
CRASH.extend()
RENEWED = renewed_chain(6, 8, 2)
MOVED = living(8, committee_size=3, name="moved")
MOVED.extend(changes=[joining(MOVED, 8), own(MOVED, 0)])
MOVED.extend_many(4)
AMENDED = living(8, name="amended")
AMENDED.extend(
    changes=[approved(AMENDED, propose_amendment(amendment_of({"committee_size": 5}), "", sequence=0, until=9))]
)
AMENDED.extend_many(4)


class _Seeing(ChainBuilder):
    """A chain whose precommits say what their voters saw, as those of nodes do."""

    def vote(self, voter: PublicKey, block: Hash | Block, **fields: Any) -> Vote:
        said = super().vote(voter, block, **fields)
        measured = {"clock_ms": said.clock_ms, "mining_ms": said.mining_ms}
        turnout = Turnout(1_000, 20, mark_seats((0, 1)), b"")
        return sign_vote(
            self.key(voter), self.genesis.chain_id, said.slot, said.block_hash, turnout=turnout, **measured
        )


SEEN = _Seeing(living_genesis(8, name="seen"))
SEEN.extend_many(2)
LIVE = ChainBuilder(genesis(4, name="live"))
LIVE.extend()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("site")


@pytest.fixture(scope="module")
def address(folder: Path) -> Iterator[str]:
    for chain in (PLAIN, DRAWN, FEW, GUILTY, CRASH, RENEWED, MOVED, AMENDED, SEEN, LIVE):
        with Store.create(folder / chain.genesis.name / "chain", chain.genesis) as store:
            write(store, chain)
    with served(folder, lambda document: FakeRules()) as address:
        yield address


@pytest.fixture(scope="module")
def shared(browser: Browser) -> Iterator[BrowserContext]:
    """Pages of one context have a process in common, which takes longer to begin than a page to be checked."""
    with browser.new_context() as context:
        context.set_default_timeout(20_000)
        yield context


@pytest.fixture
def page(shared: BrowserContext) -> Iterator[Page]:
    with shared.new_page() as page:
        yield page


def line(page: Page) -> Locator:
    return page.locator("#checked")


QUORUM = "electors signed the vote for this block,"


@pytest.mark.parametrize(
    ("chain", "height", "count", "believed"),
    [
        (PLAIN, 1, f"3 of 4 {QUORUM} 3 were needed", "that at most 1 of 4 members lie."),
        (PLAIN, 3, f"3 of 4 {QUORUM} 3 were needed", "that at most 1 of 4 members lie."),
        (DRAWN, 2, f"4 of 5 {QUORUM} 4 were needed", "that at most 2 of 7 members lie."),
        (
            FEW,
            2,
            f"2 of 3 {QUORUM} 2 were needed",
            "members lie, and that the block below, which drew the electors, is real.",
        ),
        (GUILTY, 1, f"5 of 7 {QUORUM} 5 were needed", "that at most 2 of 7 members lie."),
        (GUILTY, 2, f"4 of 6 {QUORUM} 4 were needed", "that at most 2 of 7 members lie."),
        (GUILTY, 3, f"4 of 5 {QUORUM} 4 were needed", "that at most 2 of 7 members lie."),
        (CRASH, 1, f"3 of 4 {QUORUM} 3 were needed", "that no member lies."),
    ],
)
def test_the_votes_for_a_block_are_checked_in_the_browser(
    address: str, page: Page, chain: ChainBuilder, height: int, count: str, believed: str
) -> None:
    page.goto(f"{address}/{chain.genesis.name}/block/{height}")
    expect(line(page)).to_have_class("card verdict good")
    expect(line(page)).to_contain_text(f"checked in this browser {count}; the header has this hash")
    expect(line(page)).to_contain_text("Believed: that these are the members: their keys came from this server.")
    expect(line(page)).to_contain_text(f"Compare the chain id {chain.genesis.chain_id.hex()} with one from elsewhere")
    expect(line(page)).to_contain_text(believed)


@pytest.mark.parametrize(
    ("chain", "height", "count", "between"),
    [
        (RENEWED, 1, f"6 of 8 {QUORUM} 6 were needed", ""),
        (RENEWED, 3, f"6 of 8 {QUORUM} 6 were needed", ""),
        (RENEWED, 8, f"6 of 8 {QUORUM} 6 were needed", " blocks between the founders and these electors were checked"),
        (SEEN, 2, f"6 of 8 {QUORUM} 6 were needed", ""),
        (AMENDED, 2, f"6 of 8 {QUORUM} 6 were needed", ""),
        (AMENDED, 5, f"4 of 5 {QUORUM} 4 were needed", ""),
        (MOVED, 5, f"2 of 3 {QUORUM} 2 were needed", "4 blocks between the founders and these electors were checked"),
    ],
)
def test_members_that_change_are_followed_in_the_browser(
    address: str, page: Page, chain: ChainBuilder, height: int, count: str, between: str
) -> None:
    page.goto(f"{address}/{chain.genesis.name}/block/{height}")
    expect(line(page)).to_have_class("card verdict good")
    expect(line(page)).to_contain_text(f"checked in this browser {count}; the header has this hash")
    expect(line(page)).to_contain_text(between)
    expect(line(page)).to_contain_text("Believed: that these are the founders: their keys came from this server.")
    expect(line(page)).to_contain_text("at most 2 of 8 members lie, and as few in each earlier set")


COUNTED = """
    window.verified = [];
    const verify = crypto.subtle.verify.bind(crypto.subtle);
    crypto.subtle.verify = (kind, key, signature, message) => {
        window.verified.push(String(signature));
        return verify(kind, key, signature, message);
    };
"""


def test_no_vote_is_verified_twice_where_a_block_waits_for_others(address: str, page: Page) -> None:
    page.add_init_script(COUNTED)
    page.goto(f"{address}/{RENEWED.genesis.name}/block/8")
    expect(line(page)).to_contain_text("blocks between the founders and these electors were checked")
    verified = page.evaluate("window.verified")
    assert len(verified) == len(set(verified)) > 6


def test_the_way_is_found_over_the_blocks_that_led_a_node_to_its_head(tmp_path: Path, page: Page) -> None:
    with Store.create(tmp_path / "joined" / "chain", RENEWED.genesis) as store:
        between = write_joined(store, RENEWED)[:-1]
    with served(tmp_path, lambda document: FakeRules()) as address:
        page.goto(f"{address}/joined/block/8")
        expect(line(page)).to_have_class("card verdict good")
        expect(line(page)).to_contain_text(
            f"{len(between)} blocks between the founders and these electors were checked"
        )


def test_the_line_stays_when_the_page_is_brought_up_to_date(address: str, folder: Path, page: Page) -> None:
    page.goto(f"{address}/live/block/1")
    expect(line(page)).to_have_class("card verdict good")
    append(folder / "live", LIVE, LIVE.extend())
    expect(page.get_by_role("link", name="Block 2")).to_have_count(1)
    expect(line(page)).to_have_class("card verdict good")
    expect(line(page)).to_be_visible()


def test_the_line_is_written_once_for_readers_of_the_screen(address: str, folder: Path, page: Page) -> None:
    page.goto(f"{address}/live/block/1")
    expect(line(page)).to_have_class("card verdict good")
    line(page).evaluate(
        """line => {
            window.written = 0;
            const count = (changes) => { window.written += changes.length; };
            new MutationObserver(count).observe(line, { attributes: true, childList: true, subtree: true });
        }"""
    )
    append(folder / "live", LIVE, LIVE.extend())
    with page.expect_response(lambda answer: answer.request.resource_type == "fetch"):
        append(folder / "live", LIVE, LIVE.extend())
    expect(line(page)).to_be_visible()
    assert page.evaluate("window.written") == 0


def test_the_votes_for_a_block_that_was_not_there_when_its_page_was_opened_are_checked(
    address: str, folder: Path, page: Page
) -> None:
    page.goto(f"{address}/live/block/{LIVE.state.height + 1}")
    expect(page.get_by_role("heading", level=1)).to_have_text("Not found")
    append(folder / "live", LIVE, LIVE.extend())
    expect(line(page)).to_have_class("card verdict good")
    assert page.evaluate("[...document.scripts].filter(({ src }) => src.endsWith('/light.js')).length") == 1


def test_votes_that_could_not_be_read_are_no_lie_and_are_asked_for_again(
    address: str, folder: Path, page: Page
) -> None:
    """The server may be about to end, or a proxy may answer in its place."""
    events: list[Route] = []
    page.route("**/live/events", lambda route: events.append(route))
    page.route("**/api/v1/live/light/1", lambda route: route.fulfill(status=503), times=1)
    page.goto(f"{address}/live/block/1")
    expect(line(page)).to_have_text(
        "not checked here The block's votes cannot be read: /api/v1/live/light/1 is not to be had"
    )
    expect(line(page)).to_have_class("card verdict")
    events[0].continue_()
    expect(line(page)).to_have_class("card verdict good")


# --- a server that lies


def answering(page: Page, pattern: str, change: Callable[[bytes], bytes]) -> None:
    """Have the server's answers altered."""

    def answer(route: Route) -> None:
        with suppress(Error):  # a page that follows the chain may ask once more while it is closed
            honest = route.fetch()
            route.fulfill(response=honest, body=change(honest.body()))

    page.route(pattern, answer)


def spoilt(change: Callable[[LightBlock], LightBlock]) -> Callable[[bytes], bytes]:
    def lie(body: bytes) -> bytes:
        found: dict[str, Any] = json.loads(body)
        block = LightBlock.decode(bytes.fromhex(found["bytes"]), 2**16)
        return json.dumps(found | {"bytes": change(block).encode().hex()}).encode()

    return lie


def forge(block: LightBlock, *places: int) -> LightBlock:
    votes = list(block.certificate.votes)
    for place in places:
        votes[place] = replace(votes[place], signature=bytes(64))
    return replace(block, certificate=replace(block.certificate, votes=tuple(votes)))


def everybody(block: LightBlock) -> LightBlock:
    certificate = PLAIN.certificate(block.header.hash, sorted(PLAIN.genesis.members))
    return replace(block, certificate=certificate)


def again(block: LightBlock) -> LightBlock:
    votes = block.certificate.votes
    return replace(block, certificate=replace(block.certificate, votes=(votes[0], votes[0], votes[1])))


def elsewhere(block: LightBlock) -> LightBlock:
    other = PLAIN.blocks[block.header.parent_hash]
    return replace(block, certificate=PLAIN.certificate(other))


def without_state(block: LightBlock) -> LightBlock:
    return replace(block, state=PLAIN.states[PLAIN.genesis.chain_id].encode())


def by_others(block: LightBlock) -> LightBlock:
    slot = block.certificate.votes[0].slot
    votes = [sign_vote(key, block.chain_id, slot, block.header.hash, clock_ms=1, mining_ms=1) for key in keys(8)[4:7]]
    return replace(block, certificate=certify(votes))


def turned(block: LightBlock) -> LightBlock:
    return replace(block, certificate=replace(block.certificate, votes=block.certificate.votes[::-1]))


def said_again(vote: Vote, **fields: Any) -> Vote:
    """A vote that its voter, a liar, signs with other fields."""
    said: dict[str, Any] = {"clock_ms": vote.clock_ms, "mining_ms": vote.mining_ms} | fields
    return sign_vote(PLAIN.key(vote.voter), PLAIN.genesis.chain_id, vote.slot, vote.block_hash, **said)


def late(block: LightBlock) -> LightBlock:
    """One liar's clock is no time; its vote counts for no node, and the others are no quorum."""
    first, *others = block.certificate.votes
    return replace(block, certificate=certify([said_again(first, clock_ms=CLOCK_MS_MAX + 1), *others]))


def of_version_2(block: LightBlock) -> LightBlock:
    """A vote says what its voter saw, which it cannot in this version."""
    first, *others = block.certificate.votes
    turnout = Turnout(1_000, 20, mark_seats((0, 1)), b"")
    return replace(block, certificate=certify([said_again(first, turnout=turnout), *others]))


def prevoted(block: LightBlock) -> LightBlock:
    """A quorum wanted to vote for the block, which another one may have taken the place of."""
    return replace(block, certificate=PLAIN.certificate(PLAIN.tip, kind=VoteKind.PREVOTE))


def of_no_version(block: LightBlock) -> LightBlock:
    """A quorum signs what no node would read."""
    header, first = replace(block.header, version=4), block.certificate.votes[0]
    votes = [
        sign_vote(RENEWED.key(vote.voter), block.chain_id, first.slot, header.hash, clock_ms=1, mining_ms=1)
        for vote in block.certificate.votes
    ]
    return replace(block, header=header, certificate=certify(votes))


LIES: dict[str, tuple[Callable[[LightBlock], LightBlock], str]] = {
    "votes in another order": (turned, "its votes are in another order"),
    "a clock that is no time": (late, "its bytes have another form than a light block"),
    "a turnout in version 2": (of_version_2, "its bytes have another form than a light block"),
    "a spoilt signature": (lambda block: forge(block, 0), "only 2 of 4 electors signed the vote for this block, and 3"),
    "one more vote, spoilt": (lambda block: forge(everybody(block), 3), "1 of 4 votes are not signed by an elector"),
    "votes of others than the electors": (by_others, "only 0 of 4 electors signed the vote for this block"),
    "one voter twice": (again, "only 2 of 4 electors signed the vote for this block, and 3 are needed"),
    "another clock": (
        lambda block: replace(
            block,
            certificate=replace(
                block.certificate,
                votes=(replace(block.certificate.votes[0], clock_ms=5), *block.certificate.votes[1:]),
            ),
        ),
        "only 2 of 4 electors",
    ),
    "votes that make nothing final": (prevoted, "its votes are for another block"),
    "votes for another block": (elsewhere, "its votes are for another block"),
    "another header": (
        lambda block: replace(block, header=replace(block.header, knowledge_root=bytes(32))),
        "the hashes on this page are not those of the header that was signed",
    ),
    "another state": (without_state, "the state below it is another one"),
    "another chain": (lambda block: replace(block, chain_id=bytes(32)), "its bytes are of another chain"),
}


@pytest.mark.parametrize("about", LIES)
def test_a_lie_of_the_server_is_shown_as_one(address: str, page: Page, about: str) -> None:
    change, words = LIES[about]
    answering(page, "**/api/v1/plain/light/3", spoilt(change))
    page.goto(f"{address}/plain/block/3")
    expect(line(page)).to_have_class("card verdict false")
    expect(line(page).locator(".tag.bad")).to_have_text("FALSE")
    expect(line(page)).to_contain_text(words)


def in_a_longer_form(data: bytes) -> bytes:
    """The header's version is a number behind a byte that says its width."""
    header = encode(PLAIN.blocks[PLAIN.tip].header.to_record())
    assert header[1] < 0x80
    return data.replace(header, header[:1] + b"\xcc" + header[1:])


MALFORMED: dict[str, tuple[Callable[[bytes], bytes], str]] = {
    "more bytes": (lambda data: data + b"\0", "the answer is longer than its value"),
    "fewer bytes": (lambda data: data[:-1], "the answer ends within a value"),
    "a longer number": (in_a_longer_form, "a number in the answer is not in its shortest form"),
    "lists in lists": (lambda data: b"\x91" * 100_000, "the answer has too many lists"),
}


@pytest.mark.parametrize("about", MALFORMED)
def test_bytes_that_no_node_would_read_are_a_lie(address: str, page: Page, about: str) -> None:
    change, words = MALFORMED[about]

    def lie(body: bytes) -> bytes:
        found: dict[str, Any] = json.loads(body)
        return json.dumps(found | {"bytes": change(bytes.fromhex(found["bytes"])).hex()}).encode()

    answering(page, "**/api/v1/plain/light/3", lie)
    page.goto(f"{address}/plain/block/3")
    expect(line(page)).to_have_class("card verdict false")
    expect(line(page)).to_contain_text(words)


FOUNDERS = genesis_state(RENEWED.genesis).member_set
SETS: dict[str, tuple[Callable[[LightBlock], LightBlock], str]] = {
    "a forged set": (
        lambda block: replace(block, members=FOUNDERS),
        "the members that came with it are not those that the header below names",
    ),
    "another header below": (
        lambda block: replace(block, members=FOUNDERS, below=light(RENEWED, next(iter(RENEWED.blocks))).header),
        "the header below it is another one",
    ),
    "no header below": (lambda block: replace(block, below=None), "the header below it is another one"),
    "votes of an earlier set": (
        lambda block: replace(block, certificate=RENEWED.certificate(block.header.hash, sorted(FOUNDERS.members)[:6])),
        "only 0 of 8 electors signed the vote for this block",
    ),
}


@pytest.mark.parametrize("about", SETS)
def test_a_lie_about_members_that_changed_is_shown_as_one(address: str, page: Page, about: str) -> None:
    change, words = SETS[about]
    answering(page, "**/api/v1/renewed/light/8", spoilt(change))
    page.goto(f"{address}/renewed/block/8")
    expect(line(page)).to_have_class("card verdict false")
    expect(line(page)).to_contain_text(words)


def test_a_block_on_the_way_of_a_version_that_no_node_knows_is_a_lie(address: str, page: Page) -> None:
    answering(page, "**/api/v1/renewed/light/4?*", spoilt(of_no_version))
    page.goto(f"{address}/renewed/block/8")
    expect(line(page)).to_have_class("card verdict false")
    expect(line(page)).to_contain_text("its header is of another version")


def signed_by(block: LightBlock, people: Sequence[PrivateKey], voters: int) -> LightBlock:
    """A block as a server makes it up: its header below names the people as members, and the first of them sign it."""
    assert block.below is not None
    order = sorted(people, key=lambda key: key.public_key)
    members = MemberSet(tuple(key.public_key for key in order), tuple(range(len(order))))
    below = replace(block.below, members_root=members.root)
    made = replace(block.header, parent_hash=below.hash)
    slot = made.height, *block.certificate.votes[0].slot[1:]
    votes = [sign_vote(key, block.chain_id, slot, made.hash, clock_ms=1, mining_ms=1) for key in people[:voters]]
    return LightBlock(block.chain_id, made, certify(votes), members=members, below=below)


def light_at(height: int) -> LightBlock:
    """The light block of a chain whose members change."""
    found = RENEWED.tip
    while RENEWED.blocks[found].header.height > height:
        found = RENEWED.blocks[found].header.parent_hash
    return light(RENEWED, found)


def answering_with(page: Page, honest: LightBlock, forged: LightBlock) -> None:
    """Have a server answer with another block than the chain's, and write its hashes on the page."""
    height = honest.header.height
    answering(page, f"**/api/v1/*/light/{height}", spoilt(lambda block: forged))

    def repaint(body: bytes) -> bytes:
        for name in ("hash", "parent_hash"):
            old, new = (getattr(block.header, name).hex().encode() for block in (honest, forged))
            body = body.replace(old, new)
        return body

    answering(page, f"**/*/block/{height}", repaint)


STRANGERS = keys(40)[32:]


@pytest.mark.parametrize(("height", "liars"), [(2, 0), (8, 2)])
def test_a_block_that_a_server_made_up_with_keys_of_its_own_is_believed_by_nobody(
    address: str, page: Page, height: int, liars: int
) -> None:
    """At the next height, and far away with as many votes of founders as may lie."""
    founders = sorted(RENEWED.genesis.members)[:liars]
    people = [*(RENEWED.key(member) for member in founders), *STRANGERS[liars:]]
    honest = light_at(height)
    answering_with(page, honest, signed_by(honest, people, 6))
    page.goto(f"{address}/renewed/block/{height}")
    expect(line(page)).to_have_class("card verdict false")
    expect(line(page)).to_contain_text("a block on the way to it does not stand on the one below")


def test_the_electors_of_a_height_of_two_bytes_are_drawn_as_nodes_draw_them(address: str, page: Page) -> None:
    sample, founders = light(MOVED, MOVED.tip), genesis_state(MOVED.genesis).member_set
    assert sample.below is not None
    below = replace(sample.below, height=299, members_root=founders.root)
    header, first = replace(sample.header, height=300, parent_hash=below.hash), sample.certificate.votes[0]
    block = replace(sample, header=header, members=founders, below=below)
    electors = named_by_header(MOVED.genesis, block, below).electors
    slot = 300, *first.slot[1:]
    votes = [
        sign_vote(MOVED.key(member), block.chain_id, slot, header.hash, clock_ms=1, mining_ms=1) for member in electors
    ]
    answering_with(page, sample, replace(block, certificate=certify(votes)))
    page.goto(f"{address}/moved/block/{sample.header.height}")
    expect(line(page)).to_have_class("card verdict good")
    expect(line(page)).to_contain_text("3 of 3 electors signed the vote for this block")


FIRST = RENEWED.key(RENEWED.genesis.members[0])


@pytest.mark.parametrize("people", [STRANGERS, [FIRST], [FIRST, *STRANGERS[1:]]])
def test_members_that_are_not_the_founders_sign_no_first_block(
    address: str, page: Page, people: Sequence[PrivateKey]
) -> None:
    """Strangers in the founders' places, a founder that says it is the only one, and one beside strangers."""
    members = MemberSet(tuple(key.public_key for key in people), tuple(range(len(people))))

    def lie(block: LightBlock) -> LightBlock:
        slot = block.certificate.votes[0].slot
        votes = [sign_vote(key, block.chain_id, slot, block.header.hash, clock_ms=1, mining_ms=1) for key in people]
        return replace(block, members=members, certificate=certify(votes))

    answering(page, "**/api/v1/renewed/light/1", spoilt(lie))
    page.goto(f"{address}/renewed/block/1")
    expect(line(page)).to_have_class("card verdict false")
    expect(line(page)).to_contain_text("the members that came with it are not the founders")


def test_founders_sign_no_first_block_of_another_founding_document(address: str, page: Page) -> None:
    honest = light_at(1)
    header, first = replace(honest.header, parent_hash=bytes(32)), honest.certificate.votes[0]
    founders = [RENEWED.key(member) for member in sorted(RENEWED.genesis.members)]
    votes = [sign_vote(key, honest.chain_id, first.slot, header.hash, clock_ms=1, mining_ms=1) for key in founders]
    answering_with(page, honest, replace(honest, header=header, certificate=certify(votes)))
    page.goto(f"{address}/renewed/block/1")
    expect(line(page)).to_have_class("card verdict false")
    expect(line(page)).to_contain_text("a block on the way to it does not stand on the one below")


@pytest.mark.parametrize(("asked", "told"), [(4, 8), (6, 4)])
def test_a_server_that_answers_with_another_height_does_not_lead_on_for_ever(
    address: str, page: Page, asked: int, told: int
) -> None:
    """With the block that asks for one below it, or with the trusted one above which one is asked for."""
    answering(page, f"**/api/v1/renewed/light/{asked}?*", spoilt(lambda block: light_at(told)))
    page.goto(f"{address}/renewed/block/8")
    expect(line(page)).to_have_class("card verdict false")
    expect(line(page)).to_contain_text("a block on the way to it is of another height")


def test_a_server_that_steps_down_by_one_block_at_a_time_is_not_followed_for_ever(address: str, page: Page) -> None:
    """It makes up as many blocks as are asked for, each signed by its own keys."""
    top, sample = 1_000, light_at(8)

    def made_up(height: int) -> LightBlock:
        return signed_by(replace(sample, header=replace(sample.header, height=height)), STRANGERS, 6)

    def answer(route: Route) -> None:
        high = int(parse_qs(urlsplit(route.request.url).query).get("high", [str(top + 1)])[0])
        asked.append(high)
        route.fulfill(json={"bytes": made_up(high - 1).encode().hex()})

    asked = list[int]()
    answering_with(page, sample, made_up(top))
    page.route("**/api/v1/renewed/light/*", answer)
    page.goto(f"{address}/renewed/block/8")
    expect(line(page)).to_have_class("card verdict false")
    expect(line(page)).to_contain_text("too many blocks on the way to it wait for one below them")
    assert asked == [*range(top + 1, top - 63, -1)]


def test_a_page_that_shows_another_knowledge_than_was_signed_is_false(address: str, page: Page) -> None:
    root = PLAIN.blocks[PLAIN.tip].header.knowledge_root.hex().encode()
    answering(page, "**/plain/block/3", lambda body: body.replace(root, b"00" * 32))
    page.goto(f"{address}/plain/block/3")
    expect(line(page)).to_contain_text("the hashes on this page are not those of the header")


def test_members_of_another_founding_document_signed_nothing(address: str, page: Page) -> None:
    """The server's document has the right name, and keys of its own."""
    other = genesis(8, name="plain")
    answering(page, "**/plain/genesis.fedchain", lambda body: other.encode())
    answering(page, "**/plain/light/3", spoilt(lambda block: replace(block, chain_id=other.chain_id)))
    page.goto(f"{address}/plain/block/3")
    expect(line(page)).to_have_class("card verdict false")
    expect(line(page)).to_contain_text("only 0 of 8 electors signed the vote for this block, and 6 are needed")


@pytest.mark.parametrize("spoil", ["signature", "same", "slot", "member"])
def test_an_invented_conviction_lowers_no_quorum(address: str, page: Page, spoil: str) -> None:
    """The server's own block convicts honest members, so that the votes that it can forge would be enough."""
    crime = double_vote(keys(4)[0], PLAIN.genesis, 1)
    others = {
        "signature": replace(crime.second, signature=bytes(64)),
        "same": crime.first,
        "slot": double_vote(keys(4)[0], PLAIN.genesis, 2).second,
        "member": double_vote(keys(4)[1], PLAIN.genesis, 1).second,
    }
    forged = replace(crime, second=others[spoil])
    below = replace(PLAIN.states[PLAIN.blocks[PLAIN.tip].header.parent_hash], convicted=(forged,))
    header = replace(PLAIN.blocks[PLAIN.tip].header, state_root=below.root)
    old = PLAIN.blocks[PLAIN.tip].header
    certificate = PLAIN.certificate(replace(PLAIN.blocks[PLAIN.tip], header=header), sorted(PLAIN.genesis.members)[1:])
    lie = spoilt(lambda block: replace(block, header=header, state=below.encode(), certificate=certificate))
    answering(page, "**/api/v1/plain/light/3", lie)

    def repaint(body: bytes) -> bytes:
        shown = body.replace(old.hash.hex().encode(), header.hash.hex().encode())
        return shown.replace(old.state_root.hex().encode(), header.state_root.hex().encode())

    answering(page, "**/plain/block/3", repaint)
    page.goto(f"{address}/plain/block/3")
    expect(line(page)).to_contain_text("a conviction in the state below it is not proven")


@pytest.mark.parametrize(
    "body",
    [b"{}", b"[]", b"<html>", b'{"bytes": "ff"}', b'{"bytes": "95"}', b'{"bytes": "' + b"91" * 20 + b'"}', b""],
)
def test_an_answer_that_cannot_be_read_leaves_no_false_comfort(address: str, page: Page, body: bytes) -> None:
    errors = list[str]()
    page.on("pageerror", lambda error: errors.append(str(error)))
    answering(page, "**/api/v1/plain/light/3", lambda honest: body)
    page.goto(f"{address}/plain/block/3")
    expect(line(page)).to_be_visible()
    expect(line(page)).not_to_contain_text("checked in this browser")
    assert errors == []


def test_a_page_that_is_altered_once_it_was_checked_turns_red(address: str, folder: Path, page: Page) -> None:
    """A server may send an honest page first, and then other hashes in its place."""
    page.goto(f"{address}/live/block/1")
    expect(line(page)).to_have_class("card verdict good")
    root = page.locator("#block dl.lines code.hash").nth(1).inner_text()
    other = "0" * len(root)
    answering(page, "**/live/block/1", lambda body: body.replace(root.encode(), other.encode()))
    append(folder / "live", LIVE, LIVE.extend())
    expect(page.locator("#block dl.lines code.hash").nth(1)).to_have_text(other)
    expect(line(page)).to_have_class("card verdict false")
    expect(line(page)).to_contain_text("the hashes on this page are not those of the header that was signed")


# --- browsers that cannot


@pytest.mark.parametrize(
    ("script", "words"),
    [
        (
            "const real = crypto.subtle.importKey.bind(crypto.subtle);"
            "crypto.subtle.importKey = (form, key, kind, ...more) => kind.name === 'Ed25519'"
            "  ? Promise.reject(new DOMException('unknown', 'NotSupportedError')) : real(form, key, kind, ...more);",
            "not checked here This browser's WebCrypto has no Ed25519.",
        ),
        (
            "Object.defineProperty(globalThis, 'isSecureContext', {value: false});",
            "not checked here Browsers verify signatures only on pages from https or from localhost.",
        ),
    ],
)
def test_a_browser_that_cannot_says_so(address: str, page: Page, script: str, words: str) -> None:
    page.add_init_script(script)
    page.goto(f"{address}/plain/block/2")
    expect(line(page)).to_have_text(words)
    expect(line(page)).to_have_class("card verdict")


def test_without_a_script_there_is_no_line_and_nothing_else_is_missing(address: str, browser: Browser) -> None:
    with browser.new_context(java_script_enabled=False) as context:
        page = context.new_page()
        page.goto(f"{address}/plain/block/2")
        expect(line(page)).to_be_hidden()
        expect(page.locator("#certificate")).to_be_visible()


def test_a_block_that_is_not_final_has_no_line(address: str, page: Page) -> None:
    page.goto(f"{address}/plain/genesis")
    expect(line(page)).to_have_count(0)


@pytest.mark.parametrize(
    "path",
    [
        "members?height=3",
        "block/1",
        *(pytest.param(path, marks=pytest.mark.slow) for path in ("member/9", "participation")),
    ],
)
def test_pages_of_members_that_change_read_well_for_everybody(address: str, page: Page, path: str) -> None:
    page.goto(f"{address}/renewed/{path}")
    page.set_viewport_size({"width": 320, "height": 900})
    assert page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth") <= 0
    page.evaluate(AXE)
    for scheme in ("light", "dark"):
        page.emulate_media(color_scheme=scheme, reduced_motion="reduce")
        assert page.evaluate(AXE_RUN, CONTRAST)["violations"] == []
    assert page.evaluate(AXE_RUN, LEVELS_A_AND_AA)["violations"] == []


@pytest.mark.slow
def test_the_line_reads_well_for_everybody(address: str, page: Page) -> None:
    answering(page, "**/api/v1/plain/light/3", spoilt(lambda block: forge(block, 0)))
    for height, kind in ((2, "good"), (3, "false")):
        page.goto(f"{address}/plain/block/{height}")
        expect(line(page)).to_have_class(f"card verdict {kind}")
        page.set_viewport_size({"width": 320, "height": 900})
        assert page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth") <= 0
        page.evaluate(AXE)
        for scheme in ("light", "dark"):
            page.emulate_media(color_scheme=scheme, reduced_motion="reduce")
            assert page.evaluate(AXE_RUN, CONTRAST)["violations"] == []
        assert page.evaluate(AXE_RUN, LEVELS_A_AND_AA)["violations"] == []
