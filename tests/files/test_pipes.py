"""A pipe or a device in somebody else's folder is no file: its reader would wait for ever, and all pages with it."""

import os
from pathlib import Path

import pytest

from fedchain.files.layout import (
    ADDRESS_FILE,
    BAN_FILE,
    CHAIN_FOLDER,
    INVITATIONS_FILE,
    LINKS_FILE,
    MEMBERS_FILE,
    METRICS_FILE,
    RESULT_FILE,
    SCENARIO_FILE,
    TIMELINE_FILE,
    read_metrics,
)
from fedchain.files.links import read_links
from fedchain.files.members import read_members
from fedchain.files.places import scenario_file
from fedchain.learning.datasets.catalogue import DATASETS
from fedchain.learning.datasets.files import Files
from fedchain.learning.exceptions import DatasetError
from fedchain.network.bans import read_bans
from fedchain.network.libp2p.addresses import AddressBook
from fedchain.network.limits import Limits
from fedchain.network.membership import Membership
from fedchain.node.folders import find_rows
from fedchain.simulator.reproduction.table import read_result
from fedchain.simulator.resuming.resume import require_same_code
from fedchain.simulator.scenario import Scenario, ScenarioError
from fedchain.web.seen import SeenFile
from tests.support.node.inviting import Host


def test_nobody_waits_for_a_pipe(tmp_path: Path) -> None:
    for name in (MEMBERS_FILE, METRICS_FILE, TIMELINE_FILE, LINKS_FILE):
        os.mkfifo(tmp_path / name)
    assert [*read_metrics(tmp_path), *read_members(tmp_path)] == []
    assert read_links(tmp_path)[1] == 0
    seen = SeenFile(tmp_path, members=4)
    seen.look()
    assert seen.count == 0


def test_nobody_reads_a_device_to_its_end(tmp_path: Path) -> None:
    """Somebody else may have made the folder: the memory was full before the list of runs was there."""
    (tmp_path / METRICS_FILE).symlink_to("/dev/zero")
    assert list(read_metrics(tmp_path)) == []


def test_nobody_waits_for_a_pipe_in_the_place_of_a_result_or_a_scenario(tmp_path: Path) -> None:
    (tmp_path / CHAIN_FOLDER).mkdir()
    (tmp_path / SCENARIO_FILE).touch()
    os.mkfifo(tmp_path / RESULT_FILE)
    (row,) = find_rows(tmp_path)
    assert row.state == f"cannot be read: {tmp_path / RESULT_FILE} is a pipe"
    with pytest.raises(ScenarioError, match=r"result.json is not the result of a run; delete it"):
        read_result(tmp_path / RESULT_FILE)
    with pytest.raises(ScenarioError, match=r"cannot be read: FileNotFoundError: .*result.json is a pipe"):
        require_same_code(tmp_path, Scenario(), None)
    (tmp_path / SCENARIO_FILE).unlink()
    os.mkfifo(tmp_path / SCENARIO_FILE)
    assert scenario_file(tmp_path / CHAIN_FOLDER) is None


def test_a_node_waits_for_no_pipe_in_the_place_of_what_it_remembers(tmp_path: Path) -> None:
    """It hung before it had said a word, deaf to Ctrl-C."""
    for name in (ADDRESS_FILE, BAN_FILE, INVITATIONS_FILE):
        os.mkfifo(tmp_path / name)
    assert read_bans(tmp_path) == ()
    host = Host(tmp_path)
    assert host.again().waiting() == ()
    assert AddressBook(host.me, Membership(host.genesis.members), Limits(), tmp_path).known() == {}


def test_nobody_waits_for_a_pipe_in_the_place_of_data(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "train-images-idx3-ubyte")
    with pytest.raises(DatasetError, match=r"train-images-idx3-ubyte cannot be read \(.* is a pipe\); MD5 of"):
        Files(DATASETS["mnist"], str(tmp_path)).read("train-images-idx3-ubyte")
