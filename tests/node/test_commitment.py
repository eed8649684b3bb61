"""A block commits to the global prototypes: one bit of them changed is another block, for which nobody has worked."""

from dataclasses import replace

import numpy as np
import pytest

from fedchain.chain.difficulty import bits_from_attempts
from fedchain.chain.exceptions import InvalidBlock
from fedchain.chain.proof_of_work import is_sealed, search_nonce
from fedchain.chain.validation import validate_knowledge
from fedchain.crypto.hashing import sha256
from fedchain.learning.codec import encode
from fedchain.learning.learner import Learner
from fedchain.learning.rules import Rules
from tests.chain.builders import ChainBuilder, genesis
from tests.node.shell import DIGITS


def test_a_block_is_refused_once_one_bit_of_a_prototype_is_another() -> None:
    rules, learner = Rules(DIGITS), Learner(DIGITS)
    posts = [(bytes([client]), learner.contribute(client, "update", 1, b"").payload) for client in range(2)]
    knowledge = rules.aggregate("update", 1, b"", posts)
    known = rules.read_knowledge(knowledge)
    assert known is not None
    prototypes = np.array(known["prototypes"])
    prototypes.view(np.uint32)[0, 0] ^= 1
    other = encode({**known, "prototypes": prototypes})
    assert rules.read_knowledge(other) is not None  # as such it is as good

    header = ChainBuilder(genesis(2)).extend().header
    header = replace(header, knowledge_root=sha256(knowledge), bits=bits_from_attempts(4096))
    sealed = search_nonce("sha256d", header, 0, 2**20)
    assert sealed is not None
    assert is_sealed("sha256d", sealed)
    validate_knowledge(sealed, knowledge)
    with pytest.raises(InvalidBlock, match="knowledge root"):
        validate_knowledge(sealed, other)
    assert not is_sealed("sha256d", replace(sealed, knowledge_root=sha256(other)))
