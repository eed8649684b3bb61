"""The file of an invitation: it comes back as it was written, and every other file is refused in one line."""

from dataclasses import replace
from pathlib import Path

import pytest

from fedchain.chain.encoding import decode, encode
from fedchain.chain.membership.change import ChangeKind
from fedchain.crypto.durable import write_file
from fedchain.crypto.keys import PrivateKey
from fedchain.node.config import NodeConfigError
from fedchain.node.membership.invitation import INVITATION_SIZE_MAX, Invitation, Request, read_invitation, request_on
from tests.support.node.inviting import NEWCOMER, Host


def invitation(folder: Path) -> Invitation:
    host = Host(folder)
    host.accept()
    return host.requests.invite("clinic")


def refusal(path: Path, data: bytes) -> str:
    write_file(path, data)
    with pytest.raises(NodeConfigError) as caught:
        read_invitation(path)
    assert "\n" not in str(caught.value)
    return str(caught.value).removeprefix(f"{path} is no invitation: ")


def test_what_was_written_is_read(tmp_path: Path) -> None:
    made, path = invitation(tmp_path), tmp_path / "it"
    write_file(path, made.encode())
    assert read_invitation(path) == made
    request = request_on(made, NEWCOMER)
    assert Request.decode(request.encode()) == request
    assert request.is_vouched_for(made.genesis.chain_id)


def test_one_for_a_member_without_its_key_names_it(tmp_path: Path) -> None:
    host, path = Host(tmp_path), tmp_path / "it"
    made = host.requests.invite("bob", (host.genesis.members[1], 3))
    write_file(path, made.encode())
    assert read_invitation(path) == made
    change = made.request_of(NEWCOMER)
    assert (change.kind, change.member, change.key) == (
        ChangeKind.RECOVER,
        host.genesis.members[1],
        NEWCOMER.public_key,
    )
    assert (change.text, change.sequence) == ("bob", 3)
    for changed in ({"member": host.genesis.members[2]}, {"sequence": 4}, {"member": b""}):
        forged = replace(made, voucher=replace(made.voucher, **changed))
        assert refusal(path, forged.encode()) == "its signature is not the inviter's"


def test_every_part_is_signed_or_checked(tmp_path: Path) -> None:
    made, path = invitation(tmp_path), tmp_path / "it"
    signature = "its signature is not the inviter's"
    other = PrivateKey(bytes(range(32)))
    assert refusal(path, replace(made, secret=other).encode()) == signature
    for changed in ({"name": "mallory"}, {"until": 10**6}, {"head": bytes(32)}, {"inviter": other.public_key}):
        assert refusal(path, replace(made, voucher=replace(made.voucher, **changed)).encode()) == signature
    genesis = replace(made.genesis, name="another")
    assert refusal(path, replace(made, genesis=genesis).encode()) == signature


def test_the_head_is_the_one_that_was_signed_and_is_certified(tmp_path: Path) -> None:
    made, path = invitation(tmp_path), tmp_path / "it"
    assert made.head is not None
    assert made.height == 1
    header, certificate = made.head
    assert "is not the one that the inviter signed" in refusal(path, replace(made, head=None).encode())
    other = replace(header, nonce=header.nonce + 1)
    assert refusal(path, replace(made, head=(other, certificate)).encode()).startswith("certificate's block: ")


def test_other_files_are_no_invitations(tmp_path: Path) -> None:
    made, path = invitation(tmp_path), tmp_path / "it"
    assert refusal(path, made.genesis.encode()).startswith("it looks like a genesis document")
    assert refusal(path, b"") != ""
    assert refusal(path, made.encode()[:-1]) != ""
    record = decode(made.encode(), INVITATION_SIZE_MAX)
    assert "'fedchain invitation 1' expected" in refusal(path, encode(["fedchain invitation 9", *record[1:]]))
    with pytest.raises(NodeConfigError, match="cannot be read: No such file"):
        read_invitation(tmp_path / "none")


def test_one_that_others_may_read_is_no_secret(tmp_path: Path) -> None:
    """Whichever key comes first on it has the member's approval."""
    path = tmp_path / "it"
    write_file(path, invitation(tmp_path).encode())
    path.chmod(0o640)
    with pytest.raises(NodeConfigError, match="it has mode 0640, others may read it; run: chmod 600"):
        read_invitation(path)
