"""Images from encrypted ones."""

import torch

from fedchain.learning.leakage.descent import PixelRange
from fedchain.learning.leakage.image_decoder import decode_images, standardise, stretch, train_decoder
from fedchain.learning.leakage.quality import psnr
from fedchain.learning.training.schedule import adamw_schedule

RANGE = PixelRange(torch.tensor(-1.0), torch.tensor(3.0))
SCHEDULE = adamw_schedule(0.01, 12, 16)


def draw(seed: int, count: int) -> torch.Tensor:
    """Bars of random greys."""
    generator = torch.Generator().manual_seed(seed)
    return (4 * torch.rand(count, 1, 1, 8, generator=generator) - 1).expand(count, 1, 8, 8).contiguous()


def test_a_decoder_finds_images_that_it_never_saw() -> None:
    images, others = draw(0, 64), draw(1, 10)
    decoder = train_decoder(5 - 7 * images, images, 4, SCHEDULE, torch.Generator().manual_seed(0))
    found = decode_images(decoder, 5 - 7 * others, RANGE)
    assert float(found.min()) >= -1.0
    assert float(found.max()) <= 3.0
    as_pixels, originals = RANGE.to_pixels(found), RANGE.to_pixels(others)
    guess = RANGE.to_pixels(images.mean(dim=0)).expand_as(originals)
    assert float(psnr(as_pixels, originals).mean()) > float(psnr(guess, originals).mean()) + 3


def test_the_range_of_an_encryptor_tells_nothing() -> None:
    images = draw(2, 5)
    torch.testing.assert_close(standardise(images), standardise(40 * images - 3), atol=1e-4, rtol=1e-4)
    looked_at = stretch(40 * images - 3)
    assert looked_at.amin(dim=(1, 2, 3)).tolist() == [0.0] * 5
    assert looked_at.amax(dim=(1, 2, 3)).tolist() == [1.0] * 5
