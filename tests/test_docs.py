"""Everything that the documentation names exists, and the numbers that it states are those of the code."""

import ast
import re
import tomllib
from dataclasses import MISSING, fields
from enum import Enum
from fnmatch import fnmatchcase
from inspect import signature
from pathlib import Path
from types import ModuleType
from typing import Any, get_args

import pytest

import fedchain
from fedchain.chain import exceptions
from fedchain.chain.genesis import FaultModel, Genesis
from fedchain.cli.common import exit_codes
from fedchain.files import layout
from fedchain.learning.families.local_sgd import LocalSgdMethod
from fedchain.learning.registry import METHODS, load_method
from fedchain.network.limits import BLAME_MALFORMED, BLAME_OVER_BUDGET, BLAME_REJECTED, Limits
from fedchain.network.messages import Message
from fedchain.node.core import effects, events
from fedchain.node.core.node import Node
from fedchain.node.operating.preflight import FILES_BESIDE_CONNECTIONS
from fedchain.simulator.adversaries.registry import BEHAVIOURS
from fedchain.simulator.disturbances import Clock, Fault, MemberChange, Traitors
from tests.support.paths import DOCS, ROOT

PAGES = (ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted(DOCS.glob("**/*.md")))
PROTOCOL = (DOCS / "protocol.md").read_text(encoding="utf-8")
ARCHITECTURE = (DOCS / "architecture.md").read_text(encoding="utf-8")
DECISIONS = sorted((DOCS / "decisions").glob("0*.md"))

CODE_PATH = re.compile(r"`((?:chain|crypto|learning|network|node|simulator|tests|src|experiments)/[\w/.-]*\w/?)`")
LINK = re.compile(r"\]\(([^)\s]+)\)")
BOUND = re.compile(r"`([A-Z][A-Z_]+)` = ([\d,]+)(?: (KiB|MiB))? \| `([\w/]+)\.py`")
UNITS = {"": 1, "KiB": 2**10, "MiB": 2**20}


def name(path: Path) -> str:
    return str(path.relative_to(ROOT))


def links(page: Path) -> list[str]:
    text = re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    return LINK.findall(text)


def headings(page: Path) -> set[str]:
    """The anchors of a page, as GitHub makes them."""
    lines = re.findall(r"^#+ (.+)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    plain = (re.sub(r"[^\w\- ]", "", line.lower().replace("`", "")) for line in lines)
    return {line.replace(" ", "-") for line in plain}


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_links_lead_somewhere(page: Path) -> None:
    for link in links(page):
        if link.startswith(("http://", "https://")):
            continue
        target, _, anchor = link.partition("#")
        other = (page.parent / target).resolve() if target else page
        assert other.exists(), f"{name(page)} links to {link}"
        if anchor and other.suffix == ".md":
            assert anchor in headings(other), f"{name(page)} links to {link}, of which the heading is missing"


@pytest.mark.parametrize("page", [page for page in PAGES if "decisions" not in page.parts], ids=name)
def test_files_that_are_named_exist(page: Path) -> None:
    for path in CODE_PATH.findall(page.read_text(encoding="utf-8")):
        assert (ROOT / path).exists(), f"{name(page)} names {path}"


def test_bounds_are_those_of_the_code() -> None:
    rows = BOUND.findall(ARCHITECTURE)
    assert len(rows) > 40
    for constant, number, unit, module in rows:
        stated = int(number.replace(",", "")) * UNITS[unit]
        assert constants(ROOT / f"{module}.py").get(constant) == stated, f"{constant} of {module}"


def constants(path: Path) -> dict[str, Any]:
    """Numbers that a module names, without importing what it needs."""
    found = {}
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name) and _is_number(node.value):
            code = compile(ast.Expression(node.value), str(path), "eval")
            found[node.targets[0].id] = eval(code, {"__builtins__": {}})
    return found


def _is_number(node: ast.expr) -> bool:
    return all(isinstance(part, ast.Constant | ast.BinOp | ast.operator) for part in ast.walk(node))


@pytest.mark.parametrize("module", [events, effects], ids=["events", "effects"])
def test_events_and_effects_are_all_described(module: ModuleType) -> None:
    made = [kind for kind in vars(module).values() if hasattr(kind, "__dataclass_fields__")]
    kinds = [kind for kind in made if kind.__module__ == module.__name__]
    assert len(kinds) > 8
    for kind in kinds:
        shown = f"{kind.__name__}({', '.join(item.name for item in fields(kind))})"
        assert f"`{shown}`" in ARCHITECTURE, f"{shown} is missing in docs/architecture.md"


def test_the_classes_of_a_method_are_those_of_the_table() -> None:
    section = ARCHITECTURE.split("## A learning method")[1].split("\n## ")[0]
    rows = re.findall(r"^\| `(\w+)`(?:, `(\w+)`)? \| `([\w/]+)\.py`(?:, `([\w/]+)\.py`)? \|", section, re.MULTILINE)
    named = [pair for one, other, file, another in rows for pair in ((one, file), (other, another)) if pair[0]]
    for last in ("blade-fl", "fedavg"):
        method = load_method(last)
        stands = [
            (kind.__name__, kind.__module__.removeprefix("fedchain.learning.").replace(".", "/"))
            for kind in reversed(method.__mro__)
            if issubclass(kind, LocalSgdMethod)
        ]
        assert stands == [pair for pair in named if pair in stands]
    assert len(named) == len(stands) + 1


def test_a_node_is_made_as_is_said() -> None:
    said = re.search(r"`Node\(([^`]+)\)` stands on the stored head", ARCHITECTURE)
    assert said is not None
    names = [name.removesuffix("=…") for name in said[1].split(", ")]
    needed = [name for name, item in signature(Node).parameters.items() if item.default is item.empty]
    assert set(needed) <= set(names) <= set(signature(Node).parameters)


def test_every_part_of_a_node_is_named() -> None:
    parts = {path.stem for path in (ROOT / "node" / "core").glob("**/*.py")} - {"__init__"}
    missing = {part for part in parts if not re.search(rf"node/core/(?:\w+/)?{part}\.py", ARCHITECTURE)}
    assert missing <= {"jobs", "retention"}


def test_the_genesis_table_has_all_fields_in_their_order_with_their_defaults() -> None:
    section = PROTOCOL.split("## Genesis")[1].split("## Encoding")[0]
    rows = re.findall(r"^\| `(\w+)` \| [^|]+ \| ([^|]+) \|", section, re.MULTILINE)
    items = [item for item in fields(Genesis) if item.init]
    assert [row[0] for row in rows] == [item.name for item in items]
    assert f"a list of {len(items)} values, in this order" in section
    for (_, stated), item in zip(rows, items, strict=True):
        assert stated.strip().replace(" ", "") == written(item.default), f"default of {item.name}"


def written(default: Any) -> str:
    """A default as the table has it."""
    if default is MISSING:
        return "–"
    if isinstance(default, Enum | str):
        return f"`{default.value if isinstance(default, Enum) else default}`"
    return "empty" if default == () else str(int(default))


def test_the_table_of_messages_has_all_numbers() -> None:
    section = PROTOCOL.split("## Messages")[1].split("## Transport")[0]
    rows = re.findall(r"^\| (\d+) \| (\w+) \|", section, re.MULTILINE)
    messages = {kind.KIND: kind.__name__.removesuffix("Message") for kind in get_args(Message)}
    assert {int(number): title for number, title in rows} == messages
    assert [int(number) for number, _ in rows] == sorted(messages)


def test_the_table_of_signatures_has_all_kinds() -> None:
    section = PROTOCOL.split("## Signatures")[1].split("## Records")[0]
    rooms = ("chain", "crypto", "network", "node", "learning")
    code = "".join(path.read_text(encoding="utf-8") for room in rooms for path in (ROOT / room).rglob("*.py"))
    used = re.findall(r"signing_message\([\w.]+, \"(\w+)\"", code)
    assert sorted(re.findall(r"^\| `(\w+)` \|", section, re.MULTILINE)) == sorted(used)
    assert len(used) > 5


def test_errors_that_are_named_exist() -> None:
    section = PROTOCOL.split("## Validity")[1].split("## Agreement")[0]
    named = set(re.findall(r"\| `(\w+)`", section))
    assert named
    assert all(hasattr(exceptions, error) for error in named if error[0].isupper())
    assert {"InvalidSignature", "InvalidBlock", "OutOfWindow", "Equivocation"} <= named


def test_the_quorum_table_is_computed() -> None:
    rows = {
        line.split("|")[1].strip(): [int(cell) for cell in line.split("|")[2:-1]]
        for line in PROTOCOL.splitlines()
        if re.match(r"^\| (n|byzantine: [fq]|crash: q) \|", line)
    }
    byzantine, crash = FaultModel.BYZANTINE, FaultModel.CRASH
    assert rows["byzantine: f"] == [byzantine.faulty(n) for n in rows["n"]]
    assert rows["byzantine: q"] == [byzantine.quorum(n) for n in rows["n"]]
    assert rows["crash: q"] == [crash.quorum(n) for n in rows["n"]]


def test_the_short_quorum_table_is_computed() -> None:
    page = (DOCS / "how-it-works.md").read_text(encoding="utf-8")
    text = page.split("| members | liars")[1].split("\n\n")[0]
    rows = [[int(cell) for cell in line.split("|")[1:-1]] for line in text.splitlines()[2:]]
    byzantine, crash = FaultModel.BYZANTINE, FaultModel.CRASH
    assert [row[0] for row in rows] == [3, 4, 5, 6, 7, 10, 20]
    for n, *stated in rows:
        votes, of_crashed = byzantine.quorum(n), crash.quorum(n)
        assert stated == [byzantine.faulty(n), votes, n - votes, of_crashed, n - of_crashed]


NUMBERS = ("no", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")


def test_quorums_in_words_are_computed() -> None:
    byzantine, crash = FaultModel.BYZANTINE, FaultModel.CRASH
    guide = " ".join((DOCS / "guides" / "network.md").read_text(encoding="utf-8").split())
    quorums = ", ".join(f"{NUMBERS[byzantine.quorum(n)]} of {NUMBERS[n]}" for n in (3, 6, 10))
    assert f"of them up: {quorums}." in guide
    assert f"more than half, {NUMBERS[crash.quorum(10)]} of ten," in guide
    operating = (DOCS / "operating.md").read_text(encoding="utf-8")
    liars = [NUMBERS[byzantine.faulty(n)] for n in (3, 4)]
    assert f"three members bear {liars[0]} liar, four bear {liars[1]}; of both one may be down." in operating
    assert [n - byzantine.quorum(n) for n in (3, 4)] == [1, 1]
    assert f"With `crash` {NUMBERS[5 - crash.quorum(5)]} of five may be down" in operating
    lost = ", ".join(f"{NUMBERS[byzantine.quorum(n)]} of {NUMBERS[n]}" for n in (3, 4))
    assert lost in operating.replace("\n", " ")


def test_times_and_budgets_of_neighbours_are_those_of_the_code() -> None:
    limits, text = Limits(), PROTOCOL.split("## Transport")[1].split("## Why")[0]
    assert f"nothing to say for {limits.keepalive_s:.0f} s" in text
    operating = (DOCS / "operating.md").read_text(encoding="utf-8")
    assert f"sends an empty message every {limits.keepalive_s:.0f} s" in operating
    needed = limits.connections_max + limits.handshakes_max + FILES_BESIDE_CONNECTIONS
    assert f"needs {needed} open files, and one more for each founder beyond {limits.connections_max};" in operating
    assert f"said nothing for {limits.idle_timeout_s:.0f} s" in text
    assert f"acknowledged for {limits.unacknowledged_s:.0f} s" in text
    for per_s, burst, unit in (
        (limits.messages_per_s, limits.messages_burst, ""),
        (limits.bytes_per_s / 2**20, limits.bytes_burst / 2**20, " MiB"),
        (limits.cpu_share, limits.cpu_burst_s, " s"),
        (limits.answer_bytes_per_s / 2**20, limits.answer_bytes_burst / 2**20, " MiB"),
    ):
        assert f"| {_spaced(per_s)}{unit} | {_spaced(burst)}{unit} |" in text
    for blame in (BLAME_MALFORMED, BLAME_OVER_BUDGET, BLAME_REJECTED):
        assert re.search(rf"^\| .* \| {blame:g} \|$", text, re.MULTILINE)


def _spaced(number: float) -> str:
    return f"{number:,g}".replace(",", " ")


def test_decisions_have_numbers_of_their_own() -> None:
    """A record that was taken in by another one leaves a gap: others know the rest by their numbers."""
    assert len({path.name[:4] for path in DECISIONS}) == len(DECISIONS) > 20
    for path in DECISIONS:
        assert path.read_text(encoding="utf-8").startswith(f"# {int(path.name[:4])}. ")


def test_guards_that_are_named_exist() -> None:
    text = (DOCS / "decisions" / "0010-libp2p-with-guards.md").read_text(encoding="utf-8")
    code = "".join(path.read_text(encoding="utf-8") for path in (ROOT / "network" / "libp2p").glob("*.py"))
    guards = set(re.findall(r"`([A-Z][a-z]\w+)(?:\.\w+)?`", text))
    assert len(guards) > 10
    for guard in guards:
        assert re.search(rf"\b{guard}\b", code), f"{guard} is named and not there"


def test_every_behaviour_of_adversaries_is_described() -> None:
    text = (DOCS / "guides" / "simulate.md").read_text(encoding="utf-8")
    section = text.split("| behaviour |")[1].split("\n\n")[0]
    assert set(re.findall(r"^\| `([\w-]+)` \|", section, re.MULTILINE)) == set(BEHAVIOURS)


def test_defaults_of_local_sgd_are_those_of_the_methods() -> None:
    table = (DOCS / "methods.md").read_text(encoding="utf-8").split("| defaults of ")[1].split("\n\n")[0]
    head, _, *rows = ([cell.strip() for cell in row.split("|")[1:-1]] for row in table.splitlines())
    stated = {name: row[1:] for row in rows for name in re.findall(r"`([\w-]+)`", row[0]) or [row[0]]}
    names = [name.strip("`") for name in head]
    common = {item.name: item.default for item in fields(LocalSgdMethod)}
    assert stated.pop("all others") == [spelt(common[name]) for name in names]
    found = {}
    for method in METHODS:
        own = {item.name: item.default for item in fields(load_method(method)) if item.name in common}
        if own != common:
            found[method] = [spelt(own[name]) for name in names]
            assert {name for name in common if own[name] != common[name]} <= set(names), method
    assert stated == found


def spelt(default: Any) -> str:
    """A default as a table of hyper-parameters has it."""
    return str(default).lower() if isinstance(default, bool) else f"{default:,}".removesuffix(".0")


def test_all_that_fedchain_offers_to_programs_is_among_the_classes() -> None:
    page = (DOCS / "reference" / "api.md").read_text(encoding="utf-8")
    named = set(re.findall(r"^\.\. auto(?:function|class|module):: ([\w.]+)$", page, re.MULTILINE))
    offered = {name for name in fedchain.__all__ if name[0] != "_"}
    defined = {name: getattr(fedchain, name) for name in offered - {"testing"}}
    found = {name for name, what in defined.items() if {f"fedchain.{name}", what.__module__} & named}
    found |= {name for name, what in defined.items() if f"{what.__module__}.{name}" in named}
    assert found == defined.keys()


def test_every_key_of_a_scenarios_tables_is_shown() -> None:
    text = (DOCS / "guides" / "simulate.md").read_text(encoding="utf-8")
    keys = {item.name for kind in (Fault, Clock, Traitors, MemberChange) for item in fields(kind)}
    assert {key for key in keys if not re.search(rf"^{key} = |`{key}`", text, re.MULTILINE)} == set()


def test_every_file_of_a_run_is_described() -> None:
    text = (DOCS / "guides" / "simulate.md").read_text(encoding="utf-8")
    table = text.split("A run leaves a folder")[1].split("\n\n")[1]
    named = {name.rstrip("/") for row in table.splitlines() for name in re.findall(r"`([\w./]+)`", row.split("|")[1])}
    kept = {layout.SCENARIO_FILE, layout.METRICS_FILE, layout.RESULT_FILE, layout.MEMBERS_FILE, layout.LINKS_FILE}
    kept |= {layout.CHAIN_FOLDER, layout.TIMELINE_FILE, layout.RECORD_FOLDER, layout.MODELS_FOLDER}
    assert named == kept | {"curves.png", "classes.png", "timeline.png"}


def test_every_experiment_has_its_line_of_results_and_no_other_has() -> None:
    text = (DOCS / "results.md").read_text(encoding="utf-8")
    table = text.split("| experiment | state |")[1].split("\n\n")[0]
    named = [name for row in table.splitlines()[2:] for name in re.findall(r"`([a-z0-9-]+)`", row.split("|")[1])]
    files = (ROOT / "experiments").glob("*.toml")
    assert sorted(named) == sorted(tomllib.loads(path.read_text(encoding="utf-8"))["name"] for path in files)


def test_what_is_said_of_robust_rules_is_what_their_tables_show() -> None:
    text = (DOCS / "results.md").read_text(encoding="utf-8").split("## Robust rules")[1].split("\n## ")[0]
    digits, fashion = (
        {row[1].strip(): row[2:-1] for row in (line.split("|") for line in table.splitlines()) if len(row) == 12}
        for table in text.split("| variant |")[1:]
    )
    worst = {}
    for table in (digits, fashion):
        rows = {name: row for name, row in table.items() if "," in name and "diverged" not in "".join(row)}
        for name, row in rows.items():
            numbers = [float(number.strip(" *")) for number in row]
            assert numbers[-1] == pytest.approx(numbers[0] - min(numbers[1:-1]), abs=0.011), name
            worst[table is digits, name] = numbers[-1]
    lasting = ["median", "trimmed mean", "clipping", "Multi-Krum", "geometric median"]
    lasting += [name.removeprefix("FedAvg, ") for name in digits if name.startswith("FedAvg, NNM, ")]
    assert len(lasting) == 9
    said = re.search(r"at most ([\d.]+) points in the mean.*which loses ([\d.]+), at most ([\d.]+)\.", text, re.DOTALL)
    assert said is not None
    shown = (
        max(worst[False, f"FedAvg, {name}"] for name in lasting),
        worst[True, "FedAvg, clipping"],
        max(worst[True, f"FedAvg, {name}"] for name in lasting if name != "clipping"),
    )
    assert [float(number) for number in said.groups()] == pytest.approx(shown, abs=0.05)


def test_the_readme_shows_the_python_that_runs_in_a_notebook_too() -> None:
    page = (DOCS / "python.md").read_text(encoding="utf-8")
    first = re.findall(r"```python\n.*?```", page, re.DOTALL)[0]
    assert first in (ROOT / "README.md").read_text(encoding="utf-8")


def test_the_readme_is_short() -> None:
    assert len((ROOT / "README.md").read_text(encoding="utf-8").splitlines()) <= 200


def test_all_that_a_node_waits_for_is_explained() -> None:
    table = (DOCS / "troubleshooting.md").read_text(encoding="utf-8").split("| it waits for |")[1].split("\n\n")[0]
    rows = [
        text.replace("…", "*") for row in table.splitlines() for text in re.findall(r"`([^`]+)`", row.split("|")[1])
    ]
    tree = ast.parse((ROOT / "node" / "operating" / "report.py").read_text(encoding="utf-8"))
    told = {node.name: node for node in tree.body if isinstance(node, ast.FunctionDef)}
    answers = [
        node.value
        for name in ("waiting_for", "_lacking_votes", "_own_standing")
        for node in ast.walk(told[name])
        if isinstance(node, ast.Return)
    ]
    texts = [shown(answer) for answer in answers if isinstance(answer, ast.JoinedStr | ast.Constant)]
    assert len(texts) > 12
    assert [text for text in texts if text and not any(fnmatchcase(text, row) for row in rows)] == []
    unused = [row for row in rows if not any(fnmatchcase(text, row) for text in texts)]
    assert unused == ["its place: *"], "a newcomer's, from node/membership/newcomer.py"


def test_all_that_a_node_tells_its_operator_is_explained() -> None:
    text = (DOCS / "troubleshooting.md").read_text(encoding="utf-8").split("| what it says |")[1].split("\n\n")[0]
    named = [said for row in text.splitlines() for said in re.findall(r"`([^`]+)`", row.split("|")[1])]
    rows = [said.replace("…", "*") + "*" for said in named]
    report = ast.parse((ROOT / "node" / "operating" / "report.py").read_text(encoding="utf-8"))
    notices = next(node for node in report.body if isinstance(node, ast.FunctionDef) and node.name == "log_notice")
    told = [shown(call.args[0]) for call in ast.walk(notices) if isinstance(call, ast.Call) and is_of(call, "log")]
    for path in (ROOT / "node" / "core").glob("**/*.py"):
        calls = [node for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))) if isinstance(node, ast.Call)]
        stops = [call.args[0] for call in calls if isinstance(call.func, ast.Name) and call.func.id == "Stop"]
        told += [shown(reason) for reason in stops if isinstance(reason, ast.JoinedStr)]
    assert len(told) > 15
    plain = [re.sub(r"%\(?[\w)+.]+", "some", message) for message in told]
    explained = {message for message in plain for row in rows if fnmatchcase(message, row)}
    assert set(plain) - explained == {"some: start the node with that key"}
    assert "this key was replaced by …: start the node with that key" in named


def is_of(call: ast.Call, name: str) -> bool:
    """Whether a method of what has this name is called."""
    return isinstance(call.func, ast.Attribute) and isinstance(call.func.value, ast.Name) and call.func.value.id == name


def shown(text: ast.expr) -> str:
    """A text of the code, with something in place of what is put into it."""
    parts = text.values if isinstance(text, ast.JoinedStr) else [text]
    return "".join(str(part.value) if isinstance(part, ast.Constant) else "some" for part in parts)


def test_exit_codes_are_all_explained() -> None:
    said = (DOCS / "troubleshooting.md").read_text(encoding="utf-8").split("\n## ")[0]
    codes = {value for name, value in vars(exit_codes).items() if name.startswith("EXIT_")}
    assert set(map(int, re.findall(r"\b\d+\b", said))) == codes | {0}


def test_messages_that_are_explained_are_those_of_the_code() -> None:
    text = (DOCS / "troubleshooting.md").read_text(encoding="utf-8")
    rows = [row.split("|")[1] for row in text.splitlines() if row.startswith("| `")]
    messages = [message for row in rows for message in re.findall(r"`([^`]+)`", row)]
    assert len(messages) > 12
    folders = ("chain", "crypto", "learning", "network", "node", "simulator", "src/fedchain/cli")
    code = "".join(path.read_text(encoding="utf-8") for folder in folders for path in (ROOT / folder).glob("**/*.py"))
    code = re.sub(r'"\s+f?"', "", code)  # texts over several lines
    for message in messages:
        for part in message.split("…"):
            assert part.strip() in code, f"{message}: {part}"
