"""Files of SVHN."""

from pathlib import Path

import numpy as np
import pytest

from fedchain.learning.datasets.load import load_dataset
from fedchain.learning.exceptions import DatasetError
from tests.learning.datasets.official import (
    mat,
    pictures,
    write,
)
from tests.support.learning.unchecked import few_rows as few_rows
from tests.support.learning.unchecked import unchecked as unchecked


def test_an_svhn_file_with_another_checksum_is_refused(tmp_path: Path) -> None:
    write(tmp_path, {"train_32x32.mat": mat([1]), "test_32x32.mat": mat([2])})
    with pytest.raises(DatasetError, match="is damaged: MD5 e26dedcc434d2e4c54c9b2d4a06d8373 expected"):
        load_dataset("svhn", str(tmp_path))


@pytest.mark.usefixtures("few_rows")
@pytest.mark.usefixtures("unchecked")
def test_svhn_s_files_are_read_and_ten_is_zero(tmp_path: Path) -> None:
    write(tmp_path, {"train_32x32.mat": mat([1, 10, 9]), "test_32x32.mat": mat([10, 2])})
    data = load_dataset("svhn", str(tmp_path))
    assert data.train_labels.tolist() == [1, 0, 9]
    assert np.array_equal(data.train_images, pictures(3, 3, 32, 32))
    write(tmp_path / "other", {"train_32x32.mat": b"not this" * 40})
    with pytest.raises(DatasetError, match="is no MATLAB file that can be read"):
        load_dataset("svhn", str(tmp_path / "other"))


@pytest.mark.usefixtures("unchecked")
def test_an_svhn_file_without_its_last_images_is_named(tmp_path: Path) -> None:
    write(tmp_path, {"train_32x32.mat": mat([1, 10, 9])})
    with pytest.raises(DatasetError, match=r"train_32x32.mat holds 3 examples, 73,257 were published$"):
        load_dataset("svhn", str(tmp_path))
