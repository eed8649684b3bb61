"""``fedchain simulate``: its options are the scenario's fields. Nothing heavy is imported before it runs."""

import inspect
import sys
from collections.abc import Callable, Mapping
from dataclasses import fields
from pathlib import Path
from typing import Annotated, Any

import typer

from fedchain.simulator.scenario import Scenario, field_help, load_scenario

EXIT_BAD_INPUT = 2
EXIT_INTERRUPTED = 130

_NOT_OPTIONS = ("faults", "hyperparameters")


def simulate_command() -> Callable[..., None]:
    """Build the command: one option for each field of :class:`Scenario`, with the field's docstring as help."""

    def simulate(**options: Any) -> None:
        scenario_file = options.pop("scenario_file")
        out = options.pop("out")
        values = {name: value for name, value in options.items() if value is not None}
        settings = values.pop("hyperparameters", [])
        run_command(scenario_file, values, settings, out)

    texts = field_help(Scenario)
    parameters = [
        _parameter("scenario_file", Path, typer.Argument(metavar="SCENARIO.toml", help="Scenario file.")),
        _parameter("out", Path, typer.Option("--out", help="Run folder to create; default: runs/NAME.")),
        _parameter(
            "hyperparameters",
            list[str],
            typer.Option("--set", metavar="NAME=VALUE", help=texts["hyperparameters"]),
        ),
    ]
    for item in fields(Scenario):
        if item.name not in _NOT_OPTIONS:
            names = [f"--{item.name.replace('_', '-')}"]
            parameters.append(_parameter(item.name, item.type, typer.Option(*names, help=_help(item, texts))))
    simulate.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    simulate.__doc__ = """Run a federation of many peers on this machine, in virtual time.

    Without a scenario file it is 20 peers × 10 rounds of DFPL on scikit-learn's handwritten digits. An option
    overrides the file.
    """
    return simulate


def run_command(scenario_file: Path | None, values: Mapping[str, Any], settings: list[str], out: Path | None) -> None:
    """Run one scenario, show it, and write its run folder. Exits with 2 and one line on bad input."""
    from fedchain.chain.exceptions import ChainError
    from fedchain.learning.exceptions import LearningError
    from fedchain.simulator.scenario import ScenarioError

    try:
        overrides = dict(values)
        if settings:
            overrides["hyperparameters"] = read_settings(settings)
        scenario = load_scenario(scenario_file, overrides)

        from fedchain.simulator.run import run_scenario

        violated = run_scenario(scenario, out)
    except (ScenarioError, LearningError, ChainError) as error:
        print(f"fedchain: {error}", file=sys.stderr)
        raise typer.Exit(EXIT_BAD_INPUT) from None
    except KeyboardInterrupt:
        print("fedchain: interrupted", file=sys.stderr)
        raise typer.Exit(EXIT_INTERRUPTED) from None
    if violated:
        raise typer.Exit(1)


def read_settings(settings: list[str]) -> dict[str, Any]:
    """Read ``NAME=VALUE`` options: the value as TOML, or as text where it is not."""
    import tomllib

    from fedchain.simulator.scenario import ScenarioError

    values = {}
    for setting in settings:
        name, separator, text = setting.partition("=")
        if not separator or not name.strip():
            raise ScenarioError(f"--set {setting!r} is not of the form NAME=VALUE")
        try:
            values[name.strip()] = tomllib.loads(f"value = {text}")["value"]
        except tomllib.TOMLDecodeError:
            values[name.strip()] = text.strip()
    return values


def _parameter(name: str, kind: Any, option: Any) -> inspect.Parameter:
    """An optional parameter: None means that it was not given."""
    annotation = Annotated[kind | None, option]
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=annotation)


def _help(item: Any, texts: Mapping[str, str]) -> str:
    return f"{texts[item.name]} [default: {item.default}]" if item.default != "" else texts[item.name]
