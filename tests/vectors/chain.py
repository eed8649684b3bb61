"""Test vectors of the chain: bytes and hashes of one of everything, for authors of a peer in another language.

Byte strings are in hexadecimal, and numbers above 2⁵³ too, behind 0x. Under ``fields`` stand a record's fields by
name, under ``bytes`` its one encoding, under ``hash`` what it is known by.
"""

from collections.abc import Iterator, Sequence
from dataclasses import fields, is_dataclass, replace
from enum import Enum
from typing import Any

from fedchain.chain.block import Block, Header, block_signing_message
from fedchain.chain.certificate import Certificate, certify
from fedchain.chain.difficulty import is_canonical_bits, next_bits, target_from_bits, work_from_bits
from fedchain.chain.encoding import encode
from fedchain.chain.evidence import Evidence
from fedchain.chain.genesis import FaultModel, Genesis
from fedchain.chain.light.light_block import LightBlock
from fedchain.chain.light.verification import trust_genesis, verify_skipping
from fedchain.chain.membership.amendment import amendment_of
from fedchain.chain.membership.change import (
    CHANGES_VERSION,
    Change,
    ChangeKind,
    propose_amendment,
    propose_recovery,
    propose_removal,
    sign_change,
    sign_rekey,
)
from fedchain.chain.membership.member import Due
from fedchain.chain.membership.member_set import MemberSet
from fedchain.chain.membership.patience import grant_ms, settle_waits
from fedchain.chain.membership.turnout import Turnout, mark_seats
from fedchain.chain.membership.weights import reweigh, shares_of, weigh
from fedchain.chain.merkle import merkle_proof, merkle_root
from fedchain.chain.post import Post
from fedchain.chain.proof_of_work import PROOF_FUNCTIONS, proof_hash
from fedchain.chain.roster import draw, seed_of_contributors, seed_of_electors
from fedchain.chain.state import State
from fedchain.chain.vote import NIL, Vote, VoteKind, sign_vote
from fedchain.crypto.address import address
from fedchain.crypto.hashing import ZERO_HASH, sha256
from fedchain.crypto.keys import is_valid_signature
from fedchain.crypto.vectors import signature_cases
from fedchain.network.session import sign_session
from fedchain.node.membership.invitation import Request, vouch
from tests.support.chain.builders import ChainBuilder, keys
from tests.support.chain.changes import approved, joining, living, own
from tests.support.chain.late import extend_with, skip
from tests.support.chain.light import light
from tests.support.chain.power import records_of
from tests.vectors.small_chain import KEYS, VectorChain, full_genesis, small_genesis, vector_chain

INTEGER_EXACT_MAX = 2**53
"""Largest integer that every reader of JSON reads exactly."""


def vectors() -> dict[str, Any]:
    """Vectors of everything that the chain consists of, by what they are of."""
    chain = vector_chain()
    return {
        "keys": [plain({"seed": k.seed, "public_key": k.public_key, "address": address(k.public_key)}) for k in KEYS],
        "signatures": [plain(case._asdict() | {"is_valid": valid}) for case, valid in signature_cases()],
        "encodings": [{"value": _tagged(value), "bytes": encode(value).hex()} for value in ENCODED],
        "refused_encodings": [plain({"bytes": data, "about": about}) for data, about in REFUSED],
        "genesis": [plain({"fields": g, "bytes": g.encode(), "hash": g.chain_id}) for g in _documents()],
        "signing_messages": list(_signing_messages(chain)),
        "transactions": [record(post) for post in chain.steps[0].block.transactions],
        "votes": [record(vote) for vote in _votes(chain)],
        "certificates": [record(certificate) for certificate in _certificates(chain)],
        "evidence": [record(crime) for crime in chain.crimes],
        "headers": [_header(step.block) for step in chain.steps],
        "blocks": [record(step.block) for step in chain.steps],
        "states": [_state(state) for state in (chain.steps[0].before, *(step.after for step in chain.steps))],
        "version_3": _version_3(),
        "light_blocks": [_light_block(chain, place) for place in range(len(chain.steps))],
        "refused_light_blocks": [plain({"about": about, "bytes": block.encode()}) for about, block in _lies(chain)],
        "merkle_roots": [_merkle_root(count) for count in (0, 1, 2, 3, 4, 5, 8)],
        "merkle_proofs": [_merkle_proof(index, size) for index, size in ((0, 1), (1, 2), (2, 3), (4, 5), (2, 7))],
        "proof_functions": [_proofs(bytes(range(40))), _proofs(bytes(40))],
        "targets": [_target(bits) for bits in TARGETS],
        "refused_bits": list(REFUSED_BITS),
        "next_bits": [_next_bits(*case) for case in RETARGETS],
        "draws": list(_draws()),
        "quorums": [_quorum(count) for count in (*range(1, 23), 50, 100)],
    }


ENCODED: tuple[Any, ...] = (
    *(0, 1, 127, 128, 255, 256, 65_535, 65_536, 2**32 - 1, 2**32, 2**64 - 1),
    *(b"", b"\x00", bytes(255), bytes(256)),
    *("", "a", "ü", "a" * 31, "a" * 32, "a" * 256),
    *([], [0], [[], [[]]], [1, b"\x02", "3", [4]], [0] * 15, [0] * 16),
)
"""Values of every kind, around the lengths at which msgpack's form changes."""

REFUSED = (
    (b"", "nothing"),
    (b"\xc0", "nil"),
    (b"\xc2", "a truth value"),
    (b"\xff", "a negative number"),
    (b"\xd0\x01", "a signed number"),
    (b"\xca\x00\x00\x00\x00", "a float"),
    (b"\x80", "a map"),
    (b"\xd4\x00\x00", "an extension"),
    (b"\xcc\x7f", "127 in two bytes"),
    (b"\xcd\x00\xff", "255 in three bytes"),
    (b"\xc5\x00\x01\x00", "one byte behind a length of two"),
    (b"\xd9\x01a", "a short text behind a length byte"),
    (b"\xdc\x00\x01\x00", "a short list behind a length of two bytes"),
    (b"\xa1\xff", "a text that is not UTF-8"),
    (b"\x00\x00", "a second value"),
    (b"\x91", "a list without its item"),
    (b"\x91" * 8 + b"\x90", "nine lists in each other"),
)
"""Byte strings that are the encoding of nothing."""

TARGETS = (0x1D00FFFF, 0x1B0404CB, 0x207FFFFF, 0x1F0FFFF0, 0x03123456, 0x02123400, 0x01120000)
"""Difficulties in compact form; the first is Bitcoin's easiest, the third the easiest here."""

REFUSED_BITS = (0, 1, 0x20800000, 0x2100FFFF, 0x1D80FFFF, 0x1E0000FF, 0x1D000000)
"""Numbers that are the compact form of no target, or of one that has a shorter form, or is too easy."""

RETARGETS = (
    (0x1F0FFFF0, 4_000, 4_000),
    (0x1F0FFFF0, 0, 4_000),
    (0x1F0FFFF0, 999, 4_000),
    (0x1F0FFFF0, 1_001, 4_000),
    (0x1F0FFFF0, 16_000, 4_000),
    (0x1F0FFFF0, 10**9, 4_000),
    (0x1D00FFFF, 5_555, 4_001),
    (0x207FFFFF, 8_000, 4_000),
    (0x01010000, 0, 4_000),
)
"""(bits, mining time, target mining time), both in milliseconds."""

WEIGHTS = (
    (0x1F0FFFF0, (0,)),
    (0x1F0FFFF0, (0, 1)),
    (0x1B0404CB, (0, 0, -1, 0)),
    (0x1B0404CB, (0, -1, 4, -12, 4, 3, 0)),
    (0x207FFFFF, (-2, 0, 4, 0)),
    (0x01010000, (-12, 0, 0, 0)),
)
"""(bits, weights of the active members)."""

WAITS: tuple[tuple[dict[str, int], tuple[int, int, bool, bool]], ...] = (
    ({"due": 1}, (1_000, 0, True, False)),
    ({"due": 1, "shortened": 18}, (1_000, 0, True, False)),
    ({"due": 1, "shortened": 18}, (30_000, 0, True, False)),
    ({"due": 1, "shortened": 8, "owed_ms": 3_000}, (1_000, 7_001, True, False)),
    ({"due": 1, "shortened": 8, "owed_ms": 9_000}, (1_000, 16_001, True, True)),
    ({"due": 1, "shortened": 8, "owed_ms": 45_000}, (1_000, 16_001, True, True)),
    ({"due": 2, "shortened": 18}, (1_000, 6_000, False, True)),
    ({"due": 1, "owed_ms": 1_000}, (1_000, 0, False, False)),
    ({"due": 1, "owed_ms": 1_000, "idle": 1}, (1_000, 0, False, False)),
    ({"due": 0, "shortened": 18, "owed_ms": 3_000}, (1_000, 30_000, True, True)),
)
"""(record of a member of ten, (quorum_ms, waited_ms, whether it is punctual, whether awaited) of a turnout)."""


def plain(value: Any) -> Any:
    """A value as JSON has it: records by field, bytes and large numbers in hexadecimal."""
    match value:
        case Enum():
            return value.value
        case bool() | str() | None:
            return value
        case int():
            return value if value <= INTEGER_EXACT_MAX else hex(value)
        case bytes():
            return value.hex()
        case dict():
            return {key: plain(item) for key, item in value.items()}
        case list() | tuple():
            return [plain(item) for item in value]
        case frozenset():
            return sorted(plain(item) for item in value)
        case _ if is_dataclass(value):
            left_out = _not_written(value)
            names = [item.name for item in fields(value) if item.init and item.name not in left_out]
            return {name: plain(getattr(value, name)) for name in names}
    raise TypeError(f"{type(value).__name__} has no plain form")


def _not_written(value: Any) -> tuple[str, ...]:
    """Fields that a record of version 2 does not write."""
    match value:
        case Header():
            return tuple(item.name for item in fields(value) if not value.writes(item.name))
        case Block() if value.header.version < CHANGES_VERSION:
            return ("changes",)
        case Genesis() if value.version < CHANGES_VERSION:
            return ("admission", "sponsors", "away_after", "late_rounds", "patience_percent")
        case Vote() if value.turnout is None:
            return ("turnout",)
        case State() if not value.records:
            return ("records", "owed", "amendments")
        case State():
            return ("round_seed",)
    return ()


def record(value: Post | Vote | Certificate | Evidence | Block | Change) -> dict[str, Any]:
    """A record, its encoding and its hash."""
    form: dict[str, Any] = plain({"fields": value, "bytes": encode(value.to_record()), "hash": value.hash})
    return form


def _tagged(value: Any) -> Any:
    """A value of the encoding in which byte strings and texts are not confused: ``{"bytes": "02"}``."""
    if isinstance(value, list):
        return [_tagged(item) for item in value]
    return {"bytes": value.hex()} if isinstance(value, bytes) else plain(value)


def _version_3() -> dict[str, Any]:
    """A chain whose members change: one joins, one leaves, two have other keys, rules change, in one block.

    The third member misses the second round, and is counted two rounds late.
    """
    chain = living(5, away_after=3, late_rounds=2)
    (three, four), (first, second) = chain.genesis.members[3:], keys(13)[11:]
    said: dict[str, Any] = {"sequence": 0, "until": 9}
    rekey = sign_rekey(chain.key(three), first, chain.genesis.chain_id, **said)
    recovery = approved(chain, propose_recovery(four, second, chain.genesis.chain_id, "stolen", **said))
    values = amendment_of({"contributors_per_round": 4, "phase_timeout_ms": 7_000}, 3)
    amendment = approved(chain, propose_amendment(values, "slow links", **said))
    counted = [joining(chain, 5), own(chain, 1), rekey, recovery, amendment]
    changes = sorted(counted, key=lambda change: change.hash)
    removal = propose_removal(chain.genesis.members[2], "silent", sequence=0, until=9)
    blocks = [chain.extend(changes=changes)]
    late = skip(chain, 2)
    blocks += [chain.blocks[chain.tip], chain.extend(certificate=_seen(chain)), extend_with(chain, late)]
    document = plain({"fields": chain.genesis, "bytes": chain.genesis.encode(), "hash": chain.genesis.chain_id})
    return {
        "genesis": document,
        "changes": [record(change) for change in (*changes, approved(chain, removal, 1))],
        "blocks": [record(block) for block in blocks],
        "states": [_state(chain.states[block.hash]) for block in blocks],
        "light_blocks": [_trusting(chain.genesis, light(chain, block.hash)) for block in blocks],
        "refused_light_blocks": [plain({"about": what, "bytes": lie.encode()}) for what, lie in _set_lies(chain)],
        "member_sets": [
            _member_set(chain.genesis, MemberSet(chain.genesis.members, tuple(range(5)), size)) for size in (None, 0, 3)
        ],
        "light_blocks_of_another_committee": _other_committee(chain.genesis),
        "bits": [_weighed(bits, weights) for bits, weights in WEIGHTS],
        "weights": [_reweighed(weights, miner) for _, weights in WEIGHTS for miner in range(len(weights))],
        "waits": [_waited(*case) for case in WAITS],
        "draws": list(_drawn_places(chain.genesis)),
    }


def _drawn_places(genesis: Genesis) -> Iterator[dict[str, Any]]:
    """Places drawn by a height, of electors, and by a round, of contributors."""
    seats = {key.public_key: seat for seat, key in enumerate(keys(300))}
    for places in ((0, 1, 2, 3, 4), (0, 2, 3, 5, 8, 255, 256, 299)):
        members = tuple(key for key, seat in seats.items() if seat in places)
        for number in (1, 2, 300, 2**32):
            seeds = {
                "committee": seed_of_electors(genesis, number, ZERO_HASH),
                "contributors": seed_of_contributors(genesis, number, ZERO_HASH),
            }
            for what, seed in seeds.items():
                drawn = sorted(seats[key] for key in draw(members, 3, seed, seats))
                said = {"chain_id": genesis.chain_id, "what": what, "number": number, "places": list(places)}
                yield plain(said | {"count": 3, "drawn": drawn})


def _member_set(genesis: Genesis, members: MemberSet) -> dict[str, Any]:
    """A member set, and the electors that it gives height 7."""
    size, places = members.committee_size or 0, dict(zip(members.members, members.places, strict=True))
    electors = draw(members.members, size, seed_of_electors(genesis, 7, ZERO_HASH), places)
    return plain(  # type: ignore[no-any-return]
        {"fields": members, "bytes": encode(members.to_record()), "hash": members.root, "electors": electors}
    )


def _other_committee(document: Genesis) -> list[dict[str, Any]]:
    """Light blocks of a chain whose first block counts that three members vote from round 3 on."""
    chain = ChainBuilder(document)
    values = amendment_of({"committee_size": 3})
    change = propose_amendment(values, "fewer votes", sequence=0, until=9)
    blocks = [chain.extend(changes=[approved(chain, change)]), *chain.extend_many(3)]
    return [_trusting(document, light(chain, block.hash)) for block in blocks]


def _weighed(bits: int, weights: Sequence[int]) -> dict[str, Any]:
    """The difficulty of each of some members."""
    found = [weigh(bits, weight, shares_of(weights), len(weights)) for weight in weights]
    return {"bits": bits, "weights": list(weights), "bits_of": found}


def _reweighed(weights: Sequence[int], miner: int) -> dict[str, Any]:
    """Weights of active members after a block of one of them."""
    records = records_of(weights)
    after = reweigh(records, {record.key for record in records}, records[miner].key)
    return {"weights": list(weights), "miner": miner, "weights_after": [record.weight for record in after]}


def _waited(had: dict[str, int], seen: tuple[int, int, bool, bool]) -> dict[str, Any]:
    """A member's debt after a phase, how often the longest wait for it is shortened, and what comes of that."""
    rules, mining_ms, active = small_genesis(), 4_000, 10
    (before,) = (replace(record, **had | {"due": Due(had["due"])}) for record in records_of([0]))  # type: ignore[arg-type]
    quorum_ms, waited_ms, is_punctual, is_awaited = seen
    turnout = Turnout(
        quorum_ms, waited_ms, *(mark_seats([0] if marked else []) for marked in (is_punctual, is_awaited))
    )
    (after,) = settle_waits(rules, [before], turnout, mining_ms, active)
    said = ("phase_timeout_ms", "phase_floor_ms", "target_mining_time_ms", "patience_percent")
    return {
        "rules": {name: getattr(rules, name) for name in said},
        "active": active,
        "record": {name: had.get(name, 0) for name in ("idle", "due", "owed_ms", "shortened")},
        "turnout": dict(zip(("quorum_ms", "waited_ms", "punctual", "awaited"), seen, strict=True)),
        "mining_ms": mining_ms,
        "after": {"owed_ms": after.owed_ms, "shortened": after.shortened},
        "granted_ms": grant_ms(rules, replace(after, due=Due.ONCE), is_punctual=is_punctual),
    }


def _seen(chain: ChainBuilder) -> Certificate:
    """Precommits for the tip whose voters say what they saw: they waited for two seconds for the last member."""
    seen = Turnout(1_000, 2_000, mark_seats(range(5)), mark_seats([4]))
    votes = (chain.vote(voter, chain.tip) for voter in sorted(chain.state.deciders))
    return certify(
        sign_vote(
            chain.key(vote.voter),
            chain.genesis.chain_id,
            vote.slot,
            vote.block_hash,
            clock_ms=vote.clock_ms,
            mining_ms=vote.mining_ms,
            turnout=seen,
        )
        for vote in votes
    )


def _set_lies(chain: ChainBuilder) -> Iterator[tuple[str, LightBlock]]:
    """Variations of the fourth light block, by whose height the members have changed."""
    first, _, _, last = [light(chain, block_hash) for block_hash in chain.blocks]
    known = first.members
    assert known is not None
    assert last.members is not None
    slot, block_hash, chain_id = last.certificate.votes[0].slot, last.header.hash, chain.genesis.chain_id
    gone = sign_vote(keys(2)[1], chain_id, slot, block_hash, clock_ms=1, mining_ms=1)
    certificate = certify((gone, *last.certificate.votes[1:]))
    yield "a forged set", replace(last, members=replace(last.members, members=last.members.members[::-1]))
    yield "the set before the change", replace(last, members=known)
    yield "a header below that is not the parent", replace(last, members=known, below=first.header)
    yield "no header below", replace(last, below=None)
    yield "the vote of a member that has left", replace(last, certificate=certificate)


def _documents() -> tuple[Genesis, Genesis]:
    return small_genesis(), full_genesis()


def _signing_messages(chain: VectorChain) -> Iterator[dict[str, Any]]:
    """Signed bytes, for each kind of statement, with the record whose fields or hash they hold."""
    chain_id, block = chain.genesis.chain_id, chain.steps[0].block
    post, vote = block.transactions[0], chain.steps[0].certificate.votes[0]
    session = sign_session(KEYS[0], chain_id, bytes(range(16)), height=1, sequence=0)
    voucher = vouch(KEYS[0], chain_id, KEYS[1].public_key, name="dora", until=50, head=block.hash)
    join = sign_change(KEYS[2], chain_id, ChangeKind.JOIN, text="dora", until=50)
    (approval,) = join.approved(KEYS[0], chain_id).approvals
    request = Request.of(voucher, join, KEYS[1], chain_id)
    for kind, record, message, signer, signature in (
        ("transaction", post, post.signing_message(chain_id), post.sender, post.signature),
        ("vote", vote, vote.signing_message(chain_id), vote.voter, vote.signature),
        ("block", block.header, block_signing_message(chain_id, block.hash), block.header.miner, block.signature),
        ("session", session, session.signing_message(chain_id), session.member, session.signature),
        ("change", join, join.signing_message(chain_id), join.member, join.signature),
        ("approval", join, join.approval_message(chain_id), approval.approver, approval.signature),
        ("invitation", voucher, voucher.signing_message(chain_id), voucher.inviter, voucher.signature),
        ("request", join, request.signing_message(chain_id), voucher.holder, request.proof),
    ):
        named = {"kind": kind, "record": encode(record.to_record()), "message": message}
        yield plain(named | {"public_key": signer, "signature": signature})


def _votes(chain: VectorChain) -> Iterator[Vote]:
    """A prevote and a precommit for a block, and for none."""
    block_hash = chain.steps[0].block.hash
    yield sign_vote(KEYS[0], chain.genesis.chain_id, (1, 0, VoteKind.PREVOTE), block_hash)
    yield chain.steps[0].certificate.votes[0]
    yield sign_vote(KEYS[0], chain.genesis.chain_id, (1, 1, VoteKind.PREVOTE), NIL)
    yield sign_vote(KEYS[0], chain.genesis.chain_id, (1, 1, VoteKind.PRECOMMIT), NIL)


def _certificates(chain: VectorChain) -> Iterator[Certificate]:
    """The precommits that make each block final."""
    return (step.certificate for step in chain.steps)


def _header(block: Block) -> dict[str, Any]:
    """A header with all the hashes that are taken of it."""
    header = block.header
    form = {"fields": header, "bytes": encode(header.to_record()), "hash": header.hash, "seal": header.seal()}
    form["proofs"] = {name: proof_hash(name, header) for name in PROOF_FUNCTIONS}
    result: dict[str, Any] = plain(form)
    return result


def _state(state: State) -> dict[str, Any]:
    """A state, with what follows from it and the genesis document."""
    roster, names = state.roster, [item.name for item in fields(state) if item.compare and item.name != "roster"]
    names = [name for name in names if name not in _not_written(state)]
    names.insert(names.index("punctuality"), "members")  # in the order of the encoding
    encoded = {name: roster.members if name == "members" else getattr(state, name) for name in names}
    derived = {"contributors": roster.contributors, "electors": roster.electors}
    form: dict[str, Any] = plain({"fields": encoded, "bytes": state.encode(), "hash": state.root, "derived": derived})
    return form


def light_block(chain: VectorChain, place: int) -> LightBlock:
    """A block of the chain as a light client gets it, with the state that it stands on."""
    step = chain.steps[place]
    state = step.before.encode()
    return LightBlock(chain.genesis.chain_id, step.block.header, step.certificate, step.block.evidence, state)


def _light_block(chain: VectorChain, place: int) -> dict[str, Any]:
    """A light block, and what a client that trusts the founding document trusts after it."""
    return _trusting(chain.genesis, light_block(chain, place))


def _trusting(genesis: Genesis, block: LightBlock) -> dict[str, Any]:
    """A light block, and the trust in it of who trusts the founding document."""
    after = verify_skipping(genesis, trust_genesis(genesis), block, is_valid_signature)
    trusted = plain(after) | {"header": encode(block.header.to_record()).hex()}
    return {"bytes": block.encode().hex(), "hash": block.header.hash.hex(), "trusted": trusted}


def _lies(chain: VectorChain) -> Iterator[tuple[str, LightBlock]]:
    """Variations of the third light block that nobody takes who trusts the founding document alone."""
    block, first = light_block(chain, 2), light_block(chain, 0)
    certificate, votes = block.certificate, block.certificate.votes
    forged = replace(votes[0], signature=bytes(64))
    convict = sign_vote(KEYS[3], chain.genesis.chain_id, votes[0].slot, block.header.hash, clock_ms=1, mining_ms=1)
    yield "another chain", replace(block, chain_id=bytes(32))
    yield "a header that is not certified", replace(block, header=replace(block.header, knowledge_root=bytes(32)))
    yield "the certificate of another height", replace(block, certificate=first.certificate)
    yield "too few votes", replace(block, certificate=replace(certificate, votes=votes[:1]))
    yield "a forged signature", replace(block, certificate=replace(certificate, votes=(forged, *votes[1:])))
    yield "a convict's vote", replace(block, certificate=certify((convict, *votes[1:])))
    yield "the state below another height", replace(block, state=first.state)
    yield "crimes that the header does not name", replace(block, evidence=chain.crimes[:1])


def _merkle_root(count: int) -> dict[str, Any]:
    leaves = _leaves(count)
    form: dict[str, Any] = plain({"leaves": leaves, "root": merkle_root(leaves)})
    return form


def _merkle_proof(index: int, size: int) -> dict[str, Any]:
    leaves = _leaves(size)
    form: dict[str, Any] = plain(merkle_proof(leaves, index)) | {"root": merkle_root(leaves).hex()}
    return form


def _leaves(count: int) -> list[bytes]:
    """SHA-256 of the bytes 0, 1, 2, …"""
    return [sha256(bytes([number])) for number in range(count)]


def _proofs(data: bytes) -> dict[str, Any]:
    form: dict[str, Any] = plain({"input": data} | {name: function(data) for name, function in PROOF_FUNCTIONS.items()})
    return form


def _target(bits: int) -> dict[str, Any]:
    assert is_canonical_bits(bits), f"{bits:#x} is no compact target"
    target, work = target_from_bits(bits), work_from_bits(bits)
    return {"bits": bits, "target": target.to_bytes(32, "big").hex(), "work": hex(work)}


def _next_bits(bits: int, mining_ms: int, goal_ms: int) -> dict[str, int]:
    after = next_bits(bits, mining_ms, goal_ms)
    return {"bits": bits, "mining_ms": mining_ms, "target_mining_time_ms": goal_ms, "next_bits": after}


def _draws() -> Iterator[dict[str, Any]]:
    """Members drawn by a block's hash: voters, and contributors."""
    members, block_hash = [key.public_key for key in KEYS], sha256(b"a block")
    for suffix in (b"committee", b"contributors"):
        for count in (1, 2, 3, 4, 0):
            drawn = draw(tuple(members), count, block_hash + suffix)
            yield plain({"members": members, "count": count, "seed": block_hash + suffix, "drawn": drawn})


def _quorum(count: int) -> dict[str, int]:
    tolerant, crash = FaultModel.BYZANTINE, FaultModel.CRASH
    return {
        "electors": count,
        "byzantine_faulty": tolerant.faulty(count),
        "byzantine_quorum": tolerant.quorum(count),
        "crash_quorum": crash.quorum(count),
    }
