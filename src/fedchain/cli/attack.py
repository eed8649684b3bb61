"""``fedchain attack``: what others could read in members' posts. Nothing heavy is imported before it runs."""

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fedchain.cli.common.command import GroupedCommand, clear_errors
from fedchain.cli.common.settings import Row, Set, divide, rows_of, settings_offered, settings_option
from fedchain.cli.simulate import IN_FILE, scenario_rows
from fedchain.files.layout import free_folder
from fedchain.files.tables import build, read_toml
from fedchain.learning.config import OWN
from fedchain.simulator.leakage.settings import Inversion
from fedchain.simulator.scenario import Scenario, ScenarioError, scenario_from_dict

if TYPE_CHECKING:
    from fedchain.learning.leakage.descent import Search
    from fedchain.simulator.leakage.attack import Finding

Found = tuple[str, "Iterator[Finding]"]
"""Title of the table, and its findings as they come."""

_OF_FOLDERS = frozenset({"round", "sender", "attacker"})
"""Settings of an attack on a stored chain alone."""

_OF_ALL = frozenset({"informed", "iterations", "search_rate", "total_variation"})
"""Settings of every attack; all that are left are of one on clients that post for it."""

_FIXED = frozenset({"peers", "rounds", "name", "method", "hyperparameters", *IN_FILE})
"""Fields of a scenario that an attack chooses by itself, or that have an option."""

_OF_CHAINS = frozenset({*IN_FILE, "churn", "committee_size", "contribution_quorum", "degree", "idle_sleep"})
"""Fields of a scenario that fit its own peers, and change nothing where clients post without a chain and a network."""

METHOD_HELP = (
    "Attack posts of this method alone (or FILE.py:Class); default: the scenario's, or FedAvg, FedReg, MG, DP-SGD "
    "and prototypes. Beside a folder, FILE.py:Class is the chain's own method, if its file is not found; the file is "
    "run: trust it."
)

attack_app = typer.Typer(help="Try what others could read in what members post.", no_args_is_help=True)


@attack_app.callback()
def _group() -> None:
    """A group of commands, however many it has."""


def _rows() -> Iterator[Row]:
    yield from rows_of(Inversion)
    yield from (row for row in scenario_rows() if row.name not in _FIXED)


@attack_app.command(cls=GroupedCommand)
def inversion(
    target: Annotated[
        Path | None,
        typer.Argument(
            metavar="[SCENARIO.toml|FOLDER]",
            help="Data, model and method; or a run's or a node's folder: its chain.",
        ),
    ] = None,
    method: Annotated[str, typer.Option(help=METHOD_HELP)] = "",
    setting: Set = None,
    settings: Annotated[bool, settings_option(_rows)] = False,
    out: Annotated[Path | None, typer.Option(help="Folder for table and picture; default: runs/inversion.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Look for a client's images in its posts: gradient inversion, inversion of prototypes, decoding.

    Clients post by the methods' own code, after one local step; FedEDS's encrypted images are those of its setup. The
    images found are compared with the originals, and with the mean image of the class, which needs no attack.
    """
    with clear_errors(ScenarioError):
        own, others = divide(setting or [], {item.name for item in fields(Inversion)})
        options = build(Inversion, own, "attack", ScenarioError)
        if out is not None and out.exists():
            raise ScenarioError(f"{out} exists already; name another folder with --out")
        folder = target if target is not None and target.is_dir() else None
        if (folder is None) != (not options.sender):
            raise ScenarioError("a stored chain's folder and --set sender=… name a post together; give both or neither")
        if folder is not None:
            title, found = _stored(folder, method, options, own.keys() - _OF_FOLDERS - _OF_ALL, others)
        else:
            if misplaced := sorted(own.keys() & _OF_FOLDERS):
                raise ScenarioError(f"{', '.join(misplaced)}: this is for the folder of a stored chain")
            with settings_offered(others, (row.name for row in _rows())):
                scenario, is_given = _scenario(target, method, options, others)
            if is_given and scenario.method == "fededs":
                title, found = _encrypted(scenario, options)
            else:
                title, found = _methods(scenario, options, is_given=is_given)
        _show(found, title, out, as_json=as_json)


def _scenario(path: Path | None, method: str, options: Inversion, settings: Mapping[str, Any]) -> tuple[Scenario, bool]:
    """The scenario whose clients are attacked, and whether a method was given with it."""
    stated = {} if path is None else read_toml(path, ScenarioError)
    stated = {name: value for name, value in stated.items() if name not in _OF_CHAINS}
    known = {item.name for item in fields(Scenario)} - _FIXED
    values = {"partition": "iid"} | stated | {name: value for name, value in settings.items() if name in known}
    values |= {"method": method} if method else {}
    hyperparameters = {name: value for name, value in settings.items() if name not in known}
    is_given = "method" in values
    if (hyperparameters or options.informed) and not is_given:
        raise ScenarioError(
            f"{', '.join(hyperparameters) or 'informed'}: this is for one method, and none is named by --method"
        )
    if options.known_pairs and values.get("method") != "fededs":
        raise ScenarioError("known_pairs are of encrypted images, which --method fededs posts")
    values["hyperparameters"] = dict(values.get("hyperparameters", {})) | hyperparameters
    scenario = scenario_from_dict(values | {"peers": options.images})
    if scenario.task or scenario.dataset == OWN:
        from fedchain.simulator.leakage.attack import require_built_in_images  # slow to import

        require_built_in_images(OWN)
    scenario.validate()
    return scenario, is_given


def _methods(scenario: Scenario, options: Inversion, *, is_given: bool) -> Found:
    """Attack posts of the scenario's method, or of the usual ones."""
    from fedchain.simulator.leakage.attack import SETTINGS, Setting, attack_methods

    name = scenario.method
    own = Setting(name=name, method=name, hyperparameters=scenario.hyperparameters, informed=options.informed)
    asked = (own,) if is_given else SETTINGS
    title = f"{scenario.dataset}: one step on {options.victim_batch}, after {options.rounds_before} rounds"
    return title, attack_methods(scenario, asked, options, _search(options))


def _encrypted(scenario: Scenario, options: Inversion) -> Found:
    """Attack the encrypted images of FedEDS."""
    from fedchain.simulator.leakage.encrypted import attack_encrypted

    return f"{scenario.dataset}: encrypted images of FedEDS", attack_encrypted(scenario, options)


def _stored(
    folder: Path, method: str, options: Inversion, misplaced: Collection[str], settings: Mapping[str, Any]
) -> Found:
    """Attack a post of a stored chain, which names its own task: of the scenario's settings it takes ``data_dir``.

    A ``method`` names the file of the chain's own one.
    """
    from fedchain.learning.registry import is_file_path
    from fedchain.node.founding.task import use_method_file
    from fedchain.simulator.leakage.stored import attack_stored

    unknown = {*misplaced, *settings} - {"data_dir"}
    if method and is_file_path(method):
        use_method_file(method)
    elif method:
        unknown.add("--method")
    if unknown:
        raise ScenarioError(f"a chain says by itself what was learned; {', '.join(sorted(unknown))} is not taken")
    found = attack_stored(folder, options, _search(options), str(settings.get("data_dir", "")))
    return f"what {options.sender} posted in round {options.round}", found


def _search(options: Inversion) -> "Search":
    from fedchain.learning.leakage.descent import Search

    return Search(
        iterations=options.iterations,
        learning_rate=options.search_rate,
        total_variation=options.total_variation,
    )


def _show(found: "Iterable[Finding]", title: str, out: Path | None, *, as_json: bool) -> None:
    """Print each finding as it comes, and the table of all, and write them to a folder."""
    from fedchain.files.json_text import to_json
    from fedchain.simulator.leakage.report import row_of, show, to_dict, write_folder
    from fedchain.terminal import Console

    console, findings = Console(quiet=as_json), []
    for finding in found:
        findings.append(finding)
        console.print(f"{finding.name}, {finding.attack}: {row_of(finding).psnr:.1f} dB")
    rows = [row_of(finding) for finding in findings]
    show(console, title, rows)
    if as_json:
        print(to_json(to_dict(title, rows), indent=2))
    folder = out or free_folder("inversion")  # the last step: what was found is shown, whatever the disk refuses
    write_folder(folder, title, findings)
    console.print(f"written to {folder}", soft_wrap=True)
