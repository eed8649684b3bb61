"""A process begins with settings that fit its federation."""

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NoReturn

import anyio
import pytest

from fedchain.chain.genesis import PAYLOAD_SIZE_DEFAULT, Admission
from fedchain.chain.storage.sqlite import Store
from fedchain.crypto.address import address
from fedchain.crypto.durable import write_file
from fedchain.crypto.keys import PrivateKey
from fedchain.files.layout import CHAIN_FOLDER, INVITATION_FILE
from fedchain.node.config import NodeConfig, NodeConfigError, NodeFailed
from fedchain.node.custody.journal_file import JournalFile, journal_path
from fedchain.node.founding.genesis_file import read_genesis
from fedchain.node.membership.next_key import NextKey
from fedchain.node.shell.run import _inform, _invitation_of, run_node
from fedchain.node.shell.service import NodeStopped, Service
from fedchain.node.shell.threads import REFUSED
from fedchain.node.workers.supervisor import Seat, TrainingWorker, WorkerFailed, WorkerStopped
from tests.support.chain.builders import ChainBuilder, keys
from tests.support.chain.changes import joining
from tests.support.chain.explored import write as write_chain
from tests.support.cli_node import ANYWHERE, done, run, start
from tests.support.node.inviting import Host
from tests.support.node.own_recipe import here as here
from tests.support.node.shell import on_trio, until, write_genesis

MEMBERS = [word for key in keys(2) for word in ("--member", address(key.public_key))]


class Roster(dict[bytes, int]):
    """Places of members by their keys."""

    seats = property(lambda self: self)
    members = property(lambda self: tuple(self))


def test_the_largest_payload_has_room_for_the_model(here: Path) -> None:
    text = (here / "mytask.py").read_text(encoding="utf-8")
    (here / "mytask.py").write_text(text.replace("16", "1_500_000"), encoding="utf-8")
    done("genesis", "new", "genesis", "--task", "mytask:load", "--method", "fedavg", *MEMBERS)
    size_max = read_genesis(here / "genesis").payload_size_max
    assert size_max > PAYLOAD_SIZE_DEFAULT
    assert size_max >= 4 * 1_500_000 * 12


class Waiting:
    """A service of a peer that gets its place when its head moves, a trainer, and a service manager, in one."""

    def __init__(self, place: int | None) -> None:
        self.me, self.log, self.moved, self.is_told = b"me", list[str](), anyio.Event(), False
        self._place = place

    @property
    def node(self) -> Any:
        place = 1 if self.moved.is_set() else self._place
        seats = {} if place is None else {self.me: place}
        return SimpleNamespace(head=SimpleNamespace(roster=Roster(seats)))

    async def next_head(self) -> None:
        await self.moved.wait()

    def status(self) -> dict[str, Any]:
        return {}

    async def prepare(self) -> None:
        for _ in range(3):  # others have their turns
            await anyio.sleep(0)
        self.log.append("the data are read")

    async def follow(self, status: object) -> None:
        self.log.append("ready")
        await anyio.sleep_forever()


@pytest.mark.parametrize(
    ("place", "is_told", "log"),
    [
        (0, False, ["the data are read", "ready"]),
        (0, True, ["ready", "the data are read"]),
        (None, False, ["ready", "the data are read"]),
    ],
)
def test_a_newcomer_and_a_node_that_goes_on_with_another_key_are_ready_at_once(
    place: int | None, is_told: bool, log: list[str]
) -> None:
    peer, seat = Waiting(place), Seat(-1 if place is None else place, ())
    all_in_one: Any = peer
    peer.is_told = is_told

    @on_trio
    async def wait() -> None:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(_inform, all_in_one, all_in_one, all_in_one, seat)
            await anyio.wait_all_tasks_blocked()
            assert "ready" in peer.log
            peer.moved.set()
            await until(lambda: len(peer.log) == 2, "the data are read")
            tasks.cancel_scope.cancel()

    wait()
    assert (peer.log, seat.number) == (log, 0 if place == 0 else 1)


def test_a_member_that_came_later_is_known_by_its_journal_on_another_machine(here: Path) -> None:
    done("genesis", "new", "own", "--task", "mytask:load", *MEMBERS)
    key, chain_id = PrivateKey.generate(), read_genesis(here / "own").chain_id
    key.save(here / "later.pem")
    nobody = f"later.pem is the key of {address(key.public_key)}, which is no member of the genesis"
    assert start(key="later.pem", genesis="own") == nobody
    with JournalFile.open(journal_path(here / "later.pem", chain_id), chain_id, key.public_key, 2) as journal:
        journal.write(b"moved here")
    assert start(key="later.pem", genesis="own").startswith("the members train on data of their own")
    assert "is no founder; its files are those of a member" in run(
        *("node", "check", "--genesis", "own", "--key", "later.pem", "--data", "data", "--listen", ANYWHERE)
    ).stdout.replace("\n", " ")


def test_a_member_that_came_later_and_lost_its_journal_is_known_by_the_chain_in_its_folder(tmp_path: Path) -> None:
    """A founder's node starts then, and listens first; that of a member that came later said that it is none."""
    path = write_genesis(tmp_path / "living", version=3, admission=Admission.QUORUM)
    document, later, stranger = read_genesis(path), *(key.public_key for key in keys(4)[2:])
    config = NodeConfig(genesis=str(path), key=str(tmp_path / "key.pem"), data=str(tmp_path / "data"))
    following, chain = NextKey(Path(config.key), document.chain_id, None), ChainBuilder(document)
    with pytest.raises(NodeConfigError, match="is no member of the genesis"):
        _invitation_of(config, document, later, following)
    chain.extend(changes=[joining(chain, 2)])
    with Store.create(Path(config.data) / CHAIN_FOLDER, document) as store:
        write_chain(store, chain)
    assert _invitation_of(config, document, later, following) is None
    with pytest.raises(NodeConfigError, match="is no member of the genesis"):
        _invitation_of(config, document, stranger, following)


def test_a_founder_that_is_invited_finds_the_others_at_the_places_that_the_invitation_names(tmp_path: Path) -> None:
    """It lost its folder, or its key was copied: alone it waited for ever, and never heard the other process."""
    host, founder = Host(tmp_path), keys(2)[1].public_key
    config = NodeConfig(genesis="", key=str(tmp_path / "key.pem"), data=str(tmp_path))
    following = NextKey(Path(config.key), host.genesis.chain_id, None)
    assert _invitation_of(config, host.genesis, founder, following) is None
    made = host.requests.invite("one")
    write_file(tmp_path / INVITATION_FILE, made.encode())
    assert _invitation_of(config, host.genesis, founder, following) == made


def test_a_node_asks_for_the_files_of_all_members_that_may_come(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = list[tuple[int, int]]()
    monkeypatch.setattr("fedchain.node.shell.run.raise_file_limit", lambda *numbers: asked.append(numbers))
    said = ("--set", "admission=quorum", "--set", "parts=400")
    done("genesis", "new", "grows", *MEMBERS, *said)
    done("genesis", "new", "fixed", *MEMBERS, "--set", "version=2")
    keys(1)[0].save(here / "one.pem")
    for name in ("grows", "fixed"):
        with pytest.raises(NodeConfigError, match="wait_for is 9"):  # behind it, before anything is written
            run_node(NodeConfig(genesis=name, key="one.pem", data="data", wait_for=9), keys(1)[0])
    assert asked == [(2, 400), (2, 2)]


def test_a_member_that_was_dealt_a_share_keeps_its_key_where_the_share_is_not_installed(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was given another key, to which nobody seals the share: by and by too few could open a sum."""
    three = [word for key in keys(3) for word in ("--member", address(key.public_key))]
    method = ("--method", "tests.support.learning.small_keys:SmallKeyFedPh", "--set", "encryption=threshold")
    done("genesis", "new", "sealed", *three, *method, "--set", "contributors_min=3")
    asked = list[Callable[[], PrivateKey]]()

    def take_place(service: Service, key: PrivateKey, requests: object, make_key: Callable[[], PrivateKey]) -> object:
        asked.append(make_key)
        raise NodeConfigError("enough was seen")

    monkeypatch.setattr("fedchain.node.shell.run.Desk", take_place)
    assert start(genesis="sealed") == "enough was seen"
    with pytest.raises(NodeConfigError, match="was dealt a share, which is sealed to its key"):
        asked[0]()
    assert not (here / "key.pem.next").exists()


def test_a_node_and_its_federation_must_both_speak_of_own_data(here: Path) -> None:
    done("genesis", "new", "own", "--task", "mytask:load", *MEMBERS)
    done("genesis", "new", "digits", *MEMBERS)
    needed = "the members train on data of their own: name your function with --task FILE.py:function"
    assert start(genesis="own") == needed
    refusal = "the members train on digits, not on data of their own; leave out the task"
    assert start("--task", "mytask:load", genesis="digits") == refusal
    assert not (here / "data").exists()


def test_a_node_that_ends_for_two_reasons_at_once_says_one_in_a_line(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    key = PrivateKey.generate()
    key.save(here / "only.pem")
    done("genesis", "new", "genesis", "--member", address(key.public_key))

    async def prepare(_: TrainingWorker) -> None:
        try:
            await anyio.sleep_forever()
        finally:
            raise WorkerFailed("no room")

    async def stop(_: Service) -> None:
        await anyio.wait_all_tasks_blocked()
        raise NodeStopped("the key is elsewhere")

    monkeypatch.setattr(TrainingWorker, "prepare", prepare)
    monkeypatch.setattr(Service, "run", stop)
    assert start(key="only.pem") in ("no room", "the key is elsewhere")


@pytest.mark.parametrize(("kind", "code"), [(WorkerFailed, 2), (WorkerStopped, 1)])
def test_a_node_whose_trainer_a_later_start_may_begin_is_started_again(
    kind: type[WorkerFailed], code: int, here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    key = PrivateKey.generate()
    key.save(here / "only.pem")
    done("genesis", "new", "genesis", "--member", address(key.public_key))

    async def prepare(_: TrainingWorker) -> None:
        raise kind("it died")

    monkeypatch.setattr(TrainingWorker, "prepare", prepare)
    assert start(key="only.pem", code=code) == "it died"


@pytest.mark.parametrize("place", ["anyio.create_unix_listener", "libp2p.pubsub.pubsub.LastSeenCache"])
def test_a_library_that_gets_no_thread_is_no_fault_of_the_program(
    here: Path, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    """The node ended with a traceback, and said that a fault of the program ends it."""

    def refuse(*arguments: object, **named: object) -> NoReturn:
        raise RuntimeError(REFUSED)

    done("genesis", "new", "genesis", *MEMBERS)
    keys(1)[0].save(here / "one.pem")
    monkeypatch.setattr(place, refuse)
    with pytest.raises(NodeFailed, match="this machine gives the node no thread now"):
        run_node(NodeConfig(genesis="genesis", key="one.pem", data="data", listen=ANYWHERE), keys(1)[0])
