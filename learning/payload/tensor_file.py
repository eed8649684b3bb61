"""Safetensors files, written piece by piece and read in place, so that none is in memory as a whole.

The form is stated at https://github.com/huggingface/safetensors: the size of a header, the header in JSON, and the
tensors' data. The library writes the same bytes, but joins them first, and copies what it reads. Whether a file is
sound is the library's to say.
"""

import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import numpy as np
import safetensors
from numpy.typing import NDArray

from fedchain.files.spool import path_of
from fedchain.learning.payload.document import Buffer
from fedchain.learning.payload.spec import WIRE_DTYPES

DTYPES: Mapping[str, str] = MappingProxyType({"float32": "F32", "float16": "F16", "int64": "I64", "uint8": "U8"})
"""Type in knowledge -> type in a safetensors file; both are little-endian."""

WIDTHS: Mapping[str, int] = MappingProxyType(
    {"I64": 8, "F64": 8, "F32": 4, "I32": 4, "BF16": 2, "F16": 2, "I16": 2, "I8": 1, "U8": 1, "BOOL": 1}
)
"""Type in a file -> bytes of an element; in the order in which the library puts tensors of several types."""

Stated = tuple[str, Sequence[int]]
"""Type of a tensor in a file, and its shape."""


@dataclass(frozen=True, slots=True)
class FileTensor:
    """A tensor as it stands in a file."""

    dtype: str
    """Type of its elements, as safetensors names it."""

    shape: tuple[int, ...]
    """Size of each dimension."""

    data: memoryview
    """Its bytes, where the file has them."""

    @property
    def numbers(self) -> int:
        """Number of elements."""
        return math.prod(self.shape)


def file_pieces(
    stated: Mapping[str, Stated],
    data_of: Callable[[str], Buffer],
    metadata: Mapping[str, str] = MappingProxyType({}),
) -> Iterator[Buffer]:
    """Yield a file of tensors; the data of each are asked for when their turn comes.

    Args:
        stated: what the tensors are, by name.
        data_of: gives a tensor's data, in C order.
        metadata: texts that stand beside the tensors.
    """
    ranks = list(WIDTHS)
    names = sorted(stated, key=lambda name: (ranks.index(stated[name][0]), name))
    table, end = dict[str, Any]({"__metadata__": dict(metadata)} if metadata else {}), 0
    for name in names:
        dtype, shape = stated[name]
        begin, end = end, end + WIDTHS[dtype] * math.prod(shape)
        table[name] = {"dtype": dtype, "shape": list(shape), "data_offsets": [begin, end]}
    header = json.dumps(table, separators=(",", ":"), ensure_ascii=False).encode()
    header += b" " * (-len(header) % 8)
    yield len(header).to_bytes(8, "little") + header
    for name in names:
        yield data_of(name)


def array_pieces(tensors: Mapping[str, NDArray[Any]]) -> Iterator[Buffer]:
    """Yield a file of arrays of the types that payloads have, to be opened by other tools."""
    stated = {name: (DTYPES[tensor.dtype.name], tensor.shape) for name, tensor in tensors.items()}

    def data_of(name: str) -> Buffer:
        flat = np.ascontiguousarray(tensors[name], dtype=WIRE_DTYPES[tensors[name].dtype.name]).reshape(-1)
        return flat.view(np.uint8).data

    return file_pieces(stated, data_of)


def read_tensors(file: bytes) -> dict[str, FileTensor]:
    """Return the tensors of a file, in place. Raises `safetensors.SafetensorError` for bytes that are none."""
    path = path_of(file)
    if path is None:
        safetensors.deserialize(file)  # type: ignore[no-untyped-call]
    else:
        with safetensors.safe_open(path, "numpy"):
            pass
    begin = data_begin(file)
    table, data = json.loads(file[8:begin]), memoryview(file)[begin:]
    table.pop("__metadata__", None)
    return {
        name: FileTensor(item["dtype"], tuple(item["shape"]), data[slice(*item["data_offsets"])])
        for name, item in table.items()
    }


def data_begin(file: bytes) -> int:
    """Return where the tensors' data begin in a sound file: behind its header."""
    return 8 + int.from_bytes(file[:8], "little")
