"""Encrypted data are read batch by batch, or are of no use."""

import numpy as np
import pytest
import torch

from fedchain.learning.exceptions import PartMissing
from fedchain.learning.families.encrypted_data import Draws, EncryptedData, encrypted_spec, images_in_part
from fedchain.learning.methods.fededs import ENCRYPT
from fedchain.learning.payload.bulk import EVERYBODY, PART_SIZE_MAX, PartRef
from fedchain.learning.payload.pixels import pack_images
from fedchain.learning.round import Tensors
from tests.support.learning.federation import new_client
from tests.support.learning.shown import Parts, shown

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


def draws_of(parts: Parts) -> Draws:
    return Draws(new_client(12, "plain-cnn"), parts, ENCRYPT.name, torch.Generator().manual_seed(0))


def test_every_other_client_is_drawn_again_and_again() -> None:
    parts = Parts()
    for sender in range(4):
        parts.show(sender, shown(7, sender), shown(2, sender))
    draws = draws_of(parts)
    found = [draws.draw() for _ in range(30)]
    assert {place for place, _ in filter(None, found)} == {1, 2, 3}, "never oneself, 0"
    assert {len(data) for _, data in filter(None, found)} == {9}


def test_a_client_whose_data_are_of_no_use_is_skipped_and_asked_for_once() -> None:
    parts = Parts()
    parts.show(1, {})
    parts.show(2, shown(7, 1) | {"teacher": shown(6, 1)["teacher"]})
    client = new_client(12, "plain-cnn")
    draws = Draws(client, parts, ENCRYPT.name, torch.Generator().manual_seed(0))
    assert [draws.draw(), draws.draw()] == [None, None]
    assert sorted(parts.read_from) == [1, 2]
    assert (client.skipped[1], "of no use" in client.skipped[2]) == ("it is not here", True)


def test_who_shows_more_than_64_times_what_the_others_do_is_not_read() -> None:
    """A part of a thousand bytes may say 131,072 images, and each reader would hold all of them."""
    parts = Parts()
    for sender in (2, 3):
        parts.show(sender, shown(7, sender))
    for number in range(2):
        ref = PartRef(bytes([number]) * 32, 900, "encrypted", EVERYBODY, sender=1, unpacked=PART_SIZE_MAX)
        parts.held[ref] = shown(7, 1)
    client = new_client(12, "plain-cnn")
    draws = Draws(client, parts, ENCRYPT.name, torch.Generator().manual_seed(0))
    assert {place for place, _ in filter(None, (draws.draw() for _ in range(20)))} == {2, 3}
    assert 1 not in parts.read_from
    assert {*client.skipped} == {1}
    assert "at most 16777216 are taken from one member" in client.skipped[1]
