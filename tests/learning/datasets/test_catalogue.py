"""The catalogue of data sets agrees with the official files and with the models."""

from pathlib import Path

import numpy as np
import pytest
import torch

from fedchain.learning.datasets.catalogue import DATASETS
from fedchain.learning.datasets.files import DATA_DIR_VARIABLE
from fedchain.learning.datasets.load import load_dataset
from fedchain.learning.exceptions import DatasetError
from fedchain.learning.models.registry import build_model


@pytest.mark.parametrize("name", [name for name, info in DATASETS.items() if info.files])
def test_every_data_set_says_what_it_lacks_and_how_to_get_it(name: str, tmp_path: Path) -> None:
    with pytest.raises(DatasetError) as caught:
        load_dataset(name, str(tmp_path))
    message = str(caught.value)
    assert message.startswith(f"{DATASETS[name].files[0].name} ")
    assert str(tmp_path) in message
    assert f"fedchain data {name} --download" in message or DATASETS[name].page in message
    assert "\n" not in message


@pytest.mark.long
@pytest.mark.parametrize("name", sorted(DATASETS))
def test_the_official_files_hold_what_the_catalogue_says(name: str) -> None:
    try:
        data = load_dataset(name)
    except DatasetError as error:
        pytest.skip(f"set {DATA_DIR_VARIABLE} to the folder of the data sets: {error}")
    info = data.info
    assert (len(data.train_labels), len(data.test_labels)) == (info.train_size, info.test_size)
    assert np.unique(data.train_labels).tolist() == list(range(info.classes))
    assert (data.train_sources is not None) == bool(info.sources)
    images = data.normalise(data.train_images[:20_000])
    assert images.shape[1:] == info.shape
    channels = images.transpose(0, 1).flatten(1) if len(info.shape) == 3 else images.flatten()[None]
    assert torch.allclose(channels.mean(dim=1), torch.tensor(0.0), atol=0.05)
    assert torch.allclose(channels.std(dim=1), torch.tensor(1.0), atol=0.3)


@pytest.mark.long
@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=[pytest.mark.slow] if name in {"cifar100", "covid-ct", "svhn"} else [])
        for name in sorted(DATASETS)
    ],
)
def test_every_model_of_the_catalogue_takes_the_examples(name: str) -> None:
    info = DATASETS[name]
    for model in info.models:
        device = "meta" if model == "covid-cnn" else "cpu"  # shapes alone: it takes ten seconds for an image
        built = build_model(model, 0, **info.model_shape).to(device)
        _, logits = built(torch.zeros(2, *info.shape, device=device))
        assert logits.shape == (2, info.classes)
        assert built.classes == info.classes


@pytest.mark.parametrize("name", sorted(DATASETS))
def test_every_address_and_checksum_is_well_formed(name: str) -> None:
    for file in (*DATASETS[name].files, *DATASETS[name].other_files):
        assert file.url == "" or (file.url.startswith("http") and file.url.endswith(f"/{file.name}"))
        assert file.md5 == "" or (len(file.md5) == 32 and int(file.md5, 16) >= 0)
        assert bool(file.md5) == bool(file.url)
