"""``fedchain data``: list the data sets, say whether their files are there, and fetch them."""

from typing import TYPE_CHECKING, Annotated

import typer

from fedchain.cli.common.command import clear_errors

if TYPE_CHECKING:
    from fedchain.learning.datasets.catalogue import DatasetInfo

DOWNLOAD_HELP = "Fetch missing files from where they are published."


def data(
    name: Annotated[str, typer.Argument(metavar="[DATASET]", help="Data set; without one, all are listed.")] = "",
    download: Annotated[bool, typer.Option("--download", help=DOWNLOAD_HELP)] = False,
) -> None:
    """Show the data sets, or one of them; with --download, fetch its files."""
    with clear_errors():
        from fedchain.learning.datasets.catalogue import DATASETS
        from fedchain.learning.exceptions import ConfigurationError, UnknownName

        if name and name not in DATASETS:
            raise UnknownName("data set", name, DATASETS)
        if download and not name:
            raise ConfigurationError("--download needs the name of a data set")
        if download:
            download_files(name)
        for info in [DATASETS[name]] if name else DATASETS.values():
            shape = "x".join(map(str, info.shape))
            sizes = f"{info.train_size:>7,} + {info.test_size:>7,}"
            typer.echo(f"{info.name:16} {info.classes:>3} classes  {shape:>9}  {sizes}  {info.title}")
        if name:
            _show_files(DATASETS[name])


def download_files(name: str, data_dir: str = "") -> None:
    """Fetch the missing files of a data set, and report it on standard error; members' own data have none."""
    from fedchain.learning.config import OWN
    from fedchain.learning.datasets.catalogue import DATASETS
    from fedchain.learning.datasets.download import download_dataset

    if name == OWN:
        return
    download_dataset(DATASETS[name], data_dir, lambda line: typer.echo(line, err=True))


def _show_files(info: "DatasetInfo") -> None:
    """Print where the files are published, and which of them are there."""
    from fedchain.learning.datasets.files import Files, data_folder

    typer.echo(f"models           {', '.join(info.models)}")
    if info.page:
        typer.echo(f"page             {info.page}")
    files = Files(info, data_folder(""))
    places = {file: files.find_published(file) for file in (*info.files, *info.other_files)}
    for file, place in places.items():
        others = info.other_files if file in info.files else info.files
        is_needless = bool(others) and bool(info.other_files) and all(places[other] for other in others)
        said = place or ("not found, and not needed: the other form is there" if is_needless else "not found")
        unpacked = " (unpacked)" if place is not None and place.is_dir() else ""
        typer.echo(f"file             {file.name}: {said}{unpacked}{f'; MD5 {file.md5}' if file.md5 else ''}")
        if file.url:
            typer.echo(f"                 {file.url}")
