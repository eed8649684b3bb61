"""Clients that are set aside come back as they were, to the byte, and no more are held than allowed."""

from dataclasses import dataclass, replace
from pathlib import Path

import pytest
import torch

from fedchain.learning.client import Client
from fedchain.learning.worker.clients import Clients
from tests.support.learning.federation import Federation, config, new_client

SIZE = new_client().size
"""Bytes of a client that remembers nothing."""

MEMORY = 64
"""More than any of them remembers here."""


class Building:
    """Builds clients and counts them."""

    def __init__(self) -> None:
        self.built: list[int] = []

    def __call__(self, index: int) -> Client:
        self.built.append(index)
        return new_client()


@dataclass(slots=True)
class Remembered:
    """Memory of a client."""

    value: torch.Tensor | None = None


@pytest.fixture
def building() -> Building:
    return Building()


def remember(clients: Clients, index: int, value: float) -> None:
    with clients.use(index) as client:
        client.state(Remembered).value = torch.tensor(value)


def test_without_a_limit_each_client_is_built_once(building: Building) -> None:
    clients = Clients(building)
    first = [clients.get(index) for index in (0, 1, 2, 0, 1, 2)]
    assert building.built == [0, 1, 2]
    assert first[:3] == first[3:]


def test_the_least_recently_used_goes_and_comes_back_with_its_state(building: Building, tmp_path: Path) -> None:
    clients = Clients(building)
    clients.limit(2 * (SIZE + MEMORY), tmp_path)
    remember(clients, 0, 7.0)
    remember(clients, 1, 8.0)
    clients.get(0)
    clients.get(2)  # sets 1 aside
    assert [path.name for path in tmp_path.iterdir()] == ["client-1.safetensors"]
    assert clients.get(0).state(Remembered).value == 7.0
    assert building.built == [0, 1, 2]
    assert clients.get(1).state(Remembered).value == 8.0
    assert building.built == [0, 1, 2, 1]


def test_a_client_that_cannot_be_written_is_kept_until_it_can(building: Building, tmp_path: Path) -> None:
    clients = Clients(building)
    clients.limit(SIZE + MEMORY, tmp_path / "full")
    remember(clients, 0, 7.0)
    for index in (1, 2):
        with pytest.raises(FileNotFoundError):
            clients.get(index)
    assert clients.get(0).state(Remembered).value == 7.0
    (tmp_path / "full").mkdir()
    clients.get(3)  # sets 0 aside
    assert clients.get(0).state(Remembered).value == 7.0
    assert building.built == [0, 1, 2, 3, 0]


def test_what_a_client_remembers_takes_room(building: Building, tmp_path: Path) -> None:
    clients = Clients(building)
    clients.limit(2 * (SIZE + MEMORY), tmp_path)
    with clients.use(0) as client:
        client.state(Remembered).value = torch.zeros(2 * SIZE)
    clients.get(1)
    assert [path.name for path in tmp_path.iterdir()] == ["client-0.safetensors"]
    with clients.use(0) as client:
        client.state(Remembered).value = None
    clients.get(1)
    clients.get(0)
    assert building.built == [0, 1, 0, 1], "the state that was read counted"


def test_only_what_changed_is_written(building: Building, tmp_path: Path) -> None:
    clients = Clients(building)
    clients.limit(SIZE + MEMORY, tmp_path)
    clients.get(0)
    with clients.use(1, changes=False):
        pass
    clients.get(2)
    assert list(tmp_path.iterdir()) == []
    remember(clients, 2, 1.0)
    clients.get(0)
    file = tmp_path / "client-2.safetensors"
    written = file.read_bytes()
    clients.get(2)  # as the file has it, so the file stays as it is
    file.write_bytes(b"not written again")
    clients.get(0)
    assert file.read_bytes() == b"not written again"
    file.write_bytes(written)
    remember(clients, 2, 2.0)
    clients.get(0)
    assert clients.get(2).state(Remembered).value == 2.0


def test_a_client_in_use_is_not_set_aside(building: Building, tmp_path: Path) -> None:
    clients = Clients(building)
    clients.limit(SIZE + MEMORY, tmp_path)
    with clients.use(0) as own:
        clients.get(1)
        clients.get(2)
        own.state(Remembered).value = torch.tensor(3.0)
        assert clients.get(0) is own
    clients.get(1)
    assert clients.get(0).state(Remembered).value == 3.0
    assert building.built == [0, 1, 2, 1, 0]


def test_files_of_somebody_else_are_not_read(building: Building, tmp_path: Path) -> None:
    (tmp_path / "client-0.safetensors").write_bytes(b"junk")
    clients = Clients(building)
    clients.limit(SIZE + MEMORY, tmp_path)
    assert clients.get(0).state(Remembered).value is None


@pytest.mark.long
@pytest.mark.parametrize("method", ["scaffold", "moon", "swim", "pfedme", "demlearn", "dfpl"])
def test_room_for_two_of_six_changes_no_byte_of_learning(method: str, tmp_path: Path) -> None:
    chosen = replace(config(method), clients=6)
    free, bound = Federation(chosen), Federation(chosen)
    bound.learner.limit_clients(2 * bound.learner.client(0).size, tmp_path)
    for participants in (range(6), (0, 3, 5), (1, 0, 4), range(6)):
        expected = free.play(1, sorted(participants))
        assert bound.play(1, sorted(participants)) == expected
        assert bound.knowledge == free.knowledge
        assert bound.learner.evaluate_received(2, 9, bound.knowledge) == free.learner.evaluate_received(
            2, 9, free.knowledge
        )
    assert len(list(tmp_path.iterdir())) >= 4
    assert [bound.learner.checkpoint(client) for client in range(6)] == [
        free.learner.checkpoint(client) for client in range(6)
    ]
