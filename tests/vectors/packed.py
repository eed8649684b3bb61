"""Test vectors of packed posts: one of a small model in each compression, and two of a tensor in several chunks."""

from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from fedchain.learning.methods.fedavg import FedAvg
from fedchain.learning.models.model_info import ModelInfo
from fedchain.learning.payload.codec import decode, encode
from fedchain.learning.post_form import PostForm

Shapes = dict[str, tuple[int, ...]]

SMALL: Shapes = {"a": (2, 3), "b": (5,)}

CHUNKED: Shapes = {"a": (4_100,), "b": (3,)}

Compression = Literal["none", "int8", "topk", "sparse"]

CASES: tuple[tuple[Compression, int, Shapes], ...] = (
    ("int8", 1, SMALL),
    ("topk", 1_024, SMALL),
    ("sparse", 1_024, SMALL),
    ("topk", 1, CHUNKED),
    ("sparse", 1, CHUNKED),
)
"""Compression, `compression_k` and the shapes of a model's parameters."""


def vectors() -> dict[str, Any]:
    """Posts of FedAvg, with what each says of a model's numbers."""
    return {"packed_posts": [_packed_post(*case) for case in CASES]}


def _packed_post(compression: Compression, k: int, shapes: Shapes) -> dict[str, Any]:
    """A packed post: the tensors in it, and by how much it changes the number at each position of all parameters.

    A small model's is published with the knowledge in force and the plain post that all members make of both.
    """
    method = FedAvg(compression=compression, compression_k=k)
    info = ModelInfo(tuple(shapes.items()), 1, 2, trainable=frozenset(shapes), normalization=frozenset())
    (phase,) = method.phases
    span = 255 if shapes is SMALL else 8_191  # no two of a chunk's largest changes are equal
    known = {f"model.{name}": _numbers(shape, 7, 11, -5) / np.float32(8) for name, shape in shapes.items()}
    moved = {name: array + _numbers(array.shape, 50, span, -127) / np.float32(64) for name, array in known.items()}
    form = PostForm(method, info, clients=2)
    packing, sizes = form.packing(phase.name, known), [array.size for array in known.values()]
    assert packing is not None, "the knowledge has all that changes are counted from"
    drawn = np.random.default_rng(0)  # it rounds nothing: each change is a multiple of its scale
    payload = form.encode(phase.name, moved | {"examples": np.array([7])}, known, drawn)
    begin, changes = 0, list[tuple[int, float]]()
    for size, parts in zip(sizes, packing.compressor.unpack(decode(payload, packing.specs), sizes), strict=True):
        for where, by in parts:
            changes += zip(np.arange(begin, begin + size)[where].tolist(), by.tolist(), strict=True)
        begin += size
    plain = form.decode(phase.name, payload, known)
    published = {"knowledge": encode(known).hex(), "plain": encode(plain).hex()}
    return {
        "compression": compression,
        "compression_k": k,
        "parameters": [[name, list(shape)] for name, shape in shapes.items()],
        "payload": payload.hex(),
        "changes": changes,
        **(published if shapes is SMALL else {}),
    }


def _numbers(shape: tuple[int, ...], step: int, span: int, least: int) -> NDArray[np.float32]:
    """Return whole numbers of a shape: the first is ``least``, and the others lie less than ``span`` above it."""
    places = np.arange(np.prod(shape)).reshape(shape)
    return (places * step % span + least).astype(np.float32)
