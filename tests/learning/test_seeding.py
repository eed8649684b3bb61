from multiprocessing.reduction import ForkingPickler

import numpy as np
import torch

from fedchain.learning.exceptions import TrainingDiverged
from fedchain.learning.seeding import GENERATOR_SIZE, derive, fill_generator, initial_seed, numpy_generator


def test_a_seed_never_changes() -> None:
    assert derive(0) == 0x3A26FFD630459B43
    assert derive(0, "client", 3, "round", 7) == 0x57D7ABD9B61780B4


def test_names_are_unambiguous() -> None:
    names: list[tuple[str | int, ...]] = [("a", "bc"), ("ab", "c"), ("abc",), ("1",), (1,), (), (11,), (1, 1)]
    assert len({derive(5, *name) for name in names}) == len(names)
    assert derive(5, "a") != derive(6, "a")


def test_seeds_fit_a_signed_64_bit_integer() -> None:
    assert all(0 <= derive(root) < 2**63 for root in range(1000))


def test_generators_repeat() -> None:
    assert numpy_generator(1, "x").integers(1 << 30) == numpy_generator(1, "x").integers(1 << 30)


def test_a_generator_that_is_filled_gives_what_all_of_the_bytes_say() -> None:
    """Torch takes 32 bits of a seed: those that differ above give the same numbers."""
    assert torch.Generator().manual_seed(1).initial_seed() != torch.Generator().manual_seed(1 + 2**40).initial_seed()
    first, second = (torch.rand(3, generator=torch.Generator().manual_seed(seed)) for seed in (1, 1 + 2**40))
    assert torch.equal(first, second)
    data = derive(0, "bytes").to_bytes(8, "big") * (GENERATOR_SIZE // 8)
    given = []
    for last in (data[-1], data[-1], data[-1] ^ 1):
        generator = torch.Generator().manual_seed(7)
        fill_generator(generator, data[:-1] + bytes([last]))
        given.append(torch.rand(700, generator=generator))
    assert torch.equal(given[0], given[1])
    assert not torch.equal(given[1], given[2])
    twister = np.random.MT19937()
    words = np.frombuffer(data, dtype="<u4")
    twister.state = {"bit_generator": "MT19937", "state": {"key": words, "pos": 624}}
    expected = (twister.random_raw(700) & (2**24 - 1)) * 2.0**-24
    assert np.array_equal(given[0].numpy(), expected.astype(np.float32))


def test_the_error_of_a_diverged_client_survives_pickling() -> None:
    error = ForkingPickler.loads(ForkingPickler.dumps(TrainingDiverged(3, 7, 11, float("inf"))))
    assert (error.client, error.round_number, error.step, error.loss) == (3, 7, 11, float("inf"))
    assert str(error).startswith("peer 3, round 7: the loss is inf at step 11")


def test_clients_draw_one_initial_model_or_each_its_own() -> None:
    assert initial_seed(5, 0, shared_init=True) == initial_seed(5, 3, shared_init=True) == derive(5, "model", "shared")
    assert initial_seed(5, 3, shared_init=False) == derive(5, "model", 3)
