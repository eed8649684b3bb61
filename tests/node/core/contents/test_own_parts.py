"""The author's post alone says which peers may read a part, whatever others sign, list and ask for, in any order."""

from collections.abc import Sequence

import pytest

from fedchain.chain.genesis import AggregatorRule
from fedchain.chain.knowledge import AGGREGATOR, EVERYBODY
from fedchain.crypto.hashing import sha256
from fedchain.crypto.keys import PublicKey
from fedchain.network.messages import CHUNK_SIZE, CandidateMessage, Chunk, GetContent, PostMessage
from fedchain.node.core.effects import Effect, Send
from fedchain.node.core.events import Contributed
from fedchain.node.core.voting.twins import LISTENING_MS
from tests.support.chain.builders import genesis, post
from tests.support.node.parts import GOOD, OTHER, NewestRules, a_post, held, listing, part_of, send, stage
from tests.support.node.stage import Stage

SECRET = b"good, and for one reader alone"


def given(effects: Sequence[Effect], data: bytes, *peers: PublicKey) -> bytes:
    """The bytes of a part that these peers were given."""
    sent = [item for item in effects if isinstance(item, Send) and item.peer in peers]
    chunks = [item.message for item in sent if isinstance(item.message, Chunk)]
    return b"".join(chunk.data for chunk in chunks if chunk.content_hash == sha256(data))


class Theft:
    """A reader, the author of a part for it alone, and a thief with an accomplice: both ask for it all the time."""

    def __init__(self) -> None:
        self.at = stage()
        self.author, self.thief, self.accomplice = self.at.others
        self.theirs, self.payload = a_post(self.at, (SECRET, AGGREGATOR))
        self.effects: list[Effect] = []

    def ask(self) -> None:
        for peer in (self.thief, self.accomplice):
            self.effects += self.at.receive(GetContent(sha256(SECRET), 0), peer)

    def do(self, step: str) -> None:
        """One step of it, after and before which the thieves ask."""
        self.ask()
        match step:
            case "listed":
                self.effects += self.at.receive(PostMessage(self.theirs, self.payload), self.author)
            case "signed":  # the thief's post has the part for its payload
                key = self.at.chain.key(self.thief)
                self.effects += self.at.receive(PostMessage(post(key, self.at.genesis, 1, SECRET), None), self.thief)
            case "passed on":  # as the one before, and what comes is that payload
                key = self.at.chain.key(self.thief)
                self.effects += self.at.receive(PostMessage(post(key, self.at.genesis, 1, SECRET), None), self.author)
            case "listed for itself" | "listed for all" | "listed for both":
                place = self.at.genesis.index[self.accomplice]
                readers = {"itself": (place,), "all": (EVERYBODY,), "both": (AGGREGATOR, place)}[step.split()[-1]]
                item, payload = a_post(self.at, *((SECRET, reader) for reader in readers), author=1)
                self.effects += self.at.receive(PostMessage(item, payload), self.thief)
            case "mined":  # a block of the thief's that counts such a post
                key = self.at.chain.key(self.thief)
                self.at.chain.contents[sha256(SECRET)] = SECRET
                posts = (post(key, self.at.genesis, 1, SECRET),)
                block = self.at.block(posts=posts, miner=key)
                self.effects += self.at.receive(CandidateMessage(block), self.thief)
            case "given":
                for provider in (self.author, self.thief, self.author):
                    self.effects += self.at.receive(Chunk(sha256(SECRET), 0, SECRET), provider)
            case "restarted":
                self.at.restart()
            case "later":
                self.effects += self.at.wait(10)
        self.ask()


@pytest.mark.parametrize(
    "steps",
    [
        ("listed", "given", "signed", "given"),
        ("listed", "signed", "given"),
        ("signed", "listed", "given"),
        ("signed", "given", "listed", "given"),
        ("signed", "later", "given", "later"),
        ("passed on", "given", "listed"),
        ("listed", "given", "restarted", "signed", "given", "listed", "later"),
        ("signed", "given", "restarted", "listed", "given"),
        ("listed", "given", "mined", "given"),
        ("mined", "given", "listed", "given"),
        *(("listed", "given", step, "given") for step in ("listed for itself", "listed for all", "listed for both")),
        *(("listed", step, "given") for step in ("listed for itself", "listed for all", "listed for both")),
        *((step, "listed", "given") for step in ("listed for itself", "listed for all", "listed for both")),
        *((step, "later", "given", "listed") for step in ("listed for itself", "listed for all", "listed for both")),
    ],
    ids=lambda steps: ", ".join(steps),
)
def test_nobody_steals_a_part_from_its_reader(steps: Sequence[str]) -> None:
    theft = Theft()
    for step in steps:
        theft.do(step)
    assert given(theft.effects, SECRET, theft.thief, theft.accomplice) == b""


def given_to(at: Stage, data: bytes, peer: PublicKey, start: int = 0) -> bytes:
    """The answer to a peer that asks for a part."""
    (chunk,) = [item for item in at.receive(GetContent(sha256(data), start), peer) if isinstance(item, Send)]
    assert isinstance(chunk.message, Chunk)
    return chunk.message.data


def an_author(*parts: tuple[bytes, int]) -> Stage:
    """A member that has posted these parts."""
    at = stage(1)
    for data, _ in parts:
        at.victim.parts[sha256(data)] = data
    at.handle(Contributed(1, 0, listing(*parts)))
    assert [item.sender for item in at.victim.posts()] == [at.me]
    return at


def test_an_author_gives_parts_to_who_reads_them_and_to_nobody_else() -> None:
    parts = [(OTHER, AGGREGATOR), (OTHER, 2), (GOOD, AGGREGATOR), (b"good all", EVERYBODY)]
    at = an_author(*parts)
    aggregator, _, reader, other = at.genesis.members
    for _ in range(2):
        for peer, expected in (
            (aggregator, [OTHER[:CHUNK_SIZE], GOOD, b"good all"]),
            (reader, [OTHER[:CHUNK_SIZE], b"", b"good all"]),
            (other, [b"", b"", b"good all"]),
        ):
            assert [given_to(at, data, peer) for data in (OTHER, GOOD, b"good all")] == expected
        assert given_to(at, OTHER, reader, CHUNK_SIZE) == OTHER[CHUNK_SIZE:]
        at.restart()
        at.wait(LISTENING_MS / 1_000)  # it says its post again when it has listened for its own key


def test_an_author_gives_what_the_knowledge_lists_from_its_own_post() -> None:
    at = an_author((SECRET, AGGREGATOR), (GOOD, 3))
    aggregator, _, other, reader = at.genesis.members
    (own,) = at.victim.posts()
    listings = {own: listing((SECRET, AGGREGATOR), (GOOD, 3))}
    thief, payload = a_post(at, (SECRET, 2), author=1)
    honest, empty = a_post(at, author=0)
    listings |= {thief: payload, honest: empty}
    at.chain.contents |= {item.payload_hash: data for item, data in listings.items()}
    block = at.block(posts=tuple(sorted(listings, key=lambda item: item.sender)))
    at.candidate(block)
    at.final(block)
    for _ in range(2):
        assert at.node.head.height == 1
        assert [given_to(at, data, aggregator) for data in (SECRET, GOOD)] == [SECRET, b""]
        assert [given_to(at, data, reader) for data in (SECRET, GOOD)] == [b"", GOOD]
        assert [given_to(at, data, other) for data in (SECRET, GOOD)] == [b"", b""]
        at.restart()


def test_who_is_a_block_behind_is_given_what_was_listed_there() -> None:
    document = genesis(4, aggregator=AggregatorRule.FIXED)
    at = Stage(document, 1, NewestRules(document.members), contributes=False)
    for height in (1, 2, 3):
        data = part_of(1, height)
        at.victim.parts[sha256(data)] = data
        at.handle(Contributed(height, 0, listing((data, AGGREGATOR))))
        own = at.victim.posts()[-1]
        others = [a_post(at, author=author, round_number=height) for author in range(3)]
        at.chain.contents |= {own.payload_hash: listing((data, AGGREGATOR)), sha256(b""): b""}
        block = at.block(posts=tuple(sorted((own, *(item for item, _ in others)), key=lambda item: item.sender)))
        at.candidate(block)
        at.final(block)
        assert at.node.head.height == height
    given_now = [given_to(at, part_of(1, height), document.members[0]) for height in (1, 2, 3)]
    assert given_now == [b"", part_of(1, 2), part_of(1, 3)]


def test_what_others_list_makes_an_author_give_nothing() -> None:
    at = an_author((SECRET, AGGREGATOR))
    thief = at.genesis.members[2]
    for author, reader in ((1, EVERYBODY), (2, 2)):
        item, payload = a_post(at, (SECRET, reader), author=author)
        at.receive(PostMessage(item, payload))
        assert held(at, item)
        assert given_to(at, SECRET, thief) == b""


def test_a_reader_gives_a_part_to_nobody_while_and_after_it_is_fetched() -> None:
    at = stage()
    item, payload = a_post(at, (GOOD, AGGREGATOR), (b"good all", EVERYBODY))
    at.receive(PostMessage(item, payload))
    for _ in range(2):
        for data in (GOOD, b"good all"):
            assert [given_to(at, data, peer) for peer in at.others] == [b""] * 3
            send(at, data)
    assert held(at, item)
