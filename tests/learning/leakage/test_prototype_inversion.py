"""An image is searched that has a given embedding."""

import torch

from fedchain.learning.leakage.descent import PixelRange, Search
from fedchain.learning.leakage.prototype_inversion import invert_prototype
from fedchain.learning.models.registry import build_model
from fedchain.learning.models.small import Cnn

PIXELS = PixelRange(torch.tensor(-2.0), torch.tensor(1.0))


def test_an_image_with_the_embedding_of_another_is_found() -> None:
    model, generator = build_model("digits-mlp", 0), torch.Generator().manual_seed(0)
    image, start = torch.rand((2, 1, 1, 8, 8), generator=generator)
    prototype = model(image)[0][0].detach()

    def distance(images: torch.Tensor) -> float:
        return float((model(images)[0][0] - prototype).detach().norm())

    found = invert_prototype(prototype, model, start, PIXELS, Search(iterations=150, total_variation=0.0))
    assert distance(found) < 0.1 * distance(start)


def test_the_encoder_drops_nothing_out() -> None:
    """It stands for the sender's in evaluation, which is what made the prototype."""
    model, start = Cnn().train(), torch.full((1, 1, 28, 28), 0.1)
    prototype, search = torch.ones(50), Search(iterations=3, total_variation=0.0)
    found = [invert_prototype(prototype, model.train(), start, PIXELS, search) for _ in range(2)]
    assert torch.equal(*found)
