"""Real processes that encrypt: one is killed between the phases, all know what a simulation knows, shares stay put."""

import base64
from dataclasses import replace
from pathlib import Path

import pytest

from fedchain.chain.genesis import Genesis
from fedchain.chain.storage.sqlite import Store
from fedchain.crypto.hashing import Hash
from fedchain.crypto.keys import PrivateKey
from fedchain.files.layout import CHAIN_FOLDER, GENESIS_FILE
from fedchain.learning.application import Application
from fedchain.learning.config import LearningConfig
from fedchain.learning.executors.last_answers import LastAnswers
from fedchain.learning.executors.processes import ProcessExecutor
from fedchain.learning.executors.remembering import Remembering
from fedchain.learning.sums.secrets import Secrets
from fedchain.learning.worker.plan import LearnerPlan, Named
from fedchain.node.custody.dealing import read_share
from fedchain.node.custody.secrets_file import open_secrets, secrets_path
from fedchain.node.founding.consensus import Consensus
from fedchain.node.founding.genesis_file import read_genesis
from fedchain.node.founding.task import learning_from_genesis
from fedchain.node.operating.local_node import LocalNode, stop_all
from fedchain.node.operating.testnet import found_testnet
from fedchain.simulator.engine.simulation import Simulation
from fedchain.simulator.scenario import Scenario
from tests.support.node.processes import height, kill, log_of, look
from tests.support.node.shell import wait_until

PEERS, KILLED = 3, 2

CONFIG = LearningConfig(
    method="tests.support.learning.small_keys:SmallKeyFedPh",
    clients=PEERS,
    partition="iid",
    hyperparameters={
        "encryption": "threshold",
        "decryption_threshold": 2,
        "contributors_min": 3,
        "local_epochs": 0,
        "local_steps": 1,
    },
)


@pytest.mark.slow
def test_a_node_is_killed_between_the_phases_and_shares_open_what_a_simulation_knows(tmp_path: Path) -> None:
    folder = tmp_path / "net"
    nodes = found_testnet(
        folder,
        CONFIG,
        Consensus(
            rounds=1,
            mining_s=1.0,
            mining_attempts=4_000,
            proof_function="sha256d",
            fault_model="crash",
            contribution_quorum=PEERS,
            phase_floor_s=1.0,
            phase_timeout_s=3.0,
        ),
    )
    try:
        for node in nodes:
            node.start()
        wait_until(lambda: height(nodes[KILLED]) >= 1, "the sums are final")
        kill(nodes[KILLED])
        wait_until(lambda: look(nodes[0]).get("finished"), "the others open them")
        nodes[KILLED].start()
        wait_until(lambda: len({str(look(node).get("head")) for node in nodes}) == 1, "all have the same head")
    finally:
        stop_all(nodes)
    genesis = read_genesis(folder / GENESIS_FILE)
    assert knowledge_of_processes(nodes[0]) == knowledge_of_simulation(genesis, nodes)
    for node in nodes:
        check_the_share_is_in_no_file_of(node, genesis)
        assert "Traceback" not in log_of(node)


def knowledge_of_processes(node: LocalNode) -> list[Hash]:
    """Knowledge root after each phase."""
    with Store.open(node.folder / CHAIN_FOLDER, read_only=True) as store:
        found = [store.final(number) for number in (1, 2)]
    return [final[0].header.knowledge_root for final in found if final is not None]


def secrets_of(document: bytes, folders: list[str], member: int) -> Secrets:
    genesis, path = Genesis.decode(document), Path(folders[member]) / "key.pem"
    values = read_share(path, genesis, genesis.members[member], None)
    return open_secrets(secrets_path(path, genesis.chain_id), member, values)


def knowledge_of_simulation(genesis: Genesis, nodes: list[LocalNode]) -> list[Hash]:
    """The same of the same members, with the same secrets, in virtual time, where nobody is killed."""
    keys = [PrivateKey.load(node.folder / "key.pem") for node in nodes]
    config = learning_from_genesis(genesis)
    folders = [str(node.folder) for node in nodes]
    plan = LearnerPlan(
        config=config,
        members=genesis.members,
        chain_id=genesis.chain_id,
        secrets=Named(f"{__name__}:secrets_of", (genesis.encode(), folders)),
    )
    rules = Application(config, genesis.members, genesis.chain_id)
    pool = ProcessExecutor(plan, 1)
    executor = Remembering(pool, LastAnswers(pool.folder))
    scenario = replace(Scenario(), peers=PEERS, rounds=genesis.rounds, max_virtual_s=10_000.0)
    try:
        simulation = Simulation(scenario, replace(genesis, created_ms=0), keys, rules, executor)
        outcome = simulation.run()
    finally:
        executor.close()
    assert outcome.violations == []
    storage = simulation.peers[0].storage
    found = [storage.final(number) for number in (1, 2)]
    return [final[0].header.knowledge_root for final in found if final is not None]


def check_the_share_is_in_no_file_of(node: LocalNode, genesis: Genesis) -> None:
    """Neither as bytes, nor as text: not in the chain, the checkpoint, the log."""
    member = genesis.members[node.number]
    secret = read_share(node.folder / "key.pem", genesis, member, None)["threshold_share"].lstrip(b"\0")
    forms = [secret, secret.hex().encode(), str(int.from_bytes(secret)).encode()]
    forms += [base64.b64encode(secret[skip:])[:-4] for skip in range(3)]
    files = [path for path in node.folder.rglob("*") if path.is_file() and path.suffix != ".share"]
    assert {"node.log", "training.msgpack", "key.pem"} <= {path.name for path in files}
    for path in files:
        data = path.read_bytes()
        assert not any(form in data for form in forms), path
