"""Results of the attacks: a table, the same as JSON, and pictures of the originals and the images that were found."""

import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.table import Table

from fedchain.files.json_text import to_json
from fedchain.files.spool import write_whole
from fedchain.simulator.leakage.attack import Finding
from fedchain.simulator.pictures import write_picture
from fedchain.simulator.scenario import ScenarioError
from fedchain.terminal import Fitted

TARGETS = ("parameters", "prototypes", "encrypted")
"""Kinds of posts that can be attacked, see :attr:`Finding.target`; each has a picture of its own."""

COLUMNS_MAX = 10
"""Largest number of images of one attack in a picture."""


@dataclass(frozen=True, slots=True)
class Row:
    """A line of the table: means over the images of one attack."""

    posts: str
    """Name of the posts that were attacked."""
    attack: str
    """Kind of attack."""
    images: int
    """Number of images that were searched."""
    psnr: float
    """dB."""
    psnr_deviation: float | None
    """Standard deviation over the images (n - 1); None if there is only one."""
    ssim: float
    """At most 1."""
    psnr_class_mean: float
    """dB: PSNR of the mean image of the class, which needs no attack."""
    ssim_class_mean: float
    """SSIM of that image."""
    labels_recovered: float
    """Fraction of the labels that the attacker knew; labels of prototypes are posted."""


def row_of(finding: Finding) -> Row:
    """The means of one attack."""
    scores = finding.scores
    values = scores.psnr.tolist()
    return Row(
        posts=finding.name,
        attack=finding.attack,
        images=len(values),
        psnr=statistics.mean(values),
        psnr_deviation=statistics.stdev(values) if len(values) > 1 else None,
        ssim=statistics.mean(scores.ssim.tolist()),
        psnr_class_mean=statistics.mean(scores.psnr_baseline.tolist()),
        ssim_class_mean=statistics.mean(scores.ssim_baseline.tolist()),
        labels_recovered=statistics.mean(scores.labels_recovered.tolist()),
    )


def show(console: Console, title: str, rows: Sequence[Row]) -> None:
    """Print the table."""
    table = Table(title=title, header_style="bold")
    for name in HEAD:
        is_text = name in HEAD[:2]
        table.add_column(name.replace(" ", "\n"), justify="left" if is_text else "right", no_wrap=True)
    for row in rows:
        table.add_row(*_cells(row))
    console.print(Fitted(table, keys=2))


HEAD = ("posts", "attack", "N", "PSNR", "±", "SSIM", "labels", "mean's PSNR", "mean's SSIM")
"""Names of the table's columns."""


def to_markdown(title: str, rows: Sequence[Row]) -> str:
    """The table as Markdown."""
    lines = [f"| {' | '.join(HEAD)} |", f"|---|---|{'--:|' * (len(HEAD) - 2)}"]
    return "\n".join([f"# {title}", "", *lines, *(f"| {' | '.join(_cells(row))} |" for row in rows)]) + "\n"


def _cells(row: Row) -> tuple[str, ...]:
    deviation = "–" if row.psnr_deviation is None else f"{row.psnr_deviation:.1f}"
    scores = (f"{row.psnr:.1f}", deviation, f"{row.ssim:.2f}", f"{100 * row.labels_recovered:.0f} %")
    return (
        row.posts,
        row.attack,
        str(row.images),
        *scores,
        f"{row.psnr_class_mean:.1f}",
        f"{row.ssim_class_mean:.2f}",
    )


def to_dict(title: str, rows: Sequence[Row]) -> dict[str, Any]:
    """Plain values, for JSON."""
    return {"title": title, "rows": [asdict(row) for row in rows]}


def write_folder(folder: Path, title: str, findings: Sequence[Finding]) -> None:
    """Write ``inversion.json``, ``inversion.md``, and a picture each of attacked parameters, prototypes and encrypted
    images.

    Raises:
        ScenarioError: the folder exists.
    """
    try:
        folder.mkdir(parents=True)
    except FileExistsError:
        raise ScenarioError(f"{folder} exists already; name another folder with --out") from None
    rows = [row_of(finding) for finding in findings]
    write_whole(to_json(to_dict(title, rows), indent=2) + "\n", folder / "inversion.json")
    write_whole(to_markdown(title, rows), folder / "inversion.md")
    for target in TARGETS:
        if shown := [finding for finding in findings if finding.target == target]:
            draw(shown, title, folder / f"{target}.png")


def draw(findings: Sequence[Finding], title: str, path: Path) -> None:
    """Draw originals and class means above the images that each attack on them found, with their PSNR in dB below.

    The originals of prototypes are those that match the first attack best. Images of one channel are drawn in grey.
    """
    from matplotlib.figure import Figure  # slow to import

    lines: list[tuple[str, torch.Tensor, list[float] | None]] = []
    for place, finding in enumerate(findings):
        scores = finding.scores
        if place == 0 or finding.of_prototypes != findings[place - 1].of_prototypes:
            lines.append(("original", scores.originals, None))
            lines.append(("class mean", scores.baseline, scores.psnr_baseline.tolist()))
        lines.append((f"{finding.name}\n{finding.attack}", scores.found, scores.psnr.tolist()))
    columns = min(COLUMNS_MAX, max(len(images) for _, images, _ in lines))
    figure = Figure(figsize=(2.4 + 0.9 * columns, 1.1 * len(lines)), layout="constrained")
    figure.suptitle(title, fontsize=9, wrap=True)
    grid = figure.subplots(len(lines), columns, squeeze=False)
    for axes, (name, images, values) in zip(grid, lines, strict=True):
        axes[0].set_ylabel(name, rotation=0, ha="right", va="center", fontsize=7)
        for place, panel in enumerate(axes):
            panel.set(xticks=[], yticks=[])
            panel.set_frame_on(False)
            if place < len(images):
                pixels = images[place].permute(1, 2, 0)
                panel.imshow(pixels.squeeze(2).numpy(), cmap="gray", vmin=0, vmax=1, interpolation="nearest")
                if values is not None:
                    panel.set_xlabel(f"{values[place]:.1f}", fontsize=6, labelpad=1)
    write_picture(figure, path)
