"""A newcomer asks the inviter, and then the others; it says how it stands, and stops where it was refused."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import anyio
import pytest

from fedchain.chain.encoding import encode
from fedchain.crypto.keys import PublicKey
from fedchain.network.messages import ChangeMessage
from fedchain.node.config import NodeConfigError
from fedchain.node.membership import newcomer as module
from fedchain.node.membership.invitation import Invitation
from fedchain.node.membership.newcomer import Newcomer
from fedchain.node.membership.requests import LATER, REFUSED, TAKEN
from tests.support.chain.builders import keys
from tests.support.chain.changes import approved
from tests.support.node.inviting import NEWCOMER, Host
from tests.support.node.shell import on_trio, until


class Doors:
    """Members at their addresses: each has an answer, or nobody opens."""

    def __init__(self, **answers: tuple[int, str]) -> None:
        self.answers, self.asked = answers, list[str]()
        self.on_taken: Callable[[], object] = lambda: None

    async def knock(self, member: PublicKey, place: str, said: bytes) -> bytes:
        self.asked.append(place)
        if place not in self.answers:
            raise ConnectionError("nobody is there")
        code, text = self.answers[place]
        if code == TAKEN:
            self.on_taken()
        return encode([code, text])


class Coming:
    """The newcomer's own node, which follows the chain of the others: here that of a member that says nothing."""

    me = NEWCOMER.public_key

    def __init__(self, folder: Path) -> None:
        self.stage = Host(folder, 4)
        self.node = self.stage.node
        self.admitted: dict[str, Sequence[PublicKey]] = {}
        self.peers: list[PublicKey] = []

    def admit(self, reason: str, peers: Sequence[PublicKey]) -> None:
        self.admitted[reason] = peers


@pytest.fixture(autouse=True)
def hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LOOK_S", 0.002)
    monkeypatch.setattr(module, "ASK_S", 0.01)


def invited(folder: Path) -> Invitation:
    host = Host(folder)
    host.places = {host.me: ["inviter", "inviter 2"], keys(2)[1].public_key: ["other"]}
    return host.requests.invite("clinic")


@on_trio
async def test_the_inviter_is_asked_first_and_then_the_others_until_one_takes_it(tmp_path: Path) -> None:
    doors = Doors(**{"inviter 2": (LATER, "it signs nothing yet"), "other": (TAKEN, "it is shown to the operator")})
    it = Newcomer(Coming(tmp_path / "n"), NEWCOMER, invited(tmp_path), doors.knock)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(it.run)
        await until(lambda: len(doors.asked) >= 6, "it asks again while nothing comes back")
        tasks.cancel_scope.cancel()
    assert doors.asked[:3] == ["inviter", "inviter 2", "other"]
    assert it.standing == "its place: it is shown to the operator"


@on_trio
async def test_a_refusal_of_the_inviter_s_ends_it(tmp_path: Path) -> None:
    doors = Doors(inviter=(REFUSED, "the invitation was used by another"), other=(TAKEN, "yes"))
    it = Newcomer(Coming(tmp_path / "n"), NEWCOMER, invited(tmp_path), doors.knock)
    with pytest.raises(NodeConfigError, match="the member that invites refuses: the invitation was used by another"):
        await it.run()
    assert doors.asked == ["inviter"]


@on_trio
async def test_a_refusal_of_another_member_s_ends_nothing(tmp_path: Path) -> None:
    doors = Doors(other=(REFUSED, "no"))
    it = Newcomer(Coming(tmp_path / "n"), NEWCOMER, invited(tmp_path), doors.knock)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(it.run)
        await until(lambda: doors.asked.count("inviter") == 2, "it asks again")
        tasks.cancel_scope.cancel()
    assert it.standing.endswith("asking again; inviter: nobody is there; inviter 2: nobody is there; other: no")


@on_trio
async def test_it_says_who_approved_and_who_has_not_yet(tmp_path: Path) -> None:
    doors, node, invitation = Doors(), Coming(tmp_path / "n"), invited(tmp_path)
    it = Newcomer(node, NEWCOMER, invitation, doors.knock)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(it.run)
        await until(lambda: "no member takes the request" in it.standing, "nobody is there")
        assert "inviter: nobody is there" in it.standing
        change = invitation.request_of(NEWCOMER).approved(keys(1)[0], invitation.genesis.chain_id)
        node.stage.receive(ChangeMessage(change))
        node.peers = [keys(2)[1].public_key]
        await until(lambda: "1 of 4 approve (peer 0); not yet: peer 1, peer 2, peer 3, peer 4" in it.standing, "said")
        tasks.cancel_scope.cancel()


@on_trio
async def test_a_peer_that_all_have_let_go_of_asks_again_though_its_own_chain_says_nothing_new(tmp_path: Path) -> None:
    doors, node, invitation = Doors(inviter=(TAKEN, "the inviter approves")), Coming(tmp_path / "n"), invited(tmp_path)
    it = Newcomer(node, NEWCOMER, invitation, doors.knock)
    change = invitation.request_of(NEWCOMER).approved(keys(1)[0], invitation.genesis.chain_id)

    async def others_come_and_go() -> None:
        await until(lambda: doors.asked, "it asks")
        node.peers = [keys(2)[1].public_key]
        node.stage.receive(ChangeMessage(change))
        await until(lambda: "1 of 4 approve" in it.standing, "the request is open here")
        doors.answers["inviter"] = (REFUSED, "the invitation held until height 10000")
        node.peers = []

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(others_come_and_go)
        with pytest.raises(NodeConfigError, match="the member that invites refuses: the invitation held until"):
            await it.run()


@on_trio
async def test_members_that_the_invitation_names_are_let_in_until_the_chain_is_as_long(tmp_path: Path) -> None:
    inviter = Host(tmp_path)
    blocks = inviter.accept(2)
    node = Coming(tmp_path / "n")
    it = Newcomer(node, NEWCOMER, inviter.requests.invite("clinic"), Doors().knock)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(it.check_chain)
        await until(lambda: node.admitted.get("they are named") == [inviter.me], "the inviter")
        for block in blocks:
            node.stage.final(node.stage.adopt(block))
        await until(lambda: node.admitted["they are named"] == [], "they are known by now")


@on_trio
async def test_a_chain_without_the_inviter_s_block_is_another_one(tmp_path: Path) -> None:
    inviter, node = Host(tmp_path), Coming(tmp_path / "n")
    inviter.accept(2)
    made = inviter.requests.invite("clinic")
    elsewhere = replace(made, voucher=replace(made.voucher, head=bytes(32)))
    node.stage.accept(2)
    with pytest.raises(NodeConfigError, match="block 2 is not the one that the invitation names"):
        await Newcomer(node, NEWCOMER, elsewhere, Doors().knock).check_chain()


@on_trio
async def test_a_member_with_another_key_is_told_that_it_counts_again(tmp_path: Path) -> None:
    node, host = Coming(tmp_path / "n"), Host(tmp_path)
    invitation = host.requests.invite("bob", (host.genesis.members[1], 0))
    it = Newcomer(node, NEWCOMER, invitation, Doors().knock)
    chain = node.stage.chain
    change = approved(chain, invitation.request_of(NEWCOMER))
    node.stage.final(node.stage.adopt(chain.extend(changes=[change])))
    await it.run()
    assert it.standing == "this is peer 1 now, with another key"


@on_trio
async def test_a_newcomer_that_counts_already_has_no_other_key(tmp_path: Path) -> None:
    node, host = Coming(tmp_path / "n"), Host(tmp_path)
    invitation, chain = host.requests.invite("clinic"), node.stage.chain
    node.stage.final(node.stage.adopt(chain.extend(changes=[approved(chain, invitation.request_of(NEWCOMER))])))
    node.stage.accept(3)
    it = Newcomer(node, NEWCOMER, invitation, Doors().knock)
    await it.run()
    assert it.standing == f"this is peer {chain.state.roster.seats[NEWCOMER.public_key]} now"
