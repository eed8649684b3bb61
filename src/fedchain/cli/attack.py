"""``fedchain attack``: what others could read in members' posts. Nothing heavy is imported before it runs."""

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fedchain.cli.common.command import clear_errors
from fedchain.files.layout import free_folder
from fedchain.simulator.scenario import ScenarioError, load_scenario

if TYPE_CHECKING:
    from fedchain.simulator.leakage.attack import Finding

attack_app = typer.Typer(help="Try what others could read in what members post.", no_args_is_help=True)


@attack_app.callback()
def _group() -> None:
    """A group of commands, however many it has."""


@attack_app.command()
def inversion(
    store: Annotated[
        Path | None, typer.Option(help="Attack a post of this stored chain: a run's folder or a node's.")
    ] = None,
    round_number: Annotated[int, typer.Option("--round", min=1, help="With --store: round of the post.")] = 1,
    sender: Annotated[str, typer.Option(help="With --store: who posted, by the address or its end.")] = "",
    attacker: Annotated[
        str, typer.Option(help="With --store: the member that reads it; default: the first of the others.")
    ] = "",
    dataset: Annotated[str, typer.Option(help="Data set of the clients that are attacked.")] = "digits",
    train_examples: Annotated[
        int, typer.Option(min=0, help="Training examples that are spread over the clients; 0: all.")
    ] = 0,
    data_dir: Annotated[str, typer.Option(help="Folder of the data sets; default: FEDCHAIN_DATA.")] = "",
    model: Annotated[str, typer.Option(help="Model, or auto for the usual one.")] = "auto",
    method: Annotated[
        str,
        typer.Option(
            help="Attack posts of this method alone (or FILE.py:Class); default: FedAvg, FedReg, MG and prototypes."
        ),
    ] = "",
    settings: Annotated[
        list[str] | None, typer.Option("--set", metavar="NAME=VALUE", help="Hyper-parameters of --method.")
    ] = None,
    informed: Annotated[
        bool, typer.Option("--informed", help="The attacker reckons with what FedReg, as --method, adds to a step.")
    ] = False,
    images: Annotated[
        int,
        typer.Option(min=1, max=1000, help="Clients that are attacked; for fededs, images of one client."),
    ] = 4,
    known_pairs: Annotated[
        int,
        typer.Option(min=0, help="For fededs: images of the victim that the attacker has beside its own."),
    ] = 0,
    batch_size: Annotated[int, typer.Option(min=1, max=64, help="Examples of the local step.")] = 1,
    rounds: Annotated[int, typer.Option(min=0, help="Rounds of training before the post.")] = 0,
    noise: Annotated[
        float, typer.Option(min=0.0, help="Multiplier of the noise on prototypes: deviation over sensitivity.")
    ] = 1.0,
    iterations: Annotated[int, typer.Option(min=1, help="Steps of the search for images.")] = 300,
    passes: Annotated[int, typer.Option(min=1, help="For fededs: passes of the decoder's training.")] = 20,
    learning_rate: Annotated[float, typer.Option(min=1e-6, help="First step of the search, normalised pixels.")] = 0.1,
    total_variation: Annotated[float, typer.Option(min=0.0, help="Weight of the total variation.")] = 1e-3,
    seed: Annotated[int, typer.Option(min=0, help="Root of all randomness.")] = 0,
    out: Annotated[Path | None, typer.Option(help="Folder for table and picture; default: runs/inversion.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Look for a client's images in its posts: gradient inversion, inversion of prototypes, decoding.

    Clients post by the methods' own code, after one local step; FedEDS's encrypted images are those of its setup. The
    images found are compared with the originals, and with the mean image of the class, which needs no attack.
    """
    with clear_errors(ScenarioError):
        if (store is None) != (sender == ""):
            raise ScenarioError("--store and --sender name a stored post together; give both or neither")
        if (settings or informed) and not method:
            raise ScenarioError("--set and --informed are for the method that --method names, and there is none")
        if known_pairs and method != "fededs":
            raise ScenarioError("--known-pairs are of encrypted images, which --method fededs posts")

        from fedchain.learning.leakage.descent import Search
        from fedchain.node.founding.task import read_settings
        from fedchain.simulator.leakage.attack import OBJECTIVES, SETTINGS, Setting, Victims, attack_methods
        from fedchain.simulator.leakage.encrypted import Decoding, attack_encrypted
        from fedchain.simulator.leakage.stored import attack_stored

        search = Search(iterations=iterations, learning_rate=learning_rate, total_variation=total_variation)
        if store is not None:
            title = f"what {sender} posted in round {round_number}"
            found = attack_stored(
                store, round_number, sender, attacker, data_dir=data_dir, objectives=OBJECTIVES, search=search
            )
            _show(found, title, out, as_json=as_json)
            return
        values: dict[str, Any] = {"dataset": dataset, "data_dir": data_dir, "model": model, "seed": seed}
        if method:
            values |= {"method": method, "hyperparameters": read_settings(settings or [])}
        given = {"train_examples": train_examples, "peers": images, "partition": "iid"}
        scenario = load_scenario(None, values | given)
        if method == "fededs":
            found = attack_encrypted(scenario, Decoding(images=images, known_pairs=known_pairs, passes=passes))
            _show(found, f"{dataset}: encrypted images of FedEDS", out, as_json=as_json)
            return
        victims = Victims(clients=images, batch_size=batch_size, rounds=rounds)
        own = Setting(name=method, method=method, hyperparameters=scenario.hyperparameters, informed=informed)
        asked = (own,) if method else SETTINGS
        found = attack_methods(scenario, asked, victims, noise=noise, search=search)
        _show(found, f"{dataset}: one step on {batch_size}, after {rounds} rounds", out, as_json=as_json)


def _show(found: "Iterable[Finding]", title: str, out: Path | None, *, as_json: bool) -> None:
    """Print each finding as it comes, and the table of all, and write them to a folder."""
    import json

    from fedchain.simulator.leakage.report import row_of, show, to_dict, write_folder
    from fedchain.terminal import Console

    console, findings = Console(quiet=as_json), []
    for finding in found:
        findings.append(finding)
        console.print(f"{finding.name}, {finding.attack}: {row_of(finding).psnr:.1f} dB")
    rows = [row_of(finding) for finding in findings]
    folder = out or free_folder("inversion")
    write_folder(folder, title, findings)
    show(console, title, rows)
    console.print(f"written to {folder}", soft_wrap=True)
    if as_json:
        print(json.dumps(to_dict(title, rows), indent=2))
