"""Requests: an invitation is worth one key and one approval, and nobody comes in on anything else."""

import errno
import os
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import anyio
import pytest

from fedchain.chain.encoding import decode, signing_message
from fedchain.chain.exceptions import LimitReached
from fedchain.chain.genesis import Admission
from fedchain.chain.membership.change import Change, ChangeKind, propose_recovery, sign_change, sign_rekey
from fedchain.crypto.address import address
from fedchain.crypto.keys import PrivateKey
from fedchain.network.libp2p.log import LINES_PER_MINUTE
from fedchain.node.config import NodeConfigError
from fedchain.node.core.membership.change_pool import OPEN_MAX
from fedchain.node.membership import requests
from fedchain.node.membership.invitation import Request, request_on, vouch
from fedchain.node.membership.requests import HEIGHTS_VALID, LATER, REFUSED, TAKEN
from tests.support.chain.builders import keys
from tests.support.node.inviting import NEWCOMER, PARTS, Host
from tests.support.node.shell import on_trio, until


def test_the_inviter_s_node_approves_of_the_first_key_that_asks(tmp_path: Path) -> None:
    host = Host(tmp_path)
    invitation = host.requests.invite("clinic")
    assert host.knock(invitation) == (TAKEN, "the inviter approves")
    (change,) = host.node.open_changes()
    assert (change.member, change.text, change.until) == (NEWCOMER.public_key, "clinic", HEIGHTS_VALID)
    assert [approval.approver for approval in change.approvals] == [host.me]
    assert host.knock(invitation)[0] == TAKEN, "it asks again after a restart"
    assert len(host.node.open_changes()) == 1


def test_an_invitation_is_worth_one_key_also_after_a_restart_of_its_node(tmp_path: Path) -> None:
    host = Host(tmp_path)
    invitation = host.requests.invite("clinic")
    host.knock(invitation)
    thief = PrivateKey(bytes(range(32)))
    used = f"the invitation was used by {address(NEWCOMER.public_key)}"
    assert host.knock(invitation, thief) == (REFUSED, used)
    host.requests = host.again()
    assert host.knock(invitation, thief) == (REFUSED, used)
    assert host.knock(invitation)[0] == TAKEN
    (tmp_path / "invitations.json").unlink()
    host.requests = host.again()
    assert host.knock(invitation, thief) == (REFUSED, "the invitation is not known any more")


def test_the_key_that_uses_an_invitation_is_written_down_before_others_hear_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    host = Host(tmp_path)
    invitation = host.requests.invite("clinic")
    with monkeypatch.context() as full:

        def refuse(path: Path, data: bytes) -> None:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

        full.setattr(requests, "write_file", refuse)
        assert host.knock(invitation) == (LATER, "the inviter's node cannot write it down")
        assert host.node.open_changes() == ()
    with monkeypatch.context() as crashing:

        def crash(change: Change, *, approves: bool) -> None:
            raise SystemExit

        crashing.setattr(host, "submit", crash)
        with pytest.raises(SystemExit):
            host.knock(invitation)
    host.requests = host.again()
    used = f"the invitation was used by {address(NEWCOMER.public_key)}"
    assert host.knock(invitation, PrivateKey(bytes(range(32)))) == (REFUSED, used)
    assert host.knock(invitation) == (TAKEN, "the inviter approves")


def test_a_refused_request_does_not_use_an_invitation(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    host, thief = Host(tmp_path), PrivateKey(bytes(range(32)))
    invitation = host.requests.invite("clinic")
    with monkeypatch.context() as crowded:
        crowded.setattr(host, "submit", lambda change, approves: LimitReached("changes", "there are too many"))
        assert host.knock(invitation, thief)[0] == LATER
    host.requests = host.again()
    assert host.knock(invitation) == (TAKEN, "the inviter approves")


def test_another_member_s_node_keeps_a_request_for_its_operator(tmp_path: Path) -> None:
    inviter, other = Host(tmp_path), Host(tmp_path / "other", 1)
    invitation = inviter.requests.invite("clinic")
    assert other.knock(invitation) == (TAKEN, "it is shown to the operator of this node")
    assert other.node.open_changes() == ()
    (change,) = other.requests.waiting()
    assert change == invitation.request_of(NEWCOMER)
    assert other.admitted == {"they ask": [NEWCOMER.public_key]}
    assert other.submit(change, approves=True) is None
    assert other.requests.waiting() == ()


def test_a_lost_key_s_place_is_asked_for_on_its_own_invitation_alone(tmp_path: Path) -> None:
    host, other = Host(tmp_path), Host(tmp_path / "other", 1)
    lost = host.genesis.members[2], 0
    invitation, newcomer = host.requests.invite("bob", lost), host.requests.invite("clinic")
    assert other.knock(invitation) == (TAKEN, "it is shown to the operator of this node")
    assert other.admitted == {"they ask": [NEWCOMER.public_key]}
    assert host.knock(invitation) == (TAKEN, "the inviter approves")
    (change,) = host.node.open_changes()
    assert (change.kind, change.member, change.key) == (ChangeKind.RECOVER, lost[0], NEWCOMER.public_key)
    thief = PrivateKey(bytes(range(32)))
    assert host.knock(invitation, thief)[1].startswith("the invitation was used by ")
    mixed = request_on(replace(invitation, secret=newcomer.secret), thief)
    assert decode_answer(host.requests.take(thief.public_key, replace(mixed, voucher=newcomer.voucher).encode())) == (
        REFUSED,
        "a request is made by the key that gets the place, and by no other",
    )
    elsewhere = propose_recovery(
        host.genesis.members[3], thief, host.genesis.chain_id, "bob", sequence=0, until=HEIGHTS_VALID
    )
    holder = replace(invitation, genesis=host.genesis)
    proof = holder.secret.sign(signing_message(host.genesis.chain_id, "request", elsewhere.hash))
    said = host.requests.take(thief.public_key, Request(invitation.voucher, elsewhere, proof).encode())
    assert decode_answer(said) == (REFUSED, "the request is not the one that the invitation allows")


def test_one_member_s_invitations_fill_no_memory(tmp_path: Path) -> None:
    inviter, other = Host(tmp_path), Host(tmp_path / "other", 1)
    many = [inviter.requests.invite(f"clinic {number}") for number in range(OPEN_MAX + 1)]
    new = [PrivateKey(bytes([number + 1] * 32)) for number in range(OPEN_MAX + 1)]
    codes = [other.knock(invitation, key)[0] for invitation, key in zip(many, new, strict=True)]
    assert codes == [TAKEN] * OPEN_MAX + [LATER]
    assert other.knock(many[0], new[0])[0] == TAKEN, "it asks again after a restart"
    assert len(other.requests.waiting()) == OPEN_MAX


def many_ask(host: Host, folder: Path) -> None:
    """As many ask on invitations of another member, which hold until the next block, as there is room for."""
    inviter = Host(folder)
    for number in range(OPEN_MAX):
        invitation = inviter.requests.invite(f"clinic {number}")
        assert host.knock(invitation, PrivateKey(bytes([number + 1] * 32)))[0] == TAKEN
    assert len(host.admitted["they ask"]) == OPEN_MAX


def test_requests_that_have_ended_take_no_room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(requests, "HEIGHTS_VALID", 1)
    other = Host(tmp_path / "other", 1)
    many_ask(other, tmp_path)
    monkeypatch.setattr(requests, "HEIGHTS_VALID", 9)
    later = Host(tmp_path).requests.invite("another")
    assert other.knock(later)[0] == LATER
    other.accept(1)
    assert other.knock(later)[0] == TAKEN
    assert other.admitted["they ask"] == [NEWCOMER.public_key]


def test_requests_on_invitations_of_a_key_that_was_replaced_take_no_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its member invites with the next key, and there would be room for as many again."""
    monkeypatch.setattr(requests, "HEIGHTS_VALID", 9)
    other = Host(tmp_path / "other", 1)
    many_ask(other, tmp_path)
    rekey = sign_rekey(keys(1)[0], keys(8)[7], other.genesis.chain_id, sequence=0, until=9)
    later = Host(tmp_path).requests.invite("another")
    monkeypatch.setattr(requests, "HEIGHTS_VALID", 1)
    ended = Host(tmp_path).requests.invite("another")
    other.final(other.block(changes=[rekey]))
    assert other.requests.waiting() == ()
    assert other.admitted["they ask"] == []
    again = "the key that invites is no member's now: a member that took another key has to invite again"
    assert other.knock(later) == (LATER, again)
    assert other.knock(ended) == (REFUSED, "the invitation held until height 1, and this is height 1")
    for _ in range(3):
        other.final(other.block(miner=keys(5)[2]))
    assert keys(1)[0].public_key not in other.node.head.roster.seats
    assert other.knock(later) == (LATER, again), "the former key is forgotten"


def test_whoever_asks_on_an_invitation_of_a_member_that_left_is_told_to_find_another(tmp_path: Path) -> None:
    """It was told that the member does not count now, and waited for it."""
    other = Host(tmp_path / "other", 1)
    invitation = Host(tmp_path).requests.invite("clinic")
    assert other.knock(invitation)[0] == TAKEN
    leave = sign_change(keys(1)[0], other.genesis.chain_id, ChangeKind.LEAVE, sequence=0, until=9)
    for changes in ([leave], [], []):
        other.final(other.block(changes=changes, miner=keys(5)[2]))
    gone = "the member that invites is gone for good: another member has to invite"
    assert other.knock(invitation) == (REFUSED, gone)


def test_whoever_asks_on_an_invitation_of_a_member_that_is_away_asks_again_later(tmp_path: Path) -> None:
    other = Host(tmp_path / "other", 1)
    invitation = Host(tmp_path).requests.invite("clinic")
    away = sign_change(keys(1)[0], other.genesis.chain_id, ChangeKind.AWAY, sequence=0, until=9)
    for changes in ([away], [], []):
        other.final(other.block(changes=changes, miner=keys(5)[2]))
    assert other.knock(invitation) == (LATER, "the member that invites does not count now")


def test_a_key_that_has_its_place_is_told_so(tmp_path: Path) -> None:
    host = Host(tmp_path)
    member = keys(5)[3]
    assert host.knock(host.requests.invite("clinic"), member) == (TAKEN, "this key has its place already")
    assert host.node.open_changes() == ()


@on_trio
async def test_peers_whose_requests_have_ended_are_let_go_of_at_the_next_head(tmp_path: Path) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(requests, "HEIGHTS_VALID", 1)
        other = Host(tmp_path / "other", 1)
        many_ask(other, tmp_path)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(other.requests.follow)
        await anyio.wait_all_tasks_blocked()
        other.accept(1)
        other.head_moved.set()
        await until(lambda: not other.admitted["they ask"], "they are let go of")
        tasks.cancel_scope.cancel()


def test_strangers_write_few_lines(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fedchain.network.libp2p.log.time", SimpleNamespace(monotonic=lambda: 1e12))  # one minute
    caplog.set_level("INFO")
    host = Host(tmp_path)
    for number in range(50):
        host.requests.take(PrivateKey(bytes([number + 1] * 32)).public_key, b"garbage")
    assert len([line for line in caplog.messages if "asks for a place" in line]) == LINES_PER_MINUTE


def test_nothing_else_is_a_request(tmp_path: Path) -> None:
    host, stranger = Host(tmp_path), PrivateKey(bytes(range(32)))
    invitation = host.requests.invite("clinic")
    request = request_on(invitation, NEWCOMER)
    chain_id, head = host.genesis.chain_id, host.node.head.block_hash
    holder = invitation.secret

    def answer(made: Request, key: PrivateKey = NEWCOMER) -> str:
        code, text = decode_answer(host.requests.take(key.public_key, made.encode()))
        assert code != TAKEN
        return text

    assert decode_answer(host.requests.take(NEWCOMER.public_key, b"\x13/multistream")) == (
        REFUSED,
        "this is no request for a place",
    )
    assert "by the key that gets the place" in answer(request, stranger), "overheard, and said by another"
    own = request_on(replace(invitation, secret=stranger), NEWCOMER)
    assert "nobody's" in answer(own), "the voucher was overheard, the secret is not known"
    forged = vouch(stranger, chain_id, holder.public_key, name="clinic", until=HEIGHTS_VALID, head=head)
    forged = replace(forged, inviter=host.me)
    assert "nobody's" in answer(request_on(replace(invitation, voucher=forged), NEWCOMER))
    alien = vouch(stranger, chain_id, holder.public_key, name="clinic", until=HEIGHTS_VALID, head=head)
    assert "is no member's" in answer(request_on(replace(invitation, voucher=alien), NEWCOMER))
    other = vouch(keys(1)[0], bytes(32), holder.public_key, name="clinic", until=HEIGHTS_VALID, head=head)
    assert "another federation" in answer(request_on(replace(invitation, voucher=other), NEWCOMER))
    longer = sign_change(NEWCOMER, chain_id, request.change.kind, text="clinic", until=HEIGHTS_VALID + 1)
    assert "nobody's" in answer(replace(request, change=longer)), "the proof is of the change"
    proven = Request.of(request.voucher, longer, invitation.secret, chain_id)
    assert "is not the one that the invitation allows" in answer(proven)
    assert host.node.open_changes() == ()


def decode_answer(answer: bytes) -> tuple[int, str]:
    code, text = decode(answer, 2**12)
    return code, text


def test_an_invitation_ends(tmp_path: Path) -> None:
    host = Host(tmp_path)
    invitation = host.requests.invite("clinic")
    short = vouch(
        keys(1)[0],
        host.genesis.chain_id,
        invitation.secret.public_key,
        name="x",
        until=0,
        head=host.node.head.block_hash,
    )
    said = host.knock(replace(invitation, voucher=short))
    assert said == (REFUSED, "the invitation held until height 0, and this is height 0")


def test_a_silent_node_takes_a_request_later(tmp_path: Path) -> None:
    host = Host(tmp_path, is_heard=False)
    assert host.knock(host.requests.invite("clinic")) == (LATER, "the inviter's node signs nothing yet")


def test_a_closed_federation_takes_none(tmp_path: Path) -> None:
    host = Host(tmp_path, admission=Admission.CLOSED, away_after=3)
    assert host.knock(host.requests.invite("clinic")) == (REFUSED, "this federation is closed: nobody joins")


def test_who_cannot_be_reached_or_has_no_part_left_invites_nobody(tmp_path: Path) -> None:
    host = Host(tmp_path)
    host.places = {host.me: ["/ip4/0.0.0.0/tcp/4001"]}
    with pytest.raises(NodeConfigError, match="nobody can dial"):
        host.requests.invite("clinic")
    host = Host(tmp_path)
    host.requests._places_max = 5
    with pytest.raises(NodeConfigError, match="the data have 5 parts, and each has its member"):
        host.requests.invite("clinic")
    assert PARTS > 5
    for name in ("", "  ", "x" * 201, "a\nb"):
        with pytest.raises(NodeConfigError, match="a name has 1 to 200 printable bytes"):
            host.requests.invite(name)
