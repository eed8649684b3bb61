"""Encrypted data are read batch by batch, or are of no use."""

import numpy as np
import pytest
import torch

from fedchain.learning.exceptions import PartMissing
from fedchain.learning.payload.bulk import PART_SIZE_MAX
from fedchain.learning.payload.pixels import pack_images
from fedchain.learning.round import Tensors
from fedchain.learning.sums.encrypted_data import EncryptedData, encrypted_spec, images_in_part

SHAPE = (1, 4, 4)
IMAGES = np.random.default_rng(0).uniform(-1, 1, (5, *SHAPE)).astype(np.float32)
TEACHER = np.full((5, 2), 0.5, np.float32)


def part(first: int, last: int) -> Tensors:
    return {**pack_images(IMAGES[first:last], "float16"), "teacher": TEACHER[first:last]}


def test_rows_of_several_parts_are_read_by_their_places() -> None:
    data = EncryptedData([part(0, 2), part(2, 5)], SHAPE)
    assert len(data) == 5
    images, teacher = data.rows(torch.tensor([4, 0]))
    np.testing.assert_allclose(images.numpy(), IMAGES[[4, 0]], atol=1e-3)
    assert teacher.tolist() == [[0.5, 0.5]] * 2


def test_a_teacher_whose_probabilities_do_not_add_up_is_of_no_use() -> None:
    with pytest.raises(PartMissing, match="sums of probabilities up to"):
        EncryptedData([{**part(0, 2), "teacher": TEACHER[:2] * 1.1}], SHAPE)


def test_images_of_another_size_are_of_no_use() -> None:
    with pytest.raises(PartMissing):
        EncryptedData([part(0, 2)], (1, 5, 5))


def test_as_many_images_fit_as_a_part_has_room_for() -> None:
    count = images_in_part(1024, 10)
    assert count * (2 * 1024 + 4 * 12) < PART_SIZE_MAX
    assert [spec.name for spec in encrypted_spec(10, "float16")][-1] == "teacher"
