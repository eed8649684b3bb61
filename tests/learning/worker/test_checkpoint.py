"""A checkpoint holds a client's record."""

from dataclasses import replace
from pathlib import Path

import pytest
import safetensors.torch
import torch

from fedchain.files.spool import SpoolFolder, path_of
from fedchain.learning.exceptions import ConfigurationError
from fedchain.learning.worker.checkpoint import copy_state, go_on_from, load_state, restore_state, save_state, set_aside
from tests.support.learning.everything import FULL, Everything, plain
from tests.support.learning.federation import new_client
from tests.support.learning.mapped import file_of


def test_a_checkpoint_holds_the_record() -> None:
    client, other = new_client(), new_client()
    client.states["Everything"] = FULL
    load_state(other, save_state(client))
    assert save_state(other) == save_state(client), "before anybody asked for it"
    assert plain(other.state(Everything)) == plain(FULL)
    assert save_state(other) == save_state(client)


def test_what_is_set_aside_is_a_copy() -> None:
    client = new_client()
    client.state(Everything).vector = torch.zeros(2)
    before = copy_state(client)
    vector = client.state(Everything).vector
    assert vector is not None
    vector += 1
    client.state(Everything).count = 7
    for _ in range(2):  # what is changed behind it is the client's own
        restore_state(client, before)
        assert plain(client.state(Everything)) == ([0.0, 0.0], [], {}, -1, None, False)
        vector = client.state(Everything).vector
        assert vector is not None
        vector += 1


@pytest.mark.parametrize("size_max", [2**30, 10])
def test_what_is_set_aside_is_put_back_from_memory_or_from_a_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, size_max: int
) -> None:
    monkeypatch.setattr("fedchain.learning.worker.checkpoint.MAPPED_SIZE", size_max)
    client, spools = new_client(), SpoolFolder(tmp_path / "spool", size_min=size_max)
    client.states["Everything"] = FULL
    before, put_back = save_state(client), set_aside(client, spools)
    assert spools.folder.exists() == (size_max == 10)
    with torch.no_grad():
        for parameter in client.model.parameters():
            parameter.add_(1)
    client.states = {}
    assert save_state(client) != before
    put_back()
    assert save_state(client) == before
    saved = save_state(client, spools)
    assert (path_of(saved) is None) == (size_max > 10)
    assert saved[:] == before == safetensors.torch.save(copy_state(client)), "as the library writes it"


@pytest.mark.parametrize("size_max", [2**30, 10])
def test_buffers_that_are_in_no_state_are_put_back_as_well(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, size_max: int
) -> None:
    monkeypatch.setattr("fedchain.learning.worker.checkpoint.MAPPED_SIZE", size_max)
    client = new_client()
    client.model.register_buffer("seen", torch.zeros(2), persistent=False)
    put_back = set_aside(client, SpoolFolder(tmp_path / "spool", size_min=size_max))
    client.model.get_buffer("seen").add_(1)
    put_back()
    assert client.model.get_buffer("seen").tolist() == [0.0, 0.0]


def test_a_model_of_another_shape_is_no_state_of_this_one() -> None:
    """A tensor of one row would fill all rows."""
    client = new_client()
    before, name = copy_state(client), next(iter(client.info.parameters))[0]
    other = before | {f"model.{name}": before[f"model.{name}"][:1].clone()}
    with pytest.raises(ConfigurationError, match="must hold"):
        load_state(client, safetensors.torch.save(other))
    assert save_state(client) == safetensors.torch.save(before)


@pytest.mark.parametrize("size_min", [0, 2**20])
def test_a_saved_client_goes_on_from_its_file_if_there_is_one(tmp_path: Path, size_min: int) -> None:
    client = new_client()
    client.states["Everything"] = replace(FULL, vector=torch.arange(4_000.0))
    saved = save_state(client, SpoolFolder(tmp_path / "spool", size_min=size_min))
    go_on_from(client, saved)
    record = client.state(Everything)
    assert record.vector is not None
    assert (file_of(record.vector) is None) == (path_of(saved) is None) == (size_min > 0)
    assert save_state(client) == saved[:]
    record.vector += 1
    assert record.vector[-1] == 4_000
    assert save_state(client) != saved[:], "the file is as it was"
