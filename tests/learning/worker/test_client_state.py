"""A state in a file is whole, or it is none."""

from pathlib import Path

import pytest

from fedchain.learning.config import LearningConfig
from fedchain.learning.privacy.ledger import Memory, PrivacyLedger
from fedchain.learning.worker.client_state import is_saved, restore_client, save_client
from fedchain.learning.worker.learner import Learner
from fedchain.learning.worker.stores import Stores
from tests.support.learning.federation import config, secrets_of

CONFIG = LearningConfig(clients=2, hyperparameters={"local_steps": 1})


def test_a_client_goes_on_in_another_process_as_it_would_have_here(tmp_path: Path) -> None:
    here, there = Learner(CONFIG), Learner(CONFIG)
    here.contribute(0, "update", 1, b"")
    save_client(here, 0, tmp_path / "client")
    assert [path.name for path in tmp_path.iterdir()] == ["client"]
    restore_client(there, 0, tmp_path / "client")
    assert there.checkpoint(0) == here.checkpoint(0)


def test_what_a_client_has_released_goes_with_it(tmp_path: Path) -> None:
    """Else its budget would begin anew wherever it goes on."""
    first, second = PrivacyLedger(0, Memory()), PrivacyLedger(0, Memory())
    chosen = config("dfpl", gradient_noise=6.0, prototype_noise=6.0)
    here = Learner(chosen, stores=Stores(secrets_of, lambda client: first))
    there = Learner(chosen, stores=Stores(secrets_of, lambda client: second))
    here.contribute(0, "update", 1, b"")
    save_client(here, 0, tmp_path / "client")
    restore_client(there, 0, tmp_path / "client")
    assert [*second.entries()] == [*first.entries()] != []


def test_a_full_disk_is_that_of_the_state_s_file(tmp_path: Path) -> None:
    (tmp_path / "client.unfinished").symlink_to("/dev/full")
    with pytest.raises(OSError, match="No space left") as raised:
        save_client(Learner(CONFIG), 0, tmp_path / "client")
    assert raised.value.filename == str(tmp_path / "client")
    assert not [*tmp_path.iterdir()]


@pytest.mark.parametrize("damage", ["cut", "longer", "empty", "flipped"])
def test_other_bytes_than_were_written_are_no_state(damage: str, tmp_path: Path) -> None:
    path = tmp_path / "client"
    assert not is_saved(path)
    save_client(Learner(CONFIG), 0, path)
    assert is_saved(path)
    data = path.read_bytes()
    damaged = {"cut": data[:-1], "longer": data + b"x", "empty": b"", "flipped": data[:-1] + bytes([data[-1] ^ 1])}
    path.write_bytes(damaged[damage])
    assert not is_saved(path)
