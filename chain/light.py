"""A light client: headers, certificates and convictions alone show it that a block is final, and with it the knowledge.

It begins at the founding document, or at a final block that is young enough, and holds no post and no older block. The
design is that of Tendermint's light client (CometBFT's specification, "Light client verification"): the next height is
verified by the electors that follow from the trusted block, and a later one is skipped to if an honest member must be
among its signers.

The electors of a height follow from the members, from the convictions before it, and, if a committee is drawn, from the
hash of the block below. The block below is trusted when heights are walked one by one. When heights are skipped, the
state that the header commits to names all three, and the signatures vouch for the header. One honest signer is
enough for that, since it knew the real state. Where so few members are drawn that a quorum of them may consist of
liars, a sender could choose the electors by inventing the block below, and no height can be skipped.
"""

from dataclasses import dataclass, field
from typing import Any, Protocol

from fedchain.chain.block import Header, evidence_root
from fedchain.chain.certificate import Certificate
from fedchain.chain.encoding import decode, encode, expect_record, expect_size
from fedchain.chain.evidence import EVIDENCE_MAX, Evidence, evidence_of, excludes
from fedchain.chain.exceptions import (
    ChainError,
    InvalidBlock,
    InvalidEncoding,
    InvalidEvidence,
    OutOfWindow,
    UnknownParent,
)
from fedchain.chain.genesis import Genesis
from fedchain.chain.membership.change import CHANGES_VERSION
from fedchain.chain.roster import draw
from fedchain.chain.state import (
    CRIME_SIZE_MAX,
    State,
    decode_state,
    genesis_state,
    liars_left,
    state_size_max,
    votes_required,
)
from fedchain.chain.validation import validate_certificate, validate_state
from fedchain.chain.vote import VoteKind
from fedchain.crypto.hashing import HASH_SIZE, Hash
from fedchain.crypto.keys import PUBLIC_KEY_SIZE, SIGNATURE_SIZE, PublicKey
from fedchain.crypto.signatures import SignatureCheck

TRUST_PERIOD_MS = 14 * 24 * 3_600_000
"""How long a block is trusted after it became final, in milliseconds: two weeks. Keys of the past may be stolen later,
and nobody convicts their owners any more. A founding document is compared by its chain id, and has no such limit."""

HEADER_SIZE_MAX = 512
"""Most bytes of an encoded header, the chain id and the frames around both."""


@dataclass(frozen=True, slots=True)
class LightBlock:
    """A final block without its posts: all that a light client needs of it."""

    chain_id: Hash
    """32 bytes: the chain that the block is said to be of."""
    header: Header
    certificate: Certificate
    """Precommits that make the block final."""
    evidence: tuple[Evidence, ...] = ()
    """Crimes that the block proves: their culprits vote no more from the next height on."""
    state: bytes = field(default=b"", repr=False)
    """The encoded state that the block stands on; empty where the block below is trusted already."""

    def to_record(self) -> list[Any]:
        """The canonical fields; the state is a list of none or one."""
        return [
            self.chain_id,
            self.header.to_record(),
            self.certificate.to_record(),
            [item.to_record() for item in self.evidence],
            [self.state] if self.state else [],
        ]

    @classmethod
    def from_record(cls, value: Any) -> "LightBlock":
        """Read the canonical fields; raises InvalidEncoding."""
        kinds = (bytes, list, list, list, list)
        chain_id, header, certificate, evidence, state = expect_record(value, "light block", kinds)
        if len(evidence) > EVIDENCE_MAX:
            raise InvalidEncoding("light block", f"{len(evidence)} crimes found, at most {EVIDENCE_MAX} fit")
        (data,) = expect_record(state, "light block state", (bytes,)) if state else (b"",)
        if state and not data:
            raise InvalidEncoding("light block state", "an empty one is not written")
        return cls(
            expect_size(chain_id, HASH_SIZE, "light block chain"),
            Header.from_record(header),
            Certificate.from_record(certificate),
            tuple(Evidence.from_record(item) for item in evidence),
            data,
        )

    def encode(self) -> bytes:
        """The block's one byte string."""
        return encode(self.to_record())

    @classmethod
    def decode(cls, data: bytes, size_max: int) -> "LightBlock":
        """Read :meth:`encode`'s bytes; raises InvalidEncoding."""
        return cls.from_record(decode(data, size_max))


def light_block_size_max(genesis: Genesis) -> int:
    """Most bytes of an encoded light block of a federation: a client need not read more, whatever a server sends."""
    of_vote = PUBLIC_KEY_SIZE + SIGNATURE_SIZE + 32  # key, signature, two numbers and the frames around them
    votes = len(genesis_state(genesis).roster) * of_vote
    return HEADER_SIZE_MAX + votes + EVIDENCE_MAX * CRIME_SIZE_MAX + state_size_max(genesis)


@dataclass(frozen=True, slots=True)
class Trusted:
    """A final block, or the founding document, with the set that decides the next height."""

    header: Header | None
    """None: the founding document."""
    height: int
    """Its height; 0 for the founding document."""
    block_hash: Hash
    """32 bytes: its hash; the chain id for the founding document."""
    time_ms: int
    """When it became final, by its voters' median clock, in milliseconds since the Unix epoch."""
    members: tuple[PublicKey, ...]
    """All members behind it, by seat."""
    culprits: frozenset[PublicKey]
    """Members that were convicted up to and with this block."""
    deciders: frozenset[PublicKey]
    """Members that decided this height; none for the founding document."""
    electors: frozenset[PublicKey]
    """Members that decide the next height."""


class Provider(Protocol):
    """A source of light blocks, which may lie."""

    def light_block(self, height: int, *, with_state: bool) -> LightBlock:
        """The final block of a height, with the state that it stands on if asked for. Raises NotFound."""


@dataclass(frozen=True, slots=True)
class Verified:
    """The result of a verification."""

    trusted: Trusted
    """The block that was asked for."""
    block: LightBlock | None
    """The same with its certificate; None if it was trusted from the beginning."""
    certificates: int
    """Certificates that were verified on the way."""
    signatures: int
    """Votes in them."""
    skipped: int
    """Heights between that were not looked at."""


class ConflictingBlocks(ChainError):
    """Two blocks of one height have valid certificates, so more members lie than the federation bears.

    Args:
        first: one of them.
        second: the other.
    """

    def __init__(self, first: LightBlock, second: LightBlock) -> None:
        self.blocks = first, second
        """The two blocks, each with its certificate: they prove it to anybody that knows the electors."""
        votes = {vote.voter: vote for vote in first.certificate.votes}
        both = [(votes[vote.voter], vote) for vote in second.certificate.votes if vote.voter in votes]
        self.signers = tuple(one.voter for one, _ in both)
        """Members that signed both certificates."""
        self.crimes = tuple(evidence_of(one, other) for one, other in both if excludes(one, other))
        """Evidence against those that did so in one attempt. Votes in two attempts prove a crime together with the
        prevotes alone, which certificates do not hold."""
        height, hashes = first.header.height, f"{first.header.hash.hex()} and {second.header.hash.hex()}"
        super().__init__(f"height {height} has two certified blocks, {hashes}: {len(both)} members signed both")


def trust_genesis(genesis: Genesis) -> Trusted:
    """Trust the founding document: its reader compared the chain id with one from elsewhere."""
    state = genesis_state(genesis)
    roster, nobody = state.roster, frozenset[PublicKey]()
    return Trusted(None, 0, genesis.chain_id, genesis.created_ms, roster.members, nobody, nobody, roster.electors)


def trust_block(genesis: Genesis, block_hash: Hash, block: LightBlock, is_valid_signature: SignatureCheck) -> Trusted:
    """Trust the block whose hash the reader has from elsewhere.

    Args:
        genesis: the founding document.
        block_hash: 32 bytes: the hash that is trusted.
        block: what a provider sent as that block, with the state that it stands on.
        is_valid_signature: checks signatures.

    Raises Invalid if it is not that block, or its certificate or state is not the one that belongs to it.
    """
    _validate_chain(genesis, block)
    _expect(block.header.hash == block_hash, "trusted block", f"{block.header.hash.hex()} found", block_hash.hex())
    state = _state_below(genesis, block, is_valid_signature)
    _validate_votes(genesis, state.roster.electors, block, is_valid_signature)
    return _trust(genesis, block, state.roster.members, state.roster.culprits, state.roster.electors)


def validate_period(trusted: Trusted, now_ms: int, period_ms: int = TRUST_PERIOD_MS) -> None:
    """Check that a trusted block is young enough to begin at. Raises OutOfWindow."""
    age_ms = now_ms - trusted.time_ms
    if trusted.header is not None and age_ms > period_ms:
        found = f"height {trusted.height} became final {age_ms} ms ago, it is trusted for {period_ms} ms"
        raise OutOfWindow("trust period", found)


def verify_adjacent(
    genesis: Genesis, trusted: Trusted, block: LightBlock, is_valid_signature: SignatureCheck
) -> Trusted:
    """Verify the block on top of a trusted one: its electors follow from that.

    Raises:
        OutOfWindow: it is of another height.
        Invalid: it does not stand on the trusted block, or its electors did not make it final.
    """
    _validate_chain(genesis, block)
    header = block.header
    if header.height != trusted.height + 1:
        raise OutOfWindow("height", f"{header.height} found, {trusted.height} is trusted and {trusted.height + 1} next")
    _expect(
        header.parent_hash == trusted.block_hash,
        "parent",
        f"{header.parent_hash.hex()} found",
        f"the trusted block {trusted.block_hash.hex()}",
    )
    _validate_votes(genesis, trusted.electors, block, is_valid_signature)
    return _trust(genesis, block, trusted.members, trusted.culprits, trusted.electors)


def verify_skipping(
    genesis: Genesis, trusted: Trusted, block: LightBlock, is_valid_signature: SignatureCheck
) -> Trusted:
    """Verify a block above a trusted one without those between.

    Two things are needed: more of the members that are trusted signed than may lie, which is a third of them at most,
    and a quorum of the height's own electors did, whom the state below the block names.

    Raises:
        OutOfWindow: it is not above the trusted one.
        Invalid: block, state or certificate is invalid, or they do not belong together.
        UnknownParent: so few members are drawn to vote, or so few of the trusted ones signed, that only the blocks
            between can tell.
    """
    _validate_chain(genesis, block)
    header = block.header
    if header.height <= trusted.height:
        raise OutOfWindow("height", f"{header.height} found, {trusted.height} is trusted and only later ones are taken")
    state = _state_below(genesis, block, is_valid_signature)
    # A conviction is for ever: a state without one is another chain's, or invented.
    forgotten = sorted(trusted.culprits - state.roster.culprits)
    if forgotten:
        found = f"the state below height {header.height} lacks that of {forgotten[0].hex()}"
        raise InvalidEvidence("convictions", found)
    liars, required = liars_left(genesis, state), votes_required(genesis, state.roster.electors)
    # Liars could sign for a committee that they drew by a block that does not exist.
    if required <= liars:
        found = f"{required} drawn electors make height {header.height} final, {liars} members may lie"
        raise UnknownParent("committee", f"{found}: the blocks between are needed")
    _validate_votes(genesis, state.roster.electors, block, is_valid_signature)
    # The set that is said to have signed may be another one by now: one honest signer must be of the trusted one.
    known = frozenset(trusted.members) - state.roster.culprits
    signed = sum(vote.voter in known for vote in block.certificate.votes)
    if signed <= liars:
        found = f"{signed} of the {len(known)} members that are trusted signed height {header.height}, {liars} may lie"
        raise UnknownParent("trusted members", f"{found}: the blocks between are needed")
    return _trust(genesis, block, state.roster.members, state.roster.culprits, state.roster.electors)


def bisect(
    genesis: Genesis, trusted: Trusted, provider: Provider, height: int, is_valid_signature: SignatureCheck
) -> Verified:
    """Verify the block of a height by as few blocks between as the chain allows.

    The height is skipped to at once if possible. Where too few trusted members signed it, the height in the middle is
    asked for first, and so on down to the next one, which is always decided by known electors.

    Args:
        genesis: the founding document.
        trusted: the block to begin at; check its age with :func:`validate_period`.
        provider: the source of light blocks.
        height: the height that is wanted.
        is_valid_signature: checks signatures.

    Raises:
        OutOfWindow: the height is below the trusted one.
        NotFound: the provider has no such block.
        Invalid: it lies.
    """
    if height < trusted.height:
        raise OutOfWindow("height", f"{height} is asked for, {trusted.height} is trusted and only later ones are taken")
    begin, found, certificates, signatures = trusted.height, None, 0, 0
    waiting: list[LightBlock] = []  # blocks that are verified once one below is trusted, the lowest last
    wanted = height
    while trusted.height < height:
        if not waiting or waiting[-1].header.height != wanted:
            waiting.append(_ask(provider, wanted, with_state=wanted > trusted.height + 1))
        block = waiting[-1]
        try:
            if block.header.height == trusted.height + 1:
                trusted = verify_adjacent(genesis, trusted, block, is_valid_signature)
            else:
                trusted = verify_skipping(genesis, trusted, block, is_valid_signature)
        except UnknownParent:
            wanted = (trusted.height + block.header.height) // 2
            continue
        certificates, signatures = certificates + 1, signatures + len(block.certificate.votes)
        found = waiting.pop()
        wanted = waiting[-1].header.height if waiting else height
    return Verified(trusted, found, certificates, signatures, height - begin - certificates)


def compare(
    genesis: Genesis, before: Trusted, block: LightBlock, witness: Provider, is_valid_signature: SignatureCheck
) -> None:
    """Ask a second provider for a block that was verified from ``before``.

    Raises:
        ConflictingBlocks: it has another block of this height, which is certified as well.
        Refused: it has another one that is not, or cannot prove it.
        NotFound: it has none.
    """
    height = block.header.height
    other = _ask(witness, height, with_state=True)
    if other.header.hash == block.header.hash:
        return
    # Another block in the place of the trusted one itself has to be proven from further down.
    begin = before if height > before.height else trust_genesis(genesis)
    bisect(genesis, begin, _Instead(witness, other), height, is_valid_signature)
    raise ConflictingBlocks(block, other)


@dataclass(frozen=True, slots=True)
class _Instead:
    """A provider whose answer for one height is held already."""

    provider: Provider
    held: LightBlock

    def light_block(self, height: int, *, with_state: bool) -> LightBlock:
        """The held block at its height, and the provider's elsewhere."""
        if height == self.held.header.height:
            return self.held
        return self.provider.light_block(height, with_state=with_state)


def _ask(provider: Provider, height: int, *, with_state: bool) -> LightBlock:
    block = provider.light_block(height, with_state=with_state)
    _expect(block.header.height == height, "height", f"{block.header.height} found", f"{height}, which was asked for,")
    # Without it no height is skipped, so a provider that leaves it out would have every block asked for.
    _expect(bool(block.state) or not with_state, "state", f"none found with height {height}", "the one below it")
    return block


def _validate_chain(genesis: Genesis, block: LightBlock) -> None:
    """Check what does not depend on who signed."""
    # Signatures name their chain, too: this says so before one of them seems forged.
    _expect(block.chain_id == genesis.chain_id, "chain", f"{block.chain_id.hex()} found", genesis.chain_id.hex())
    # The electors follow from the members, which a light client takes to be the founders.
    _expect(genesis.version < CHANGES_VERSION, "members", "a federation whose members may change", "founders alone")
    version = block.header.version
    _expect(version == genesis.version, "version", f"{version} found", str(genesis.version))
    # The first block stands on the founding document, on whatever it is skipped to from.
    if block.header.height == 1:
        parent = block.header.parent_hash
        _expect(parent == genesis.chain_id, "parent", f"{parent.hex()} found", f"the chain id {genesis.chain_id.hex()}")
    root = evidence_root(block.evidence)
    if root != block.header.evidence_root:
        found = f"{root.hex()} found, the header has {block.header.evidence_root.hex()}"
        raise InvalidEvidence("evidence root", found)


def _state_below(genesis: Genesis, block: LightBlock, is_valid_signature: SignatureCheck) -> State:
    """The state that a block stands on, as its header names it."""
    header = block.header
    if not block.state:
        raise UnknownParent("state", f"none came with height {header.height}: only the blocks between can tell")
    state = decode_state(genesis, block.state)
    _expect(state.root == header.state_root, "state root", f"{state.root.hex()} found", header.state_root.hex())
    is_below = (state.height + 1, state.block_hash) == (header.height, header.parent_hash)
    _expect(is_below, "state", f"that behind height {state.height} found", f"that behind the parent of {header.height}")
    validate_state(genesis, state, is_valid_signature)
    return state


def _validate_votes(
    genesis: Genesis, electors: frozenset[PublicKey], block: LightBlock, is_valid_signature: SignatureCheck
) -> None:
    height, block_hash = block.header.height, block.header.hash
    validate_certificate(
        genesis, electors, block.certificate, VoteKind.PRECOMMIT, height, block_hash, is_valid_signature
    )


def _trust(
    genesis: Genesis,
    block: LightBlock,
    members: tuple[PublicKey, ...],
    before: frozenset[PublicKey],
    deciders: frozenset[PublicKey],
) -> Trusted:
    """A verified block, with the electors of the next height."""
    culprits = before | {crime.culprit for crime in block.evidence}
    active = tuple(member for member in members if member not in culprits)
    return Trusted(
        block.header,
        block.header.height,
        block.header.hash,
        block.certificate.clock_ms,
        members,
        culprits,
        deciders,
        draw(active, genesis.committee_size, block.header.hash + b"committee"),
    )


def _expect(condition: bool, rule: str, found: str, expected: str) -> None:
    if not condition:
        raise InvalidBlock(rule, f"{found}, {expected} expected")
