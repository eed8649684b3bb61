"""Real node processes whose federation lives: it grows by invitations, and loses members in every way there is.

Nobody is restarted. In the end all that count have one head, each chain is verified from the founding on, and nobody
has sent what it did not store.
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

from fedchain.cli.main import app
from fedchain.crypto.address import address
from fedchain.crypto.keys import PrivateKey
from fedchain.files.layout import KEY_FILE
from fedchain.node.founding.consensus import Consensus
from fedchain.node.operating.local_node import LocalNode, stop_all
from fedchain.node.operating.status import ask
from fedchain.node.operating.testnet import found_testnet, free_ports
from tests.support.node.processes import Promises, height, kill, log_of, look
from tests.support.node.shell import DIGITS, wait_until

PATIENCE_S = 300.0
"""Only reached when something is broken; these are up to twenty processes."""


@dataclass
class Life:
    """A federation of processes.

    Attributes:
        folder: of all that is kept.
        nodes: by place.
        gone: places of those that were killed, left, or were removed.
    """

    folder: Path
    nodes: list[LocalNode]
    gone: set[int] = field(default_factory=set)

    def here(self) -> list[LocalNode]:
        return [node for node in self.nodes if node.number not in self.gone]

    def say(self, number: int, name: str, **words: str) -> str:
        answer = ask(self.nodes[number].folder, {"ask": name, **words})
        assert answer is not None
        return str(answer["said"])

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
        result = CliRunner().invoke(app, ["node", "invite", str(self.nodes[0].folder), str(file)])
        assert result.exit_code == 0, result.output
        folder = self.folder / f"node-{number}"
        folder.mkdir()
        key = PrivateKey.generate()
        key.save(folder / KEY_FILE)
        (port,) = free_ports(1)
        place = f"/ip4/127.0.0.1/tcp/{port}"
        command = [sys.executable, "-m", "fedchain", "node", "join", str(file), str(folder), "--set", f"listen={place}"]
        node = LocalNode(number, folder, f"{place}/p2p/{address(key.public_key)}", command)
        self.nodes.append(node)
        node.start()
        wait_until(lambda: look(node).get("height"), "the newcomer follows", PATIENCE_S)
        for other in self.here()[1:-1]:
            wait_until(partial(self.sees, other, f"clinic {number}"), "the request spreads", PATIENCE_S)
            if "not yet" not in self.say(other.number, "approve", which=f"clinic {number}"):
                break
        self.wait_for(number, "active")

    def sees(self, node: LocalNode, name: str) -> bool:
        answer: dict[str, Any] = ask(node.folder, {"ask": "members"}) or {}
        return name in [change["text"] for change in answer["changes"]]

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
        for other in [node.number for node in self.here() if node.number != number]:
            if "not yet" not in self.say(other, "remove", member=str(number), reason="its data are not its own"):
                break
            wait_until(lambda: self.sees(self.here()[0], "its data are not its own"), "it spreads", PATIENCE_S)
        self.gone.add(number)
        self.wait_for(number, "removed")
        self.ends(number, "this member was removed by the others")

    def rekey(self, number: int) -> None:
        """A member takes another key: its node goes on with it in the same folder, and posts."""
        old = look(self.nodes[number])["address"]
        assert "goes on with it by itself" in self.say(number, "rekey")
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
        for node in self.here():
            member = PrivateKey.load(node.folder / KEY_FILE).public_key
            assert everybody.missing_in(own[node.number], member) == []
            assert "Traceback" not in log_of(node)
            result = CliRunner().invoke(app, ["explorer", "verify", str(node.folder)])
            assert result.exit_code == 0, result.output


@contextmanager
def living(folder: Path, founders: int, parts: int, **consensus: Any) -> Iterator[Life]:
    """A federation of processes that runs."""
    settings = Consensus(
        rounds=0, mining_s=0.5, mining_attempts=500, phase_timeout_s=4.0, phase_floor_s=1.0, **consensus
    )
    life = Life(folder, found_testnet(folder, replace(DIGITS, clients=founders), settings, parts=parts))
    try:
        for node in life.nodes:
            node.start()
        wait_until(lambda: min(map(height, life.nodes)) >= 1, "all are at work", PATIENCE_S)
        yield life
    finally:
        stop_all([node for node in life.nodes if node.folder.exists()])


@pytest.mark.long
def test_a_federation_grows_by_an_invitation_and_a_member_leaves(tmp_path: Path) -> None:
    with living(tmp_path / "net", 3, 4, admission="sponsors", sponsors=2) as life:
        life.grow()
        life.rekey(1)
        assert life.standings() == ["active"] * 4
        life.check()


@pytest.mark.slow
def test_a_federation_grows_to_seven_and_loses_one_in_every_way(tmp_path: Path) -> None:
    with living(tmp_path / "net", 4, 7, admission="quorum", away_after=3) as life:
        life.grow()
        life.grow()
        life.grow()
        life.lose(1)
        life.leave(5)
        life.remove(2)
        assert life.standings() == ["active", "away", "removed", "active", "active", "left", "active"]
        life.check()
