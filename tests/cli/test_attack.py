"""`fedchain attack`: requests that mean nothing."""

import pytest

from tests.support.simulator.leaking import chains as chains
from tests.support.simulator.leaking import invert


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--store", "."), "give both or neither"),
        (("--set", "learning_rate=1"), "are for the method that --method names"),
        (("--informed", "--method", "fedavg", "--images", "1"), "an informed attack needs FedReg, not FedAvg"),
        (("--method", "fedavgg"), "did you mean 'fedavg'"),
        (("--known-pairs", "3", "--method", "fedavg"), "--known-pairs are of encrypted images"),
        (("--method", "fededs", "--model", "digits-mlp"), "ends with a pooling"),
        (("--dataset", "tmd", "--data-dir", "nowhere"), "tmd"),
    ],
)
def test_a_request_that_means_nothing_is_one_line(arguments: tuple[str, ...], words: str) -> None:
    result = invert(*arguments)
    assert result.exit_code == 2
    assert words in result.stderr
    assert len(result.stderr.strip().splitlines()) == 1
