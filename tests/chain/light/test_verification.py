"""A light client takes what a chain made final, by as few blocks as possible, and refuses each lie in its own words."""

from dataclasses import replace
from typing import Any

import pytest

from fedchain.chain.block import evidence_root
from fedchain.chain.certificate import Certificate, certify
from fedchain.chain.exceptions import (
    InvalidBlock,
    InvalidCertificate,
    InvalidEvidence,
    OutOfWindow,
    Refused,
    UnknownParent,
)
from fedchain.chain.genesis import NEWEST_VERSION, FaultModel
from fedchain.chain.light.bisection import bisect
from fedchain.chain.light.light_block import LightBlock
from fedchain.chain.light.verification import (
    TRUST_PERIOD_MS,
    LaterVersion,
    trust_block,
    trust_genesis,
    validate_period,
    verify_adjacent,
    verify_skipping,
)
from fedchain.chain.membership.amendment import amendment_of
from fedchain.chain.membership.change import propose_amendment
from fedchain.chain.state import State
from fedchain.chain.validation import validate_knowledge
from fedchain.chain.vote import VoteKind, sign_vote
from fedchain.crypto.hashing import sha256
from fedchain.crypto.keys import is_valid_signature
from tests.support.chain.builders import ChainBuilder, double_vote, genesis, keys
from tests.support.chain.changes import UNTIL, approved, living_genesis
from tests.support.chain.light import HEIGHT, Server, chain_of, convicting_chain, light

CHAIN = chain_of()
TIP = light(CHAIN, CHAIN.tip)
FIRST = Server(CHAIN).light_block(1, with_proof=True)
BEGIN = trust_genesis(CHAIN.genesis)
BELOW = CHAIN.certificate(TIP.header.parent_hash)


def state_behind(chain: ChainBuilder) -> tuple[frozenset[bytes], frozenset[bytes]]:
    return chain.state.roster.electors, chain.state.roster.culprits


def test_the_head_is_verified_from_the_founding_document_by_one_certificate() -> None:
    server = Server(CHAIN)
    found = bisect(CHAIN.genesis, BEGIN, server, HEIGHT, is_valid_signature)
    assert server.asked == [HEIGHT]
    assert (found.certificates, found.signatures, found.skipped) == (1, 3, HEIGHT - 1)
    assert found.trusted.block_hash == CHAIN.tip
    assert (found.trusted.electors, found.trusted.culprits) == state_behind(CHAIN)
    assert found.trusted.time_ms == CHAIN.certificate(CHAIN.tip).clock_ms
    header = found.trusted.header
    assert header is not None
    validate_knowledge(header, sha256(CHAIN.contents[CHAIN.state.knowledge_root]))


def test_a_walk_block_by_block_leads_to_the_same() -> None:
    trusted, server = BEGIN, Server(CHAIN)
    for height in range(1, HEIGHT + 1):
        block = server.light_block(height, with_proof=False)
        trusted = verify_adjacent(CHAIN.genesis, trusted, block, is_valid_signature)
    assert trusted == verify_skipping(CHAIN.genesis, BEGIN, TIP, is_valid_signature)


def test_what_is_trusted_already_needs_no_question() -> None:
    server = Server(CHAIN)
    found = bisect(CHAIN.genesis, BEGIN, server, 0, is_valid_signature)
    assert (found.trusted, found.certificates, server.asked) == (BEGIN, 0, [])


@pytest.mark.parametrize(("fault_model", "members"), [(model, n) for model in FaultModel for n in (1, 2, 3, 4, 7)])
def test_every_size_and_fault_model_is_skipped_in_one_step(fault_model: FaultModel, members: int) -> None:
    chain = chain_of(members, 3, fault_model=fault_model)
    server = Server(chain)
    found = bisect(chain.genesis, trust_genesis(chain.genesis), server, 3, is_valid_signature)
    assert (found.trusted.block_hash, server.asked) == (chain.tip, [3])


def test_convictions_move_the_set_whether_heights_are_walked_or_skipped() -> None:
    chain = convicting_chain()
    begin, server = trust_genesis(chain.genesis), Server(chain)
    trusted, sizes = begin, []
    for height in range(1, 9):
        block = server.light_block(height, with_proof=True)
        before = trusted
        trusted = verify_adjacent(chain.genesis, trusted, block, is_valid_signature)
        assert trusted == verify_skipping(chain.genesis, before, block, is_valid_signature)
        assert trusted == verify_skipping(chain.genesis, begin, block, is_valid_signature)
        sizes.append(len(trusted.electors or ()))
    assert sizes == [7, 7, 6, 6, 6, 5, 5, 5]
    assert (trusted.electors, trusted.culprits) == state_behind(chain)


def test_a_convict_does_not_vote_on_the_next_height() -> None:
    chain = convicting_chain()
    server = Server(chain)
    before = bisect(chain.genesis, trust_genesis(chain.genesis), server, 3, is_valid_signature).trusted
    block = server.light_block(4, with_proof=True)
    by_convict = chain.certificate(block.header.hash, [*sorted(before.electors or ())[:4], keys(7)[5].public_key])
    for verify in (verify_adjacent, verify_skipping):
        with pytest.raises(InvalidCertificate, match="is not one of the 6 electors of height 4"):
            verify(chain.genesis, before, replace(block, certificate=by_convict), is_valid_signature)


def test_a_state_without_a_known_conviction_is_refused() -> None:
    chain, other = convicting_chain(), ChainBuilder(genesis(7))
    before = bisect(chain.genesis, trust_genesis(chain.genesis), Server(chain), 4, is_valid_signature).trusted
    other.extend_many(6)
    with pytest.raises(InvalidEvidence, match=f"the state below height 6 lacks that of {keys(7)[5].public_key.hex()}"):
        verify_skipping(chain.genesis, before, light(other, other.tip), is_valid_signature)


def test_crimes_are_those_that_the_header_commits_to() -> None:
    """A header names its block's crimes, and no signature is over the crimes themselves, wherever a way begins."""
    chain = convicting_chain()
    server, begin = Server(chain), trust_genesis(chain.genesis)
    block = server.light_block(3, with_proof=True)
    before = server.light_block(2, with_proof=True)
    second = bisect(chain.genesis, begin, server, 2, is_valid_signature).trusted
    forged = double_vote(keys(7)[0], chain.genesis, 2)
    for evidence in ((), (*block.evidence, forged)):
        lie = replace(block, evidence=evidence)
        with pytest.raises(InvalidEvidence, match="evidence root"):
            verify_skipping(chain.genesis, begin, lie, is_valid_signature)
        with pytest.raises(InvalidEvidence, match="evidence root"):
            verify_adjacent(chain.genesis, second, lie, is_valid_signature)
        with pytest.raises(InvalidEvidence, match="evidence root"):
            trust_block(chain.genesis, block.header.hash, lie, before.certificate, is_valid_signature)


def test_drawn_committees_that_liars_could_fill_are_walked_block_by_block() -> None:
    chain = chain_of(10, 6, committee_size=3)
    server, begin = Server(chain), trust_genesis(chain.genesis)
    with pytest.raises(UnknownParent, match="2 drawn electors make height 6 final, 3 members may lie: the blocks"):
        verify_skipping(chain.genesis, begin, server.light_block(6, with_proof=True), is_valid_signature)
    server.asked.clear()
    found = bisect(chain.genesis, begin, server, 6, is_valid_signature)
    assert (found.certificates, found.skipped) == (6, 0)
    assert sorted(server.asked) == [1, 2, 3, 4, 5, 6], "each height is asked for once"
    assert (found.trusted.electors, found.trusted.culprits) == state_behind(chain)


def test_drawn_committees_whose_quorum_liars_cannot_fill_are_skipped() -> None:
    chain = chain_of(10, 6, committee_size=5)
    server = Server(chain)
    found = bisect(chain.genesis, trust_genesis(chain.genesis), server, 6, is_valid_signature)
    assert (found.certificates, server.asked) == (1, [6])
    assert len(found.trusted.electors or ()) == 5


def test_a_set_that_has_changed_too_much_is_not_skipped_to() -> None:
    """Members are fixed at founding today; this set is one of another time."""
    others = tuple(key.public_key for key in keys(8)[4:])
    one, two = (replace(BEGIN, members=(*BEGIN.members[:kept], *others[kept:])) for kept in (1, 2))
    with pytest.raises(UnknownParent, match=r"1 of the 4 members that are trusted signed height 9, 1 may lie"):
        verify_skipping(CHAIN.genesis, one, TIP, is_valid_signature)
    assert verify_skipping(CHAIN.genesis, two, TIP, is_valid_signature).block_hash == CHAIN.tip


# --- the trusted block


def test_a_trusted_block_is_a_beginning_too() -> None:
    server = Server(CHAIN)
    block = server.light_block(4, with_proof=True)
    below = server.light_block(3, with_proof=False).certificate
    trusted = trust_block(CHAIN.genesis, block.header.hash, block, below, is_valid_signature)
    found = bisect(CHAIN.genesis, BEGIN, server, 4, is_valid_signature).trusted
    assert trusted == replace(found, time_ms=below.clock_ms)
    assert bisect(CHAIN.genesis, trusted, server, HEIGHT, is_valid_signature).trusted.block_hash == CHAIN.tip


def test_another_block_than_the_trusted_one_is_refused() -> None:
    with pytest.raises(InvalidBlock, match=f"trusted block: {CHAIN.tip.hex()} found, {'00' * 32} expected"):
        trust_block(CHAIN.genesis, bytes(32), TIP, BELOW, is_valid_signature)


def test_stolen_keys_do_not_make_a_trusted_block_young() -> None:
    """Its header holds the certificate below, whose clocks nobody can move any more."""
    late_ms = BELOW.clock_ms + TRUST_PERIOD_MS + 1

    def late(certificate: Certificate) -> Certificate:
        said = [(CHAIN.key(vote.voter), vote.slot) for vote in certificate.votes]
        chain_id, block_hash = CHAIN.genesis.chain_id, certificate.block_hash
        return certify(sign_vote(key, chain_id, slot, block_hash, clock_ms=late_ms, mining_ms=1) for key, slot in said)

    again = replace(TIP, certificate=late(TIP.certificate))
    trusted = trust_block(CHAIN.genesis, CHAIN.tip, again, BELOW, is_valid_signature)
    assert trusted.time_ms == BELOW.clock_ms
    with pytest.raises(OutOfWindow, match="trust period: the block below height 9 became final"):
        validate_period(trusted, late_ms)
    for below in (late(BELOW), None):
        with pytest.raises(InvalidBlock, match=f"certificate below: .* found, {TIP.header.certificate_root.hex()} exp"):
            trust_block(CHAIN.genesis, CHAIN.tip, again, below, is_valid_signature)
    first = trust_block(CHAIN.genesis, FIRST.header.hash, FIRST, None, is_valid_signature)
    assert first.time_ms == CHAIN.genesis.created_ms


def test_a_trusted_block_is_trusted_for_a_while_and_a_founding_document_for_ever() -> None:
    trusted = trust_block(CHAIN.genesis, CHAIN.tip, TIP, BELOW, is_valid_signature)
    last_ms = trusted.time_ms + TRUST_PERIOD_MS
    validate_period(trusted, last_ms)
    with pytest.raises(OutOfWindow, match="trust period: the block below height 9 became final"):
        validate_period(trusted, last_ms + 1)
    day_ms = 24 * 3_600_000
    with pytest.raises(OutOfWindow, match=r"became final 2\.50 days ago, it is trusted for 2 days"):
        validate_period(trusted, trusted.time_ms + day_ms * 5 // 2, 2 * day_ms)
    validate_period(BEGIN, last_ms * 2)


def test_a_height_below_the_trusted_one_is_refused() -> None:
    trusted = trust_block(CHAIN.genesis, CHAIN.tip, TIP, BELOW, is_valid_signature)
    with pytest.raises(OutOfWindow, match="height: 3 is asked for, 9 is trusted"):
        bisect(CHAIN.genesis, trusted, Server(CHAIN), 3, is_valid_signature)
    for verify in (verify_adjacent, verify_skipping):
        with pytest.raises(OutOfWindow, match="height: 9 found, 9 is trusted"):
            verify(CHAIN.genesis, trusted, TIP, is_valid_signature)


# --- lies


def certified(chain: ChainBuilder, block: LightBlock, **changes: Any) -> LightBlock:
    """A light block with another certificate by the chain's members."""
    return replace(block, certificate=chain.certificate(block.header.hash, **changes))


OTHER_CHAIN = chain_of(4, HEIGHT, name="another")
OUTSIDERS = certify(
    sign_vote(key, CHAIN.genesis.chain_id, (HEIGHT, 0, VoteKind.PRECOMMIT), CHAIN.tip, clock_ms=1, mining_ms=1)
    for key in keys(8)[4:7]
)
VOTES = TIP.certificate.votes

LIES: dict[str, tuple[LightBlock, type[Refused], str]] = {
    "another chain": (light(OTHER_CHAIN, OTHER_CHAIN.tip), InvalidBlock, "^chain: "),
    "another chain's block under this name": (
        replace(light(OTHER_CHAIN, OTHER_CHAIN.tip), chain_id=CHAIN.genesis.chain_id, state=TIP.state),
        InvalidBlock,
        "^state root: ",
    ),
    "a header that is not certified": (
        replace(TIP, header=replace(TIP.header, knowledge_root=bytes(32))),
        InvalidCertificate,
        "^certificate's block: ",
    ),
    "another height's certificate": (
        replace(TIP, certificate=FIRST.certificate),
        InvalidCertificate,
        "^certificate's height: 1 found, 9 expected",
    ),
    "too few": (
        replace(TIP, certificate=replace(TIP.certificate, votes=VOTES[:2])),
        InvalidCertificate,
        "^quorum: 2 votes found, 3 of 4 required",
    ),
    "one voter twice": (
        replace(TIP, certificate=replace(TIP.certificate, votes=(VOTES[0], VOTES[0], VOTES[1]))),
        InvalidCertificate,
        "^vote order: ",
    ),
    "prevotes": (certified(CHAIN, TIP, kind=VoteKind.PREVOTE), InvalidCertificate, "^certificate's kind: "),
    "a forged signature": (
        replace(TIP, certificate=replace(TIP.certificate, votes=(replace(VOTES[0], signature=bytes(64)), *VOTES[1:]))),
        InvalidCertificate,
        "^certificate's vote: signature: 0000000000000000… is not ",
    ),
    "a clock that nobody signed": (
        replace(TIP, certificate=replace(TIP.certificate, votes=(replace(VOTES[0], clock_ms=1), *VOTES[1:]))),
        InvalidCertificate,
        "^certificate's vote: signature: ",
    ),
    "a wrong set": (
        replace(TIP, certificate=OUTSIDERS),
        InvalidCertificate,
        "^certificate's vote: electorate: .* is not one of the 4 electors of height 9",
    ),
    "another state": (replace(TIP, state=FIRST.state), InvalidBlock, "^state root: "),
    "a state of another height": (
        replace(TIP, header=replace(TIP.header, state_root=sha256(FIRST.state)), state=FIRST.state),
        InvalidBlock,
        "^state: that behind height 0 found, that behind the parent of 9",
    ),
    "a state behind another block": (
        replace(TIP, header=replace(TIP.header, parent_hash=bytes(32))),
        InvalidBlock,
        "^state: that behind height 8 found, that behind the parent of 9",
    ),
    "no state": (replace(TIP, state=b""), UnknownParent, "^state: none came with height 9"),
    "another version": (replace(TIP, header=replace(TIP.header, version=3)), InvalidBlock, "^version: 3 found"),
    "another version's crimes": (
        replace(TIP, header=replace(TIP.header, evidence_root=sha256(b""))),
        InvalidEvidence,
        "^evidence root: ",
    ),
}


@pytest.mark.parametrize("about", LIES)
def test_a_lie_is_refused_in_its_own_words(about: str) -> None:
    block, error, words = LIES[about]
    with pytest.raises(error, match=words):
        verify_skipping(CHAIN.genesis, BEGIN, block, is_valid_signature)


def test_a_later_version_ends_the_way_once_its_electors_signed_for_it() -> None:
    """Reader and node learn that their program is too old, and no liar can say so."""
    chain = ChainBuilder(living_genesis(4))
    amendment = propose_amendment(amendment_of({"version": NEWEST_VERSION + 1}), "", sequence=0, until=UNTIL)
    chain.extend(changes=[approved(chain, amendment)])
    chain.extend_many(4)
    block, begin = light(chain, chain.tip), trust_genesis(chain.genesis)
    forged = replace(block, certificate=replace(block.certificate, votes=block.certificate.votes[:2]))
    with pytest.raises(InvalidCertificate, match=r"^quorum: 2 votes found, 3 of 4 required"):
        verify_skipping(chain.genesis, begin, forged, is_valid_signature)
    with pytest.raises(LaterVersion, match=r"^version: height 5 is of version 4, this program speaks 3$"):
        verify_skipping(chain.genesis, begin, block, is_valid_signature)


def test_a_certified_block_that_stands_elsewhere_is_not_the_next_one() -> None:
    other = ChainBuilder(CHAIN.genesis)
    other.extend_many(2, payload_of=50)
    trusted = verify_adjacent(CHAIN.genesis, BEGIN, FIRST, is_valid_signature)
    with pytest.raises(InvalidBlock, match=r"^parent: .* found, the trusted block"):
        verify_adjacent(CHAIN.genesis, trusted, light(other, other.tip), is_valid_signature)
    orphan = replace(FIRST, header=replace(FIRST.header, parent_hash=bytes(32)))
    for verify in (verify_adjacent, verify_skipping):
        with pytest.raises(InvalidBlock, match=r"^parent: "):
            verify(CHAIN.genesis, BEGIN, orphan, is_valid_signature)


def test_invented_convictions_do_not_lower_the_quorum() -> None:
    """A state that convicts honest members by forged evidence would leave few enough electors for liars."""
    chain = chain_of(4, 2)
    crime = double_vote(keys(4)[0], chain.genesis, 1)
    forged = replace(crime, second=replace(crime.second, signature=bytes(64)))
    below = chain.states[chain.blocks[chain.tip].header.parent_hash]
    state = _convicted(
        chain,
        below,
        forged if forged.first.hash < forged.second.hash else replace(forged, first=forged.second, second=forged.first),
    )
    header = replace(chain.blocks[chain.tip].header, state_root=state.root)
    block = replace(light(chain, chain.tip), header=header, state=state.encode())
    with pytest.raises(InvalidEvidence, match="signature"):
        verify_skipping(chain.genesis, trust_genesis(chain.genesis), block, is_valid_signature)


def _convicted(chain: ChainBuilder, state: State, crime: Any) -> State:
    return replace(state, convicted=(crime,))


def test_an_empty_evidence_list_has_the_root_of_no_leaves() -> None:
    assert TIP.header.evidence_root == evidence_root(())
