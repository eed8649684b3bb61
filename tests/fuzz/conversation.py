"""Conversations: a node talks with one liar, who has a member's key and answers what it is asked, and with others.

An input is any bytes: the first picks the world, and each four that follow are the seed of one step. Nothing is
raised, all that the node sends can be written, and all that it stores can be stored; it blames nobody but the liar,
and stays on the chain.
"""

import logging
from collections import deque
from itertools import count
from pathlib import Path
from random import Random
from shutil import rmtree
from tempfile import TemporaryDirectory

from fedchain.chain.exceptions import Invalid, Refused, Unready
from fedchain.chain.proof_of_work import search_nonce
from fedchain.chain.vote import VoteKind
from fedchain.crypto.keys import PublicKey
from fedchain.network.messages import (
    MESSAGE_SIZE_MAX,
    CandidateMessage,
    EvidenceMessage,
    Message,
    PostMessage,
    Status,
    VoteMessage,
    decode_message,
    encode_message,
)
from fedchain.network.verdict import verdict
from fedchain.node.core.effects import Blame, Contribute, Effect, Mine, Publish, Refuse, Send, Stop, Tell, Wake
from fedchain.node.core.events import (
    Contributed,
    Event,
    MessageReceived,
    Mined,
    NotContributed,
    PeersConnected,
    PeersDisconnected,
    Tick,
)
from fedchain.node.core.voting.journal import Journal
from fedchain.node.operating.report import log_notice
from fedchain.simulator.oracles.bounds import Bounds
from tests.fuzz.engine import Session, Target
from tests.fuzz.liar import Liar
from tests.fuzz.worlds import WORLDS, Talker, World, world
from tests.support.chain.builders import CREATED_MS, payload

STEPS_MAX = 48
EVENTS_MAX = 64
"""Events of one step: questions and answers go to and fro until then."""

WAKE_MAX_MS = 10 * 365 * 86_400_000
"""No timeout is longer."""


class Conversation:
    """One node, and what is said to it."""

    def __init__(self, scene: World, talker: Talker, rng: Random) -> None:
        self.world, self.talker, self.liar = scene, talker, Liar(scene, rng)
        self.now_ms = CREATED_MS
        self.endings: dict[str, None] = {}
        self._talks = rng.choice((0.0, 0.0, 0.2, 0.7, 1.0))  # how many answers come of honest members
        self._waiting = deque[Event]()
        self._honest = scene.others[1:]
        self._heights = {scene.chain.genesis.chain_id: 0} | {block.hash: block.header.height for block in scene.blocks}
        self._bounds = Bounds(scene.chain.genesis, _fail, len(scene.chain.states[scene.blocks[-1].hash].roster.members))
        self._begin(rng)

    def _begin(self, rng: Random) -> None:
        self._handle(Tick(), rng)
        self._handle(PeersConnected(tuple(self.world.others)), rng)
        if rng.random() < 0.8:  # otherwise it listens whether its key is in use
            for member in self._honest:
                self._handle(MessageReceived(member, self._status()), rng)

    def step(self, rng: Random) -> None:
        """Let one thing happen, and what follows from it."""
        head, liar = self.talker.node.head, self.liar.key.public_key
        draw = rng.random()
        if draw < 0.15:
            self.now_ms += rng.choice((0, 300, 1_000, 1_000, 5_000, 61_000, 86_400_000))
            self._waiting.append(Tick())
        elif draw < 0.17:
            self.talker.node = self.talker.new_node()
            assert self.talker.node.head == head, "what was stored gives another head"
            self._begin(rng)
        elif draw < 0.19:
            self._waiting.extend((PeersDisconnected((liar,)), PeersConnected((liar,))))
        elif draw < 0.35 and rng.random() < self._talks:
            member = rng.choice(self._honest)
            self._waiting.extend(MessageReceived(member, said) for said in self._truth(rng))
        else:
            self._waiting.append(MessageReceived(liar, self.liar.say(head, rng)))
        for _ in range(EVENTS_MAX):
            if not self._waiting:
                break
            self.now_ms += rng.choice((0, 0, 1, 20))
            self._handle(self._waiting.popleft(), rng)
        self._waiting.clear()

    def _status(self) -> Status:
        """An honest member says where it is."""
        block = self.world.blocks[-1]
        return Status(block.header.height, block.hash, b"", (), (), None)

    def _truth(self, rng: Random) -> list[Message]:
        """Things that honest members say at the node's height."""
        node, blocks, chain = self.talker.node, self.world.blocks, self.world.chain
        if rng.random() < 0.3 or node.head.height >= len(blocks):
            return [self._status()]
        block = blocks[node.head.height]
        if rng.random() < 0.3:
            return [self.world.crowd().final(block)]
        posts = [PostMessage(item, chain.contents[item.payload_hash]) for item in block.transactions]
        voters = sorted(chain.states[block.header.parent_hash].roster.electors & {*self._honest})
        kind = rng.choice((VoteKind.PREVOTE, VoteKind.PRECOMMIT))
        votes = [VoteMessage(chain.vote(voter, block, kind=kind)) for voter in voters]
        honest = [item for item in posts if item.post.sender in {*self._honest}]
        return [*rng.choice((honest, [CandidateMessage(block)], votes))]

    def _handle(self, event: Event, rng: Random) -> None:
        try:
            effects = self.talker.handle(event, self.now_ms)
        except Refused as error:
            raise AssertionError(f"{error!r} is not caught") from error
        for effect in effects:
            self._look_at(effect, event)
            self._follow(effect, rng)
        self._look_at_node()
        self.talker.log.clear()
        self.talker.effects.clear()

    def _follow(self, effect: Effect, rng: Random) -> None:
        """Have the others answer an effect."""
        match effect:
            case Send(peer, message) if peer == self.liar.key.public_key:
                said = self.liar.answer(message, self.talker.node.head, rng)
                self._waiting.extend(MessageReceived(peer, item) for item in said)
            case Send(peer, message) if peer in self._honest and rng.random() < self._talks:
                self._waiting.extend(MessageReceived(peer, item) for item in self.world.answers(message))
            case Contribute(round_number, phase):
                data = payload(1, round_number % 2**32, phase, 7)
                none = NotContributed(round_number, phase, "")
                self._waiting.append(Contributed(round_number, phase, data) if rng.random() < 0.8 else none)
            case Mine(header) if rng.random() < 0.8:
                sealed = search_nonce(self.world.chain.genesis.proof_function, header, 0, 10_000)
                if sealed is not None:
                    self._waiting.append(Mined(sealed))
            case _:
                pass

    def _look_at(self, effect: Effect, event: Event) -> None:
        match effect:
            case Publish(message) | Send(_, message):
                said = encode_message(message)
                assert len(said) <= MESSAGE_SIZE_MAX, f"{len(said)} bytes sent"
                assert decode_message(said) == message, "what is sent is not what is received"
                if isinstance(message, EvidenceMessage):
                    self._expect_liar(message.evidence.culprit, "evidence")
            case Refuse(peer, error):
                self._look_at_error(error)
                if isinstance(error, Invalid) and isinstance(event, MessageReceived):
                    self._expect_liar(peer, str(error))
                self.endings[error.rule] = None
            case Blame(member, error):
                self._look_at_error(error)
                self._expect_liar(member, str(error))
                self.endings[f"blame {error.rule}"] = None
            case Tell(notice):
                log_notice(notice, self.talker.node.head.roster.seats)
            case Wake(at_ms):
                assert 0 <= at_ms <= self.now_ms - CREATED_MS + WAKE_MAX_MS, f"it wakes at {at_ms}"
            case Mine(header):
                assert header.seal()
            case Stop(reason):
                raise AssertionError(f"the liar ends the node: {reason}")
            case _:
                pass

    @staticmethod
    def _look_at_error(error: Refused) -> None:
        assert type(error) not in (Refused, Invalid, Unready), f"{error!r} does not say whose fault it is"
        assert verdict(error).value in ("ignore", "reject")

    def _expect_liar(self, member: PublicKey, why: str) -> None:
        assert member == self.liar.key.public_key, f"an honest member is blamed: {why}"

    def _look_at_node(self) -> None:
        """All that a shell asks of its node."""
        node = self.talker.node
        assert self._heights.get(node.head.block_hash) == node.head.height, "it left the chain"
        assert node.conflict() is None, "one liar makes two chains"
        assert not node.is_contradicted(), "one liar contradicts it"
        self._bounds.check(self.talker)  # type: ignore[arg-type]
        assert Journal.decode(node.journal.encode()) == node.journal
        reads = (node.catching_up_to(), node.gathers(), node.opens_in_ms())
        assert all(0 <= item < 2**63 for item in reads), f"{reads} are read"
        node.unconfirmed(), node.waiting_for(), node.arriving(), node.lagging(node.head.height)
        node.open_posts(), node.open_changes(), node.foreseen(), node.expected(), node.draft()


def _fail(message: str) -> None:
    raise AssertionError(message)


class _Reading(logging.Handler):
    """Reads what is logged, so that it can be, and shows it to nobody."""

    def emit(self, record: logging.LogRecord) -> None:
        record.getMessage()


class Talks:
    """Runs conversations, each from the beginning."""

    def __init__(self) -> None:
        self._folder = TemporaryDirectory(prefix="fedchain-talks-")
        self._numbers = count()

    def run(self, data: bytes) -> str:
        """Hold the conversation of an input; how it ended."""
        scene = world(data[0] if data else 0)
        folder = Path(self._folder.name) / str(next(self._numbers))
        talker = scene.talker(folder, Path(self._folder.name) / "templates")
        logger, reading = logging.getLogger("fedchain.node"), _Reading()
        logger.addHandler(reading)
        logger.propagate = False
        try:
            talk = Conversation(scene, talker, Random(data[:5]))
            for at in range(1, min(len(data), 4 * STEPS_MAX), 4):
                talk.step(Random(data[at : at + 4]))
            restarted = talker.new_node()
            assert restarted.head == talk.talker.node.head, "what was stored gives another head"
            return f"{scene.name} {talker.node.head.height}: {', '.join(sorted(talk.endings))}"
        finally:
            logger.removeHandler(reading)
            logger.propagate = True
            talker.store.close()  # type: ignore[attr-defined]
            rmtree(folder)


def _open() -> Session:
    draw = Random(1)
    seeds = [bytes([number]) + draw.randbytes(80) for number in range(len(WORLDS))]
    return Session(seeds, Talks().run)


CONVERSATION = Target("conversation", _open, allocated_base=2**28, weight=12)
