"""All test vectors: those of chain, network and packed posts, and a node's own: journal, deadlines, timeouts, gossip.

``docs/vectors.json`` is what ``python -m tests.vectors`` prints. The journal's form, deadlines and timeouts are
a node's own business: no other peer notices if a program does them differently.
"""

import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from fedchain.chain.certificate import certify
from fedchain.chain.genesis import GENESIS_VERSION, Genesis
from fedchain.chain.post import sign_post
from fedchain.chain.state import genesis_state
from fedchain.chain.vote import VoteKind, sign_vote
from fedchain.crypto.hashing import Hash
from fedchain.crypto.signatures import PublicKey
from fedchain.crypto.threshold.dealer import KEY_BITS_MIN_TESTING, deal_for_testing
from fedchain.learning.models.model_info import ModelInfo
from fedchain.learning.payload.codec import encode
from fedchain.learning.round import ReadPost, Round, Tensors
from fedchain.learning.sums.ciphertexts import SHARE
from fedchain.learning.sums.scheme import UPDATE
from fedchain.learning.sums.secrets import Secrets
from fedchain.learning.sums.threshold import PUBLIC_KEY, ThresholdSums
from fedchain.network.libp2p.bounds import message_id
from fedchain.network.messages import GossipMessage, encode_message
from fedchain.node.core.deadlines import deadline_ms, patience_ms
from fedchain.node.core.voting.agreement import Agreement
from fedchain.node.core.voting.journal import Journal
from tests.vectors import chain as chain_vectors
from tests.vectors import network as network_vectors
from tests.vectors import packed as packed_vectors
from tests.vectors.chain import plain
from tests.vectors.small_chain import KEYS, precommit, small_genesis, vector_chain

DELAYS_MS = (
    (),
    (9_000, 9_000, 9_000),
    (9_000, 9_100, 8_900, 9_050),
    (500, 700, 400, 600, 650),
    (9_000, 9_000, 9_000, 9_000, 60_000),
    (1_000, 30_000, 2_000, 50_000),
    tuple(range(8_000, 8_016)),
)
"""Posting delays of earlier rounds, in milliseconds."""

QUORUM_AFTER_MS = (None, 0, 9_000, 9_001, 20_000, 400_000)
"""When enough posts for a block were in, in milliseconds since the head moved."""


def vectors() -> dict[str, Any]:
    """Every test vector, by what it is of."""
    return {
        "protocol": GENESIS_VERSION,
        **chain_vectors.vectors(),
        **network_vectors.vectors(),
        "gossip_ids": list(_gossip_ids()),
        "journals": [plain({"fields": item, "bytes": item.encode()}) for item in _journals()],
        "deadlines": [_deadline(small_genesis(), delays_ms) for delays_ms in DELAYS_MS],
        "patience": [_patience(small_genesis(), after_ms) for after_ms in QUORUM_AFTER_MS],
        **packed_vectors.vectors(),
        "encrypted_rounds": [_encrypted_round()],
        "timeouts": [_timeout(base_ms, attempt) for base_ms in (500, 1_000) for attempt in (0, 1, 2, 59, 60, 500)],
    }


def _encrypted_round() -> dict[str, Any]:
    """Encrypted prototypes of three members under a key of 320 bits, of whom two open the sums of two classes.

    The third class has two holders, fewer than `contributors_min`, and stays closed.
    """
    info = ModelInfo((), embedding_size=9, classes=4, trainable=frozenset(), normalization=frozenset())
    encryption = ThresholdSums(
        threshold=2, contributors_min=3, key_bits=320, magnitude_max=16.0, key_bits_allowed=(KEY_BITS_MIN_TESTING,)
    )
    drawn = [Secrets(member, bytes([member]) * 32) for member in range(4)]
    key, shares = deal_for_testing(3, 2, drawn[3].stream("vectors"))
    members = tuple(signing.public_key for signing in KEYS[:3])
    begun = Round(
        7, None, clients=3, members=members, material={PUBLIC_KEY: key.encode()}, chain_id=bytes(range(32)), info=info
    )
    holds = (([0, 1, 3], 0.25), ([0, 1], -0.5), ([0, 1, 3], 1 / 3))
    updates = [
        encryption.sums(replace(begun, me=members[member])).encrypt(
            np.array(labels), np.outer(np.array(labels) - 1.5, first * np.arange(9)).astype(np.float32), drawn[member]
        )
        for member, (labels, first) in enumerate(holds)
    ]
    sums = encryption.sums(begun).add(_posts(members, updates))
    opening = replace(begun, beside={UPDATE: sums})
    posted = [
        encryption.opening(replace(opening, me=members[member])).share(
            replace(drawn[member], values={SHARE: int(shares[member].secret).to_bytes(key.ciphertext_size)})
        )
        for member in (0, 2)
    ]
    known = encryption.opening(opening).open(_posts((members[0], members[2]), posted), over_all=False)
    return {
        "members": [member.hex() for member in members],
        "chain_id": begun.chain_id.hex(),
        "round": begun.number,
        "classes": info.classes,
        "embedding_size": info.embedding_size,
        "decryption_threshold": encryption.threshold,
        "contributors_min": encryption.contributors_min,
        "magnitude_max": encryption.magnitude_max,
        "public_key": key.encode().hex(),
        "key_shares": [hex(share.secret) for share in shares],
        "updates": [encode(update).hex() for update in updates],
        "sums": encode(sums).hex(),
        "decryption_shares": {str(member): encode(post).hex() for member, post in zip((0, 2), posted, strict=True)},
        "knowledge": encode(known).hex(),
        "labels": known["labels"].tolist(),
        "holders": known["holders"].tolist(),
        "prototypes": known["prototypes"].tolist(),
    }


def to_json(values: dict[str, Any]) -> str:
    """The text of ``docs/vectors.json``: one vector a line."""
    sections = []
    for name, value in values.items():
        items = [json.dumps(item, ensure_ascii=False) for item in value] if isinstance(value, list) else None
        text = json.dumps(value) if items is None else "[\n  " + ",\n  ".join(items) + "\n ]"
        sections.append(f" {json.dumps(name)}: {text}")
    return "{\n" + ",\n".join(sections) + "\n}"


def _gossip_ids() -> Iterator[dict[str, Any]]:
    """By what neighbours know a gossip message, which is named by its place among the messages."""
    for place, message in enumerate(network_vectors.messages()):
        if isinstance(message, GossipMessage):
            yield {"message": place, "id": message_id(encode_message(message)).hex()}


def _posts(senders: Sequence[PublicKey], payloads: Sequence[Tensors]) -> tuple[ReadPost, ...]:
    return tuple(ReadPost(sender, payload) for sender, payload in zip(senders, payloads, strict=True))


def _journals() -> Iterator[Journal]:
    """Before anything was signed; after a post and a prevote; after a precommit; of a key that was heard elsewhere."""
    chain = vector_chain()
    chain_id, block_hash = chain.genesis.chain_id, chain.steps[0].block.hash
    prevotes = [sign_vote(key, chain_id, (1, 0, VoteKind.PREVOTE), block_hash) for key in KEYS[:3]]
    yield Journal()
    journal = Journal().with_post(sign_post(KEYS[0], chain_id, 1, 0, network_vectors.INLINE))
    journal = journal.with_vote(prevotes[0])
    yield journal
    yield journal.with_vote(precommit(chain.genesis, 0, 1, block_hash, attempt=0), certify(prevotes))
    later = sign_vote(KEYS[0], chain_id, (1, 1, VoteKind.PREVOTE), block_hash)
    yield Journal().adopt(later).adopt(precommit(chain.genesis, 0, 1, block_hash, attempt=0))


def _deadline(genesis: Genesis, delays_ms: tuple[int, ...]) -> dict[str, Any]:
    state = replace(genesis_state(genesis), delays_ms=(delays_ms,))
    return {
        "delays_ms": list(delays_ms),
        "phase_floor_ms": genesis.phase_floor_ms,
        "phase_timeout_ms": genesis.phase_timeout_ms,
        "omission_slack_ms": genesis.omission_slack_ms,
        "deadline_ms": deadline_ms(state),
    }


def _patience(genesis: Genesis, quorum_after_ms: int | None) -> dict[str, Any]:
    """With a deadline of nine seconds."""
    state = replace(genesis_state(genesis), delays_ms=((7_000,) * 4,))
    return {
        "deadline_ms": deadline_ms(state),
        "phase_timeout_ms": genesis.phase_timeout_ms,
        "quorum_after_ms": quorum_after_ms,
        "patience_ms": patience_ms(state, quorum_after_ms),
    }


def _timeout(base_ms: int, attempt: int) -> dict[str, int]:
    agreement = Agreement(_NoCandidates(), 4, 3, 1, base_ms, lambda attempt: bytes(32), bytes(32))
    return {
        "vote_timeout_ms": base_ms,
        "attempt": attempt,
        "timeout_ms": agreement.timeout_ms(attempt),
        "gather_ms": agreement.gather_ms(attempt),
    }


class _NoCandidates:
    """An agreement needs candidates, of which timeouts do not depend."""

    def preferred(self) -> Hash | None:
        """There is none."""
        return None

    def deserves_vote(self, block_hash: Hash) -> bool:
        """There is none."""
        return False

    def is_complete(self, block_hash: Hash) -> bool:
        """There is none."""
        return False

    def is_valid(self, block_hash: Hash) -> bool:
        """There is none."""
        return False
