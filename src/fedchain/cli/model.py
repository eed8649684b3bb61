"""``fedchain model``: trained models as files for plain PyTorch, measured again, and measured on all members' data.

Nothing heavy is imported before a command runs.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fedchain.cli.common.command import clear_errors
from fedchain.cli.common.exit_codes import EXIT_DIFFERENT
from fedchain.cli.common.shared import Sharing
from fedchain.files.json_text import to_json
from fedchain.simulator.scenario import ScenarioError

if TYPE_CHECKING:
    from fedchain.simulator.trained.folders import ModelFolder, TrainedModel

Folder = Annotated[
    Path, typer.Argument(help="Folder of a simulated run, of a node, or of a test network.", show_default=False)
]


def _shared(
    member: Annotated[
        str, typer.Option(metavar="M", help="Local model of this member: its number from 0, or its address.")
    ] = "",
    aggregate: Annotated[
        bool, typer.Option("--aggregate", help="The common model, as the chain's knowledge has it.")
    ] = False,
    round_number: Annotated[
        int | None,
        typer.Option("--round", min=0, help="As it was after this round; default: the last one that there is."),
    ] = None,
    data_dir: Annotated[str, typer.Option(help="Folder of the data sets; default: the run's, or FEDCHAIN_DATA.")] = "",
    task: Annotated[
        str, typer.Option(help="Members train on own data: FILE.py:function or module:function that loads it.")
    ] = "",
    weights: Annotated[
        str,
        typer.Option(
            metavar="FILE", help="Models begin with the weights of a file: your copy of it; default: the run's."
        ),
    ] = "",
    method: Annotated[
        str,
        typer.Option(
            "--method",
            metavar="FILE.py:Class",
            help="The run's own learning method, where its file is not found. The file is run: trust it.",
        ),
    ] = "",
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """The options of several commands."""


@dataclass(frozen=True, slots=True)
class Which:
    """The shared options that say which model is meant."""

    member: str
    aggregate: bool
    round_number: int | None


@dataclass(frozen=True, slots=True)
class Own:
    """The shared options that say where data, weights and code are."""

    data_dir: str
    task: str
    weights: str
    method: str


model_app = Sharing(_shared, help="Take trained models out of a run or a node, and measure them.")


@model_app.command()
def export(
    folder: Folder,
    out: Annotated[Path, typer.Option("--out", help="File to write: model.safetensors.", show_default=False)],
    passport: Annotated[
        bool, typer.Option("--passport", help="Write the proof of the --aggregate beside it: OUT.passport.json.")
    ] = False,
    *,
    which: Which,
    own: Own,
) -> None:
    """Write a model as a safetensors file, which load_state_dict of the module itself takes as it is.

    safetensors.torch.load_file(FILE) gives the state. The file's header says where the model is from.
    """
    with clear_errors(ScenarioError):
        from fedchain.files.spool import read_in_place, unfinished, write_file_of
        from fedchain.simulator.trained.passport import SUFFIX

        proof = out.parent / (out.name + SUFFIX)
        for path in (out, proof) if passport else (out,):
            if path.exists():
                raise ScenarioError(f"{path} exists already; nothing is overwritten")
        models = _open(folder, own)
        model = choose(models, which)
        if passport and model.origin.member is not None:
            raise ScenarioError("--passport proves what is on the chain, and only the --aggregate is")
        out.parent.mkdir(parents=True, exist_ok=True)
        with unfinished(out) as whole:
            write_file_of(model.pieces(), whole)
            if passport:
                proven = models.passport(model.origin.round, out.name, read_in_place(whole))
                with unfinished(proof) as whole_proof:
                    write_file_of([proven], whole_proof)
        typer.echo(f"wrote {out}: {describe(model)}")
        if passport:
            typer.echo(f"wrote {proof}; check it with fedchain passport verify")


@model_app.command()
def evaluate(
    folder: Folder,
    file: Annotated[
        Path | None, typer.Option(help="Measure this safetensors file, on the data of --member or of all.")
    ] = None,
    *,
    which: Which,
    own: Own,
    as_json: bool,
) -> None:
    """Measure a model as its run did: a member's on its own test set, the common one on everybody's.

    Exit code 1: the run had measured something else.
    """
    with clear_errors(ScenarioError):
        from fedchain.simulator.trained.measure import measure, measure_trained
        from fedchain.simulator.trained.origins import read_file

        models = _open(folder, own, measures=True)
        if file is None:
            model = choose(models, which)
            origin, measured = model.origin, measure_trained(models, models.learner(), model)
            what, reported = describe(model), {"accuracy": origin.accuracy, "test_accuracy": origin.test_accuracy}
        else:
            if which.aggregate or which.round_number is not None:
                raise ScenarioError("--file is measured as it is: leave out --aggregate and --round")
            sites = (models.find(which.member),) if which.member else models.sites
            measured = measure(models.learner(), read_file(file).state, sites[0], sites)
            what, reported = str(file), {"accuracy": None, "test_accuracy": None}
        found = {"accuracy": measured.accuracy, "test_accuracy": measured.test_accuracy}
        known = {name: value for name, value in reported.items() if value is not None}
        is_same = all(found[name] == value for name, value in known.items())
        if as_json:
            answer: dict[str, Any] = {"model": what, **found, "loss": measured.loss, "sites": list(measured.sites)}
            answer |= {"accuracies": list(measured.accuracies), "reported": reported, "is_same": is_same}
            typer.echo(to_json(answer, indent=2))
        else:
            typer.echo(what)
            count, first = len(measured.sites), measured.sites[0]
            whose = f"member {first}'s test set" if count == 1 else f"the members' test sets (mean over {count})"
            for name, place in (("accuracy", whose), ("test_accuracy", "the whole test set")):
                if (value := found[name]) is not None:
                    said = "" if name not in known else f"; the run measured {_as_measured(known[name], value)}"
                    typer.echo(f"accuracy  {value!r} ({100 * value:.2f} %) on {place}{said}")
        if not is_same:
            raise typer.Exit(EXIT_DIFFERENT)


@model_app.command("cross-site")
def cross_site(
    folder: Folder,
    own: Own,
    as_json: bool,
) -> None:
    """Measure every member's model, and the common one, on every member's own test set.

    Rows are models, columns test sets; outside its own column, a row shows how well the model does elsewhere.
    """
    with clear_errors(ScenarioError):
        from fedchain.chain.exceptions import NotFound
        from fedchain.learning.exceptions import ConfigurationError
        from fedchain.simulator.trained.measure import measure_cross_site

        models = _open(folder, own, measures=True)
        chosen = [models.member(member) for member in models.kept]
        try:
            chosen.append(models.aggregate())
        except (ConfigurationError, NotFound):
            if not chosen:  # there is no model at all: raise the error that says why
                _validate_any(models)
                models.member(0)
        matrix = measure_cross_site(models.learner(), chosen, models.sites)
        if as_json:
            rows = {"aggregate" if owner is None else str(owner): row for owner, row in _rows(matrix)}
            typer.echo(to_json({"sites": list(matrix.sites), "accuracies": rows}, indent=2))
            return
        from fedchain.simulator.trained.table import cross_site_table
        from fedchain.terminal import Console, Fitted

        config = models.config
        title = f"{config.method} on {config.dataset}: accuracy in %, models down, test sets across"
        Console().print(Fitted(cross_site_table(matrix, title)))


def _open(folder: Path, own: Own, *, measures: bool = False) -> "ModelFolder":
    """Open a folder; see :func:`fedchain.simulator.trained.folders.open_models`."""
    from fedchain.simulator.trained.folders import open_models

    return open_models(folder, own.data_dir, own.task, own.method, weights=own.weights, measures=measures)


def choose(models: "ModelFolder", which: Which) -> "TrainedModel":
    """The model that was asked for; if neither is named and there is one local model, that one.

    Raises:
        ScenarioError: none or two are named, or the run holds no model at all.
        ConfigurationError, NotFound: the named model is not here.
    """
    from fedchain.learning.exceptions import ConfigurationError

    if which.aggregate and which.member:
        raise ScenarioError("--member and --aggregate name two models; give one of them")
    try:
        if which.aggregate:
            return models.aggregate(which.round_number)
        if which.member:
            return models.member(models.find(which.member), which.round_number)
        if len(models.kept) == 1:
            return models.member(models.kept[0], which.round_number)
    except ConfigurationError:
        _validate_any(models)
        raise
    _validate_any(models)
    raise ScenarioError(f"whose model? --member 0 to {models.config.places_with_data[-1]}, or --aggregate")


def _validate_any(models: "ModelFolder") -> None:
    """Raise ScenarioError for a run that holds no model at all: the error of each kind would point to the other."""
    from fedchain.chain.exceptions import NotFound
    from fedchain.learning.exceptions import ConfigurationError
    from fedchain.simulator.trained.folders import RunFolderModels

    if models.kept or not isinstance(models, RunFolderModels):
        return
    try:
        models.aggregate()
    except ConfigurationError:
        theirs, advice = "were not kept", "simulate again with --keep-models"
        if models.keeps_later:
            theirs, advice = "are kept when it is finished", models.how_to_go_on
        text = f"{models.folder} holds no model: members of {models.config.method} share none"
        raise ScenarioError(f"{text}, and theirs {theirs}; {advice}") from None
    except NotFound:
        return


def describe(model: "TrainedModel") -> str:
    """Description of a model, in one line."""
    origin = model.origin
    whose = "the aggregate" if origin.member is None else f"member {origin.member}'s model"
    after = "" if origin.round is None else f" after round {origin.round}"
    numbers = sum(value.numel() for value in model.state.values())
    return f"{whose}{after}: {origin.method} on {origin.dataset}, model {origin.model}, {numbers:,} numbers"


def _as_measured(reported: float, found: float) -> str:
    return "the same" if reported == found else f"{reported!r}"


def _rows(matrix: Any) -> list[tuple[int | None, list[float]]]:
    return [(owner, list(row)) for owner, row in zip(matrix.owners, matrix.accuracies, strict=True)]
