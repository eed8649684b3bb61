"""`fedchain attack`: requests that mean nothing."""

import pytest

from tests.support.simulator.leaking import chains as chains
from tests.support.simulator.leaking import invert, sets


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((".",), "give both or neither"),
        (("--out", "."), ". exists already; name another folder with --out"),
        ((".", *sets(sender="x", learning_rate=1)), "learning_rate is not taken"),
        (sets(sender="x"), "give both or neither"),
        (sets(images=0), "images is 0, it must be between 1 and 1,000"),
        (sets(iterations="many"), "attack iterations is 'many', it must be of type int"),
        (sets(learning_rate=1), "learning_rate: this is for one method, and none is named by --method"),
        (("--method", "fedavg", *sets(informed="true", images=1)), "an informed attack needs FedReg, not FedAvg"),
        (("--method", "fedavgg"), "did you mean 'fedavg'"),
        (("--method", "fedavg", *sets(known_pairs=3)), "known_pairs are of encrypted images"),
        (("--method", "fededs", *sets(model="digits-mlp")), "ends with a pooling"),
        (sets(dataset="tmd", data_dir="nowhere"), "tmd"),
    ],
)
def test_a_request_that_means_nothing_is_one_line(arguments: tuple[str, ...], words: str) -> None:
    result = invert(*arguments)
    assert result.exit_code == 2
    assert words in result.stderr
    assert len(result.stderr.strip().splitlines()) == 1
