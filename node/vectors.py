"""All test vectors: those of chain and network, and a node's own: journal, deadlines, timeouts, ids of gossip.

``docs/vectors.json`` is what ``fedchain vectors`` prints. The journal's form, deadlines and timeouts are
a node's own business: no other peer notices if a program does them differently.
"""

import json
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from fedchain.chain import vectors as chain_vectors
from fedchain.chain.certificate import certify
from fedchain.chain.genesis import GENESIS_VERSION, Genesis
from fedchain.chain.state import genesis_state
from fedchain.chain.transaction import sign_transaction
from fedchain.chain.vector_chain import KEYS, precommit, small_genesis, vector_chain
from fedchain.chain.vectors import plain
from fedchain.chain.vote import VoteKind, sign_vote
from fedchain.crypto.hashing import Hash
from fedchain.network import vectors as network_vectors
from fedchain.network.libp2p.bounds import message_id
from fedchain.network.messages import GossipMessage, encode_message
from fedchain.node.core.agreement import Agreement
from fedchain.node.core.deadlines import deadline_ms, patience_ms
from fedchain.node.core.journal import Journal

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
        "timeouts": [_timeout(base_ms, attempt) for base_ms in (500, 1_000) for attempt in (0, 1, 2, 59, 60, 500)],
    }


def print_vectors() -> None:
    """Print bytes and hashes of one of everything, as JSON, for whoever writes a peer in another language."""
    print(to_json(vectors()))


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


def _journals() -> Iterator[Journal]:
    """Before anything was signed; after a post and a prevote; after a precommit; of a key that spoke elsewhere."""
    chain = vector_chain()
    chain_id, block_hash = chain.genesis.chain_id, chain.steps[0].block.hash
    prevotes = [sign_vote(key, chain_id, VoteKind.PREVOTE, 1, 0, block_hash) for key in KEYS[:3]]
    yield Journal()
    journal = Journal().with_post(sign_transaction(KEYS[0], chain_id, 1, 0, network_vectors.INLINE))
    journal = journal.with_vote(prevotes[0])
    yield journal
    yield journal.with_vote(precommit(chain.genesis, 0, 1, block_hash, attempt=0), certify(prevotes))
    yield Journal().passed_over(7)


def _deadline(genesis: Genesis, delays_ms: tuple[int, ...]) -> dict[str, Any]:
    state = replace(genesis_state(genesis), delays_ms=(delays_ms,))
    return {
        "delays_ms": list(delays_ms),
        "phase_floor_ms": genesis.phase_floor_ms,
        "phase_timeout_ms": genesis.phase_timeout_ms,
        "omission_slack_ms": genesis.omission_slack_ms,
        "deadline_ms": deadline_ms(genesis, state),
    }


def _patience(genesis: Genesis, quorum_after_ms: int | None) -> dict[str, Any]:
    """With a deadline of nine seconds."""
    state = replace(genesis_state(genesis), delays_ms=((7_000,) * 4,))
    return {
        "deadline_ms": deadline_ms(genesis, state),
        "phase_timeout_ms": genesis.phase_timeout_ms,
        "quorum_after_ms": quorum_after_ms,
        "patience_ms": patience_ms(genesis, state, quorum_after_ms),
    }


def _timeout(base_ms: int, attempt: int) -> dict[str, int]:
    agreement = Agreement(_NoCandidates(), 4, 3, 1, base_ms)
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

    def is_complete(self, block_hash: Hash) -> bool:
        """There is none."""
        return False

    def is_valid(self, block_hash: Hash) -> bool:
        """There is none."""
        return False
