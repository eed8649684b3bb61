"""How `make docs` builds these pages: Markdown by MyST, commands and classes from the program itself. No network."""

import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_origin

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "src"))

import sphinx.util.inspect
import sphinx.util.typing
from sphinx.addnodes import toctree
from sphinx.ext.napoleon import Config, GoogleDocstring
from sphinx.util.typing import stringify_annotation

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
html_static_path = ["static"]
html_css_files = ["pages.css"]

nitpicky = True
nitpick_ignore_regex = [
    # elsewhere: no page is fetched from the network
    ("py:.*", r"(collections|numpy|os|pandas|pathlib|sqlite3|tempfile|torch)\..*"),
    ("py:.*", r"fedchain\..*"),  # inside: docstrings name modules whose pages are the source
    ("py:(class|exc)", r"\w+"),  # what "Raises:" names, and types that are imported for type checkers alone
]

myst_heading_anchors = 4  # those of GitHub

default_role = "code"
autosummary_generate = False
autodoc_default_options = {"members": True, "member-order": "bysource"}
autodoc_typehints = "signature"
maximum_signature_line_length = 100  # a longer one has a line for each argument


def append_commands(app: "Sphinx", page: str, source: list[str]) -> None:
    """Put what `--help` of every command says behind the page of the commands."""
    if page == "reference/commands":
        import typer
        from typer.cli import get_docs_for_click

        from fedchain.cli.main import app as table

        command = typer.main.get_command(table)
        context = typer.Context(command, info_name="fedchain")
        text = get_docs_for_click(obj=command, ctx=context, name="fedchain", title="All commands")
        source[0] += "\n" + text.replace("\n#", "\n##").replace("# All", "## All", 1)


def write_fields(app: "Sphinx", what: str, name: str, obj: Any, options: Any, lines: list[str]) -> None:
    """Make fields of ``Args:``, ``Returns:`` and ``Raises:``.

    The extension ``sphinx.ext.napoleon`` itself would take what stands before the first colon of an attribute's
    docstring for its type.
    """
    if what not in ("attribute", "data", "property"):
        lines[:] = GoogleDocstring(lines, Config(), app, what, name, obj, options).lines()


def write_signature(app: "Sphinx", what: str, name: str, obj: Any, options: Any, signature: str, result: str) -> Any:
    """Write the default of a field that Python can only describe so that Sphinx can read the whole."""
    return (re.sub(r"<(factory|function \w+)>", "...", signature), result) if signature else None


def write_type(kind: Any, *given: Any, **options: Any) -> str:
    """Write a type without what a field's type says beyond it, such as the setting that the field needs."""
    while get_origin(kind) is Annotated:
        kind = kind.__origin__
    return stringify_annotation(kind, *given, **options)


# No event asks how a type is written, and the extensions, which are imported next, take the function by its name.
sphinx.util.typing.stringify_annotation = sphinx.util.inspect.stringify_annotation = write_type


def name_pages(app: "Sphinx", page: str, template: str, context: dict[str, Any], doctree: Any) -> None:
    """Have the sidebar made of tables of contents without headings, which it leaves out, in place of copies of all."""
    env, write = app.env, context.get("toctree")
    if write is None:
        return
    if not _titles:
        for name, contents in env.tocs.items():
            _titles[name] = contents.deepcopy()
            for item in _titles[name]:
                if len(item) > 1:
                    item[1][:] = [*item.findall(toctree)]
                    if not len(item[1]):
                        item.pop(1)

    def write_titles(**options: Any) -> Any:
        whole, env.tocs = env.tocs, _titles if options.get("titles_only") else env.tocs
        try:
            return write(**options)
        finally:
            env.tocs = whole

    context["toctree"] = write_titles


_titles: dict[str, Any] = {}
"""Titles of the pages, each with the tables of the pages below it."""


def mend_page(app: "Sphinx", page: str, template: str, context: dict[str, Any], doctree: Any) -> None:
    """Mend the theme's HTML for readers without a mouse or without eyes.

    Headings of the sidebar get a level, what scrolls can be focused, and a table's header has no cell without text.
    """
    context["furo_navigation_tree"] = context.get("furo_navigation_tree", "").replace(
        'role="heading"', 'role="heading" aria-level="2"'
    )
    if "body" in context:
        text = re.sub(r'<th class="head[^"]*">(<p>)?(</p>)?</th>', "<td></td>", context["body"])
        context["body"] = re.sub(r'<(pre|div)(?=(?<=pre)>| class="table-wrapper)', r'<\1 tabindex="0"', text)


def setup(app: "Sphinx") -> None:
    """Say when the commands are to be listed, and what becomes of docstrings, signatures and pages."""
    app.connect("source-read", append_commands)
    app.connect("autodoc-process-docstring", write_fields)
    app.connect("autodoc-process-signature", write_signature)
    app.connect("html-page-context", name_pages, priority=100)  # before the theme
    app.connect("html-page-context", mend_page, priority=900)  # after the theme
