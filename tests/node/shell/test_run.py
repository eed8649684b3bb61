"""A process begins with settings that fit its federation."""

from pathlib import Path

from fedchain.chain.genesis import PAYLOAD_SIZE_DEFAULT
from fedchain.crypto.address import address
from fedchain.node.founding.genesis_file import read_genesis
from tests.support.chain.builders import keys
from tests.support.cli_node import done, start
from tests.support.node.own_recipe import here as here

MEMBERS = [word for key in keys(2) for word in ("--member", address(key.public_key))]


def test_the_largest_payload_has_room_for_the_model(here: Path) -> None:
    text = (here / "mytask.py").read_text(encoding="utf-8")
    (here / "mytask.py").write_text(text.replace("16", "1_500_000"), encoding="utf-8")
    done("genesis", "new", "genesis", "--task", "mytask:load", "--method", "fedavg", *MEMBERS)
    size_max = read_genesis(here / "genesis").payload_size_max
    assert size_max > PAYLOAD_SIZE_DEFAULT
    assert size_max >= 4 * 1_500_000 * 12


def test_a_node_and_its_federation_must_both_speak_of_own_data(here: Path) -> None:
    done("genesis", "new", "own", "--task", "mytask:load", *MEMBERS)
    done("genesis", "new", "digits", *MEMBERS)
    needed = "the members train on data of their own: name your function with --task FILE.py:function"
    assert start(genesis="own") == needed
    refusal = "the members train on digits, not on data of their own; leave out the task"
    assert start("--task", "mytask:load", genesis="digits") == refusal
    assert not (here / "data").exists()
