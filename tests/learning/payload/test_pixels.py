"""Images as parts carry them."""

import numpy as np
import pytest

from fedchain.learning.payload.codec import decode, encode
from fedchain.learning.payload.pixels import PixelType, image_spec, pack_images, unpack_images

SIZES = 10.0 ** np.arange(-2, 3)[:, None, None, None]
IMAGES = (np.random.default_rng(0).standard_normal((5, 2, 3, 4)) * SIZES).astype(np.float32)


def test_bytes_are_half_a_level_off_at_most() -> None:
    packed = pack_images(IMAGES, "uint8")
    levels = np.ptp(IMAGES.reshape(5, -1), axis=1) / 255
    errors = np.abs(unpack_images(packed, (2, 3, 4)) - IMAGES).reshape(5, -1).max(axis=1)
    assert (errors <= levels * 0.5001).all()
    assert (errors > levels * 0.1).all(), "rounding is to be seen"


def test_float16_keeps_eleven_bits() -> None:
    found = unpack_images(pack_images(IMAGES, "float16"), (2, 3, 4))
    np.testing.assert_allclose(found, IMAGES, rtol=2**-11, atol=1e-7)


@pytest.mark.parametrize("kind", ["uint8", "float16"])
def test_what_is_sent_is_what_comes(kind: PixelType) -> None:
    images = np.concatenate([IMAGES, np.full((1, 2, 3, 4), 3.0, np.float32), np.full((1, 2, 3, 4), 1e-6, np.float32)])
    packed = pack_images(images, kind)
    received = decode(encode(packed), image_spec(kind, 7, images.size))
    assert unpack_images(received, (2, 3, 4)).tobytes() == unpack_images(packed, (2, 3, 4)).tobytes()
    assert (unpack_images(received, (2, 3, 4))[5] == 3.0).all(), "an image of one grey has no scale"


@pytest.mark.parametrize("kind", ["uint8", "float16"])
def test_pixels_out_of_all_bounds_are_moved_to_them(kind: PixelType) -> None:
    images = np.array([[-1e9, 0.0, 1e9]], np.float32)
    assert unpack_images(pack_images(images, kind), (3,))[0, [0, 2]].tolist() == pytest.approx([-1e3, 1e3], rel=1e-3)


def test_what_is_no_whole_image_is_refused() -> None:
    packed = pack_images(IMAGES, "uint8")
    with pytest.raises(ValueError, match="120 pixels are no whole images of 49"):
        unpack_images(packed, (7, 7))
    with pytest.raises(ValueError, match="5 images, 4 offsets, 5 scales"):
        unpack_images(packed | {"offset": packed["offset"][:4]}, (2, 3, 4))
