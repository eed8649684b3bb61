"""The shape of the house: circles, private names, sizes of folders, signatures, and tests where one looks for them."""

import ast
import re
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import hypothesis
import pytest
import typer

from fedchain.cli.main import COMMANDS
from tests.support.paths import PRODUCT, ROOT

TESTS = sorted((ROOT / "tests").glob("**/*.py"))

FILES_MAX = 20
"""Modules in a folder, but for methods, of which each is one idea."""

PARAMETERS_MAX = 7

LONG_SIGNATURES = {
    "network/libp2p/network.py open_network": "what an operator chooses of a network",
    "src/fedchain/cli/model.py _shared": "options of several commands",
    "src/fedchain/cli/simulate.py reproduce": "options of a command",
    "src/fedchain/runs.py simulate": "the Python interface, with defaults",
    "src/fedchain/runs.py simulate_async": "the same",
}
"""Functions with more parameters, each with its reason."""

OPTIONS_MAX = 164
"""Options and arguments of all commands together; ``--set`` takes what is not named daily.

Three of them are ``--executor`` of simulate, compare and reproduce: it is of the machine, and no setting of a run."""

MIRRORED_MIN = 0.9
"""Share of the modules that have a test of their name in the folder of tests that mirrors theirs; it only rises."""

FOREIGN_PRIVATE = {
    "_exit": "os._exit ends a process without the interpreter's last steps",
    "_replace": "of named tuples, where Python itself has it",
    "_make": "of named tuples, where Python itself has it",
    "_version": "torch's name for how often a tensor was changed in place",
    "_C": "torch's own functions of tensors that are made when they are asked for",
    "_make_wrapper_subclass": "the same",
    "_disabled_torch_function_impl": "the same",
    "_inbound_limiter": "libp2p has no other way to be told how many strangers may knock",
    "_selector": "nor how many names of protocols are heard",
    "_run": "asyncio's loops call what is ready by it, and virtual time has turns of its own",
    "_custom_shell_complete": "typer passes it on to click, and lets nobody set it afterwards",
}
"""Names with an underscore that libraries have, each with the reason."""

FOUNDING_OR_SHOWING = (
    "chain/genesis.py",
    "chain/state.py",  # the first state, and the form of all others
    "chain/explorer/",
    "node/folders.py",
    "node/founding/",
    "node/operating/",
    "node/custody/dealing.py",
    "node/membership/desk.py",  # whose share of a decryption key is left: founders alone were dealt any
    "node/shell/run.py",  # what a process begins with, before it has a state
    "node/workers/process.py",
    "simulator/leakage/stored.py",
    "simulator/trained/folders.py",
    "src/fedchain/cli/",
    "src/fedchain/web/",
)
"""Where the founders are meant."""


@cache
def tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def name_of(path: Path) -> str:
    return str(path.relative_to(ROOT))


def module_of(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    parts = parts[1:] if parts[0] == "src" else ("fedchain", *parts)
    return ".".join(part for part in parts if part != "__init__")


def defined_in(path: Path) -> set[str]:
    """Names that a module's own classes, functions and fields have, private ones included."""
    names = set[str]()
    for node in ast.walk(tree(path)):
        match node:
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                names.add(node.name)
            case ast.AnnAssign(target=ast.Name(id=name)):
                names.add(name)
            case ast.Attribute(value=ast.Name(id="self" | "cls"), attr=name):
                names.add(name)
    return names


def foreign_private(path: Path) -> Iterator[str]:
    """Private names of other modules that a module touches."""
    own = defined_in(path) | FOREIGN_PRIVATE.keys()
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.Attribute) and re.match(r"_[a-z]", node.attr) and node.attr not in own:
            yield f"{name_of(path)}:{node.lineno} {node.attr}"


def statements(node: ast.AST) -> Iterator[ast.AST]:
    """All statements below a node, with the branches that hold them: a tenth of what ``ast.walk`` finds."""
    if isinstance(node, ast.mod | ast.stmt | ast.excepthandler | ast.match_case):
        yield node
        for name in ("body", "orelse", "finalbody", "handlers", "cases"):
            for inner in getattr(node, name, ()):
                yield from statements(inner)


def imported(module: ast.Module) -> set[str]:
    """Modules that a module imports anywhere: at its top, in functions, and for types alone."""
    nodes = [node for node in statements(module) if isinstance(node, ast.ImportFrom) and node.module]
    return {
        name for node in nodes for name in (str(node.module), *(f"{node.module}.{item.name}" for item in node.names))
    }


def circle(imports: dict[str, set[str]]) -> list[str]:
    """The modules that stay when those that import none of the others are taken away; [] if there is no circle."""
    left = dict(imports)
    while done := [name for name, needed in left.items() if not any(other in left for other in needed)]:
        left = {name: needed for name, needed in left.items() if name not in done}
    return sorted(left)


def test_no_two_modules_import_each_other() -> None:
    modules = {module_of(path): path for path in PRODUCT if path.name != "__init__.py"}
    assert len(modules) > 400
    assert circle({name: imported(tree(path)) & modules.keys() for name, path in modules.items()}) == []


def test_a_circle_would_be_noticed() -> None:
    assert circle({"a": {"b"}, "b": {"c"}, "c": {"a"}, "d": {"a"}}) == ["a", "b", "c", "d"]
    assert circle({"a": {"b", "c"}, "b": {"c"}, "c": set()}) == []
    assert imported(ast.parse("def f():\n    from x.y import z")) == {"x.y", "x.y.z"}
    for text in (
        "if a:\n    pass\nelse:\n    from x import y",
        "try:\n    pass\nexcept E:\n    from x import y",
        "try:\n    pass\nfinally:\n    with a:\n        from x import y",
        "class A:\n    async def f():\n        for a in b: pass\n        else:\n            from x import y",
        "match a:\n    case 1:\n        while b:\n            from x import y",
    ):
        assert imported(ast.parse(text)) == {"x", "x.y"}, text


def test_no_module_touches_the_private_names_of_another() -> None:
    assert [found for path in PRODUCT for found in foreign_private(path)] == []


TEST_IMPORTED = re.compile(r"^\s*from tests[\w.]*(?:\.test_| import (?:\([^)]*|.*)\btest_)", re.MULTILINE)
"""An import that may be of a test: to parse all tests takes ten seconds."""


def imported_tests(text: str, modules: set[str]) -> set[str]:
    """Those of the modules that a module of this text imports."""
    return imported(ast.parse(text)) & modules if TEST_IMPORTED.search(text) else set()


def test_no_test_imports_another() -> None:
    modules = {module_of(path).removeprefix("fedchain.") for path in TESTS if path.name.startswith("test_")}
    assert [(name_of(path), name) for path in TESTS for name in imported_tests(path.read_text("utf-8"), modules)] == []


def test_an_imported_test_would_be_noticed() -> None:
    modules = {"tests.chain.test_block"}
    for text in (
        "from tests.chain.test_block import made\n",
        "def f():\n    from tests.chain import test_block as other\n",
        "from tests.chain import (\n    builders,\n    test_block,\n)\n",
    ):
        assert imported_tests(text, modules) == modules
    assert (
        imported_tests("from tests.support.chain.builders import post\n\n\ndef test_block(): ...\n", modules) == set()
    )


def test_examples_that_are_drawn_have_no_deadline() -> None:
    assert hypothesis.settings().deadline is None


def test_no_folder_is_a_hall() -> None:
    sizes = Counter(path.parent for path in PRODUCT if path.name != "__init__.py")
    assert {name_of(folder): size for folder, size in sizes.items() if size > FILES_MAX} == {
        "learning/methods": len(list((ROOT / "learning" / "methods").glob("*.py"))) - 1
    }


def test_few_functions_take_many_parameters_and_each_has_its_reason() -> None:
    found = set[str]()
    for path in PRODUCT:
        for node in ast.walk(tree(path)):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                given = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
                if len([item for item in given if item.arg not in ("self", "cls")]) > PARAMETERS_MAX:
                    found.add(f"{name_of(path)} {node.name}")
    assert found == LONG_SIGNATURES.keys()


def parameters_below(command: Any) -> int:
    """Options and arguments of a command and of those below it, but for ``--help``; what a group shares counts once."""
    below = getattr(command, "commands", {}).values()
    return sum(map(parameters_below, below)) + len([item for item in command.params if item.name != "help"])


def test_commands_have_few_options() -> None:
    table = typer.Typer()
    for name, command in COMMANDS.items():
        loaded = command.load()
        if isinstance(loaded, typer.Typer):
            table.add_typer(loaded, name=name)
        else:
            table.command(name)(loaded)
    assert parameters_below(typer.main.get_group(table)) <= OPTIONS_MAX


def does_something(module: ast.Module) -> bool:
    """Whether any function has a body besides its docstring: records, protocols and numbers alone promise nothing."""
    functions = [node for node in ast.walk(module) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    return any(ast.get_docstring(one) is None or len(one.body) > 1 for one in functions)


def test_tests_stand_where_one_looks_for_them() -> None:
    named = [path for path in PRODUCT if path.name not in ("__init__.py", "__main__.py")]
    modules = [path for path in named if does_something(tree(path))]
    inside = [
        Path(*path.relative_to(ROOT).parts[2:]) if "src" in path.parts else path.relative_to(ROOT) for path in modules
    ]
    mirrored = [path for path in inside if (ROOT / "tests" / path.parent / f"test_{path.name}").exists()]
    assert len(mirrored) / len(modules) >= MIRRORED_MIN, f"{len(mirrored)} of {len(modules)}"


def test_a_module_without_a_body_needs_no_test() -> None:
    assert not does_something(ast.parse('class A:\n    x: int\n    def f(self):\n        """Documented."""'))
    assert does_something(ast.parse('def f():\n    """Documented."""\n    return 1'))
    assert does_something(ast.parse("async def f(): return 1"))


def test_nothing_is_raised_by_a_clause_for_groups() -> None:
    """Python before 3.11.4, as Debian 12 has it, wraps that in another group, which no caller expects."""
    clauses = (clause for path in PRODUCT for clause in ast.walk(tree(path)) if isinstance(clause, ast.TryStar))
    handlers = (handler for clause in clauses for handler in clause.handlers)
    assert not [ast.unparse(step) for handler in handlers for step in ast.walk(handler) if isinstance(step, ast.Raise)]


@pytest.mark.parametrize("name", ["members", "index"])
def test_founders_are_asked_for_where_a_federation_is_founded_or_shown(name: str) -> None:
    """Elsewhere the roster of a state says who is a member."""
    reading = {
        name_of(path) for path in PRODUCT if re.search(rf"\bgenesis\.{name}\b", path.read_text(encoding="utf-8"))
    }
    assert {path for path in reading if not path.startswith(FOUNDING_OR_SHOWING)} == set()
