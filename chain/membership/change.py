"""A change of the membership: a member comes, leaves, is removed, away or back, or has another key; and its approvals.

A change is proposed by anybody, gossiped like a post, and holds once a block counts it: from the first height of the
second round after the block's on, so that everybody knows a round's members before the round begins. Another key holds
from the next height on, since a stolen one must not wait. Only federations whose founding document is of version 3 know
changes.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from enum import IntEnum
from typing import Any

from fedchain.chain.encoding import encode, expect_record, expect_size, signing_message
from fedchain.chain.exceptions import InvalidEncoding
from fedchain.chain.membership.amendment import Amendment
from fedchain.chain.merkle import merkle_root
from fedchain.crypto.hashing import Hash, sha256
from fedchain.crypto.keys import PUBLIC_KEY_SIZE, SIGNATURE_SIZE, PrivateKey, PublicKey, Signature

CHANGES_VERSION = 3
"""Version of founding documents, and of their blocks, whose members may change."""

CHANGES_MAX = 16
"""Changes that one block may count; the next block has room for more."""

PLACES_MAX = 65_536
"""Places that a federation gives at most, each once: a status has a bit for each, and room for no more."""

TEXT_SIZE_MAX = 200
"""Bytes of a change's text, at most."""

ROUNDS_AHEAD = 2
"""Rounds from the one whose block counts a change to the one from which on it holds."""


class ChangeKind(IntEnum):
    """The ways in which the membership changes."""

    JOIN = 1
    """A key becomes a member."""
    LEAVE = 2
    """A member leaves, for good."""
    REMOVE = 3
    """The others take a member out, for good."""
    BACK = 4
    """A member that was away counts again."""
    REKEY = 5
    """A member takes another key; both keys sign."""
    RECOVER = 6
    """The others let a member have another key in place of one that was lost or stolen."""
    AWAY = 7
    """A member does not count until it is back, by its own word."""
    AMEND = 8
    """Parameters of the federation have other values; it is about no member."""

    @property
    def needs_approval(self) -> bool:
        """Whether the rule of admission in force has to be met; a quorum for an amendment."""
        return self in (ChangeKind.JOIN, ChangeKind.REMOVE, ChangeKind.RECOVER, ChangeKind.AMEND)

    @property
    def needs_signature(self) -> bool:
        """Whether the member's key has to sign."""
        return self not in (ChangeKind.REMOVE, ChangeKind.RECOVER, ChangeKind.AMEND)

    @property
    def gives_key(self) -> bool:
        """Whether the member has another key afterwards, which has to sign."""
        return self in (ChangeKind.REKEY, ChangeKind.RECOVER)


@dataclass(frozen=True, slots=True)
class Approval:
    """One member's consent to a change."""

    approver: PublicKey
    """32 bytes: the member that approves."""
    signature: Signature = field(repr=False)
    """64 bytes: its own, over the change's hash."""

    def to_record(self) -> list[Any]:
        """The canonical fields."""
        return [self.approver, self.signature]

    @classmethod
    def from_record(cls, value: Any) -> "Approval":
        """Read the canonical fields; raises InvalidEncoding."""
        approver, signature = expect_record(value, "approval", (bytes, bytes))
        expect_size(approver, PUBLIC_KEY_SIZE, "approval approver")
        return cls(approver, expect_size(signature, SIGNATURE_SIZE, "approval signature"))


@dataclass(frozen=True, slots=True)
class Change:
    """A proposed change, with the approvals that it has so far."""

    kind: ChangeKind
    """The way in which the membership changes."""
    member: PublicKey
    """32 bytes: the member that it is about, or the key that joins; empty if it is about none."""
    key: PublicKey
    """32 bytes: the member's next key; empty if it keeps the one that it has."""
    text: str
    """A name or a reason, for people; at most ``TEXT_SIZE_MAX`` bytes."""
    sequence: int
    """Number of changes of this member, or of amendments, that the chain counts: an old one cannot be used again."""
    until: int
    """Last height whose block may count it."""
    signature: Signature = field(repr=False)
    """64 bytes: the member's own, over everything above; empty if others remove it or give it another key."""
    proof: Signature = field(default=b"", repr=False)
    """64 bytes: the next key's own, over the same; empty if there is none."""
    amendment: Amendment | None = None
    """Other values of parameters; None if it is about a member."""
    approvals: tuple[Approval, ...] = field(default=(), repr=False)
    """In the order of the approvers' keys."""
    hash: Hash = field(init=False, repr=False, compare=False)
    """32 bytes: hash of what is signed; the identity of the change, whoever approves it."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "hash", sha256(encode(self._signed_fields())))

    @property
    def key_afterwards(self) -> PublicKey:
        """32 bytes: the key of its member once it holds; empty if it is about none."""
        return self.key or self.member

    def begins(self, round_number: int) -> int:
        """First round in which it holds, unless it gives a key, if a block of a round counts it."""
        said = 0 if self.amendment is None else self.amendment.round
        return said or round_number + ROUNDS_AHEAD

    def to_record(self) -> list[Any]:
        """The canonical fields."""
        return [
            *self._signed_fields(),
            self.signature,
            self.proof,
            [approval.to_record() for approval in self.approvals],
        ]

    @classmethod
    def from_record(cls, value: Any) -> "Change":
        """Read the canonical fields; raises InvalidEncoding."""
        kinds = (int, bytes, bytes, str, int, int, list, bytes, bytes, list)
        number, member, key, text, sequence, until, *others = expect_record(value, "change", kinds)
        amendment, signature, proof, approvals = others
        if number not in tuple(ChangeKind):
            raise InvalidEncoding("change kind", f"{number} found, 1 to {max(ChangeKind)} expected")
        kind = ChangeKind(number)
        expect_size(member, 0 if kind is ChangeKind.AMEND else PUBLIC_KEY_SIZE, "change member")
        if bool(amendment) != (kind is ChangeKind.AMEND):
            raise InvalidEncoding("change amendment", f"{len(amendment)} fields found in one of kind {number}")
        expect_size(key, PUBLIC_KEY_SIZE if kind.gives_key else 0, "change key")
        expect_size(signature, SIGNATURE_SIZE if kind.needs_signature else 0, "change signature")
        expect_size(proof, SIGNATURE_SIZE if kind.gives_key else 0, "change proof")
        if (size := len(text.encode())) > TEXT_SIZE_MAX:
            raise InvalidEncoding("change text", f"{size} bytes found, at most {TEXT_SIZE_MAX} are allowed")
        given = tuple(Approval.from_record(record) for record in approvals)
        amended = Amendment.from_record(amendment) if amendment else None
        return cls(kind, member, key, text, sequence, until, signature, proof, amended, given)

    def signing_message(self, chain_id: Hash) -> bytes:
        """The bytes that the member's key signs, and the next one."""
        return signing_message(chain_id, "change", self.hash)

    def approval_message(self, chain_id: Hash) -> bytes:
        """The bytes that an approver signs."""
        return signing_message(chain_id, "approval", self.hash)

    def approved_by(self, approvals: Iterable[Approval]) -> "Change":
        """This change with ``approvals`` in place of those that it has; one of each approver."""
        given = {approval.approver: approval for approval in approvals}
        return replace(self, approvals=tuple(given[approver] for approver in sorted(given)))

    def approved(self, key: PrivateKey, chain_id: Hash) -> "Change":
        """This change with the approval of ``key`` besides those that it has."""
        approval = Approval(key.public_key, key.sign(self.approval_message(chain_id)))
        return self.approved_by((*self.approvals, approval))

    def _signed_fields(self) -> list[Any]:
        amendment = [] if self.amendment is None else self.amendment.to_record()
        return [int(self.kind), self.member, self.key, self.text, self.sequence, self.until, amendment]


def sign_change(
    key: PrivateKey, chain_id: Hash, kind: ChangeKind, *, text: str = "", sequence: int = 0, until: int
) -> Change:
    """Make a change of the member with ``key`` and sign it."""
    draft = Change(kind, key.public_key, b"", text, sequence, until, bytes(SIGNATURE_SIZE))
    return replace(draft, signature=key.sign(draft.signing_message(chain_id)))


def sign_rekey(
    key: PrivateKey, following: PrivateKey, chain_id: Hash, *, text: str = "", sequence: int, until: int
) -> Change:
    """Make a change by which the member with ``key`` has the key ``following`` instead; both sign."""
    draft = Change(ChangeKind.REKEY, key.public_key, following.public_key, text, sequence, until, b"")
    message = draft.signing_message(chain_id)
    return replace(draft, signature=key.sign(message), proof=following.sign(message))


def propose_recovery(
    member: PublicKey, following: PrivateKey, chain_id: Hash, reason: str, *, sequence: int, until: int
) -> Change:
    """Make a change by which ``member`` has the key ``following`` instead; it is worth what its approvals are."""
    draft = Change(ChangeKind.RECOVER, member, following.public_key, reason, sequence, until, b"")
    return replace(draft, proof=following.sign(draft.signing_message(chain_id)))


def propose_removal(member: PublicKey, reason: str, *, sequence: int, until: int) -> Change:
    """Make a change that removes ``member``; it is worth what its approvals are."""
    return Change(ChangeKind.REMOVE, member, b"", reason, sequence, until, b"")


def propose_amendment(amendment: Amendment, reason: str, *, sequence: int, until: int) -> Change:
    """Make a change of parameters; it is worth what its approvals are."""
    return Change(ChangeKind.AMEND, b"", b"", reason, sequence, until, b"", amendment=amendment)


def changes_root(changes: Sequence[Change]) -> Hash:
    """Merkle root over the hashes of the changes with their approvals; the zero hash if there are none."""
    return merkle_root([sha256(encode(change.to_record())) for change in changes])
