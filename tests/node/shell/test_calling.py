"""A node that too few members let in calls them under its member's next or former key, and its own again, by turns."""

import threading
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import anyio
import pytest

import fedchain.node.shell.calling as calling_module
from fedchain.chain.membership.change import sign_rekey
from fedchain.chain.state import State
from fedchain.crypto.address import address
from fedchain.crypto.keys import PrivateKey, PublicKey
from fedchain.node.membership.next_key import NextKey, protect_keys_beside
from fedchain.node.shell.calling import Caller, has_replaced
from fedchain.node.shell.run import limits_of
from fedchain.node.shell.service import NodeStopped, Service
from tests.support.chain.builders import ChainBuilder, SumRules, genesis, keys
from tests.support.cli_node import done, start
from tests.support.node.own_recipe import here as here
from tests.support.node.shell import TIMEOUT_S, on_trio

OWN, *OTHERS = keys(4)
NEXT = keys(9)[8]
ELDEST = keys(11)[10]
UNTIL = 1_000

WANTED = limits_of(genesis(4), SumRules()).peers_wanted


@pytest.fixture(autouse=True)
def hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calling_module, "LOOK_S", 0.001)
    monkeypatch.setattr(calling_module, "ALONE_S", 0.005)


class Files:
    """A next key beside a member's key, and a former one."""

    def __init__(
        self, following: PrivateKey | None, former: PrivateKey | None = None, older: Sequence[PrivateKey] = ()
    ) -> None:
        self.following, self.reads, self.stamp = following, 0, 0
        self.former, self.older = former, older

    @property
    def written(self) -> tuple[int, int] | None:
        return None if self.following is None else (self.stamp, hash(self.following.public_key))

    def read(self) -> PrivateKey | None:
        self.reads += 1
        return self.following

    def read_former(self, former: PublicKey) -> PrivateKey | None:
        self.reads += 1
        return self.former if self.former is not None and self.former.public_key == former else None

    def read_all_former(self) -> list[PrivateKey]:
        self.reads += 1
        return [*self.older]


def connected(head: State, *peers: PrivateKey, me: PrivateKey = OWN) -> Any:
    """A service at a head that so many members let in."""
    quorum = head.rules.fault_model.quorum(len(head.roster.electors))
    node = SimpleNamespace(head=head, lagging=lambda height: peers, votes_required=lambda: quorum)
    return SimpleNamespace(node=node, me=me.public_key, peers={peer.public_key for peer in peers})


def replaced() -> ChainBuilder:
    """A chain whose head counts the next key in place of the own one."""
    chain = ChainBuilder(genesis(4, version=3))
    chain.extend(changes=[sign_rekey(OWN, NEXT, chain.genesis.chain_id, sequence=0, until=UNTIL)])
    return chain


@on_trio
async def test_both_keys_have_their_turns_while_liars_alone_need_be_there() -> None:
    files, head = Files(NEXT), ChainBuilder(genesis(4)).state
    caller, under, left = Caller(OWN, files), list[PrivateKey](), list[bool]()
    for liars in ((), OTHERS[:1], ()):
        under.append(caller.key)
        await caller.wait(connected(head, *liars), lambda: left.append(True), WANTED)
        assert caller.turn()
        assert not caller.turn()
    assert under == [OWN, NEXT, OWN]
    assert len(left) == 3
    assert files.reads == 1, "a passphrase takes long"


@pytest.mark.parametrize(
    ("members", "following", "here"), [(4, NEXT, OTHERS[:2]), (1, NEXT, []), (4, None, [])], ids=str
)
@on_trio
async def test_nobody_turns_who_is_heard_who_needs_nobody_or_who_has_one_key(
    members: int, following: PrivateKey | None, here: list[PrivateKey]
) -> None:
    caller = Caller(OWN, Files(following))
    with anyio.move_on_after(0.1) as scope:
        await caller.wait(connected(ChainBuilder(genesis(members)).state, *here), lambda: None, WANTED)
    assert scope.cancelled_caught
    assert not caller.turn()


class Moving:
    """A node whose head moves at each look, of which each takes three, up to the last one."""

    def __init__(self, heads: list[State]) -> None:
        self.heads, self.looks = heads, 0

    @property
    def head(self) -> State:
        self.looks += 1
        return self.heads[min(self.looks // 3, len(self.heads) - 1)]

    def lagging(self, height: int) -> list[PublicKey]:
        return [OTHERS[0].public_key]

    def votes_required(self) -> int:
        return 3


@pytest.mark.parametrize("is_touched", [False, True])
@on_trio
async def test_under_the_next_key_it_calls_no_longer_than_its_chain_stands(is_touched: bool) -> None:
    """Members that know of the change let it in as a guest. Nobody counts a guest's claims: who listens would wait."""
    chain, files = ChainBuilder(genesis(4)), Files(NEXT)
    caller = Caller(OWN, files)
    await caller.wait(connected(chain.state), lambda: None, WANTED)
    assert caller.turn()
    assert caller.key is NEXT
    node = Moving([chain.states[block.hash] for block in chain.extend_many(20)])
    service = connected(chain.state, *OTHERS[:2])
    service.node = node
    if is_touched:
        files.stamp, files.following = 1, PrivateKey(NEXT.seed)
    await caller.wait(service, lambda: None, WANTED)
    assert node.looks > 3 * len(node.heads)
    assert caller.turn()
    assert caller.key is OWN


@on_trio
async def test_a_node_whose_chain_names_the_next_key_stops_however_long_ago_that_was() -> None:
    chain = replaced()
    while chain.state.roster.successors:  # the former key is forgotten
        chain.extend()
    with pytest.raises(NodeStopped, match=address(NEXT.public_key)):
        await Caller(OWN, Files(NEXT)).wait(connected(chain.state, *OTHERS), lambda: None, WANTED)


@pytest.mark.parametrize("following", [OWN, OTHERS[0]], ids=["a copy of its own", "another member's"])
@on_trio
async def test_a_copy_of_the_own_key_or_of_another_member_s_is_no_next_one(following: PrivateKey) -> None:
    """The node went on with it: its journal was set aside, and what it had signed was forgotten."""
    caller, head = Caller(OWN, Files(following)), ChainBuilder(genesis(4, version=3)).state
    assert not has_replaced(following.public_key, OWN.public_key, head)
    for let_in in ((), OTHERS):
        with anyio.move_on_after(0.1) as scope:
            await caller.wait(connected(head, *let_in), lambda: None, WANTED)
        assert scope.cancelled_caught, "nor is it a name under which this node calls"
    assert has_replaced(NEXT.public_key, OWN.public_key, replaced().state)


@pytest.mark.parametrize("copied", [OWN, ELDEST], ids=["of its own", "of a former one"])
@on_trio
async def test_a_next_key_that_takes_the_place_of_such_a_copy_is_found(copied: PrivateKey) -> None:
    """The member takes another key while its node runs, which makes one in the place of the copy."""
    files = Files(copied)
    caller, before, after = Caller(OWN, files), ChainBuilder(genesis(4, version=3)).state, replaced().state
    with anyio.move_on_after(0.1):
        await caller.wait(connected(before, *OTHERS), lambda: None, WANTED)
    assert files.reads == 1, "a passphrase takes long"
    files.following = NEXT
    with anyio.fail_after(TIMEOUT_S):
        await caller.wait(connected(before), lambda: None, WANTED)
    assert caller.turn()
    assert caller.key is NEXT
    with pytest.raises(NodeStopped, match="was replaced by"):
        await caller.wait(connected(after, *OTHERS), lambda: None, WANTED)


@pytest.mark.parametrize("is_copy", [False, True])
@on_trio
async def test_a_node_goes_on_whose_next_key_is_encrypted_anew(is_copy: bool, tmp_path: Path) -> None:
    """Its own key is, too: the node has both, and cannot open the files any more."""
    path, head = tmp_path / "key", ChainBuilder(genesis(4, version=3)).state
    OWN.save(path, None)
    files = NextKey(path, bytes(32), None)
    (OWN if is_copy else NEXT).save(tmp_path / "key.next", None)
    caller = Caller(OWN, files)
    for _ in range(2):
        with anyio.move_on_after(0.1) as scope:
            await caller.wait(connected(head, *OTHERS), lambda: None, WANTED)
        assert scope.cancelled_caught
        protect_keys_beside(path, None, "new")
    if not is_copy:
        await caller.wait(connected(head), lambda: None, WANTED)
        assert caller.turn()
        assert caller.key.public_key == NEXT.public_key


@pytest.mark.parametrize("moves", [False, True])
@on_trio
async def test_a_node_that_alone_has_the_block_of_its_key_calls_under_the_former_one_until_the_others_have_it(
    moves: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They were down when the change spread, or lost what they heard, and let that key in as a member's."""
    chain, files = replaced(), Files(None, former=OWN)
    caller, service = Caller(NEXT, files), connected(chain.state, me=NEXT)
    for key in (OWN, NEXT, OWN):
        await caller.wait(service, lambda: None, WANTED)
        assert caller.turn()
        assert caller.key is key
    assert files.reads == 1, "a passphrase takes long"
    if moves:  # a quorum has the block, whatever a liar says that it has
        service.node = Moving([chain.state, chain.states[chain.extend().hash]])
    else:
        service.peers, service.node.lagging = {other.public_key for other in OTHERS}, lambda height: []
    monkeypatch.setattr(calling_module, "ALONE_S", TIMEOUT_S)
    await caller.wait(service, lambda: None, WANTED)
    assert caller.turn()
    assert caller.key is NEXT


@pytest.mark.parametrize("is_here", [False, True])
@on_trio
async def test_nobody_calls_under_a_former_key_that_is_not_here_or_that_nobody_knows_any_more(is_here: bool) -> None:
    chain, files = replaced(), Files(None, former=OWN if is_here else None)
    while is_here and chain.state.roster.successors:
        chain.extend()
    caller = Caller(NEXT, files)
    with anyio.move_on_after(0.1) as scope:
        await caller.wait(connected(chain.state, me=NEXT), lambda: None, WANTED)
    assert scope.cancelled_caught
    assert not caller.turn()
    assert files.reads <= 1


def long_replaced(members: int = 4) -> ChainBuilder:
    """A chain that counts the next key in place of the own one, and knows the latter no more."""
    chain = ChainBuilder(genesis(members, version=3))
    chain.extend(changes=[sign_rekey(OWN, NEXT, chain.genesis.chain_id, sequence=0, until=UNTIL)])
    while chain.state.roster.successors:
        chain.extend()
    return chain


@pytest.mark.parametrize(("members", "here"), [(4, 1), (7, 3), (31, 15)])
@on_trio
async def test_where_too_few_are_here_for_long_each_older_key_has_its_turn(
    members: int, here: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A member that was away for longer knows one of them. Three of four were up, and nothing was agreed any more."""
    monkeypatch.setattr(calling_module, "STANDS_S", 0.01)
    files, others = Files(None, older=[OWN, ELDEST]), keys(members)[1 : here + 1]
    caller, service = Caller(NEXT, files), connected(long_replaced(members).state, *others, me=NEXT)
    wanted = limits_of(genesis(members), SumRules()).peers_wanted
    under = list[PrivateKey]()
    for _ in range(6):
        under.append(caller.key)
        service.peers = {other.public_key for other in others} if caller.key is NEXT else set()
        await caller.wait(service, lambda: None, wanted)
        assert caller.turn()
    assert [key.public_key for key in under[::2]] == [NEXT.public_key] * 3
    assert {under[1], under[3]} == {OWN, ELDEST}
    assert under[5] is under[1]
    assert files.reads == 1, "a passphrase takes long"


class SlowFiles(Files):
    """Keys behind a passphrase, which are open once the node's loop has gone on."""

    def __init__(self, following: PrivateKey | None) -> None:
        super().__init__(following, OWN, [OWN])
        self.begun, self.went_on, self.waited = threading.Event(), threading.Event(), list[bool]()

    def read(self) -> PrivateKey | None:
        self._open()
        return super().read()

    def read_former(self, former: PublicKey) -> PrivateKey | None:
        self._open()
        return super().read_former(former)

    def read_all_former(self) -> list[PrivateKey]:
        self._open()
        return super().read_all_former()

    def _open(self) -> None:
        self.begun.set()
        self.waited.append(self.went_on.wait(TIMEOUT_S))


@pytest.mark.parametrize("which", ["next", "former", "older"])
@on_trio
async def test_keys_behind_a_passphrase_keep_no_vote_waiting(which: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calling_module, "STANDS_S", 0.01)
    files, service, own = SlowFiles(NEXT), connected(ChainBuilder(genesis(4)).state), OWN
    if which != "next":
        state = replaced().state if which == "former" else long_replaced().state
        files, service, own = SlowFiles(None), connected(state, *OTHERS[: which == "older"], me=NEXT), NEXT
    caller = Caller(own, files)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(caller.wait, service, lambda: None, WANTED)
        while not files.begun.is_set():
            await anyio.sleep(0.001)
        files.went_on.set()
    assert caller.turn()
    assert files.waited == [True]


@pytest.mark.parametrize("why", ["a quorum is here", "the chain goes on", "it has no older key", "it is content"])
@on_trio
async def test_nobody_calls_under_an_older_key_otherwise(why: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calling_module, "STANDS_S", 0.02)
    chain, files = long_replaced(), Files(None, older=() if why == "it has no older key" else [OWN])
    service = connected(chain.state, *OTHERS[: 2 if why == "a quorum is here" else 1], me=NEXT)
    if why == "the chain goes on":
        service.node = Moving([chain.states[block.hash] for block in chain.extend_many(20)] * 50)
    caller = Caller(NEXT, files)
    with anyio.move_on_after(0.1) as scope:
        await caller.wait(service, lambda: None, 1 if why == "it is content" else WANTED)
    assert scope.cancelled_caught
    assert not caller.turn()


@pytest.mark.long
def test_a_process_calls_under_both_keys_by_turns(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    OWN.save(here / "own.pem")
    NEXT.save(here / "own.pem.next")
    members = [word for key in (OWN, *OTHERS) for word in ("--member", address(key.public_key))]
    done("genesis", "new", "genesis", *members)
    under = list[str]()

    async def run(service: Service) -> None:
        network: Any = service._contact.network
        under.append(network.listen_addresses()[0].rpartition("/")[2])
        if len(under) == 3:
            raise NodeStopped("it was seen")
        await anyio.sleep(TIMEOUT_S)
        raise NodeStopped("it went on under one key")

    monkeypatch.setattr(Service, "run", run)
    assert start(key="own.pem") == "it was seen"
    assert under == [address(key.public_key) for key in (OWN, NEXT, OWN)]
    assert PrivateKey.load(here / "own.pem").public_key == OWN.public_key, "nothing has taken its place"


def test_a_next_key_that_cannot_be_read_ends_the_node_in_one_line(here: Path) -> None:
    OWN.save(here / "own.pem")
    NEXT.save(here / "own.pem.next")
    members = [word for key in (OWN, *OTHERS) for word in ("--member", address(key.public_key))]
    done("genesis", "new", "genesis", *members)
    (here / "own.pem.next").chmod(0o644)
    assert "own.pem.next has mode 0644" in start(key="own.pem")
