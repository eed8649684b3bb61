"""Training leaves the process as it found it: torch's generator, and the number of its threads."""

from collections.abc import Iterator

import pytest
import torch

from fedchain.learning.device import THREADS, as_training, kept_generator


@pytest.fixture
def two_threads() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


def fail_in_training() -> None:
    """Fail after having drawn a number."""
    with as_training():
        assert torch.get_num_threads() == THREADS
        torch.rand(3)
        raise ZeroDivisionError


def test_the_generator_goes_on_as_if_nobody_had_drawn() -> None:
    state = torch.get_rng_state()
    with kept_generator():
        torch.rand(3)
        assert not torch.equal(torch.get_rng_state(), state)
    assert torch.equal(torch.get_rng_state(), state)


def test_threads_come_back_even_if_training_fails(two_threads: None) -> None:
    state = torch.get_rng_state()
    with pytest.raises(ZeroDivisionError):
        fail_in_training()
    assert torch.get_num_threads() == 2
    assert torch.equal(torch.get_rng_state(), state)
