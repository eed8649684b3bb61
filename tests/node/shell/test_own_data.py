"""``--task``: real nodes train what the tutorial's function returns, and every fault is one line and exit code 2."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from fedchain.chain.genesis import Genesis
from fedchain.chain.storage.sqlite import Store
from fedchain.crypto.address import address
from fedchain.crypto.hashing import Hash, sha256
from fedchain.files.layout import CHAIN_FOLDER
from fedchain.learning.application import Application
from fedchain.learning.config import OWN
from fedchain.learning.round import OffChain
from fedchain.learning.task.custom import load_task
from fedchain.learning.worker.learner import Learner
from fedchain.node.founding.genesis_file import read_genesis
from fedchain.node.founding.task import learning_from_genesis, learning_to_genesis
from tests.support.chain.builders import keys
from tests.support.cli_node import done, refused, start
from tests.support.node.own_recipe import here as here

MEMBERS = [word for key in keys(2) for word in ("--member", address(key.public_key))]

TOKENS = """
import torch
from torch import nn

class Bag(nn.Module):
    def __init__(self):
        super().__init__()
        self.words, self.head = nn.Embedding(32, 8), nn.Linear(8, 3)

    def forward(self, tokens):  # (B, L) integers
        embedding = self.words(tokens).mean(dim=1)
        return embedding, self.head(embedding)

def load(member):
    draw = torch.Generator().manual_seed(member)
    topics = torch.randint(3, (60,), generator=draw)
    tokens = 10 * topics[:, None] + torch.randint(12, (60, 6), generator=draw)
    return Bag, (tokens[:40], topics[:40]), (tokens[40:], topics[40:])
"""
"""A task over integers: words of three topics."""


@pytest.mark.long
def test_nodes_and_a_simulation_of_one_recipe_know_the_same_and_anybody_can_verify(here: Path) -> None:
    (here / "mytask.py").write_text(TOKENS, encoding="utf-8")
    words = ["--task", "mytask.py:load", "--peers", "2", "--rounds", "2", "--set", "local_steps=5", "--out"]
    done("simulate", *words, "run", "--set", "mining_attempts=8", "--workers", "1")
    network = ("node", "testnet", *words, "net", "--set", "mining_s=0.05", "--set", "mining_attempts=50")
    shown = done(*network, env={"PYTHONSAFEPATH": "1"})
    assert shown.splitlines()[-1] == "all nodes have the same head"
    assert refused(*network) == "net exists already; name another folder with --out"
    log = (here / "net" / "node-0" / "node.log").read_text(encoding="utf-8")
    assert re.search(r"head height=2 hash=[0-9a-f]{16} round=2 posts=2 finished=True\n", log)
    assert "round=3" not in log, "a federation of two rounds has no third one"
    knowledge = knowledge_of_learner(read_genesis(here / "net" / "genesis.fedchain"), rounds=2)
    roots = [knowledge_roots(folder) for folder in (here / "run", *sorted((here / "net").glob("node-*")))]
    assert len(roots[0]) == 2
    assert roots == [roots[0]] * 3
    assert roots[0][-1] == sha256(knowledge)

    (here / "mytask.py").unlink()
    verify = [sys.executable, "-m", "fedchain", "explorer", "verify", "net/node-1"]
    checked = subprocess.run(verify, capture_output=True, text=True, check=False)
    assert checked.returncode == 0, checked.stderr
    done("explorer", "verify", "net/node-0")


def knowledge_roots(folder: Path) -> list[Hash]:
    """Roots of the members' knowledge after each block of a chain."""
    with Store.open(folder / CHAIN_FOLDER, read_only=True) as store:
        roots: list[Hash] = []
        while (found := store.final(len(roots) + 1)) is not None:
            roots.append(found[0].header.knowledge_root)
    return roots


def knowledge_of_learner(genesis: Genesis, rounds: int) -> bytes:
    """Knowledge of the same members in one process, all of them posting in every round."""
    config = learning_from_genesis(genesis)
    rules, learner, knowledge = Application(config), Learner(config, load_task("mytask.py:load")), b""
    for number in range(1, rounds + 1):
        payloads = [learner.contribute(k, "update", number, knowledge).payload for k in range(config.clients)]
        posts = sorted(zip(genesis.members, payloads, strict=True))
        knowledge = rules.aggregate(OffChain("update", number), knowledge, posts)
    return knowledge


def test_the_genesis_has_the_shapes_and_nothing_of_the_function(here: Path) -> None:
    done("genesis", "new", "genesis", "--task", "mytask:load", *MEMBERS)
    genesis = read_genesis(here / "genesis")
    assert sorted(dict(genesis.learning)) == ["clients", "dataset", "hyperparameters", "method", "seed", "shapes"]
    config = learning_from_genesis(genesis, task="mytask:load")
    assert (config.dataset, config.clients, config.task) == (OWN, 2, "mytask:load")
    assert config.shapes is not None
    assert config.shapes.parameters[0] == ("hidden.weight", (16, 8))
    assert (config.shapes.embedding_size, config.shapes.classes, config.shapes.input_shape) == (16, 3, (8,))
    assert learning_to_genesis(config) == genesis.learning
    assert "hidden.weight" in done("genesis", "show", "genesis", "--json")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--task", "mytask"), "task must be of the form FILE.py:function or module:function, not 'mytask'"),
        (("--task", "mytusk:load"), "task mytusk:load: there is no module 'mytusk' in the current folder"),
        (("--task", "mytask:laod"), "unknown function of mytask 'laod'; did you mean 'load'?"),
        (("--task", "mytask:Net"), "task mytask:Net: (model, train set, test set) must be returned, not Net"),
        (("--task", "mytask:load", "--dataset", "mnist"), "the members train on mnist, not on data of their own"),
        (("--task", "mytask:load", "--method", "dfplx"), "unknown method 'dfplx'; did you mean 'dfpl'?"),
        (("--dataset", "own"), "name your function with --task FILE.py:function"),
    ],
)
def test_a_federation_whose_function_cannot_be_used_is_not_founded(
    here: Path, words: tuple[str, ...], said: str
) -> None:
    assert said in refused("genesis", "new", "genesis", *words, *MEMBERS)
    assert said in refused("node", "testnet", "--out", "net", *words)
    assert said in refused("simulate", "--out", "net", *words)
    assert not (here / "genesis").exists()
    assert not (here / "net").exists()


@pytest.mark.long
def test_what_is_wrong_in_the_training_process_ends_the_node(here: Path) -> None:
    done("genesis", "new", "genesis", "--task", "mytask:load", *MEMBERS)
    text = (here / "mytask.py").read_text(encoding="utf-8")
    (here / "other.py").write_text(text.replace("16", "17"), encoding="utf-8")
    found, expected = "hidden.weight (17, 8)", "hidden.weight (16, 8)"
    said = f"task other:load: tensor 0 of the model is {found}, but in the genesis it is {expected}"
    assert start("--task", "other:load") == said
    assert "other" not in sys.modules
