"""``python -m tests.fuzz --engine atheris``: the same targets under a fuzzer that follows coverage.

Atheris is not a dependency; ``pip install atheris`` brings it. It has to be there before the product is imported.
"""

import importlib
import sys
from hashlib import sha256
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any


def main(name: str, seconds: float, seed: int) -> None:
    """Run one target until the time is over or an input does what must not happen; it does not return."""
    try:
        atheris: Any = importlib.import_module("atheris")
    except ModuleNotFoundError:
        sys.exit("atheris is not installed: pip install atheris")
    with atheris.instrument_imports(include=["fedchain"]):
        targets = importlib.import_module("tests.fuzz.__main__").TARGETS
        (target,) = (target for target in targets if target.name == name)
        session = target.open()
    engine, mutation = (importlib.import_module(f"tests.fuzz.{part}") for part in ("engine", "mutation"))
    damage = mutation.mutate_text if target.is_text else mutation.mutate

    def run(data: bytes) -> None:
        session.check(data)

    def mutate(data: bytes, size_max: int, number: int) -> bytes:
        rng = Random(number)
        if number % 4 == 0:
            return bytes(atheris.Mutate(data, size_max))
        return bytes(damage(data, rng.choice(session.seeds), rng)[:size_max])

    found: Path = engine.CORPUS / name
    found.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(prefix="fedchain-fuzz-") as folder:
        for item in (*session.seeds, *engine.stored_inputs(name)):
            Path(folder, sha256(item).hexdigest()[:16]).write_bytes(item)
        options = [f"-max_total_time={round(seconds)}", f"-seed={seed + 1}", f"-max_len={mutation.SIZE_MAX}"]
        options += [f"-artifact_prefix={found}/", "-timeout=10", "-print_final_stats=1"]
        atheris.Setup([sys.argv[0], *options, folder], run, custom_mutator=mutate)
        atheris.Fuzz()


if __name__ == "__main__":
    main(sys.argv[1], float(sys.argv[2]), int(sys.argv[3]))
