"""Judging a chain needs no torch: not to read a genesis document, nor to check and aggregate any method's posts."""

import json
import subprocess
import sys
from dataclasses import replace
from typing import Any

import numpy as np

from fedchain.chain.genesis import AggregatorRule
from fedchain.learning.application import Application
from fedchain.learning.bulk import payload_specs
from fedchain.learning.config import LearningConfig
from fedchain.learning.payload.codec import encode
from fedchain.learning.payload.spec import TensorSpec
from fedchain.learning.registry import METHODS
from fedchain.learning.round import OffChain
from fedchain.node.founding.task import learning_from_genesis, learning_to_genesis, round_phases, rules_of, setup_phases
from tests.support.chain.builders import genesis

SPLITTING = frozenset({"feddkc", "fedgkt", "fedict"})
"""Methods that need a model that can be split."""

MODEL = "digits-mlp-bn"
"""It has buffers and normalization, so that no method's own way with them is left out."""


def judge(documents: dict[str, str]) -> list[str]:
    """Read each method's genesis document, check two posts of each of its phases and aggregate them; the names."""
    for document in documents.values():
        founded = genesis(2).decode(bytes.fromhex(document))
        rules, knowledge = rules_of(founded), b""
        for number, phase in [(0, phase) for phase in founded.setup] + [(1, phase) for phase in founded.phases]:
            specs = payload_specs(rules.method, rules.info, 2)[phase.name]
            (own,) = (item for item in (*rules.method.setup, *rules.method.phases) if item.name == phase.name)
            kinds = list(rules.method.parts(own, rules.info))
            reader = next((place for place in range(-3, 2) if kinds and rules.method.may_read(kinds[0], place)), 0)
            payload = encode({spec.name: fill(spec, reader) for spec in specs})
            senders = sorted(founded.members)
            occasion = OffChain(phase.name, number, founded.members)
            for sender in senders:
                rules.check(occasion, sender, knowledge, payload)
            knowledge = rules.aggregate(occasion, knowledge, [(sender, payload) for sender in senders])
        rules.summary(knowledge)
    return sorted(documents)


def fill(spec: TensorSpec, reader: int) -> Any:
    """Numbers that the spec allows, and a reader that the method does; of what may be any number of rows, one."""
    shape = tuple(1 if size == -1 else size for size in spec.shape)
    number = reader if spec.name == "parts.reader" else spec.minimum or 0
    return np.full(shape, number, dtype=spec.dtype)


def test_all_methods_are_judged_without_torch() -> None:
    documents, tasks = {}, {}
    for name in METHODS:
        model = "resnet2-56" if name in SPLITTING else "plain-cnn" if name == "fededs" else MODEL
        tasks[name] = LearningConfig(method=name, model=model, clients=2)
    tasks["mixed"] = LearningConfig(method="dfpl", model=f"{MODEL}+digits-mlp-bn", clients=2)
    for name, config in tasks.items():
        rules = Application(config)
        learning = learning_to_genesis(replace(config, shapes=rules.info, more_shapes=rules.infos[1:]))
        phases = {"setup": setup_phases(rules), "phases": round_phases(rules)}
        rule = AggregatorRule.FIXED if name in SPLITTING else AggregatorRule.NONE
        documents[name] = genesis(2, learning=learning, aggregator=rule, **phases).encode().hex()
    code = (
        "import json, sys\n"
        "import fedchain.node.shell.run, fedchain.network.libp2p.network\n"
        "from tests.learning.test_without_torch import judge\n"
        "judged = judge(json.load(sys.stdin))\n"
        "print(json.dumps([judged, sorted({'torch', 'sklearn', 'scipy', 'matplotlib'} & set(sys.modules))]))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], input=json.dumps(documents), capture_output=True, text=True, check=True
    )
    assert json.loads(done.stdout) == [sorted(tasks), []]


def test_a_document_without_shapes_is_read_too() -> None:
    document = genesis(2, learning=learning_to_genesis(LearningConfig(method="fedavg", clients=2)))
    assert "shapes" not in dict(document.learning)
    config = learning_from_genesis(document)
    assert config.shapes is None
    assert rules_of(document).info.classes == 10
