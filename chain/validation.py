"""Validity: each rule of the protocol once, with its reason. A rule raises; returning means it holds.

Together with the votes these rules guarantee that no two honest members ever finalize different blocks at one height,
and that a final block's knowledge is the exact aggregate of valid posts of members that were due. Whether a valid block
*deserves* a vote is policy, which is kept elsewhere: it depends on what a peer saw, and when.

Cheap rules come before costly ones: membership before signatures, one signature before a proof of work, both before
the many signatures of a body.
"""

from fedchain.chain.block import Block, Header, block_signing_message, evidence_root, transactions_root
from fedchain.chain.certificate import Certificate, certificate_root
from fedchain.chain.evidence import EVIDENCE_MAX, Evidence, excludes
from fedchain.chain.exceptions import (
    AlreadyKnown,
    InvalidBlock,
    InvalidCertificate,
    InvalidEvidence,
    InvalidPayload,
    InvalidPost,
    InvalidSignature,
    InvalidVote,
    OutOfWindow,
    Refused,
    UnknownParent,
    check,
    check_ascending,
)
from fedchain.chain.genesis import NEWEST_VERSION, AggregatorRule, Contributor, Genesis
from fedchain.chain.membership.change import CHANGES_VERSION, changes_root
from fedchain.chain.membership.rules import validate_approvals, validate_change, validate_room
from fedchain.chain.membership.turnout import Turnout
from fedchain.chain.post import Post
from fedchain.chain.proof_of_work import is_sealed
from fedchain.chain.state import State, may_close_empty, posts_required, votes_required
from fedchain.chain.vote import NIL, Vote, VoteKind
from fedchain.crypto.hashing import Hash, sha256
from fedchain.crypto.keys import PublicKey
from fedchain.crypto.signatures import SignatureCheck

CLOCK_MS_MAX = 2**48
"""The latest clock that a vote may show: some nine thousand years from now."""

POST_ROUNDS_AHEAD = 1
"""How many rounds ahead of the head's a post may be to be taken: a member may be faster than we are."""


# --- posts


def validate_window(state: State, post: Post) -> None:
    """Check that a post is for the open phase or a later one of this round or the next, or owed to an earlier round.

    Raises OutOfWindow.
    """
    step, low = (post.round, post.phase), (state.round, state.phase)
    # Every post passes here; the message is built only when it is needed.
    is_closed = step < low and state.owed_to(post.key) is None
    if state.finished or is_closed or post.round > state.round + POST_ROUNDS_AHEAD:
        raise OutOfWindow("post's round", f"{step} found, {low} is open")


def validate_post(genesis: Genesis, state: State, post: Post, is_valid_signature: SignatureCheck) -> None:
    """Check a post on its own, before it is known which block will count it.

    Raises:
        InvalidSignature: its sender did not write it.
        InvalidPost: it can never be part of a block.
        OutOfWindow: its sender does not count now, or others may know already why it is right.
    """
    phases, size_max = len(genesis.phases_of(post.round)), genesis.payload_size_max
    # Only members post: anyone else could flood the round. Where keys may be replaced, others may know of one that we
    # do not know yet.
    if post.sender not in state.roster.seats:
        wrong = OutOfWindow if state.records else InvalidSignature
        raise wrong("sender", f"{post.sender.hex()} is no member")
    # Only members that count post; the peer that passed the post on may not know of a conviction or a change yet.
    if not state.roster.is_active(post.sender):
        how = "was convicted" if post.sender in state.roster.culprits else "does not count now"
        raise OutOfWindow("sender", f"{post.sender.hex()} {how}")
    # The sender itself signed this, for this chain, round and phase.
    _check_signature(genesis, post.sender, post, is_valid_signature)
    # The phase must exist, or the post could never be counted.
    if post.phase >= phases:
        raise InvalidPost("phase", f"{post.phase} found, round {post.round} has {phases}")
    # Nothing follows the last round.
    if 0 < (last := state.rules.rounds) < post.round:
        # An amendment that others count already may let the federation go on.
        raise (OutOfWindow if state.records else InvalidPost)("round", f"{post.round} found, the last is {last}")
    _validate_role(genesis, state, post)
    # Everybody has to fetch, keep and aggregate it.
    if post.payload_size > size_max:
        raise InvalidPost("payload size", f"{post.payload_size} bytes found, at most {size_max} are allowed")


def _validate_role(genesis: Genesis, state: State, post: Post) -> None:
    by_aggregator = genesis.phases_of(post.round)[post.phase].by is Contributor.AGGREGATOR
    aggregator, sender = state.roster.aggregator_of(post.round), post.sender.hex()
    posts = f"posts to phase {post.phase} of round {post.round}, which is"
    # Where members change, others may know already that another one has the role in a phase to come.
    is_certain = not state.records or (post.round, post.phase) == (state.round, state.phase)
    wrong = InvalidPost if is_certain else OutOfWindow
    # Only the designated aggregator posts to the aggregator's phases; the chain says who it is.
    if by_aggregator and post.sender != aggregator:
        named = "nobody" if aggregator is None else aggregator.hex()
        raise wrong("contributor", f"{sender} {posts} the aggregator's, {named}")
    if by_aggregator:
        return
    # The member that was founded as a dedicated aggregator has no data.
    if post.sender == state.roster.dataless:
        raise InvalidPost("contributor", f"{sender}, without data, {posts} the participants'")
    # While it has the role another one does not contribute, but what it owed by then may still be counted.
    is_dedicated = genesis.aggregator is AggregatorRule.DEDICATED and post.sender == aggregator
    if is_dedicated and state.owed_to(post.key) is None:
        raise wrong("contributor", f"{sender}, the dedicated aggregator, {posts} the participants'")


def validate_content(expected_hash: Hash, expected_size: int, content: bytes) -> None:
    """Check content-addressed bytes against their hash and size. Raises InvalidPayload."""
    found = sha256(content)
    # Every payload passes here; the messages are built only when they are needed.
    if found == expected_hash and len(content) == expected_size:
        return
    size = len(content)
    check(size == expected_size, InvalidPayload, "payload size", f"{size} bytes found, {expected_size} signed")
    raise InvalidPayload("payload hash", f"{found.hex()} found, {expected_hash.hex()} signed")


# --- votes, certificates, evidence


def validate_vote(
    genesis: Genesis, electors: frozenset[PublicKey], vote: Vote, is_valid_signature: SignatureCheck
) -> None:
    """Check a vote for a height whose electors are known.

    Raises:
        InvalidSignature: its voter did not sign it, or is no elector of that height.
        InvalidVote: no honest member would have signed it.
    """
    # The chain chooses the electors, and everybody at this height knows them.
    if vote.voter not in electors:
        found = f"{vote.voter.hex()[:16]}… is not one of the {len(electors)} electors of height {vote.height}"
        raise InvalidSignature("electorate", found)
    # The voter itself signed this, for this height and attempt of this chain.
    _check_signature(genesis, vote.voter, vote, is_valid_signature)
    _validate_form(genesis, vote)


def _validate_form(genesis: Genesis, vote: Vote) -> None:
    """Check that a vote says what its kind says, and no more, whoever signed it. Raises InvalidVote."""
    measures = vote.kind is VoteKind.PRECOMMIT and vote.block_hash != NIL
    # One statement has one form: only a precommit for a block carries a time and a mining time.
    if not measures and (vote.clock_ms or vote.mining_ms):
        found = f"clock {vote.clock_ms} and mining time {vote.mining_ms} found, 0 and 0 expected"
        raise InvalidVote("measurements", found)
    # Without a bound, any number would pass for a time.
    if max(vote.clock_ms, vote.mining_ms) > CLOCK_MS_MAX:
        found = f"clock {vote.clock_ms} and mining time {vote.mining_ms} found, at most {CLOCK_MS_MAX} are allowed"
        raise InvalidVote("measurements", found)
    if vote.turnout is not None:
        _validate_turnout(genesis, vote.turnout, measures=measures)


def _validate_turnout(genesis: Genesis, turnout: Turnout, *, measures: bool) -> None:
    # One statement has one form, and version 2 knows no turnout.
    if not measures or genesis.version < CHANGES_VERSION:
        raise InvalidVote("turnout", "one found where none is expected")
    if not turnout.is_canonical or max(turnout.quorum_ms, turnout.waited_ms) > CLOCK_MS_MAX:
        raise InvalidVote("turnout", f"{turnout.to_record()} is no canonical one, or too large")


def validate_certificate(
    genesis: Genesis,
    electors: frozenset[PublicKey],
    certificate: Certificate,
    kind: VoteKind,
    height: int,
    block_hash: Hash,
    is_valid_signature: SignatureCheck,
) -> None:
    """Check for votes of ``kind`` by a quorum of ``electors`` for one block at ``height``. Raises InvalidCertificate.

    Kind, height and block are those that the caller needs proved: a quorum of prevotes locks members, but decides
    nothing.
    """
    validate_claim(certificate, kind, height, block_hash)
    validate_votes(genesis, electors, votes_required(genesis, electors), certificate, is_valid_signature)


def validate_polka(
    genesis: Genesis, state: State, certificate: Certificate, is_valid_signature: SignatureCheck
) -> None:
    """Check the prevotes of a quorum for some block of the open height. Raises InvalidCertificate."""
    electors, kind, height = state.roster.electors, VoteKind.PREVOTE, state.height + 1
    validate_certificate(genesis, electors, certificate, kind, height, certificate.block_hash, is_valid_signature)


def validate_claim(certificate: Certificate, kind: VoteKind, height: int, block_hash: Hash) -> None:
    """Check what a certificate says that it proves. Raises InvalidCertificate."""
    # Only precommits make a block final; after prevotes another block may still win.
    check(
        certificate.kind is kind,
        InvalidCertificate,
        "certificate's kind",
        f"{certificate.kind.name.lower()}s found, {kind.name.lower()}s expected",
    )
    check(
        certificate.height == height,
        InvalidCertificate,
        "certificate's height",
        f"{certificate.height} found, {height} expected",
    )
    # And only precommits for that block.
    check(
        certificate.block_hash == block_hash,
        InvalidCertificate,
        "certificate's block",
        f"{certificate.block_hash.hex()} found, {block_hash.hex()} expected",
    )


def validate_votes(
    genesis: Genesis,
    electors: frozenset[PublicKey],
    required: int,
    certificate: Certificate,
    is_valid_signature: SignatureCheck,
) -> None:
    """Check that at least ``required`` electors voted as a certificate says. Raises InvalidCertificate."""
    count = len(certificate.votes)
    # Any two quorums have an honest member in common, so no other block can have one, too.
    check(
        required <= count <= len(electors),
        InvalidCertificate,
        "quorum",
        f"{count} votes found, {required} of {len(electors)} required",
    )
    # Votes for no block prove nothing.
    check(certificate.block_hash != NIL, InvalidCertificate, "certificate's block", "votes for no block found")
    # Each voter counts once, and a set of votes has one form.
    check_ascending(InvalidCertificate, "vote order", (vote.voter for vote in certificate.votes))
    said = ((certificate.height, certificate.attempt, int(certificate.kind)), certificate.block_hash)
    for vote in certificate.votes:
        # The certificate's bytes hold the shared values once: other votes would not survive being encoded and decoded.
        if (vote.slot, vote.block_hash) != said:
            found = f"slot {vote.slot} found, {said[0]} expected, for block {said[1].hex()}"
            raise InvalidCertificate("certificate's vote", found)
        try:
            validate_vote(genesis, electors, vote, is_valid_signature)
        except Refused as error:
            raise InvalidCertificate("certificate's vote", str(error)) from None


def validate_evidence(genesis: Genesis, state: State, evidence: Evidence, is_valid_signature: SignatureCheck) -> None:
    """Check two statements of which an active member may sign only one.

    Raises:
        InvalidEvidence: they prove nothing.
        OutOfWindow: in version 3, the key is no member's that we know, or was lost or stolen.
        AlreadyKnown: the member was convicted before; the peer that passes this on may not know.
    """
    culprit = evidence.culprit
    # Only members can be convicted.
    unknown = OutOfWindow if state.records else InvalidEvidence
    check(culprit in state.roster.seats, unknown, "culprit", f"{culprit.hex()} is no member")
    # The others took it that somebody else may have the key.
    check(culprit not in state.roster.excused, OutOfWindow, "culprit", f"{culprit.hex()} was lost or stolen")
    # Nobody is convicted twice.
    check(state.roster.is_liable(culprit), AlreadyKnown, "culprit", f"{culprit.hex()} was convicted before")
    _validate_crime(genesis, evidence, is_valid_signature)


def validate_state(genesis: Genesis, state: State, is_valid_signature: SignatureCheck) -> None:
    """Check the crimes in a state that came from others. Raises InvalidEvidence.

    The electors' votes vouch for the state, and invented convictions would let a sender choose the electors.
    """
    culprits = [state.roster.current(crime.culprit) for crime in state.convicted]
    # One conviction takes one member out of the federation.
    check(
        len(set(culprits) & set(state.roster.members)) == len(culprits),
        InvalidEvidence,
        "convicted",
        f"{len(culprits)} crimes of {len(set(culprits) & set(state.roster.members))} members found",
    )
    for crime in state.convicted:
        _validate_crime(genesis, crime, is_valid_signature)


def _validate_crime(genesis: Genesis, evidence: Evidence, is_valid_signature: SignatureCheck) -> None:
    first, second = evidence.first, evidence.second
    # They must be for one slot or phase and differ, or they prove nothing.
    check(excludes(first, second), InvalidEvidence, "statements", "one does not exclude the other")
    # One crime has one form.
    check(first.hash < second.hash, InvalidEvidence, "order", f"{second.hash.hex()} follows {first.hash.hex()}")
    for statement in (first, second):
        try:
            # No honest member signs another form, and a state has no room for all that may stand in such a vote.
            if isinstance(statement, Vote):
                _validate_form(genesis, statement)
            _check_signature(genesis, evidence.culprit, statement, is_valid_signature)
        except (InvalidSignature, InvalidVote) as error:
            raise InvalidEvidence("evidence", str(error)) from None


# --- blocks


def validate_parent(state: State, block: Block) -> None:
    """Check that a block is for the open height: closed heights are final. Raises UnknownParent."""
    parent = block.header.parent_hash
    check(
        parent == state.block_hash,
        UnknownParent,
        "parent",
        f"{parent.hex()} found, the block at height {state.height} is {state.block_hash.hex()}",
    )


def validate_header(genesis: Genesis, state: State, block: Block, is_valid_signature: SignatureCheck) -> None:
    """Check that a block is worth a closer look: it stands on ``state``, a member signed it, and work was spent on it.

    Raises:
        UnknownParent: it does not stand on ``state``, so nothing else can be said of it.
        InvalidSignature: its miner did not sign it, or is no active member.
        InvalidBlock: it breaks a rule for ever.
        OutOfWindow: this program does not speak the version in force.
    """
    header = block.header
    validate_parent(state, block)
    # A bad block costs a member its reputation; strangers have none to lose.
    check(state.roster.is_active(header.miner), InvalidSignature, "miner", f"{header.miner.hex()} is no active member")
    validate_miner_signature(genesis, block, is_valid_signature)
    # A later format may mean anything.
    version = state.rules.version
    check(header.version == version, InvalidBlock, "version", f"{header.version} found, {version} expected")
    # A later version's blocks may obey other rules.
    beyond = f"{version} begins with round {state.round}, this program speaks {NEWEST_VERSION}"
    check(version <= NEWEST_VERSION, OutOfWindow, "version", beyond)
    # Nothing follows the last round.
    check(not state.finished, InvalidBlock, "end", f"round {header.round} found, the last is {state.rules.rounds}")
    # Height, round and phase continue those of the parent: each phase is closed exactly once.
    for name, found, expected in (
        ("height", header.height, state.height + 1),
        ("round", header.round, state.round),
        ("phase", header.phase, state.phase),
    ):
        check(found == expected, InvalidBlock, name, f"{found} found, {expected} expected")
    # A peer that joins takes the state from others, by this hash.
    check(
        header.state_root == state.root,
        InvalidBlock,
        "state root",
        f"{header.state_root.hex()} found, {state.root.hex()} expected",
    )
    # The retarget, and what the miner won before, set the difficulty; the miner does not.
    expected_bits = state.bits_of(header.miner)
    check(header.bits == expected_bits, InvalidBlock, "bits", f"{header.bits:#x} found, {expected_bits:#x} expected")
    # Work was spent on exactly this header.
    check(
        is_sealed(genesis.proof_function, header),
        InvalidBlock,
        "proof of work",
        f"nonce {header.nonce} does not bring the hash to the target {header.bits:#x}",
    )


def validate_miner_signature(genesis: Genesis, block: Block, is_valid_signature: SignatureCheck) -> None:
    """Check that the named miner made this block: otherwise anyone could mine in the aggregator's name.

    Raises InvalidSignature.
    """
    header = block.header
    check(
        is_valid_signature(header.miner, block.signature, block_signing_message(genesis.chain_id, header.hash)),
        InvalidSignature,
        "miner signature",
        f"{block.signature.hex()[:16]}… is not {header.miner.hex()[:16]}…'s over block {header.hash.hex()[:16]}…",
    )


def validate_body(genesis: Genesis, state: State, block: Block, is_valid_signature: SignatureCheck) -> None:
    """Check posts, certificate and evidence of a block whose header is valid.

    Raises:
        InvalidSignature: the body is not the one that the miner signed.
        InvalidBlock: it breaks a rule for ever.
    """
    validate_roots(block)
    _validate_counts(genesis, state, block)
    # Sorted and unique: one set of posts or crimes has one root, and each member counts once, for each round.
    check_ascending(InvalidBlock, "transaction order", (_place(genesis, post) for post in block.transactions))
    check_ascending(InvalidBlock, "evidence order", (item.hash for item in block.evidence))
    check_ascending(InvalidBlock, "change order", (item.hash for item in block.changes))
    _validate_producer(genesis, state, block)
    for post in block.transactions:
        _validate_counted(state, block.header, post)
    try:
        for post in block.transactions:
            validate_post(genesis, state, post, is_valid_signature)
        for evidence in block.evidence:
            validate_evidence(genesis, state, evidence, is_valid_signature)
        validate_room(genesis, state, block.changes)  # before any signature of theirs: a message has room for thousands
        for change in block.changes:
            validate_change(genesis, state, change, is_valid_signature)
            validate_approvals(genesis, state, change)
        _validate_parent_certificate(genesis, state, block.certificate, is_valid_signature)
    except InvalidBlock:
        raise
    except Refused as error:  # in any case the miner put it into its block
        raise InvalidBlock("body", str(error)) from None


def validate_knowledge(header: Header, root: Hash) -> None:
    """Check the hash of the recomputed knowledge against the header, exactly: a tolerance would let miners drift.

    Raises:
        InvalidBlock: the miner computed something else.
    """
    check(
        root == header.knowledge_root,
        InvalidBlock,
        "knowledge root",
        f"{header.knowledge_root.hex()} found, recomputed {root.hex()}",
    )


def validate_member_set(header: Header, after: State) -> None:
    """Check that a header names the members behind its block, those of the state ``after`` it. Raises InvalidBlock."""
    root = after.member_set.root
    # Light clients learn from it who decides the next height.
    check(
        header.members_root == root,
        InvalidBlock,
        "members root",
        f"{header.members_root.hex()} found, {root.hex()} expected",
    )


def _validate_counts(genesis: Genesis, state: State, block: Block) -> None:
    count, crimes = len(block.transactions), len(block.evidence)
    # A block has no more posts than members may post; checking more would be wasted work.
    due = state.countable
    check(count <= due, InvalidBlock, "posts", f"{count} found, {due} may post")
    # Everybody has to check two signatures for each.
    check(crimes <= EVIDENCE_MAX, InvalidBlock, "evidence", f"{crimes} crimes found, at most {EVIDENCE_MAX} fit")
    # One conviction expels a member; a second one adds nothing.
    culprits = {state.roster.current(item.culprit) for item in block.evidence}
    check(len(culprits) == crimes, InvalidBlock, "evidence", f"{crimes} crimes of {len(culprits)} members found")
    if count == 0 and may_close_empty(genesis, state):
        return
    required = posts_required(genesis, state)
    # An aggregate of too few posts says little and hides nobody, and a single member's post could be all of it. Late
    # posts do not make up for it: a round would be closed by members that did not take part in it.
    if state.owed:
        count = sum(post.round == block.header.round for post in block.transactions)
    check(count >= required, InvalidBlock, "contribution quorum", f"{count} posts found, at least {required}")


def validate_roots(block: Block) -> None:
    """Check that the header commits to the whole body: a block hash names one block. Raises InvalidSignature."""
    header = block.header
    for name, found, expected in (
        ("transactions root", header.transactions_root, transactions_root(block.transactions)),
        ("certificate root", header.certificate_root, certificate_root(block.certificate)),
        ("evidence root", header.evidence_root, evidence_root(block.evidence)),
        ("changes root", header.changes_root, changes_root(block.changes)),
    ):
        # The miner signed the header, so a body that does not belong to it was put there by the peer that sent it.
        check(found == expected, InvalidSignature, name, f"{found.hex()} found, the body has {expected.hex()}")


def _validate_producer(genesis: Genesis, state: State, block: Block) -> None:
    if not block.transactions:
        return
    aggregator = state.roster.aggregator_of(state.round)
    # In a centralized federation the designated aggregator writes the chain.
    check(
        not genesis.centralized or block.header.miner == aggregator,
        InvalidBlock,
        "producer",
        f"{block.header.miner.hex()} mined, the aggregator is {aggregator.hex() if aggregator else 'nobody'}",
    )


def _validate_counted(state: State, header: Header, post: Post) -> None:
    counted, closed = (post.round, post.phase), (header.round, header.phase)
    if counted != closed:
        # A block closes one phase; posts of another one would be counted twice or too early. A late post is of the same
        # phase, of a round that still takes it, and was not counted before.
        if post.phase != header.phase or state.owed_to(post.key) is None:
            raise InvalidBlock("post's phase", f"{counted} found, the block closes {closed}")
        return
    # The chain draws the members that post; in an aggregator phase only the designated aggregator does.
    if post.sender not in state.roster.contributors:
        due = f"one of the {len(state.roster.contributors)} contributors of round {state.round}"
        raise InvalidBlock("contributor", f"{post.sender.hex()} is not {due}")


def _validate_parent_certificate(
    genesis: Genesis, state: State, certificate: Certificate | None, is_valid_signature: SignatureCheck
) -> None:
    # Every peer with its hash agrees on the genesis document, so the first block needs no votes for its parent.
    check((certificate is None) == (state.height == 0), InvalidBlock, "certificate", "only the first block has none")
    if certificate is None:
        return
    # The chain grows on final blocks only: without a quorum, a side of a partition cannot extend it.
    validate_certificate(
        genesis,
        state.deciders,
        certificate,
        VoteKind.PRECOMMIT,
        state.height,
        state.block_hash,
        is_valid_signature,
    )


def _check_signature(
    genesis: Genesis, signer: PublicKey, statement: Post | Vote, is_valid_signature: SignatureCheck
) -> None:
    if not is_valid_signature(signer, statement.signature, statement.signing_message(genesis.chain_id)):
        kind = type(statement).__name__.lower()
        found = f"{statement.signature.hex()[:16]}… is not {signer.hex()[:16]}…'s over this {kind}"
        raise InvalidSignature("signature", found)


def _place(genesis: Genesis, post: Post) -> bytes:
    """Sort key of a block's posts: the sender, and then the round where late posts count."""
    return post.sender + post.round.to_bytes(8, "big") if genesis.late_rounds else post.sender
