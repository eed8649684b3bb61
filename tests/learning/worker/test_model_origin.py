"""A model's file says where it is from."""

import pytest
import safetensors.torch
import torch

from fedchain.learning.exceptions import ConfigurationError
from fedchain.learning.methods.fedavg import FedAvg
from fedchain.learning.methods.solo import Solo
from fedchain.learning.worker.model_origin import HEADER, Origin, read_origin, validate_shared, write_origin

ORIGIN = Origin(chain_id="ab", method="dfpl", dataset="digits", model="digits-mlp", round=3, member=1, accuracy=0.5)


def test_an_origin_comes_back_from_a_sound_file() -> None:
    data = safetensors.torch.save({"w": torch.zeros(2)}, write_origin(ORIGIN))
    assert read_origin(data) == ORIGIN


@pytest.mark.parametrize("metadata", [None, {}, {HEADER: "no json"}, {HEADER: "{}"}, {HEADER: "[1]"}])
def test_another_programs_file_has_none(metadata: dict[str, str] | None) -> None:
    assert read_origin(safetensors.torch.save({"w": torch.zeros(2)}, metadata)) is None


def test_members_of_solo_share_no_model() -> None:
    validate_shared("fedavg", FedAvg())
    with pytest.raises(ConfigurationError, match="solo has no common model"):
        validate_shared("solo", Solo())
