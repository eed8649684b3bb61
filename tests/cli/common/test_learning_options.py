"""Each field of learning that members agree on has an option."""

from pathlib import Path
from typing import Any

import pytest

from fedchain.chain.genesis import Genesis
from fedchain.cli.common.learning_options import NAMED, SETTABLE
from fedchain.crypto.address import address
from fedchain.learning.models.weights import hash_file
from fedchain.node.founding.task import learning_from_genesis
from tests.support.chain.builders import keys
from tests.support.cli_node import done

PARTITIONS: dict[str, dict[str, Any]] = {
    "n-way": {"classes_avg": 4, "classes_std": 2, "shots": 20, "test_shots": 5},
    "dirichlet": {"dirichlet_alpha": 0.1},
    "by-class": {"classes_per_client": 2},
}
"""Settings that have an effect beside one partition alone."""


@pytest.mark.parametrize("partition", PARTITIONS)
def test_what_members_agree_on_about_learning_has_an_option_each(tmp_path: Path, partition: str) -> None:
    members = [word for key in keys(2) for word in ("--member", address(key.public_key))]
    weights = tmp_path / "weights.safetensors"
    weights.write_bytes(b"of a model")
    words: dict[str, Any] = {
        "seed": 3,
        "model": "digits-mlp",
        "partition": partition,
        "train_examples": 300,
        "scaling": "pixel",
        "augmentation": "none",
        "classes": 8,
        "feature_shift": "none",
        "weights": str(weights),
        "weights_head": "new",
        **PARTITIONS[partition],
    }
    assert {*words}.union(*PARTITIONS.values()) == {*NAMED, *SETTABLE}
    options = [word for name in NAMED for word in (f"--{name}", str(words[name]))]
    options += [word for name in words if name not in NAMED for word in ("--set", f"{name}={words[name]}")]
    done("genesis", "new", tmp_path / "genesis", *members, *options)
    config = learning_from_genesis(Genesis.decode((tmp_path / "genesis").read_bytes()))
    agreed = words | {"weights": ""}  # each member has a path of its own
    assert {name: getattr(config, name) for name in words} == agreed
    assert config.weights_hash == hash_file(weights)
    for command in (("genesis", "new"), ("node", "testnet"), ("simulate",)):
        shown, listed = done(*command, "--help"), done(*command, "--settings")
        assert [name for name in NAMED if f" --{name} " not in shown] == []
        assert [name for name in words if name not in NAMED and f"{name} " not in listed] == []
