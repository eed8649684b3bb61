"""The known answers are right, and a process that computes others notices it."""

import ast
import math
import subprocess
import sys
from collections.abc import Callable, Iterable
from fractions import Fraction
from functools import reduce
from operator import add

import numpy as np
import pytest

from fedchain.learning.aggregation import arithmetic
from fedchain.learning.aggregation.arithmetic import check_arithmetic
from fedchain.learning.application import Application
from fedchain.learning.config import LearningConfig
from fedchain.learning.exceptions import WrongArithmetic
from tests.support.paths import ROOT


def read(numbers: str) -> list[float]:
    """The float64 behind hexadecimal bits."""
    found: list[float] = np.array([int(bits, 16) for bits in numbers.split()], np.uint64).view(np.float64).tolist()
    return found


EXACT: dict[str, Callable[[Fraction, Fraction], Fraction]] = {
    "add": lambda a, b: a + b,
    "subtract": lambda a, b: a - b,
    "multiply": lambda a, b: a * b,
    "divide": lambda a, b: a / b,
}


def test_this_machine_computes_the_known_answers() -> None:
    check_arithmetic()


@pytest.mark.parametrize("operation", EXACT)
def test_the_known_answers_are_the_exact_results_rounded_once(operation: str) -> None:
    left, right, results = (
        read(text) for text in (arithmetic._LEFT, arithmetic._RIGHT, arithmetic._RESULTS[operation])
    )
    assert len(left) == len(right) == len(results) == 12
    for a, b, found in zip(left, right, results, strict=True):
        exact = EXACT[operation](Fraction(a), Fraction(b))
        assert found == exact.numerator / exact.denominator  # Python's division of integers rounds correctly


def test_the_known_roots_are_the_nearest_numbers() -> None:
    for number, root in zip(read(arithmetic._LEFT), read(arithmetic._ROOTS), strict=True):
        below, above = (Fraction(root) + Fraction(math.nextafter(root, side)) for side in (0.0, math.inf))
        assert (below / 2) ** 2 <= abs(Fraction(number)) <= (above / 2) ** 2


def test_the_known_roundings_are_the_nearest_float32() -> None:
    narrow = np.array([int(number, 16) for number in arithmetic._NARROW.split()], dtype=np.uint32).view(np.float32)
    for wide, rounded in zip(read(arithmetic._WIDE), narrow, strict=True):
        distance = abs(Fraction(wide) - Fraction(float(rounded)))
        for side in (-np.inf, np.inf):
            with np.errstate(over="ignore"):
                other = np.nextafter(rounded, np.float32(side))
            beside = abs(Fraction(wide) - Fraction(float(other))) if np.isfinite(other) else distance + 1
            assert distance < beside or (distance == beside and int(rounded.view(np.uint32)) % 2 == 0)


def test_the_known_sums_are_exact() -> None:
    for terms, (result,) in ((read(terms), read(result)) for terms, result in arithmetic._SUMS.items()):
        exact = sum(map(Fraction, terms), Fraction(0))
        assert result == exact.numerator / exact.denominator


@pytest.mark.parametrize("operation", ["add", "subtract", "multiply", "divide", "sqrt"])
def test_another_result_is_noticed(operation: str, monkeypatch: pytest.MonkeyPatch) -> None:
    true = getattr(np, operation)

    def wrong(*operands: np.ndarray[tuple[int], np.dtype[np.float64]]) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
        result = true(*operands)
        result[-1] = np.nextafter(result[-1], np.inf)  # one bit, in the last copy of the last number
        return result  # type: ignore[no-any-return]

    monkeypatch.setattr(np, operation, wrong)
    with pytest.raises(WrongArithmetic, match=rf"^this machine computes [0-9a-f]{{16}} instead of .*{operation}, exam"):
        check_arithmetic()


def inexact(numbers: Iterable[float]) -> float:
    """Add one number after the other, as Python's `sum` did before 3.12."""
    return reduce(add, numbers, 0.0)


def test_an_inexact_sum_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(math, "fsum", inexact)
    expected = r"^this machine computes 0000000000000000 instead of 3ff0000000000000 \(fsum, example 1\)"
    with pytest.raises(WrongArithmetic, match=expected):
        check_arithmetic()


OTHERWISE = {
    "flushes subnormal numbers": "import torch; able = torch.set_flush_denormal(True)",
    "rounds upwards": "import ctypes; able = ctypes.CDLL(None).fesetround(0x800) == 0",
}
JUDGE = """
import sys
from fedchain.learning.config import LearningConfig
from fedchain.learning.exceptions import WrongArithmetic
from tests.support.paths import ROOT
from fedchain.learning.application import Application
{change}
if not able:
    sys.exit("unable")
try:
    Application(LearningConfig())
except WrongArithmetic as error:
    sys.exit(str(error))
"""


@pytest.mark.long
@pytest.mark.parametrize("case", OTHERWISE)
def test_a_process_that_computes_otherwise_does_not_begin_to_judge(case: str) -> None:
    script = JUDGE.format(change=OTHERWISE[case])
    ended = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    if ended.stderr == "unable\n":
        pytest.skip(f"this machine never {case}")
    assert ended.returncode == 1
    assert ended.stderr.startswith("this machine computes ")
    assert len(ended.stderr.splitlines()) == 1


def test_who_computes_otherwise_cannot_judge(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(math, "fsum", inexact)
    with pytest.raises(WrongArithmetic):
        Application(LearningConfig())


def test_nothing_is_added_as_this_version_of_python_does_it() -> None:
    for path in (ROOT / "learning" / "aggregation").glob("*.py"):
        calls = [
            node.func for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))) if isinstance(node, ast.Call)
        ]
        assert "sum" not in {called.id for called in calls if isinstance(called, ast.Name)}, path.name
