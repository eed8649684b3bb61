"""Real node processes whose federation lives: it grows by invitations, and loses members in every way there is.

Nobody is restarted but one that does not know a version. In the end all that count have one head, each chain is
verified from the founding on, a light client reaches the same head, and nobody has sent what it did not store.
"""

import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from fedchain.chain.explorer.explorer import Explorer
from fedchain.chain.light.bisection import bisect
from fedchain.chain.light.verification import trust_genesis
from fedchain.chain.storage.sqlite import Store
from fedchain.cli.main import app
from fedchain.crypto.address import address
from fedchain.crypto.keys import PrivateKey
from fedchain.crypto.signatures import is_valid_signature
from fedchain.files.layout import CHAIN_FOLDER, KEY_FILE
from fedchain.node.config import NodeConfigError
from fedchain.node.founding.consensus import Consensus
from fedchain.node.operating.local_node import LocalNode, stop_all
from fedchain.node.operating.status import ask
from fedchain.node.operating.testnet import found_testnet, free_ports
from tests.support.node.next_version import NEXT
from tests.support.node.processes import Promises, height, kill, log_of, look
from tests.support.node.shell import DIGITS, wait_until

PATIENCE_S = 600.0
"""Only reached when something is broken; these are up to twenty processes."""

AWAY_AFTER = 30
"""Rounds take about half a second here, and a node that is back needs longer than a few of them to begin."""

FAR = 10
"""Blocks, more than a node that comes follows one by one."""

PROGRAM = (sys.executable, "-m", "fedchain")
NEXT_PROGRAM = (sys.executable, "-m", "tests.support.node.next_version")
"""The command, and that of a program which speaks one version more."""


@dataclass
class Life:
    """A federation of processes.

    Attributes:
        folder: of all that is kept.
        nodes: by place; the newest of a place that was recovered.
        program: what newcomers run.
        gone: places of those that were killed, left, or were removed.
        restarted: places of those that had to be.
        started: all nodes that were ever started.
    """

    folder: Path
    nodes: list[LocalNode]
    program: tuple[str, ...] = PROGRAM
    gone: set[int] = field(default_factory=set)
    restarted: list[int] = field(default_factory=list)
    started: list[LocalNode] = field(default_factory=list)

    def here(self) -> list[LocalNode]:
        return [node for node in self.nodes if node.number not in self.gone]

    def say(self, number: int, name: str, **words: str | list[str]) -> str:
        """The answer to an operator, who asks again while the node has just come and signs nothing yet."""
        answers = list[dict[str, Any]]()

        def is_answered() -> bool:
            try:
                answers.extend(filter(None, [ask(self.nodes[number].folder, {"ask": name, **words})]))
            except NodeConfigError as error:
                if "signs nothing yet" not in str(error):
                    raise
            return bool(answers)

        wait_until(is_answered, f"peer {number} signs", PATIENCE_S)
        return str(answers[0]["said"])

    def standings(self, number: int = 0) -> list[str]:
        answer = ask(self.nodes[number].folder, {"ask": "members"})
        assert answer is not None
        return [member["standing"] for member in answer["members"]]

    def wait_for(self, number: int, standing: str) -> None:
        wait_until(lambda: self.standings()[number:][:1] == [standing], f"peer {number} is {standing}", PATIENCE_S)

    def grow(self) -> None:
        """Another member comes: the inviter's node and as many others approve as are needed."""
        number = len(self.nodes)
        file = self.folder / f"clinic {number}.invitation"
        self.type("invite", self.nodes[0].folder, file)
        self.nodes.append(self.come(number, file, self.folder / f"node-{number}"))
        self.wait_for(number, "active")

    def recover(self, number: int) -> None:
        """The owner of a lost key comes back with another one, and says so."""
        file = self.folder / f"clinic {number} again.invitation"
        self.type("recover", self.here()[0].folder, number, file)
        self.nodes[number] = self.come(number, file, self.folder / f"node-{number}-again")
        returned, again = self.nodes[number], f"this is peer {number} now"
        wait_until(lambda: look(returned) and again in log_of(returned), "it has its place again", PATIENCE_S)
        self.gone.discard(number)
        self.say(number, "back")
        self.wait_for(number, "active")
        wait_until(lambda: " trained round=" in log_of(returned), "it takes part", PATIENCE_S)

    def type(self, *words: object) -> None:
        """A command that an operator types."""
        result = CliRunner().invoke(app, ["node", *map(str, words)])
        assert result.exit_code == 0, result.output

    def come(self, number: int, file: Path, folder: Path) -> LocalNode:
        """A node that comes on an invitation, with as many approvals as are needed."""
        folder.mkdir()
        key = PrivateKey.generate()
        key.save(folder / KEY_FILE)
        (port,) = free_ports(1)
        place = f"/ip4/127.0.0.1/tcp/{port}"
        command = [*self.program, "node", "join", str(file), str(folder), "--set", f"listen={place}"]
        node = LocalNode(number, folder, f"{place}/p2p/{address(key.public_key)}", command)
        node.start()
        self.started.append(node)
        wait_until(lambda: look(node).get("height"), "it follows the chain", PATIENCE_S)
        for other in self.here()[1:]:
            wait_until(partial(self.sees, other, file.stem), "the request spreads", PATIENCE_S)
            if not self.needs_more(other, key):
                break
        return node

    def needs_more(self, other: LocalNode, key: PrivateKey) -> bool:
        """Whether more members have to approve; where the block was faster, nothing waits for it any more."""
        try:
            return "not yet" in self.say(other.number, "approve", which=address(key.public_key))
        except NodeConfigError as error:
            if "nothing waits for approval" not in str(error):
                raise
            return False

    def sees(self, node: LocalNode, name: str, approvals: int = 0) -> bool:
        """Whether a change whose text names this is open at a node, with so many approvals."""
        answer: dict[str, Any] = ask(node.folder, {"ask": "members"}) or {}
        return any(name in change["text"] and len(change["approved"]) >= approvals for change in answer["changes"])

    def all_see(self, name: str, approvals: int) -> bool:
        return all(self.sees(node, name, approvals) for node in self.here())

    def lose(self, number: int) -> None:
        """A node dies with its disk, and its member counts no more after a while."""
        self.gone.add(number)
        kill(self.nodes[number])
        shutil.rmtree(self.nodes[number].folder)
        self.wait_for(number, "away")

    def leave(self, number: int) -> None:
        """A member leaves, and its node ends by itself."""
        assert "let the node run until then" in self.say(number, "leave")
        self.gone.add(number)
        self.wait_for(number, "left")
        self.ends(number, "this member left")

    def remove(self, number: int) -> None:
        """The others remove a member, whose node ends by itself once it learns that."""
        others = [node.number for node in self.here() if node.number != number]
        reason = "its data are not its own"
        self.agree(others, "remove", reason, member=str(number), reason=reason)
        self.gone.add(number)
        self.wait_for(number, "removed")
        self.ends(number, "this member was removed by the others")

    def agree(self, members: list[int], name: str, shown: str, **words: str | list[str]) -> None:
        """Members type the same until enough of them have."""
        for count, number in enumerate(members, 1):
            if "not yet" not in self.say(number, name, **words):
                return
            wait_until(partial(self.all_see, shown, count), "it spreads", PATIENCE_S)
        raise AssertionError(f"{len(members)} were not enough to {name}")

    def amend(self, *values: str) -> None:
        """All members type other values, until a quorum approves; then two rounds pass."""
        shown = values[0].replace("=", " ")
        self.agree([node.number for node in self.here()], "amend", shown, values=[*values])
        wait_until(lambda: not self.sees(self.here()[0], shown), "a block counts it", PATIENCE_S)

    def upgrade(self, late: int) -> None:
        """The protocol's next version begins; a node that does not know it stops, and goes on with a newer program."""
        self.amend(f"version={NEXT}")
        process = self.nodes[late].process
        assert process is not None
        assert process.wait(PATIENCE_S) != 0
        assert f"this program speaks versions up to {NEXT - 1}: start the node with a newer one" in log_of(
            self.nodes[late]
        )
        self.nodes[late].command[:3] = NEXT_PROGRAM
        self.nodes[late].start()
        self.restarted.append(late)

    def rekey(self, number: int) -> None:
        """A member takes another key: its node goes on with it in the same folder, and posts."""
        old = look(self.nodes[number])["address"]
        assert "goes on with that key by itself" in self.say(number, "rekey")
        wait_until(lambda: look(self.nodes[number])["address"] != old, "it has the other key", PATIENCE_S)
        before = log_of(self.nodes[number]).count(" trained round=")
        wait_until(
            lambda: log_of(self.nodes[number]).count(" trained round=") > before, "it takes part again", PATIENCE_S
        )

    def ends(self, number: int, why: str) -> None:
        process = self.nodes[number].process
        assert process is not None
        assert process.wait(PATIENCE_S) == 0
        assert f"ending: {why}" in log_of(self.nodes[number])

    def check(self) -> None:
        """All that count go on with one head, which each has verified from the founding on, and kept what it said."""
        reached = max(map(height, self.here()))
        wait_until(lambda: min(map(height, self.here())) > reached + 2, "all go on", PATIENCE_S)
        wait_until(lambda: len({look(node)["head"] for node in self.here()}) == 1, "one head", PATIENCE_S)
        stop_all(self.here())
        everybody, own = Promises(), dict[int, Promises]()
        for node in self.nodes:
            if node.folder.exists():
                own[node.number] = Promises()
                own[node.number].add_store(node)
                everybody.add_store(node)
        assert everybody.broken() == 0
        tips = set()
        for node in self.here():
            member = PrivateKey.load(node.folder / KEY_FILE).public_key
            assert everybody.missing_in(own[node.number], member) == []
            assert "Traceback" not in log_of(node)
            result = CliRunner().invoke(app, ["explorer", "verify", str(node.folder)])
            assert result.exit_code == 0, result.output
            tips.add(light_tip(node, reached))
        assert len(tips) == 1


def light_tip(node: LocalNode, height: int) -> bytes:
    """Hash of a node's block that a light client reaches from the founding document."""
    with Store.open(node.folder / CHAIN_FOLDER, read_only=True) as store:
        explorer = Explorer(store)
        found = bisect(explorer.genesis, trust_genesis(explorer.genesis), explorer.light, height, is_valid_signature)
    print(f"node {node.number}: light client at height {height} by {found.certificates} certificates")
    return found.trusted.block_hash


def goes_on(node: LocalNode, height: int) -> bool:
    """Whether a node that was started again has come to a height."""
    found = look(node).get("height")
    return isinstance(found, int) and found > height


def joined_at(node: LocalNode) -> int:
    """The height to which certificates led a node that came; 0 if it followed each block."""
    with Store.open(node.folder / CHAIN_FOLDER, read_only=True) as store:
        first = store.light_above(0)
        return 0 if first is None else first.header.height


@contextmanager
def living(
    folder: Path, founders: int, parts: int, program: tuple[str, ...] = PROGRAM, late: int = -1, **consensus: Any
) -> Iterator[Life]:
    """A federation of processes that runs, all of them with one program, but for one that is ``late``."""
    said: dict[str, Any] = {"phase_timeout_s": 4.0} | consensus
    settings = Consensus(rounds=0, mining_s=0.05, mining_attempts=50, phase_floor_s=1.0, **said)
    life = Life(folder, found_testnet(folder, replace(DIGITS, clients=founders), settings, parts=parts), program)
    try:
        for node in life.nodes:
            node.command[:3] = PROGRAM if node.number == late else program
        for node in life.nodes:
            node.start()
            life.started.append(node)
        wait_until(lambda: min(map(height, life.nodes)) >= 1, "all are at work", PATIENCE_S)
        yield life
    finally:
        stop_all([node for node in life.started if node.folder.exists()])


@pytest.mark.long
def test_a_federation_grows_by_an_invitation_and_a_member_leaves(tmp_path: Path) -> None:
    with living(tmp_path / "net", 2, 3, admission="sponsors", sponsors=2) as life:
        wait_until(lambda: height(life.nodes[0]) > FAR, "it is too long to be followed block by block", PATIENCE_S)
        life.grow()
        assert joined_at(life.nodes[2]) > FAR
        life.rekey(1)
        assert life.standings() == ["active"] * 3
        life.check()


@pytest.mark.slow
def test_a_newcomer_to_a_long_chain_starts_again_from_what_it_joined_at(tmp_path: Path) -> None:
    """Its folder has the certificates that led it there, and its node is killed twice."""
    with living(tmp_path / "net", 3, 4, admission="sponsors", sponsors=2) as life:
        wait_until(lambda: height(life.nodes[0]) > 3 * FAR, "the chain is long", PATIENCE_S)
        life.grow()
        newcomer = life.nodes[3]
        first = joined_at(newcomer)
        assert first > 3 * FAR
        newcomer.command = [*PROGRAM, "node", "start", str(newcomer.folder / "node.toml")]
        for _ in range(2):
            kill(newcomer)
            newcomer.start()
            wait_until(partial(goes_on, newcomer, height(life.nodes[0])), "it goes on", PATIENCE_S)
        assert joined_at(newcomer) == first
        assert " cut back" not in log_of(newcomer)
        life.check()


@pytest.mark.slow
def test_a_federation_grows_shrinks_by_itself_recovers_is_amended_and_upgraded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nine members: three die with their disks, one leaves, one is removed, and one of the dead gets another key."""
    for module in ("chain.validation", "chain.light.verification"):
        monkeypatch.setattr(f"fedchain.{module}.NEWEST_VERSION", NEXT)
    settings: dict[str, Any] = {"admission": "quorum", "away_after": AWAY_AFTER}
    with living(tmp_path / "net", 4, 9, NEXT_PROGRAM, late=3, **settings) as life:
        for _ in range(5):
            life.grow()
        for number in (1, 5, 6):
            life.lose(number)
        assert life.standings() == ["active", "away", *["active"] * 3, "away", "away", "active", "active"]
        life.leave(7)
        life.remove(8)
        life.rekey(2)
        life.recover(1)
        life.amend("learning_rate=0.05")
        life.upgrade(late=3)
        assert life.standings() == [*["active"] * 5, "away", "away", "left", "removed"]
        life.check()
        assert life.restarted == [3]
        with Store.open(life.nodes[0].folder / CHAIN_FOLDER, read_only=True) as store:
            state = Explorer(store).state
        assert (state.rules.version, state.amendments.hyperparameters) == (NEXT, (("learning_rate", "0.05"),))
