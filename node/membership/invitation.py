"""Invitations: a file by which a key that has no place yet comes to a federation, and the request that it allows.

A newcomer asks for a place of its own, and a member that lost its key for the one that it has. A member signs a voucher
for a fresh key pair, whose secret half is in the file. The holder of the file shows with it that the member vouches for
its request. So the file is a secret until it was used: it works once.
"""

import os
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from fedchain.chain.block import Header
from fedchain.chain.certificate import Certificate
from fedchain.chain.encoding import decode, encode, expect_record, expect_size, signing_message
from fedchain.chain.exceptions import InvalidEncoding, InvalidGenesis, Refused
from fedchain.chain.genesis import GENESIS_SIZE_MAX, Genesis
from fedchain.chain.membership.change import (
    CHANGES_VERSION,
    TEXT_SIZE_MAX,
    Change,
    ChangeKind,
    propose_recovery,
    sign_change,
)
from fedchain.chain.validation import validate_claim
from fedchain.chain.vote import VoteKind
from fedchain.crypto.file_mode import exposure
from fedchain.crypto.hashing import HASH_SIZE, Hash, sha256
from fedchain.crypto.keys import PUBLIC_KEY_SIZE, SIGNATURE_SIZE, PrivateKey, PublicKey, Signature
from fedchain.crypto.signatures import is_valid_signature
from fedchain.files.kinds import looks_like
from fedchain.files.layout import INVITATION_FILE, NO_FILE, is_device
from fedchain.node.config import NodeConfigError

MAGIC = "fedchain invitation 1"

INVITATION_SIZE_MAX = GENESIS_SIZE_MAX + 2**20
"""Bytes of the file: the founding document, a certificate, and addresses."""

REQUEST_SIZE_MAX = 2**12
"""Bytes of a request."""

PLACES_MAX = 64
"""Members whose addresses an invitation names."""

Place = tuple[PublicKey, tuple[str, ...]]
"""A member, and where it can be reached."""


@dataclass(frozen=True, slots=True)
class Voucher:
    """A member's word for whoever holds the secret half of a key."""

    inviter: PublicKey
    """32 bytes: the member that invites."""
    holder: PublicKey
    """32 bytes: the key whose secret half is in the file."""
    name: str
    """The name of the newcomer, or of the member that recovers, for people."""
    until: int
    """Last height whose block may count the request."""
    head: Hash
    """32 bytes: the inviter's head, which the newcomer's chain has to contain; the chain id if there was no block."""
    signature: Signature = field(repr=False)
    """64 bytes: the inviter's, over everything else."""
    member: PublicKey = b""
    """32 bytes: the key with which a member came that lost the one that it has; empty for a newcomer."""
    sequence: int = 0
    """Changes of that member that others approved of and the chain counts."""

    def to_record(self) -> list[Any]:
        """The canonical fields."""
        return [*self._signed(), self.signature]

    @classmethod
    def from_record(cls, value: Any) -> "Voucher":
        """Read the canonical fields; raises InvalidEncoding."""
        kinds: tuple[type, ...] = (bytes, bytes, str, int, bytes, bytes)
        recovers = type(value) is list and len(value) > len(kinds)
        kinds = (*kinds[:-1], bytes, int, bytes) if recovers else kinds
        inviter, holder, name, until, head, *lost, signature = expect_record(value, "voucher", kinds)
        keys = [(item, PUBLIC_KEY_SIZE) for item in (inviter, holder, *lost[:1])]
        for item, size in (*keys, (head, HASH_SIZE)):
            expect_size(item, size, "voucher")
        if len(name.encode()) > TEXT_SIZE_MAX:
            raise InvalidEncoding("voucher name", f"at most {TEXT_SIZE_MAX} bytes are allowed")
        return cls(
            inviter, holder, name, until, head, expect_size(signature, SIGNATURE_SIZE, "voucher signature"), *lost
        )

    def is_signed(self, chain_id: Hash) -> bool:
        """Whether the inviter signed it for this chain."""
        return is_valid_signature(self.inviter, self.signature, self.signing_message(chain_id))

    def signing_message(self, chain_id: Hash) -> bytes:
        """The bytes that the inviter signs."""
        return signing_message(chain_id, "invitation", sha256(encode(self._signed())))

    def _signed(self) -> list[Any]:
        lost = [self.member, self.sequence] if self.member else []
        return [self.inviter, self.holder, self.name, self.until, self.head, *lost]


def vouch(
    key: PrivateKey,
    chain_id: Hash,
    holder: PublicKey,
    *,
    name: str,
    until: int,
    head: Hash,
    lost: tuple[PublicKey, int] | None = None,
) -> Voucher:
    """Make a voucher of the member with ``key`` and sign it.

    ``lost`` is the key of a member that gets another one, and the number of its changes that the chain counts.
    """
    draft = Voucher(key.public_key, holder, name, until, head, bytes(SIGNATURE_SIZE), *(lost or ()))
    return replace(draft, signature=key.sign(draft.signing_message(chain_id)))


@dataclass(frozen=True, slots=True)
class Invitation:
    """Everything that a newcomer needs to find a federation and to ask it for a place."""

    genesis: Genesis
    voucher: Voucher
    secret: PrivateKey = field(repr=False)
    """The secret half of the voucher's key."""
    head: tuple[Header, Certificate] | None
    """The inviter's head and the certificate that made it final; None if there was no block yet. The header names the
    state below it."""
    places: tuple[Place, ...]
    """Members and where they can be reached; the inviter comes first."""

    @property
    def height(self) -> int:
        """Height of the inviter's head."""
        return 0 if self.head is None else self.head[0].height

    @property
    def waypoint(self) -> tuple[int, Hash]:
        """Height and hash of the inviter's head, which the newcomer's chain has to contain."""
        return self.height, self.voucher.head

    def request_of(self, key: PrivateKey) -> Change:
        """The change by which ``key`` joins, or replaces a lost one, on this invitation; the same each time."""
        said = self.voucher
        if said.member:
            chain_id, sequence = self.genesis.chain_id, said.sequence
            return propose_recovery(said.member, key, chain_id, said.name, sequence=sequence, until=said.until)
        return sign_change(key, self.genesis.chain_id, ChangeKind.JOIN, text=said.name, until=said.until)

    def encode(self) -> bytes:
        """The bytes of the file."""
        head = [] if self.head is None else [[self.head[0].to_record(), self.head[1].to_record()]]
        places = [[member, list(addresses)] for member, addresses in self.places]
        secret = self.secret.seed
        return encode([MAGIC, self.genesis.encode(), self.voucher.to_record(), secret, head, places])


def read_invitation(path: Path, *, again: bool = False) -> Invitation:
    """Read an invitation, and check all that can be checked without the chain.

    Args:
        path: its file.
        again: whether it is the one that a node keeps: a pipe there would keep its reader waiting for ever.

    Raises:
        NodeConfigError: the file cannot be read, or others may read it, or it is no invitation, or one that contradicts
            itself; in one line.
    """
    try:
        if again and is_device(path):
            raise NodeConfigError(f"{path} is {NO_FILE}")
        with path.open("rb") as file:
            exposed = exposure(path, os.fstat(file.fileno()).st_mode)
            data = file.read(INVITATION_SIZE_MAX + 1)
    except OSError as error:
        raise NodeConfigError(f"{path} cannot be read: {error.strerror}") from None
    try:
        found = _decode(data)
    except InvalidEncoding as error:
        raise NodeConfigError(f"{path} is no invitation: {looks_like(data) or error}") from None
    except InvalidGenesis as error:
        raise NodeConfigError(f"{path}: {error}") from None
    if exposed is not None:
        raise NodeConfigError(exposed)
    chain_id, voucher = found.genesis.chain_id, found.voucher
    if voucher.holder != found.secret.public_key or not voucher.is_signed(chain_id):
        raise NodeConfigError(f"{path} is no invitation: its signature is not the inviter's")
    try:
        if found.head is not None:
            validate_claim(found.head[1], VoteKind.PRECOMMIT, found.height, found.head[0].hash)
        named = chain_id if found.head is None else found.head[0].hash
        if named != voucher.head:
            raise NodeConfigError(f"{path} is no invitation: its block is not the one that the inviter signed")
    except Refused as error:
        raise NodeConfigError(f"{path} is no invitation: {error}") from None
    return found


def invitation_in(folder: Path, genesis: Genesis, document: str) -> Invitation | None:
    """The invitation in the folder of a node; None if there is none.

    Args:
        folder: the node's.
        genesis: its federation's.
        document: the file of that, for messages.

    Raises:
        NodeConfigError: it cannot be read, or invites to another federation.
    """
    path = folder / INVITATION_FILE
    if genesis.version < CHANGES_VERSION or not path.exists():
        return None
    found = read_invitation(path, again=True)
    if found.genesis.chain_id != genesis.chain_id:
        raise NodeConfigError(f"{path} invites to another federation than {document}")
    return found


def _decode(data: bytes) -> Invitation:
    kinds = (str, bytes, list, bytes, list, list)
    magic, genesis, voucher, secret, head, places = expect_record(
        decode(data, INVITATION_SIZE_MAX), "invitation", kinds
    )
    if magic != MAGIC:
        raise InvalidEncoding("invitation", f"{magic!r} found, {MAGIC!r} expected")
    if len(head) > 1 or len(places) > PLACES_MAX:
        raise InvalidEncoding("invitation", f"{len(head)} heads and {len(places)} places found")
    heads = [expect_record(item, "invitation head", (list, list)) for item in head]
    return Invitation(
        Genesis.decode(genesis),
        Voucher.from_record(voucher),
        PrivateKey(expect_size(secret, PUBLIC_KEY_SIZE, "invitation secret")),
        next(((Header.from_record(one), Certificate.from_record(two)) for one, two in heads), None),
        tuple(_read_place(item) for item in places),
    )


def _read_place(value: Any) -> Place:
    member, addresses = expect_record(value, "invitation place", (bytes, list))
    expect_size(member, PUBLIC_KEY_SIZE, "invitation member")
    return member, tuple(expect_record(addresses, "invitation addresses", [str] * len(addresses)))


@dataclass(frozen=True, slots=True)
class Request:
    """A request for a place: its change, the voucher for it, and the proof that whoever asks holds the file."""

    voucher: Voucher
    change: Change
    proof: Signature = field(repr=False)
    """64 bytes: the voucher's key's, over the change's hash; nobody who overhears one request can make another."""

    def encode(self) -> bytes:
        """The bytes that a newcomer sends."""
        return encode([self.voucher.to_record(), self.change.to_record(), self.proof])

    @classmethod
    def decode(cls, data: bytes) -> "Request":
        """Read :meth:`encode`'s bytes; raises InvalidEncoding."""
        voucher, change, proof = expect_record(decode(data, REQUEST_SIZE_MAX), "request", (list, list, bytes))
        return cls(
            Voucher.from_record(voucher),
            Change.from_record(change),
            expect_size(proof, SIGNATURE_SIZE, "request proof"),
        )

    @classmethod
    def of(cls, voucher: Voucher, change: Change, holder: PrivateKey, chain_id: Hash) -> "Request":
        """The request for ``change``, made with the secret half of the voucher's key."""
        draft = cls(voucher, change, bytes(SIGNATURE_SIZE))
        return replace(draft, proof=holder.sign(draft.signing_message(chain_id)))

    def is_vouched_for(self, chain_id: Hash) -> bool:
        """Whether the inviter vouches for the holder of the file, and the holder asks for exactly this change."""
        message = self.signing_message(chain_id)
        return self.voucher.is_signed(chain_id) and is_valid_signature(self.voucher.holder, self.proof, message)

    def signing_message(self, chain_id: Hash) -> bytes:
        """The bytes that the holder of the file signs."""
        return signing_message(chain_id, "request", self.change.hash)


def request_on(invitation: Invitation, key: PrivateKey) -> Request:
    """The request of ``key`` on an invitation."""
    change, chain_id = invitation.request_of(key), invitation.genesis.chain_id
    return Request.of(invitation.voucher, change, invitation.secret, chain_id)
