"""``python -m tests.bench``: what fedchain costs beside bare loops that do the same work, and methods beside FedAvg.

Every measured thing is a fresh process, so that imports count; what is compared runs in turns, and the median of
the ratios is shown. The scenarios stand here, in one place.
"""

import argparse
import math
import os
from pathlib import Path
from statistics import mean
from typing import Any

from rich.console import Console
from rich.table import Table

from tests.bench.processes import machine_text, measure
from tests.bench.scale import bench_scale
from tests.bench.scale_law import bench_scale_law
from tests.bench.training import CNN, DIGITS, LOGISTIC, bench_card, bench_training

PROTOCOL = {
    "peers": 1_000,
    "rounds": 3,
    "committee_size": 32,
    "proof_function": "sha256d",
    "version": 2,
}
"""Many peers that are all awake, and learn nothing."""

IDLE = {
    "peers": 1_000,
    "rounds": 200,
    "contributors_per_round": 10,
    "committee_size": 10,
    "idle_sleep": True,
    "proof_function": "sha256d",
    "version": 2,
}
"""As many, of which only those that are drawn in a round are awake."""

WINDOWS = ((5, 25), (80, 100), (180, 200))
"""First and last rounds over which the CPU time of a round is averaged."""

SIDES = """\
Training: whole processes. In brackets: the median of the ratios to the bare loop in two processes in the same turn.
  fedchain   as "fedchain simulate": two training processes, and one with the peers' chains: posts, blocks and votes are
             encoded, signed, sent, checked and kept, blocks mined, aggregates recomputed, and the run folder written,
             with record and chain; no model is measured (evaluate_every = 0)
             (nothing shared: each of the peers makes every check itself)
  bare loop  reads and spreads the data, takes the same local steps with SGD written out, and averages; no more. Both
             sides have taken as many steps and have learned the same numbers, or the bench ends with an error
  warm       from the third round on; the CPU of an update is that of all processes in this time"""


def bench_idle(table: Table, *, quick: bool) -> None:
    """CPU time of a round with many peers asleep, early and late: does a round cost the more, the longer the chain?"""
    scenario = IDLE | ({"peers": 100, "rounds": 60} if quick else {})
    windows = ((5, 15), (25, 35), (50, 60)) if quick else WINDOWS
    spent = measure("rounds", scenario).printed["cpu_s"]  # of round 2 and those after it
    means = [mean(spent[first - 2 : last - 1]) for first, last in windows]
    for (first, last), seconds in zip(windows, means, strict=True):
        target = "" if seconds == means[0] else "0.8 to 1.2"
        peers = f"{scenario['peers']:,} peers, {scenario['contributors_per_round']} drawn"
        table.add_row(
            f"{peers}, rounds {first} to {last}: CPU of a round",
            f"{seconds:.2f} s",
            target,
            f"{seconds / means[0]:.2f}",
        )


def bench_payload(table: Table, *, quick: bool) -> None:
    """CPU time of decoding, encoding and aggregating ResNet-18's payload, and the memory that an aggregate takes."""
    found = measure("payload", {"rounds": 3 if quick else 11}).printed
    size = f"{found['payload_mb']:.0f} MB"
    for label, key, target in (
        ("decode and check", "decode_and_check_ms", 12),
        ("encode", "encode_ms", 40),
        ("aggregate 8 posts", "aggregate_ms", 250),
    ):
        table.add_row(
            f"payload of {size}: {label}", f"{found[key]:.1f} ms", f"≤ {target} ms", f"{found[key] / target:.3f}"
        )
    memory = found["memory_payloads"]
    table.add_row(f"payload of {size}: memory of it", f"{memory:.2f} payloads", "≤ 2", f"{memory / 2:.3f}")


def bench_local_steps(*, quick: bool) -> Table:
    """CPU time of a local step in every method against FedAvg's."""
    title = "local update, CPU; FedDKC, FedEDS, FedGKT and FedICT train other networks"
    table = Table("method", "ms a step", "÷ FedAvg", "ms an update", "÷ FedAvg", title=title, box=None)
    costs = measure("local_steps", {"rounds": 3 if quick else 11}).printed
    for name, (step_ms, update_ms, step, update) in costs.items():
        target = " (≤ 1.2)" if name == "dfpl" else ""
        taken = ("one", "") if math.isnan(step) else (f"{step_ms:.2f}", f"{step:.2f}{target}")
        table.add_row(name, *taken, f"{update_ms:.0f}", f"{update:.2f}")
    return table


COMMITTEES = 10, 4
"""Voters of the logistic regressions: as many as contributors, and the fewest that tolerate a liar."""

ENCRYPTION = {
    "encrypt 384": ("≤ 0.02 s", 0.02),
    "encrypt 33,200": ("≤ 1.0 s", 1.0),
    "encrypt 33,200, randomizers ready": ("≤ 0.05 s", 0.05),
    "round": ("≤ 12 s", 12.0),
}
"""Promised cost of threshold encryption: the text and the seconds."""


def bench_encryption(*, quick: bool) -> Table:
    """Operations of threshold encryption on one core, and a round of five members on two."""
    title = "threshold encryption, 2048 bits; FedPH's Table 3: 0.039 s for 384, 3.37 s for 33,200"
    table = Table("measured", "figure", "target", "ratio", title=title, box=None)
    for name, figure in measure("encryption", {"rounds": 1 if quick else 5}).printed.items():
        target, limit_s = ENCRYPTION.get(name, ("", math.inf))
        text = f"{figure:,.0f}" if name.startswith("ciphertexts") else f"{figure:.4f} s"
        table.add_row(name, text, target, f"{figure / limit_s:.2f}" if target else "")
    return table


MEMORY = {
    "dataset": "cifar10",
    "model": "resnet18",
    "method": "fedavg",
    "hyperparameters": {"local_steps": 1, "batch_size": 4},
    "peers": 20,
    "rounds": 3,
    "classes_avg": 2,
    "classes_std": 0,
    "shots": 2,
    "test_shots": 1,
    "test_every": 0,
}
"""Large models, hardly trained: 20 posts of 45 MB a round, of which every peer stores all three rounds'."""


def bench_memory(table: Table, data_dir: str, *, quick: bool) -> None:
    """The memory of a simulation whose peers all hold large posts."""
    scenario = MEMORY | {"data_dir": data_dir} | ({"peers": 6} if quick else {})
    found = measure("memory", scenario).printed
    label = f"{scenario['peers']} peers with ResNet-18, {scenario['rounds']} rounds: memory of all processes"
    target, limit_gb = ("", math.inf) if quick else ("< 4 GB", 4.0)
    ratio = "" if quick else f"{found['gb'] / limit_gb:.3f}"
    parts = f"{found['simulating_gb']:.2f} simulate, ≤ {found['training_gb']:.2f} train each"
    table.add_row(label, f"{found['gb']:.2f} GB ({parts})", target, ratio)


def bench_protocol(table: Table, *, quick: bool) -> None:
    """Wall time and memory of many peers that learn nothing."""
    peers = 200 if quick else 1_000
    cost = measure("protocol", PROTOCOL | {"peers": peers})
    rate = f"{cost.printed['events'] / cost.printed['wall_s']:,.0f} events/s"
    table.add_row(
        f"{peers:,} peers, 3 rounds: wall", f"{cost.wall_s:.1f} s, {rate}", "< 120 s", f"{cost.wall_s / 120:.3f}"
    )
    table.add_row(f"{peers:,} peers, 3 rounds: memory", f"{cost.rss_gib:.2f} GiB", "< 4 GiB", f"{cost.rss_gib / 4:.3f}")


def bench_scrypt(table: Table) -> None:
    """Hashes of the proof of work through the project's own loop."""
    hashes = measure("scrypt", {}).printed
    table.add_row("scrypt in search_nonce", f"{hashes['per_s']:,.0f} hashes/s", "≥ 0.95", f"{hashes['ratio']:.3f}")


PARTS = (
    "scrypt",
    "protocol",
    "payload",
    "idle",
    "scale",
    "scale-law",
    "training",
    "small-training",
    "logistic",
    "card",
    "memory",
    "local-steps",
    "encryption",
    "web",
    "live",
)
"""Names of the measurements, in this order."""

DATA = {
    "training": ("fashion-mnist",),
    "logistic": ("fashion-mnist",),
    "card": ("fashion-mnist", "cifar10"),
    "memory": ("cifar10",),
}
"""The data sets that a part needs."""


def main() -> None:
    """Measure everything, or the named parts, and print one table."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench", description=__doc__)
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"of {', '.join(PARTS)}; default: all")
    parser.add_argument("--data-dir", default=os.environ.get("FEDCHAIN_DATA", ""), help="folder of the data sets")
    parser.add_argument("--folder", default="build/bench", help="where chains are kept for the next time")
    parser.add_argument("--quick", action="store_true", help="fewer rounds, peers and repetitions")
    arguments = parser.parse_args()
    if unknown := [name for name in arguments.parts if name not in PARTS]:
        parser.error(f"there is no part {unknown[0]!r}; known are {', '.join(PARTS)}")
    data_dir, quick = arguments.data_dir, arguments.quick
    table = Table("measured", "figure", "target", "ratio", title="fedchain beside bare loops", box=None)
    tables: list[Table | str] = [machine_text(), table]
    for name in arguments.parts or PARTS:
        missing = [dataset for dataset in DATA.get(name, ()) if not is_readable(dataset, data_dir)]
        if missing:
            table.add_row(name, f"skipped: no {missing[0]} in --data-dir", "", "")
            continue
        match name:
            case "scrypt":
                bench_scrypt(table)
            case "protocol":
                bench_protocol(table, quick=quick)
            case "payload":
                bench_payload(table, quick=quick)
            case "idle":
                bench_idle(table, quick=quick)
            case "scale":
                tables += bench_scale(quick=quick)
            case "scale-law":
                tables += bench_scale_law(quick=quick)
            case "training" | "small-training" | "logistic":
                tables += _training(name, data_dir, quick=quick)
            case "card" if not has_card():
                table.add_row(name, "skipped: there is no graphics card here", "", "")
            case "card":
                tables += bench_card(data_dir, 1 if quick else 3)
            case "memory":
                bench_memory(table, data_dir, quick=quick)
            case "local-steps":
                tables.append(bench_local_steps(quick=quick))
            case "encryption":
                tables.append(bench_encryption(quick=quick))
            case "web":
                from tests.bench.web import bench_web  # its web server takes its time to import

                tables.append(bench_web(Path(arguments.folder), quick=quick))
            case "live":
                from tests.bench.live import bench_live

                tables.append(bench_live(quick=quick))
    shown = [item for item in tables if isinstance(item, str) or item.row_count]
    Console().print(*shown, sep="\n\n")


def _training(name: str, data_dir: str, *, quick: bool) -> list[Table | str]:
    """The rows of a part with real training."""
    few: dict[str, Any] = {"data_dir": data_dir} | ({"rounds": 3} if quick else {})
    both = ("fedavg", "FedAvg"), ("dfpl", "DFPL")
    drawn = "1,000 logistic regressions of which 10 are drawn, FedAvg, committee of"
    rows = {
        "training": [(f"20 peers, CNN, {title}", CNN | {"method": key}) for key, title in both],
        "small-training": [("20 peers, FedAvg on digits", DIGITS)],
        "logistic": [(f"{drawn} {size}", LOGISTIC | {"committee_size": size}) for size in COMMITTEES],
    }[name]
    found = (bench_training(scenario | few, label, 1 if quick else 3) for label, scenario in rows)
    return [*([SIDES] if name == "training" else []), *(item for part in found for item in part)]


def is_readable(dataset: str, data_dir: str) -> bool:
    """Whether the folder has a data set's files."""
    from fedchain.learning.datasets.load import load_dataset
    from fedchain.learning.exceptions import DatasetError

    try:
        load_dataset(dataset, data_dir)
    except DatasetError:
        return False
    return True


def has_card() -> bool:
    """Whether torch sees a graphics card."""
    import torch

    return torch.cuda.device_count() > 0


if __name__ == "__main__":
    main()
