"""``fedchain explorer``: the chain explorer's answers as tables for people and as JSON for programs."""

import json
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields, is_dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from fedchain.chain.exceptions import ChainError, NotFound, StoreError
from fedchain.chain.explorer import (
    BlockView,
    Explorer,
    KnowledgeRules,
    KnowledgeView,
    Prototype,
    Verification,
    is_proven,
)
from fedchain.chain.genesis import Genesis
from fedchain.chain.store import DATABASE, Store
from fedchain.crypto.exceptions import CryptoError

RulesOf = Callable[[Genesis], KnowledgeRules]
"""Builds the rules of the learning method that a genesis document names."""

DATE_MS_MIN = 10**11
"""A chain founded before this, March 1973, was simulated: its times count from the start of the simulation."""

MATRIX_SIZE_MAX = 12
"""Classes whose cosines fit beside each other on a screen."""

_INLINE = ("summary", "post")
"""Fields that are shown as if their own fields stood in their place."""

_COLUMNS = {"mining_time_ms": "mined in", "payload_hash": "payload", "payload_size": "size", "payload_kept": "kept"}
_LABELS = {"payload_bytes": "payloads", "is_valid": "valid", "hashes_per_block": "hashes a block"}
_STYLES = {"invalid": "red", "unchecked": "yellow"}

Folder = Annotated[Path, typer.Argument(help="A run's folder, or the folder of the chain in it.", show_default=False)]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON instead of tables.")]


def explorer_app(rules_of: RulesOf) -> typer.Typer:
    """The commands; ``rules_of`` is asked only by those that read knowledge."""
    app = typer.Typer(help="Look into a stored chain.", no_args_is_help=True)
    for command in (status, blocks, block, tx, peer, round_, proof):
        app.command(command.__name__.rstrip("_"))(command)

    @app.command()
    def knowledge(
        folder: Folder,
        round_number: Annotated[
            int | None, typer.Argument(metavar="[N]", help="Round; the newest finished one.")
        ] = None,
        as_json: AsJson = False,
    ) -> None:
        """What a round left behind: norm, holders and cosines of the class prototypes."""
        with _open(folder) as explorer:
            _show(explorer.knowledge(rules_of(explorer.genesis), round_number), as_json, explorer)

    @app.command()
    def verify(folder: Folder, as_json: AsJson = False) -> None:
        """Judge every block again, from the first to the head. Exit code 1: something is invalid."""
        with _open(folder) as explorer:
            report = explorer.verify(rules_of(explorer.genesis))
            _show(report, as_json, explorer)
        raise typer.Exit(0 if report.is_valid else 1)

    @app.command()
    def export(
        folder: Folder,
        out: Annotated[Path, typer.Option("--out", help="Folder to write to.", show_default=False)],
        as_json: AsJson = False,
    ) -> None:
        """Write the newest knowledge (knowledge.safetensors) and the chain (chain.jsonl, a block a line)."""
        with _open(folder) as explorer:
            written = _export(explorer, rules_of(explorer.genesis), out)
            typer.echo(json.dumps(_plain(written)) if as_json else "\n".join(f"wrote {path}" for path in written))

    return app


def status(folder: Folder, as_json: AsJson = False) -> None:
    """The chain at a glance."""
    with _open(folder) as explorer:
        _show(explorer.status(), as_json, explorer)


def blocks(
    folder: Folder,
    limit: Annotated[int, typer.Option(min=1, help="How many blocks, from the head down.")] = 20,
    as_json: AsJson = False,
) -> None:
    """The newest blocks, head first."""
    with _open(folder) as explorer:
        _show(explorer.blocks(limit), as_json, explorer)


def block(
    folder: Folder,
    name: Annotated[str, typer.Argument(metavar="HEIGHT|HASH", help="Height, or the beginning of a hash.")],
    as_json: AsJson = False,
) -> None:
    """One block in full."""
    with _open(folder) as explorer:
        _show(explorer.block(name), as_json, explorer)


def tx(
    folder: Folder,
    name: Annotated[str, typer.Argument(metavar="HASH", help="Beginning of the hash of a post.")],
    as_json: AsJson = False,
) -> None:
    """One post, and the block that counts it."""
    with _open(folder) as explorer:
        _show(explorer.transaction(name), as_json, explorer)


def peer(
    folder: Folder,
    name: Annotated[str, typer.Argument(metavar="ADDRESS", help="Address of a member, or the end of it.")],
    as_json: AsJson = False,
) -> None:
    """What one member did."""
    with _open(folder) as explorer:
        _show(explorer.peer(name), as_json, explorer)


def round_(
    folder: Folder,
    number: Annotated[int, typer.Argument(metavar="N", help="Number of the round.")],
    as_json: AsJson = False,
) -> None:
    """One round: its blocks and posts, who was missing, how long mining took."""
    with _open(folder) as explorer:
        _show(explorer.round(number), as_json, explorer)


def proof(
    folder: Folder,
    name: Annotated[str, typer.Argument(metavar="TX", help="Beginning of the hash of a post.")],
    as_json: AsJson = False,
) -> None:
    """Prove that a block counts a post, to somebody who holds nothing but headers."""
    with _open(folder) as explorer:
        answer = explorer.proof(name)
        _show(answer, as_json, explorer)
        if not as_json:
            typer.echo(f"\nThe proof {'holds' if is_proven(answer) else 'FAILS'}.")


@contextmanager
def _open(folder: Path) -> Iterator[Explorer]:
    """The boundary of every command: what is wrong with the request or the folder becomes one line and exit code 2."""
    try:
        if not folder.is_dir():
            raise NotFound(f"{folder} is not a folder")
        inner = folder / "chain"
        with Store.open(
            folder if (folder / DATABASE).exists() or not inner.is_dir() else inner, read_only=True
        ) as store:
            yield Explorer(store.genesis, store)
    except BrokenPipeError:
        # Whoever reads the output has seen enough; click knows what to do.
        raise
    except (ChainError, CryptoError, OSError) as error:
        typer.echo(f"fedchain explorer: {' '.join(str(error).split())}", err=True)
        raise typer.Exit(2) from None


def _export(explorer: Explorer, rules: KnowledgeRules, out: Path) -> tuple[Path, ...]:
    files = out / "knowledge.safetensors", out / "chain.jsonl"
    for path in files:
        if path.exists():
            raise StoreError(f"{path} exists already; nothing is overwritten")
    # Both are computed before either is written: an export is whole or not there.
    lines = "".join(json.dumps(_plain(view)) + "\n" for view in explorer.views())
    knowledge = explorer.safetensors(rules)
    out.mkdir(parents=True, exist_ok=True)
    for path, data in zip(files, (knowledge, lines.encode()), strict=True):
        with path.open("xb") as file:
            file.write(data)
    return files


def _plain(value: Any) -> Any:
    """The answer as JSON has it: objects by field, hashes in hexadecimal."""
    if is_dataclass(value):
        return {item.name: _plain(getattr(value, item.name)) for item in fields(value)}
    if isinstance(value, tuple | list):
        return [_plain(item) for item in value]
    if isinstance(value, bytes):
        return value.hex()
    return str(value) if isinstance(value, Path) else value


# --- tables


def _show(answer: Any, as_json: bool, explorer: Explorer) -> None:
    if as_json:
        typer.echo(json.dumps(_plain(answer), indent=2))
        return
    from rich.console import Console

    # What is printed came from others: none of it is markup.
    console = Console(highlight=False, markup=False, emoji=False)
    for part in _render(answer, _Format(explorer.genesis.created_ms)):
        console.print(part)


def _render(answer: Any, show: "_Format") -> Iterator[Any]:
    """A line for each field, then a table for each field that holds several answers."""
    if isinstance(answer, tuple):
        yield _table(answer, show) if answer else "none"
        return
    shown = _rows(answer, show)
    yield _grid(shown)
    for item in fields(answer):
        value = getattr(answer, item.name)
        if isinstance(answer, KnowledgeView) and item.name == "prototypes":
            yield from _prototypes(answer.prototypes)
        elif isinstance(answer, Verification) and item.name == "blocks":
            counts = Counter(check.verdict for check in answer.blocks)
            yield _title(", ".join(f"{count} {verdict}" for verdict, count in sorted(counts.items())) or "no blocks")
            # Thousands of good blocks would hide the bad one.
            if noteworthy := [check for check in answer.blocks if check.verdict != "ok"]:
                yield _table(noteworthy, show)
        elif is_dataclass(value) and item.name not in _INLINE:
            yield _title(_label(item.name))
            rows = _rows(value, show)
            # A block's header repeats what its summary says.
            yield _grid({k: v for k, v in rows.items() if k not in shown} if isinstance(answer, BlockView) else rows)
        elif _is_table(value):
            yield _title(_label(item.name))
            yield _table(value, show)


def _rows(answer: Any, show: "_Format") -> dict[str, str]:
    rows: dict[str, str] = {}
    for item in fields(answer):
        value = getattr(answer, item.name)
        if item.name in _INLINE:
            rows |= _rows(value, show)
        elif not is_dataclass(value) and not _is_table(value) and item.name != "prototypes":
            rows[_label(item.name)] = show(item.name, value)
    return rows


def _grid(rows: dict[str, str]) -> Any:
    from rich.table import Table

    grid = Table.grid(padding=(0, 2))
    grid.add_column(style="dim", no_wrap=True)
    grid.add_column(overflow="fold")
    for label, text in rows.items():
        grid.add_row(label, text)
    return grid


def _table(rows: Sequence[Any], show: "_Format") -> Any:
    from rich.table import Table

    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    names = [item.name for item in fields(rows[0])]
    for name in names:
        is_number = isinstance(getattr(rows[0], name), int | float)
        table.add_column(_COLUMNS.get(name, _label(name)), justify="right" if is_number else "left", overflow="fold")
    for row in rows:
        style = _STYLES.get(getattr(row, "verdict", ""), "")
        table.add_row(*(show(name, getattr(row, name), short=True) for name in names), style=style)
    return table


def _prototypes(prototypes: tuple[Prototype, ...] | None) -> Iterator[Any]:
    from rich.table import Table

    if prototypes is None:
        yield "\nno class prototypes in this knowledge"
        return
    has_matrix = len(prototypes) <= MATRIX_SIZE_MAX
    table = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0), header_style="dim")
    for heading in ("class", "holders", "norm", *(f"{item.label}" for item in prototypes if has_matrix)):
        table.add_column(heading, justify="right")
    for item in prototypes:
        cosines = (f"{cosine:.2f}" for cosine in item.cosines if has_matrix)
        table.add_row(str(item.label), str(item.holders), f"{item.norm:.3f}", *cosines)
    yield _title("prototypes" + (", and the cosine of each with each" if has_matrix else "; --json has their cosines"))
    yield table


def _title(text: str) -> Any:
    from rich.text import Text

    return Text(f"\n{text}", style="bold")


def _is_table(value: Any) -> bool:
    return isinstance(value, tuple) and len(value) > 0 and is_dataclass(value[0])


def _label(name: str) -> str:
    return _LABELS.get(name, name.removesuffix("_ms").removesuffix("_bytes").replace("_", " "))


@dataclass(frozen=True, slots=True)
class _Format:
    """How people read a field; its name says the unit."""

    created_ms: int
    """Founding of the chain, in milliseconds since the Unix epoch."""

    def __call__(self, name: str, value: Any, *, short: bool = False) -> str:
        """The text for ``value`` of the field ``name``; ``short`` in a table."""
        if value is None:
            return "–"
        if isinstance(value, bool):
            return "yes" if value else "no"
        if isinstance(value, bytes):
            return f"{value.hex()[: 8 if short else 32]}…"
        if isinstance(value, tuple):
            return self._several(name, value, short)
        if name in ("miner", "sender", "member") and short:
            return f"…{value[-8:]}"
        if name == "bits":
            return f"{value:#010x}"
        if name in ("timestamp_ms", "created_ms"):
            return self._time(value, short)
        if name.endswith("_ms"):
            return _duration(value)
        if name.endswith(("_bytes", "_size")):
            return _size(value)
        return "".join(letter if letter.isprintable() else "\N{REPLACEMENT CHARACTER}" for letter in str(value))

    def _several(self, name: str, values: tuple[Any, ...], short: bool) -> str:
        if not values:
            return "" if short else "–"
        shown = values[: 1 if short else 64]
        kind = "member" if isinstance(shown[0], str) and name != "invalid_votes" else name
        text = (" " if kind == "member" else "\n").join(
            self(kind, value, short=short or kind == "member") for value in shown
        )
        return text + (f" and {len(values) - len(shown)} more" if len(values) > len(shown) else "")

    def _time(self, time_ms: int, short: bool) -> str:
        since = _duration(time_ms - self.created_ms)
        if short or self.created_ms < DATE_MS_MIN:
            return f"+{since}"
        from email.utils import formatdate

        return f"{formatdate(time_ms / 1000, usegmt=True)} (+{since})"


def _duration(time_ms: int) -> str:
    """Tenths of a second below a quarter of an hour, then hours, minutes and seconds."""
    if abs(time_ms) < 900_000:
        return f"{time_ms / 1000:.1f} s"
    minutes, seconds = divmod(time_ms // 1000, 60)
    days, hours = divmod(minutes // 60, 24)
    return (f"{days} d " if days else "") + f"{hours}:{minutes % 60:02}:{seconds:02}"


def _size(size_bytes: int) -> str:
    size, units = float(size_bytes), iter(("B", "KiB", "MiB", "GiB"))
    unit = next(units)
    while size >= 1024 and unit != "GiB":
        size, unit = size / 1024, next(units)
    return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
