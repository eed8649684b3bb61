"""The search stays within the pixels' range, and total variation counts what differs between neighbours."""

import pytest
import torch

from fedchain.learning.leakage.descent import PixelRange, Search, descend, draw_start, total_variation

PIXELS = PixelRange(torch.tensor(-2.0), torch.tensor(1.0))


def test_pixels_go_there_and_back() -> None:
    assert PIXELS.to_pixels(torch.tensor([-2.0, -0.5, 1.0, 9.0])).tolist() == [0.0, 0.5, 1.0, 1.0]
    assert PIXELS.normalise(torch.tensor([0.0, 0.5, 1.0])).tolist() == [-2.0, -0.5, 1.0]


def test_a_search_comes_near_a_goal_within_the_range_and_no_further() -> None:
    goal = torch.tensor([[[[0.5, -1.5], [3.0, -9.0]]]])
    start = draw_start(1, PIXELS, (1, 2, 2), torch.Generator().manual_seed(0))
    found = descend(lambda images: (images - goal).square().sum(), start, PIXELS, Search(total_variation=0.0))
    assert found.flatten().tolist() == pytest.approx([0.5, -1.5, 1.0, -2.0], abs=1e-2)


def test_total_variation_is_of_neighbours() -> None:
    assert total_variation(torch.ones((1, 1, 3, 3))) == 0
    assert total_variation(torch.tensor([[[[0.0, 1.0], [0.0, 1.0]]]])) == 1


def test_steps_become_a_tenth_at_three_five_and_seven_eighths_of_the_search() -> None:
    search = Search(iterations=16, learning_rate=0.001, total_variation=0.0)
    found = descend(torch.sum, torch.zeros(1, 1, 1, 1), PIXELS, search)  # the steps along one sign are of one size
    assert found.item() == pytest.approx(-0.001 * (6 + 4 * 0.1 + 4 * 0.01 + 2 * 0.001), rel=1e-5)
