"""A light client: headers, certificates and convictions alone show it that a block is final, and with it the knowledge.

It begins at the founding document, or at a final block that is young enough, and holds no post and no older block. The
design is that of Tendermint's light client (CometBFT's specification, "Light client verification"): the next height is
verified by the electors that follow from the trusted block, and a later one is skipped to if an honest member must be
among its signers.

The electors of a height follow from the members, from the convictions before it, and, if a committee is drawn, from the
hash of the block below, or from the height alone where members may change. The block below is trusted when heights are
walked one by one. When heights are skipped, the state that the header commits to names all three; where members may
change, the header below names the members. The signatures vouch for the header. One honest signer is enough for that,
since it knew the real state. Where so few members are drawn that a quorum of them may consist of liars, a sender could
choose the electors by inventing the block below, or wait for a height at which liars are drawn, and no height can be
skipped.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from fedchain.chain.block import Header, evidence_root
from fedchain.chain.certificate import Certificate, certificate_root
from fedchain.chain.exceptions import (
    InvalidCertificate,
    InvalidEvidence,
    OutOfWindow,
    UnknownParent,
)
from fedchain.chain.genesis import NEWEST_VERSION, Genesis
from fedchain.chain.light.electorate import Electorate, named_by_header, named_by_state
from fedchain.chain.light.light_block import LightBlock, expect
from fedchain.chain.membership.change import CHANGES_VERSION
from fedchain.chain.roster import draw, seed_of_electors
from fedchain.chain.state import (
    genesis_state,
    votes_required,
)
from fedchain.chain.validation import validate_certificate
from fedchain.chain.vote import Vote, VoteKind
from fedchain.crypto.hashing import Hash
from fedchain.crypto.keys import PublicKey
from fedchain.crypto.signatures import SignatureCheck, Signed

_DAY_MS = 24 * 3_600_000

TRUST_PERIOD_MS = 14 * _DAY_MS
"""How long a block is trusted after the one below became final, in milliseconds: two weeks. Keys of the past may be
stolen later, and nobody convicts their owners any more. A founding document is compared by its chain id, and has no
such limit."""


class LaterVersion(OutOfWindow):
    """Members made a block final whose version of the protocol this program does not know, so it verifies no further.

    Args:
        header: the block's, certified by its electors.
    """

    def __init__(self, header: Header) -> None:
        found = f"height {header.height} is of version {header.version}, this program speaks {NEWEST_VERSION}"
        super().__init__("version", found)
        self.header = header
        """The block's header."""


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
    """When it became final, by its voters' median clock, in milliseconds since the Unix epoch; of a block that was
    trusted by its hash, when the one below did."""
    members: tuple[PublicKey, ...]
    """All members behind it, by seat; where members may change, those that counted when it was decided."""
    culprits: frozenset[PublicKey]
    """Members that were convicted up to and with this block."""
    deciders: frozenset[PublicKey]
    """Members that decided this height; none for the founding document."""
    electors: frozenset[PublicKey] | None
    """Members that decide the next height; None where members may change: the header names the set."""


def trust_genesis(genesis: Genesis) -> Trusted:
    """Trust the founding document: its reader compared the chain id with one from elsewhere."""
    state = genesis_state(genesis)
    roster, nobody = state.roster, frozenset[PublicKey]()
    electors = None if genesis.version >= CHANGES_VERSION else roster.electors
    return Trusted(None, 0, genesis.chain_id, genesis.created_ms, roster.members, nobody, nobody, electors)


def trust_block(
    genesis: Genesis,
    block_hash: Hash,
    block: LightBlock,
    below: Certificate | None,
    is_valid_signature: SignatureCheck,
) -> Trusted:
    """Trust the block whose hash the reader has from elsewhere.

    Its age is that of the certificate below, to which its header commits. The block's own certificate is in no header
    that is trusted: keys that were stolen later sign another one, whose clocks say that the block is new.

    Args:
        genesis: the founding document.
        block_hash: 32 bytes: the hash that is trusted.
        block: what a provider sent as that block, with the state that it stands on.
        below: the certificate of the block below; None for the first block.
        is_valid_signature: checks signatures.

    Raises:
        Invalid: it is not that block, or a certificate or the state is not the one that belongs to it.
        LaterVersion: it is, and this program is too old for it.
    """
    _validate_chain(genesis, block)
    expect(block.header.hash == block_hash, "trusted block", f"{block.header.hash.hex()} found", block_hash.hex())
    electorate = _electorate_of(genesis, block, is_valid_signature)
    _validate_votes(genesis, electorate.electors, block, is_valid_signature)
    root, named = certificate_root(below), block.header.certificate_root
    expect(root == named, "certificate below", f"{root.hex()} found", named.hex())
    time_ms = genesis.created_ms if below is None else below.clock_ms
    return replace(_trust(genesis, block, electorate), time_ms=time_ms)


def validate_period(trusted: Trusted, now_ms: int, period_ms: int = TRUST_PERIOD_MS) -> None:
    """Check that a trusted block is young enough to begin at. Raises OutOfWindow."""
    age_ms = now_ms - trusted.time_ms
    if trusted.header is not None and age_ms > period_ms:
        found = f"the block below height {trusted.height} became final {age_ms / _DAY_MS:.2f} days ago"
        found += f", it is trusted for {period_ms / _DAY_MS:g} days"
        raise OutOfWindow("trust period", found)


def verify_adjacent(
    genesis: Genesis, trusted: Trusted, block: LightBlock, is_valid_signature: SignatureCheck
) -> Trusted:
    """Verify the block on top of a trusted one: its electors follow from that.

    Raises:
        OutOfWindow: it is of another height.
        Invalid: it does not stand on the trusted block, or its electors did not make it final.
        LaterVersion: they did, and this program is too old for it.
    """
    _validate_chain(genesis, block)
    header = block.header
    if header.height != trusted.height + 1:
        raise OutOfWindow("height", f"{header.height} found, {trusted.height} is trusted and {trusted.height + 1} next")
    expect(
        header.parent_hash == trusted.block_hash,
        "parent",
        f"{header.parent_hash.hex()} found",
        f"the trusted block {trusted.block_hash.hex()}",
    )
    if trusted.electors is None:
        electorate = named_by_header(genesis, block, trusted.header)
    else:
        electorate = Electorate(trusted.members, trusted.culprits, trusted.electors, liars=0)
    _validate_votes(genesis, electorate.electors, block, is_valid_signature)
    return _trust(genesis, block, electorate)


def verify_skipping(
    genesis: Genesis, trusted: Trusted, block: LightBlock, is_valid_signature: SignatureCheck
) -> Trusted:
    """Verify a block above a trusted one without those between.

    Two things are needed: more of the members that are trusted signed than may lie, which is a third of them at most,
    and so did a quorum of the height's own electors, as the light block proves them (`electorate.py`).

    Raises:
        OutOfWindow: it is not above the trusted one.
        Invalid: block, state or certificate is invalid, or they do not belong together.
        LaterVersion: it is final, and this program is too old for it.
        UnknownParent: so few members are drawn to vote, or so few of the trusted ones signed, that only the blocks
            between can tell.
    """
    _validate_chain(genesis, block)
    header = block.header
    if header.height <= trusted.height:
        raise OutOfWindow("height", f"{header.height} found, {trusted.height} is trusted and only later ones are taken")
    electorate = _electorate_of(genesis, block, is_valid_signature)
    # A conviction is for ever: a state without one is another chain's, or invented.
    forgotten = () if trusted.electors is None else sorted(trusted.culprits - electorate.culprits)
    if forgotten:
        found = f"the state below height {header.height} lacks that of {forgotten[0].hex()}"
        raise InvalidEvidence("convictions", found)
    liars, required = electorate.liars, votes_required(genesis, electorate.electors)
    # Liars could sign for a committee that they drew by a block that does not exist, or for a height that draws them.
    if required <= liars:
        found = f"{required} drawn electors make height {header.height} final, {liars} members may lie"
        raise UnknownParent("committee", f"{found}: the blocks between are needed")
    # The set that is said to have signed may be another one by now: one honest signer must be of the trusted one. Where
    # sets change, these are counted and verified first: strangers that sign by the thousand cost no verification.
    if trusted.electors is None:
        known = _votes_of_trusted(genesis, trusted, electorate, block)
        is_valid_signature = _verified_first(genesis, known, is_valid_signature)
    _validate_votes(genesis, electorate.electors, block, is_valid_signature)
    if trusted.electors is not None:
        _votes_of_trusted(genesis, trusted, electorate, block)
    return _trust(genesis, block, electorate)


def _votes_of_trusted(genesis: Genesis, trusted: Trusted, electorate: Electorate, block: LightBlock) -> list[Vote]:
    """Votes of more members of a trusted set than may lie, of those that signed. Raises UnknownParent."""
    known = frozenset(trusted.members) - electorate.culprits
    liars = electorate.liars if trusted.electors is not None else genesis.fault_model.faulty(len(known))
    votes = [vote for vote in block.certificate.votes if vote.voter in known]
    signed = len(votes)
    if signed <= liars:
        found = f"{signed} of the {len(known)} members that are trusted signed height {block.header.height}"
        raise UnknownParent("trusted members", f"{found}, {liars} may lie: the blocks between are needed")
    return votes[: liars + 1]


def _verified_first(genesis: Genesis, votes: Sequence[Vote], is_valid_signature: SignatureCheck) -> SignatureCheck:
    """A check of signatures for which those of some votes are verified. Raises InvalidCertificate."""
    valid = set[Signed]()
    for vote in votes:
        signed = vote.voter, vote.signature, vote.signing_message(genesis.chain_id)
        if not is_valid_signature(*signed):
            found = f"{vote.signature.hex()[:16]}… is not {vote.voter.hex()[:16]}…'s over this vote"
            raise InvalidCertificate("certificate's vote", f"signature: {found}")
        valid.add(signed)
    return lambda *signed: signed in valid or is_valid_signature(*signed)


def _electorate_of(genesis: Genesis, block: LightBlock, is_valid_signature: SignatureCheck) -> Electorate:
    """The electorate that a block brings a proof of."""
    if genesis.version >= CHANGES_VERSION:
        return named_by_header(genesis, block, block.below)
    return named_by_state(genesis, block, is_valid_signature)


def _validate_chain(genesis: Genesis, block: LightBlock) -> None:
    """Check what does not depend on who signed."""
    # Signatures name their chain, too: this says so before one of them seems forged.
    expect(block.chain_id == genesis.chain_id, "chain", f"{block.chain_id.hex()} found", genesis.chain_id.hex())
    version, founded = block.header.version, genesis.version
    # An amendment may have led to a later version, and members signed for it.
    is_led_to = version > founded >= CHANGES_VERSION
    expect(version == founded or is_led_to, "version", f"{version} found", str(founded))
    # The first block stands on the founding document, on whatever it is skipped to from.
    if block.header.height == 1:
        parent = block.header.parent_hash
        expect(parent == genesis.chain_id, "parent", f"{parent.hex()} found", f"the chain id {genesis.chain_id.hex()}")
    if version >= CHANGES_VERSION:  # who was convicted is not in the set of the next height
        return
    root = evidence_root(block.evidence)
    if root != block.header.evidence_root:
        found = f"{root.hex()} found, the header has {block.header.evidence_root.hex()}"
        raise InvalidEvidence("evidence root", found)


def _validate_votes(
    genesis: Genesis, electors: frozenset[PublicKey], block: LightBlock, is_valid_signature: SignatureCheck
) -> None:
    height, block_hash = block.header.height, block.header.hash
    validate_certificate(
        genesis, electors, block.certificate, VoteKind.PRECOMMIT, height, block_hash, is_valid_signature
    )


def _trust(genesis: Genesis, block: LightBlock, electorate: Electorate) -> Trusted:
    """A verified block, with the electors of the next height if they follow from it. Raises LaterVersion."""
    # Only now did its electors sign for the version: a liar's word ends no program.
    if block.header.version > NEWEST_VERSION:
        raise LaterVersion(block.header)
    culprits = electorate.culprits | {crime.culprit for crime in block.evidence}
    electors = None
    if genesis.version < CHANGES_VERSION:
        active = tuple(member for member in electorate.members if member not in culprits)
        seed = seed_of_electors(genesis, block.header.height + 1, block.header.hash)
        electors = draw(active, genesis.committee_size, seed)
    return Trusted(
        block.header,
        block.header.height,
        block.header.hash,
        block.certificate.clock_ms,
        electorate.members,
        culprits,
        electorate.electors,
        electors,
    )
