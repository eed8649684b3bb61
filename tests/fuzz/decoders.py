"""Every decoder: it raises nothing but its documented errors, and what it takes it writes back to the same bytes."""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, get_args

import numpy as np
import tomli_w

from fedchain.chain.block import Block
from fedchain.chain.certificate import Certificate
from fedchain.chain.encoding import decode, encode
from fedchain.chain.evidence import Evidence
from fedchain.chain.exceptions import InvalidEncoding, InvalidGenesis, Refused
from fedchain.chain.genesis import AggregatorRule, Contributor, Genesis, PhaseRule
from fedchain.chain.light.light_block import LightBlock, light_block_size_max
from fedchain.chain.light.verification import trust_genesis, verify_skipping
from fedchain.chain.post import Post
from fedchain.chain.state import State, decode_state, genesis_state
from fedchain.chain.vote import Vote, VoteKind
from fedchain.crypto.address import address, public_key_from_address
from fedchain.crypto.exceptions import CryptoError, InvalidAddress
from fedchain.crypto.keys import is_valid_signature
from fedchain.crypto.threshold import (
    Dealing,
    Decryption,
    Encryptor,
    SharePost,
    ThresholdPublicKey,
    decode_ciphertexts,
    decode_dealing,
    decode_public_key,
    decode_share_post,
    encode_ciphertexts,
)
from fedchain.crypto.threshold.sealing import seal_shares
from fedchain.learning.application import Application
from fedchain.learning.bulk import knowledge_specs, payload_specs
from fedchain.learning.config import OWN, LearningConfig
from fedchain.learning.exceptions import ConfigurationError, InvalidPayload
from fedchain.learning.knowledge import write_knowledge
from fedchain.learning.models.model_info import ModelInfo
from fedchain.learning.payload import codec
from fedchain.learning.payload.numbers import clip_elements
from fedchain.learning.payload.spec import TensorSpec
from fedchain.learning.registry import METHODS
from fedchain.learning.round import OffChain
from fedchain.network.libp2p.addresses import decode_exchange, encode_exchange, is_address, seen_from
from fedchain.network.messages import MESSAGE_SIZE_MAX, decode_message, encode_message
from fedchain.node.founding.task import learning_from_genesis, learning_to_genesis, round_phases, setup_phases
from fedchain.simulator.disturbances import Fault, FaultKind
from fedchain.simulator.scenario import Scenario, ScenarioError, load_scenario, scenario_from_dict
from tests.crypto.threshold.dealt import SENDERS, random_source, small_key
from tests.fuzz.engine import Session, Target
from tests.fuzz.victim import messages
from tests.support.chain.builders import ChainBuilder, double_post, double_vote, genesis, keys

MEMBERS = (b"a", b"b", b"aggregator")

SPLITTING = frozenset({"feddkc", "fedgkt", "fedict"})
"""Methods that need a model that can be split; what they post and leave are lists of parts."""

MODELS = {**dict.fromkeys(sorted(SPLITTING), "split-mlp-1"), "fededs": "plain-cnn"}
"""A model for each method that does not take any."""

ELEMENTS = (0.0, 1.5, -3.4028235e38, 3.4028235e38, 1e-45)
"""Elements of the tensors that mutations start from."""


def _decoder(seeds: list[bytes], read: Callable[[bytes], Any], write: Callable[[Any], bytes]) -> Session:
    """A canonical decoder that raises InvalidEncoding, InvalidGenesis or an error of keys and ciphertexts."""

    def check(data: bytes) -> str:
        try:
            value = read(data)
        except (InvalidEncoding, InvalidGenesis, CryptoError) as error:
            return f"{type(error).__name__}: {error}"
        assert write(value) == data, f"{data[:80]!r} is taken but is not canonical"
        return f"taken: {type(value).__name__}"

    return Session(seeds, check)


def _chain() -> ChainBuilder:
    """Four blocks: one without a certificate, one without posts, one that proves both crimes."""
    builder = ChainBuilder(genesis(4))
    builder.extend_many(2)
    builder.extend(posts=())
    builder.extend(evidence=[double_vote(keys(1)[0], builder.genesis, 1), double_post(keys(2)[1], builder.genesis, 1)])
    return builder


def _open_encoding() -> Session:
    nested = [[1, b"x"], "y", [[[[[[[7]]]]]]]]
    values: tuple[Any, ...] = (0, 2**64 - 1, b"", "text", [], nested, [0] * 20, [b"x" * 300, "x" * 40])
    return _decoder([encode(value) for value in values], partial(decode, size_max=2**15), encode)


def _open_message() -> Session:
    return _decoder([encode_message(item) for item in messages()], decode_message, encode_message)


def _open_block() -> Session:
    seeds = [block.encode() for block in _chain().blocks.values()]
    return _decoder(seeds, partial(Block.decode, size_max=MESSAGE_SIZE_MAX), Block.encode)


def _open_transaction() -> Session:
    seeds = [encode(post.to_record()) for block in _chain().blocks.values() for post in block.transactions]
    return _decoder(seeds, lambda data: Post.from_record(decode(data, 2**15)), _write_record)


def _open_vote() -> Session:
    seeds = [encode(vote.to_record()) for item in _certificates() for vote in item.votes]
    return _decoder(seeds, lambda data: Vote.from_record(decode(data, 2**15)), _write_record)


def _open_certificate() -> Session:
    """A certificate that is taken also has its medians."""

    def read(data: bytes) -> Certificate:
        certificate = Certificate.from_record(decode(data, 2**15))
        assert certificate.clock_ms in {vote.clock_ms for vote in certificate.votes}
        assert certificate.mining_ms in {vote.mining_ms for vote in certificate.votes}
        return certificate

    return _decoder([encode(item.to_record()) for item in _certificates()], read, _write_record)


def _certificates() -> list[Certificate]:
    builder = _chain()
    return [builder.certificate(block, kind=kind, attempt=300) for block in builder.blocks for kind in VoteKind]


def _open_evidence() -> Session:
    """Evidence that is taken names its culprit and its crime."""
    crimes = [crime for block in _chain().blocks.values() for crime in block.evidence]

    def read(data: bytes) -> Evidence:
        evidence = Evidence.from_record(decode(data, 2**15))
        assert len(evidence.culprit) == 32
        assert evidence.crime.startswith("two different ")
        return evidence

    return _decoder([encode(crime.to_record()) for crime in crimes], read, _write_record)


def _open_state() -> Session:
    """A state that is taken says who may post and vote, all of them members."""
    builder = _chain()

    def read(data: bytes) -> State:
        state = decode_state(builder.genesis, data)
        assert state.roster.contributors | state.roster.electors | state.deciders <= set(state.roster.members)
        return state

    return _decoder([state.encode() for state in builder.states.values()], read, State.encode)


def _open_light_block() -> Session:
    """A light block that a client takes is one of the chain's, whatever came with it."""
    builder = _chain()
    begin, seeds = trust_genesis(builder.genesis), []
    for block in builder.blocks.values():
        state = builder.states[block.header.parent_hash].encode()
        light = LightBlock(builder.genesis.chain_id, block.header, builder.certificate(block), block.evidence, state)
        seeds += [light.encode(), replace(light, state=b"").encode()]

    def read(data: bytes) -> LightBlock:
        light = LightBlock.decode(data, light_block_size_max(builder.genesis))
        with suppress(Refused):
            trusted = verify_skipping(builder.genesis, begin, light, is_valid_signature)
            assert trusted.block_hash in builder.blocks, "an invented block is taken"
        return light

    return _decoder(seeds, read, LightBlock.encode)


def _write_record(value: Any) -> bytes:
    return encode(value.to_record())


def _open_genesis() -> Session:
    """A document that is taken also gives a first state, and its learning part is read or refused."""
    seeds = [genesis(4).encode(), genesis(1, rounds=3, committee_size=1).encode()]
    two_phases = (PhaseRule("a", Contributor.PARTICIPANT), PhaseRule("b", Contributor.AGGREGATOR))
    seeds.append(genesis(2, setup=two_phases, phases=two_phases, aggregator=_rotating(), centralized=True).encode())
    names = frozenset({"fc.weight"})
    shapes = ModelInfo((("fc.weight", (3, 2)),), 2, 3, trainable=names, normalization=frozenset(), input_shape=(2,))
    for config in (
        *(_config(method) for method in sorted(METHODS)),
        LearningConfig(dataset=OWN, shapes=shapes, clients=2),
    ):
        rules = Application(config)
        phases = {"setup": setup_phases(rules), "phases": round_phases(rules)}
        rule = AggregatorRule(rules.method.aggregator)
        count = 2 + (rule is AggregatorRule.DEDICATED)
        seeds.append(genesis(count, learning=learning_to_genesis(config), aggregator=rule, **phases).encode())

    def read(data: bytes) -> Genesis:
        found = Genesis.decode(data)
        assert genesis_state(found).block_hash == found.chain_id
        with suppress(InvalidGenesis):
            learning_from_genesis(found).validate()
        return found

    return _decoder(seeds, read, Genesis.encode)


def _config(method: str) -> LearningConfig:
    config = LearningConfig(method=method, clients=2)
    return replace(config, model=MODELS[method]) if method in MODELS else config


def _rotating() -> Any:
    return type(genesis(1).aggregator)("rotating")


def _tensors(specs: tuple[TensorSpec, ...], size: int) -> dict[str, Any]:
    """Tensors that fit ``specs``, with ``size`` in the free dimensions."""
    tensors: dict[str, Any] = {}
    for spec in specs:
        shape = tuple(min(size, spec.free_max) if item == -1 else item for item in spec.shape)
        if spec.dtype == "uint8":
            tensors[spec.name] = np.resize(np.arange(256, dtype=np.uint8), shape)
        elif spec.dtype == "int64":
            tensors[spec.name] = np.arange(np.prod(shape), dtype=np.int64).reshape(shape) + (spec.minimum or 0)
            if spec.maximum is not None:
                tensors[spec.name] = np.minimum(tensors[spec.name], spec.maximum)
        else:
            elements = np.clip(np.array(ELEMENTS, dtype=np.float32), spec.minimum, spec.maximum)
            tensors[spec.name] = np.asarray(clip_elements(spec, np.resize(elements, shape)))
    return tensors


def _open_payload(method: str) -> Session:
    """A payload that is taken can also be aggregated, and what it leaves behind can be read."""
    rules = Application(_config(method), MEMBERS)
    specs_of = payload_specs(rules.method, rules.info, 2)
    cases, seeds, known = [], list[bytes](), b""
    for phase in (*rules.method.setup, *rules.method.phases):
        specs = specs_of[phase.name]
        good = [codec.encode(_tensors(specs, size)) for size in (1, 3, 10)]
        cases.append((phase, specs, good[0], known))
        known = rules.aggregate(OffChain(phase.name, 1, MEMBERS), known, [(b"a", good[0])])
        seeds += good

    def check(data: bytes) -> str:
        endings = []
        for phase, specs, other, known in cases:
            try:
                rules.check(OffChain(phase.name, 1, MEMBERS), b"a", b"", data)
            except InvalidPayload as error:
                endings.append(str(error))
                continue
            assert codec.encode(codec.decode(data, specs)) == data, "taken but not canonical"
            left = rules.aggregate(OffChain(phase.name, 1, MEMBERS), known, [(b"a", data), (b"b", other)])
            assert rules.read_knowledge(left) is not None or rules.lists_parts(phase.name)
            rules.summary(left)
            assert len(rules.parts(phase.name, data)) <= len(rules.parts_known(left)) or not left
            endings.append("taken")
        return "; ".join(endings)

    return Session(seeds, check)


def _open_knowledge(method: str) -> Session:
    rules = Application(_config(method), MEMBERS)
    specs_of = knowledge_specs(rules.method, rules.info, 2)
    seeds = [b""]
    for phase in (*rules.method.setup, *rules.method.phases):
        specs = specs_of[phase.name]
        documents = [codec.document(_tensors(specs, size)) for size in (1, 3, 10)]
        seeds += [write_knowledge([(phase.name, 1, document)]) for document in documents]

    def check(data: bytes) -> str:
        try:
            tensors = rules.read_knowledge(data)
        except InvalidPayload as error:
            return str(error)
        assert data or tensors is None
        assert tensors is None or data.endswith(codec.encode(tensors)), "taken but not canonical"
        rules.summary(data)
        assert all(sender < 3 for _, _, sender in rules.parts_known(data))
        return "taken"

    return Session(seeds, check)


def _open_address() -> Session:
    def check(data: bytes) -> str:
        text = data.decode("utf-8", "surrogateescape")
        try:
            key = public_key_from_address(text)
        except InvalidAddress as error:
            return str(error).rpartition("is not")[2]
        assert address(key) == text, f"{text!r} is taken, but the address is {address(key)!r}"
        return "taken"

    return Session([address(key.public_key).encode() for key in keys(4)], check)


def _open_entries() -> Session:
    """Versions and addresses as peers tell them; whatever text stands there is judged without harm."""
    members = [key.public_key for key in keys(4)]
    texts = ["/ip4/127.0.0.1/tcp/4001", "/ip4/0.0.0.0/tcp/1", "/ip6/::1/tcp/9", "/dns4/a.example/tcp/80"]
    told: list[Any] = [[], [(b"", texts[:1])], [(item, texts) for item in members]]

    def read(data: bytes) -> Any:
        version, entries = decode_exchange(data)
        assert version.isprintable()
        for _, addresses in entries:
            for text in addresses:
                assert not is_address(text) or text.count("/") == 4
                seen_from(text, "192.0.2.1")
        return version, entries

    return _decoder([encode_exchange("1.0", item) for item in told], read, lambda value: encode_exchange(*value))


def _open_scenario() -> Session:
    """A scenario that is taken is the same again when it is written and read."""
    faults = tuple(Fault(at_s=1.0 + place, kind=kind, peers=(place,)) for place, kind in enumerate(get_args(FaultKind)))
    full = Scenario(hyperparameters={"learning_rate": 0.5, "local_steps": 3}, faults=faults, loss=0.1, degree=4)
    seeds = [b"", b"peers = 3\nrounds = 1\nname = 'x'\n", tomli_w.dumps(full.to_dict()).encode()]
    folder = TemporaryDirectory(prefix="fedchain-fuzz-")
    path = Path(folder.name, "scenario.toml")

    def check(data: bytes) -> str:
        assert folder is not None, "the folder lives as long as the check"
        path.write_bytes(data)
        try:
            scenario = load_scenario(path, {})
        except (ScenarioError, ConfigurationError) as error:
            return f"{type(error).__name__}: {error}".replace(folder.name, "")
        assert scenario_from_dict(scenario.to_dict()) == scenario
        return "taken"

    return Session(seeds, check)


def _open_threshold_key() -> Session:
    key, shares = small_key()
    dealing = Dealing(key, seal_shares(key, shares, SENDERS))
    bits = (key.key_bits,)

    def read(data: bytes) -> ThresholdPublicKey | Dealing:
        with suppress(CryptoError):
            return decode_public_key(data, bits)
        return decode_dealing(data, bits)

    return _decoder([key.encode(), dealing.encode()], read, lambda value: value.encode())


def _open_ciphertexts() -> Session:
    key = small_key()[0]
    data = encode_ciphertexts(key, [each.power for each in Encryptor(key).randomizers(3, random_source("fuzz"))])
    return _decoder([data], lambda found: decode_ciphertexts(key, found, 3), partial(encode_ciphertexts, key))


def _open_share_post() -> Session:
    """A post that can be read holds the right shares, or is refused."""
    key, shares = small_key()
    ciphertexts = [each.power for each in Encryptor(key).randomizers(3, random_source("fuzz"))]
    decryption = Decryption(key, bytes(32), 1, "decryption_share", ciphertexts)
    post = decryption.share(shares[0], SENDERS[0], random_source("share"))

    def read(data: bytes) -> SharePost:
        found = decode_share_post(key, data, 3, 1, SENDERS[0])
        decryption.validate(found)
        assert found == post, "a mutated share is taken"
        return found

    return _decoder([post.encode(key)], read, lambda value: value.encode(key))


DECODERS = (
    Target("encoding", _open_encoding),
    Target("message", _open_message),
    Target("block", _open_block),
    Target("transaction", _open_transaction),
    Target("vote", _open_vote),
    Target("certificate", _open_certificate),
    Target("evidence", _open_evidence),
    Target("state", _open_state),
    Target("light-block", _open_light_block),
    Target("genesis", _open_genesis, allocated_base=2**22),
    *(Target(f"payload-{name}", partial(_open_payload, name), allocated_base=2**21) for name in sorted(METHODS)),
    *(Target(f"knowledge-{name}", partial(_open_knowledge, name), allocated_base=2**21) for name in sorted(METHODS)),
    Target("threshold-key", _open_threshold_key),
    Target("ciphertexts", _open_ciphertexts),
    Target("share-post", _open_share_post),
    Target("address", _open_address, is_text=True),
    Target("entries", _open_entries),
    Target("scenario", _open_scenario, is_text=True, allocated_base=2**24),
)
