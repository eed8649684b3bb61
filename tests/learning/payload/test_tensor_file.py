"""Files of tensors are those of the library, and neither those that write nor those that read hold one as a whole."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors
import safetensors.numpy
import safetensors.torch
import torch
from numpy.typing import NDArray

from fedchain.files.spool import map_file
from fedchain.learning.payload.tensor_file import array_pieces, data_begin, file_pieces, read_tensors
from fedchain.learning.worker.checkpoint import state_pieces

ARRAYS: dict[str, NDArray[Any]] = {
    "b": np.arange(6, dtype=np.float32).reshape(2, 3),
    "a": np.array(2.5, np.float32),
    "c": np.arange(3, dtype=np.int64),
    "d": np.array([7, 8, 9], dtype=np.uint8),
    "e": np.array([[0.5], [2.0]], dtype=np.float16),
    "transposed": np.arange(6, dtype=np.float32).reshape(2, 3).T,
    'größe "x"\n': np.ones(1, np.float32),
    "none": np.ones((0, 2), np.float32),
}


def test_arrays_are_written_as_by_the_library() -> None:
    whole = {name: array.copy(order="C") for name, array in ARRAYS.items()}
    assert b"".join(array_pieces(ARRAYS)) == safetensors.numpy.save(whole)
    assert b"".join(array_pieces({})) == safetensors.numpy.save({})


def test_tensors_of_all_types_are_written_as_by_the_library() -> None:
    types = [torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64]
    types += [torch.float16, torch.bfloat16, torch.float32, torch.float64]
    state = {f"{place % 3}{dtype}": torch.ones(place + 1, 2).to(dtype) for place, dtype in enumerate(types)}
    metadata = {"fedchain": '{"round": 3}'}
    assert b"".join(state_pieces(state, metadata)) == safetensors.torch.save(state, metadata)


def test_data_are_asked_for_when_their_turn_comes() -> None:
    asked = list[str]()

    def data_of(name: str) -> bytes:
        asked.append(name)
        return bytes(4)

    pieces = file_pieces({"b": ("F32", (1,)), "a": ("F32", ())}, data_of)
    seen = [(len(piece), len(asked)) for piece in pieces]
    assert asked == ["a", "b"]
    assert seen[1:] == [(4, 1), (4, 2)]


@pytest.mark.parametrize("is_mapped", [False, True])
def test_what_is_read_lies_where_the_file_has_it(tmp_path: Path, is_mapped: bool) -> None:
    file = b"".join(array_pieces(ARRAYS))
    (tmp_path / "file").write_bytes(file)
    data = map_file(tmp_path / "file") if is_mapped else file
    found = read_tensors(data)
    assert found.keys() == ARRAYS.keys()
    for name, array in ARRAYS.items():
        tensor = found[name]
        assert (tensor.shape, tensor.numbers, bytes(tensor.data)) == (array.shape, array.size, array.tobytes()), name
        assert tensor.data.obj is data
    assert sum(tensor.data.nbytes for tensor in found.values()) == len(file) - data_begin(file)
    assert found["a"].dtype == "F32"


@pytest.mark.parametrize("is_mapped", [False, True])
@pytest.mark.parametrize("damage", [lambda file: file[:-1], lambda file: b"what", lambda file: file + b"\0"])
def test_what_is_no_sound_file_is_refused(tmp_path: Path, is_mapped: bool, damage: object) -> None:
    assert callable(damage)
    data: bytes = damage(b"".join(array_pieces(ARRAYS)))
    if is_mapped:
        (tmp_path / "file").write_bytes(data)
        data = map_file(tmp_path / "file")
    with pytest.raises(safetensors.SafetensorError):
        read_tensors(data)
