"""The published vectors are what the code computes, and what is read back from them has the same bytes."""

import hashlib
import json
import re
from collections.abc import Callable
from typing import Any

import pytest

from fedchain.chain.block import Block, Header
from fedchain.chain.certificate import Certificate
from fedchain.chain.difficulty import is_canonical_bits
from fedchain.chain.encoding import decode, encode
from fedchain.chain.evidence import Evidence
from fedchain.chain.exceptions import Invalid, InvalidEncoding, UnknownParent
from fedchain.chain.genesis import Genesis
from fedchain.chain.light.light_block import LightBlock
from fedchain.chain.light.verification import Trusted, trust_genesis, verify_adjacent, verify_skipping
from fedchain.chain.membership.change import Change
from fedchain.chain.membership.member_set import MemberSet
from fedchain.chain.merkle import MerkleProof, is_in_tree
from fedchain.chain.post import Post
from fedchain.chain.state import decode_state, genesis_state
from fedchain.chain.transition import judge_block, judge_final, judge_joined
from fedchain.chain.vote import Vote
from fedchain.crypto.keys import is_valid_signature
from tests.support.paths import DOCS
from tests.vectors.chain import plain, vectors

PUBLISHED: dict[str, Any] = json.loads((DOCS / "vectors.json").read_text(encoding="utf-8"))

RECORDS: dict[str, Callable[[Any], Any]] = {
    "transactions": Post.from_record,
    "votes": Vote.from_record,
    "certificates": Certificate.from_record,
    "evidence": Evidence.from_record,
    "headers": Header.from_record,
    "blocks": Block.from_record,
}

SIZE_MAX = 2**16


def test_the_published_vectors_are_computed_here() -> None:
    computed = json.loads(json.dumps(vectors()))
    assert {name: PUBLISHED[name] for name in computed} == computed


@pytest.mark.parametrize("section", RECORDS)
def test_records_read_back_have_the_same_bytes_fields_and_hash(section: str) -> None:
    assert PUBLISHED[section]
    for vector in PUBLISHED[section]:
        data = bytes.fromhex(vector["bytes"])
        read = RECORDS[section](decode(data, SIZE_MAX))
        assert encode(read.to_record()) == data
        assert plain(read) == vector["fields"]
        assert read.hash.hex() == vector["hash"]


@pytest.mark.parametrize(
    "section", ["transactions", "votes", "certificates", "evidence", "headers", "states", "genesis"]
)
def test_what_something_is_known_by_is_the_hash_of_its_bytes(section: str) -> None:
    for vector in PUBLISHED[section]:
        assert hashlib.sha256(bytes.fromhex(vector["bytes"])).hexdigest() == vector["hash"]


def test_the_records_of_version_3_read_back_have_the_same_bytes_fields_and_hash() -> None:
    section = PUBLISHED["version_3"]
    genesis = Genesis.decode(bytes.fromhex(section["genesis"]["bytes"]))
    assert (plain(genesis), genesis.chain_id.hex()) == (section["genesis"]["fields"], section["genesis"]["hash"])
    for name, kind in (("changes", Change), ("blocks", Block)):
        for vector in section[name]:
            read = kind.from_record(decode(bytes.fromhex(vector["bytes"]), SIZE_MAX))
            assert (plain(read), read.hash.hex()) == (vector["fields"], vector["hash"])
    state = genesis_state(genesis)
    for vector, following in zip(section["blocks"], section["states"], strict=True):
        block = Block.from_record(decode(bytes.fromhex(vector["bytes"]), SIZE_MAX))
        state = judge_block(genesis, state, block, None, is_valid_signature)
        assert state.encode().hex() == following["bytes"]


def test_light_blocks_of_version_3_are_verified_by_the_sets_that_headers_name() -> None:
    section = PUBLISHED["version_3"]
    genesis = Genesis.decode(bytes.fromhex(section["genesis"]["bytes"]))
    begin = trust_genesis(genesis)
    assert set(_followed(genesis, section["light_blocks"]).members) - set(genesis.members)
    drawn = section["light_blocks_of_another_committee"]
    assert len(_followed(genesis, drawn).members) == 5
    votes = [len(LightBlock.decode(bytes.fromhex(vector["bytes"]), SIZE_MAX).certificate.votes) for vector in drawn]
    assert votes == [4, 4, 2, 2]  # quorums of five members, and of a committee of three
    for vector in section["refused_light_blocks"]:
        lie = LightBlock.decode(bytes.fromhex(vector["bytes"]), SIZE_MAX)
        with pytest.raises((Invalid, UnknownParent)):
            verify_skipping(genesis, begin, lie, is_valid_signature)


def _followed(genesis: Genesis, vectors: list[dict[str, Any]]) -> Trusted:
    """Verify light blocks one after the other, and each from the founding document alone."""
    begin = trusted = trust_genesis(genesis)
    for vector in vectors:
        block = LightBlock.decode(bytes.fromhex(vector["bytes"]), SIZE_MAX)
        assert block.encode().hex() == vector["bytes"]
        trusted = verify_adjacent(genesis, trusted, block, is_valid_signature)
        assert verify_skipping(genesis, begin, block, is_valid_signature) == trusted
        assert plain(trusted) | {"header": encode(block.header.to_record()).hex()} == vector["trusted"]
    return trusted


def test_member_sets_read_back_have_the_same_bytes_and_draw_the_same_electors() -> None:
    for vector in PUBLISHED["version_3"]["member_sets"]:
        data = bytes.fromhex(vector["bytes"])
        read = MemberSet.from_record(decode(data, SIZE_MAX))
        assert (plain(read), encode(read.to_record())) == (vector["fields"], data)
        assert hashlib.sha256(data).hexdigest() == read.root.hex() == vector["hash"]
    sizes = [len(vector["electors"]) for vector in PUBLISHED["version_3"]["member_sets"]]
    assert sizes == [5, 5, 3]


def test_a_block_is_known_by_the_hash_of_its_header() -> None:
    assert [block["hash"] for block in PUBLISHED["blocks"]] == [header["hash"] for header in PUBLISHED["headers"]]


def test_genesis_documents_read_back_have_the_same_bytes_and_fields() -> None:
    for vector in PUBLISHED["genesis"]:
        data = bytes.fromhex(vector["bytes"])
        read = Genesis.decode(data)
        assert read.encode() == data
        assert plain(read) == vector["fields"]
    small, full = PUBLISHED["genesis"]
    same = {name for name, value in small["fields"].items() if full["fields"][name] == value}
    assert same == {"version", "created_ms"}, "the second document shows every field with another value"


def test_states_read_back_have_the_same_bytes_and_voters() -> None:
    genesis = small_genesis()
    for vector in PUBLISHED["states"]:
        data = bytes.fromhex(vector["bytes"])
        read = decode_state(genesis, data)
        assert read.encode() == data
        assert plain(read.roster.electors) == vector["derived"]["electors"]
        assert plain(read.roster.contributors) == vector["derived"]["contributors"]


def test_the_chain_of_the_vectors_is_followed_from_its_bytes() -> None:
    genesis = small_genesis()
    state = genesis_state(genesis)
    for place, (block, final) in enumerate(read_chain()):
        assert block.header.state_root.hex() == PUBLISHED["states"][place]["hash"]
        state = judge_final(genesis, state, block, final, block.header.knowledge_root, is_valid_signature)
        assert state.encode().hex() == PUBLISHED["states"][place + 1]["bytes"]
    assert len(state.convicted) == 1


def test_the_chain_of_the_vectors_is_joined_from_its_bytes() -> None:
    genesis, chain = small_genesis(), read_chain()
    for place, (block, final) in enumerate(chain):
        before = bytes.fromhex(PUBLISHED["states"][place]["bytes"])
        after = judge_joined(genesis, before, block, final, is_valid_signature)
        assert after.encode().hex() == PUBLISHED["states"][place + 1]["bytes"]


def test_light_blocks_are_verified_from_their_bytes_one_by_one_and_by_skipping() -> None:
    genesis = small_genesis()
    begin = trusted = trust_genesis(genesis)
    for vector in PUBLISHED["light_blocks"]:
        block = LightBlock.decode(bytes.fromhex(vector["bytes"]), SIZE_MAX)
        trusted = verify_adjacent(genesis, trusted, block, is_valid_signature)
        assert verify_skipping(genesis, begin, block, is_valid_signature) == trusted
        assert trusted.block_hash.hex() == vector["hash"]
        header = encode(block.header.to_record()).hex()
        assert plain(trusted) | {"header": header} == vector["trusted"]
    assert len(trusted.culprits) == 1
    assert len(trusted.electors or ()) == 3


def test_lies_to_a_light_client_are_refused() -> None:
    genesis, words = small_genesis(), set[str]()
    for vector in PUBLISHED["refused_light_blocks"]:
        block = LightBlock.decode(bytes.fromhex(vector["bytes"]), SIZE_MAX)
        with pytest.raises(Invalid) as caught:
            verify_skipping(genesis, trust_genesis(genesis), block, is_valid_signature)
        words.add(re.sub("[0-9a-f]{8,}", "", str(caught.value)))
    assert len(words) == len(PUBLISHED["refused_light_blocks"]), "each in its own words"


def test_signed_messages_are_signed() -> None:
    for vector in PUBLISHED["signing_messages"]:
        key, signature, message = (bytes.fromhex(vector[name]) for name in ("public_key", "signature", "message"))
        assert is_valid_signature(key, signature, message)
        assert message.startswith(b"fedchain/2/" + small_genesis().chain_id + vector["kind"].encode() + b"/")


def test_values_read_back_have_the_same_bytes() -> None:
    for vector in PUBLISHED["encodings"]:
        data = bytes.fromhex(vector["bytes"])
        assert encode(decode(data, SIZE_MAX)) == data
        assert encode(untagged(vector["value"])) == data


@pytest.mark.parametrize("vector", PUBLISHED["refused_encodings"], ids=lambda vector: vector["about"])
def test_bytes_that_encode_nothing_are_refused(vector: dict[str, str]) -> None:
    with pytest.raises(InvalidEncoding):
        decode(bytes.fromhex(vector["bytes"]), SIZE_MAX)


def test_numbers_that_are_no_compact_target_are_refused() -> None:
    assert not any(is_canonical_bits(bits) for bits in PUBLISHED["refused_bits"])
    assert all(is_canonical_bits(vector["bits"]) for vector in PUBLISHED["targets"])


def test_proofs_lead_to_their_roots() -> None:
    for vector in PUBLISHED["merkle_proofs"]:
        siblings = tuple(bytes.fromhex(item) for item in vector["siblings"])
        proof = MerkleProof(bytes.fromhex(vector["leaf"]), vector["index"], vector["size"], siblings)
        assert is_in_tree(proof, bytes.fromhex(vector["root"]))
        assert not is_in_tree(proof, bytes(32))


def test_a_value_without_a_plain_form_is_an_error() -> None:
    with pytest.raises(TypeError, match="float has no plain form"):
        plain([1.0])


def small_genesis() -> Genesis:
    return Genesis.decode(bytes.fromhex(PUBLISHED["genesis"][0]["bytes"]))


def read_chain() -> list[tuple[Block, Certificate]]:
    """Blocks and what made them final, from their bytes."""
    blocks = [Block.decode(bytes.fromhex(vector["bytes"]), SIZE_MAX) for vector in PUBLISHED["blocks"]]
    records = [decode(bytes.fromhex(vector["bytes"]), SIZE_MAX) for vector in PUBLISHED["certificates"]]
    return list(zip(blocks, map(Certificate.from_record, records), strict=True))


def untagged(value: Any) -> Any:
    """A value of the encoding, from its form in JSON."""
    match value:
        case {"bytes": text}:
            return bytes.fromhex(text)
        case str() if value.startswith("0x"):
            return int(value, 16)
        case list():
            return [untagged(item) for item in value]
    return value
