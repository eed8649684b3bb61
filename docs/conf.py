"""How `make docs` builds these pages: Markdown by MyST, commands and classes from the program itself. No network."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "src"))

import fedchain

if TYPE_CHECKING:
    from sphinx.application import Sphinx

project = "fedchain"
author = "the authors of fedchain"
release = version = fedchain.__version__

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.autosummary"]

html_theme = "furo"
html_title = f"fedchain {release}"
html_show_copyright = False
html_copy_source = False

nitpicky = True
nitpick_ignore_regex = [
    ("py:.*", r"(collections|numpy|torch)\..*"),  # elsewhere: no page is fetched from the network
    ("py:.*", r"fedchain\..*|Storage"),  # inside: docstrings name modules whose pages are the source
]

myst_heading_anchors = 4  # those of GitHub

default_role = "code"
autosummary_generate = False
autodoc_default_options = {"members": True, "member-order": "bysource"}
autodoc_typehints = "none"  # most types are of other libraries, whose pages would have to be fetched to link to them


def append_commands(app: "Sphinx", page: str, source: list[str]) -> None:
    """Put what `--help` of every command says behind the page of the commands."""
    if page == "reference/commands":
        import typer
        from typer.cli import get_docs_for_click

        from fedchain.__main__ import app as table

        command = typer.main.get_command(table)
        context = typer.Context(command, info_name="fedchain")
        text = get_docs_for_click(obj=command, ctx=context, name="fedchain", title="All commands")
        source[0] += "\n" + text.replace("\n#", "\n##").replace("# All", "## All", 1)


def setup(app: "Sphinx") -> None:
    """Say when the commands are to be listed."""
    app.connect("source-read", append_commands)
