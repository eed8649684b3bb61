"""``fedchain explorer``: the chain explorer's answers as tables for people and as JSON for programs."""

import inspect
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any

import typer

from fedchain.chain.exceptions import NotFound, StoreCorrupt, StoreError
from fedchain.chain.explorer.audit import audit_store
from fedchain.chain.explorer.explorer import Explorer
from fedchain.chain.explorer.founding import describe_genesis, plain_genesis
from fedchain.chain.explorer.knowledge_views import KnowledgeRules
from fedchain.chain.explorer.member_views import PeerView
from fedchain.chain.explorer.plain import plain, plain_proof
from fedchain.chain.explorer.views import BlockView, TransactionProof, is_proven
from fedchain.chain.genesis import Genesis
from fedchain.chain.storage.sqlite import Store
from fedchain.cli.common.command import clear_errors
from fedchain.cli.common.shared import Sharing
from fedchain.files.layout import CHAIN_FOLDER, SOCKET
from fedchain.files.places import chain_folder, chains_in, scenario_file
from fedchain.files.spool import unfinished, write_file_of
from fedchain.wording import counted

RulesOf = Callable[[Genesis], KnowledgeRules]
"""Builds the rules of the learning method that a genesis document names."""

RulesWith = Callable[[Sequence[str]], RulesOf]
"""Builds a ``RulesOf`` that also knows the methods in the named files."""

URL = re.compile("https?://", re.IGNORECASE)
"""The beginning of an address of an explorer."""

PORT = 8420
"""Port on which ``serve`` listens by default."""

Folder = Annotated[Path, typer.Argument(help="Folder of a run or of a node, or the chain's in it.", show_default=False)]


def _shared(
    method: Annotated[
        list[str] | None,
        typer.Option(
            "--method",
            metavar="FILE.py:Class",
            help="The chain's learning method, where its file is not on Python's path. The file is run: trust it.",
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of tables.")] = False,
    out: Annotated[
        str,
        typer.Option("--out", "--html", metavar="PATH", help="Where to write: a folder for export, a file for report."),
    ] = "",
) -> None:
    """The options of several commands."""


@dataclass(frozen=True, slots=True)
class Question:
    """A command that asks one thing of a chain."""

    ask: Callable[..., Any]
    """Function that asks an explorer, with the further argument if there is one."""
    help: str
    about: Any = None
    """Kind of the further argument or option; None if there is none."""
    default: Any = inspect.Parameter.empty


def read_rules(methods: Sequence[str]) -> RulesOf:
    """Build the rules that read knowledge, once the chain is known; named files are imported at once, to check them."""

    def rules_of(genesis: Genesis) -> KnowledgeRules:
        from fedchain.node.founding.task import rules_with

        return rules_with(())(genesis)

    if methods:
        from fedchain.node.founding.task import rules_with

        return rules_with(methods)
    return rules_of


def explorer_app(rules_with: RulesWith = read_rules) -> typer.Typer:
    """The commands. Each imports only the modules that it needs: a learning method, a web server, or templates."""
    app = Sharing(_shared, help="Inspect a chain: a run folder's or a node's.")
    for name, question in QUESTIONS.items():
        app.command(name)(_command(question))

    @app.command()
    def knowledge(
        folder: Folder,
        round_number: Annotated[
            int | None, typer.Argument(metavar="[N]", help="Round; the newest finished one.")
        ] = None,
        *,
        method: list[str] | None,
        as_json: bool,
    ) -> None:
        """Show the knowledge that a round left behind: norm, holders and cosines of the class prototypes."""
        with _open(folder) as explorer:
            answer = explorer.kept.knowledge(rules_with(method or ())(explorer.genesis), round_number)
            _show(answer, as_json, explorer.genesis, explorer.numbers, folder)

    @app.command()
    def verify(
        places: Annotated[
            list[str],
            typer.Argument(
                metavar="FOLDER|URL…",
                help="Folder of a run or of a node, or the chain's in it; or addresses of explorers with one chain.",
                show_default=False,
            ),
        ],
        method: list[str] | None,
        as_json: bool,
    ) -> None:
        """Judge every block again, from the first to the head. Exit code 1: something is invalid or damaged.

        A chain that an explorer serves elsewhere is verified by its certificates: http://HOST:PORT/CHAIN#CHAIN-ID.
        """
        if any(URL.match(place) for place in places):
            verify_by_certificates(places, as_json)
            return
        with clear_errors():
            folder = _one(places)
        with _store(folder, code_of_damage=1) as store:
            report = audit_store(store, rules_with(method or ())(store.genesis))
            _show(report, as_json, store.genesis, _numbers(store), folder)
        raise typer.Exit(0 if report.is_valid else 1)

    @app.command()
    def export(
        folder: Folder,
        out: str,
        method: list[str] | None,
        as_json: bool,
    ) -> None:
        """Write the newest knowledge (knowledge.safetensors) and the chain (chain.jsonl, a block a line)."""
        target = _named_path(out, "--out")
        with _open(folder) as explorer:
            written = _export(explorer, rules_with(method or ())(explorer.genesis), target)
            typer.echo(json.dumps(plain(written)) if as_json else "\n".join(f"wrote {path}" for path in written))

    @app.command()
    def serve(
        folders: Annotated[
            list[Path],
            typer.Argument(
                metavar="FOLDER…",
                help="Folders of runs, nodes or test networks, or of several runs.",
                show_default=False,
            ),
        ],
        host: Annotated[str, typer.Option(help="Address to listen on; this machine alone by default.")] = "127.0.0.1",
        port: Annotated[int, typer.Option(min=0, max=65_535, help="Port to listen on; 0: any that is free.")] = PORT,
        allow_host: Annotated[
            list[str] | None,
            typer.Option(help="Name, beside localhost, under which browsers may ask for it; repeat it."),
        ] = None,
        *,
        method: list[str] | None,
    ) -> None:
        """Show chains in a browser: read-only, also while their nodes run. Ctrl-C ends it."""
        with clear_errors():
            from fedchain.web.serving import serve as serve_web

            serve_web(folders, rules_with(method or ()), host, port, allow_host or ())

    @app.command()
    def report(
        folder: Annotated[Path, typer.Argument(help="Folder of a run, a node or a test network.", show_default=False)],
        out: str,
        method: list[str] | None,
    ) -> None:
        """Write what the pages show of a chain to one file, which needs nothing else."""
        target = _named_path(out, "--html")
        with clear_errors():
            from fedchain.web.report import write_report

            write_report([folder], rules_with(method or ()), target)
            typer.echo(f"wrote {target}")

    return app


def verify_by_certificates(urls: Sequence[str], as_json: bool) -> None:
    """Verify what explorers serve, as a light client, and say in five lines what was verified and what was believed.

    Exit code 1: a server lies, or two contradict each other.
    """
    with clear_errors():
        import time

        from fedchain.chain.exceptions import Refused
        from fedchain.chain.light.bisection import ConflictingBlocks
        from fedchain.web.light import plain_conflict, tell, verify_served

        try:
            report = verify_served(urls, time.time_ns() // 1_000_000)
        except Refused as error:
            typer.echo(json.dumps({"error": str(error)}) if as_json else f"NOT VERIFIED: {error}")
            raise typer.Exit(1) from None
        except ConflictingBlocks as error:
            conflict = plain_conflict(error)
            signers = (f"signed both   {signer}" for signer in conflict["signers"])
            lines = [f"NOT VERIFIED: {error}", *signers]
            typer.echo(json.dumps(conflict, indent=2) if as_json else "\n".join(lines))
            raise typer.Exit(1) from None
        typer.echo(json.dumps(plain(report), indent=2) if as_json else "\n".join(tell(report)))


def _named_path(out: str, option: str) -> Path:
    """The path to write to: an option that several commands share can be required by none of them."""
    if not out:
        raise typer.BadParameter("name where to write", param_hint=f"'{option}'")
    return Path(out)


def _one(places: Sequence[str]) -> Path:
    if len(places) > 1:
        raise NotFound(f"{len(places)} folders are named; one is judged at a time")
    if not places[0]:
        raise NotFound("the name of the folder is empty")
    return Path(places[0])


def _named(metavar: str, text: str) -> Any:
    """An argument that names something."""
    return Annotated[str, typer.Argument(metavar=metavar, help=text)]


def _block(explorer: Explorer, name: str) -> Any:
    return explorer.genesis if name == "0" else explorer.block(name)


QUESTIONS: Mapping[str, Question] = MappingProxyType(
    {
        "status": Question(Explorer.status, "The chain at a glance."),
        "blocks": Question(
            Explorer.blocks,
            "The newest blocks, head first.",
            Annotated[int, typer.Option("--limit", min=1, help="How many blocks, from the head down.")],
            20,
        ),
        "block": Question(
            _block,
            "One block in full.",
            _named("HEIGHT|HASH", "Height, or the beginning of a hash; 0 is the genesis document."),
        ),
        "tx": Question(
            Explorer.transaction,
            "One post, and the block that counts it.",
            _named("HASH", "Beginning of the hash of a post."),
        ),
        "members": Question(Explorer.members, "All members: their numbers, their addresses, and what they did."),
        "peer": Question(
            Explorer.peer,
            "One member: its posts, blocks and votes.",
            _named("NUMBER|ADDRESS", "Number of a member, its address, or the end of that."),
        ),
        "round": Question(
            Explorer.round,
            "One round: its blocks and posts, who was missing, how long mining took.",
            Annotated[int, typer.Argument(metavar="N", help="Number of the round.")],
        ),
        "proof": Question(
            Explorer.proof,
            "Prove that a block counts a post, to a reader that holds nothing but headers.",
            _named("TX", "Beginning of the hash of a post."),
        ),
    }
)


def _command(question: Question) -> Callable[..., None]:
    def command(folder: Path, as_json: bool, **about: Any) -> None:
        with _store(folder) as store:
            explorer = Explorer(store)
            answer = question.ask(explorer, *about.values())
            if isinstance(answer, BlockView | PeerView):
                answer = _with_observations(answer, folder)
            _show(answer, as_json, store.genesis, explorer.numbers, folder)
            if question is QUESTIONS["members"] and not as_json:
                for line in _proposed(folder, explorer.numbers):
                    typer.echo(line)

    keyword = inspect.Parameter.KEYWORD_ONLY
    parameters = [inspect.Parameter("folder", keyword, annotation=Folder)]
    if question.about is not None:
        kind, default = question.about, question.default
        parameters.append(inspect.Parameter("about", keyword, default=default, annotation=kind))
    parameters.append(inspect.Parameter("as_json", keyword, annotation=bool))
    command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    command.__doc__ = question.help
    return command


def _proposed(folder: Path, numbers: Mapping[str, int]) -> Iterator[str]:
    """Proposed changes of the members, as the node that runs in a folder tells them; none if none runs there."""
    if not (folder / SOCKET).exists():
        return
    from fedchain.node.config import NodeConfigError
    from fedchain.node.membership.account import proposed_lines
    from fedchain.node.operating.status import ask

    with suppress(NodeConfigError):  # it is about to end, or of an earlier version
        if (found := ask(folder, {"ask": "changes"})) is not None:
            yield from proposed_lines(found, dict(numbers))


def _with_observations(view: BlockView | PeerView, folder: Path) -> BlockView | PeerView:
    """An answer with what the folder tells beside the chain, as pages show it: lost blocks, parts in rounds."""
    from fedchain.web.chains import open_chains
    from fedchain.web.pages import blocks, rounds
    from fedchain.web.places import find_places

    around = folder.resolve().parent if folder.resolve().name == CHAIN_FOLDER else folder
    (chain,) = open_chains(find_places([around]), read_rules(()))
    try:
        chain.look()
        while isinstance(view, PeerView) and not chain.read_on():
            pass
        with chain.reading() as reading:
            if isinstance(view, BlockView):
                return blocks.with_observations(chain, view)
            return rounds.with_rounds(chain, reading, view)
    finally:
        chain.close()


@contextmanager
def _open(folder: Path) -> Iterator[Explorer]:
    """The chain in a folder, inside the boundary of every command."""
    with _store(folder) as store:
        yield Explorer(store)


@contextmanager
def _store(folder: Path, code_of_damage: int = 2) -> Iterator[Store]:
    """The store in a folder, for a command that reads the records themselves, which may be damaged."""
    with clear_errors(code_of_damage=code_of_damage):
        if not folder.is_dir():
            raise NotFound(f"{folder} is not a folder")
        if (several := chains_in(folder)) and several != [folder]:
            which = f"one of {', '.join(map(str, several))}" if len(several) > 1 else several[0]
            raise NotFound(f"{folder} holds {counted(len(several), 'chain')}; name {which}")
        with Store.open(chain_folder(folder), read_only=True) as store:
            yield store


def _export(explorer: Explorer, rules: KnowledgeRules, out: Path) -> tuple[Path, ...]:
    files = out / "knowledge.safetensors", out / "chain.jsonl"
    for path in files:
        if path.exists():
            raise StoreError(f"{path} exists already; nothing is overwritten")
    knowledge = explorer.kept.safetensors(rules)
    out.mkdir(parents=True, exist_ok=True)
    # A chain may not fit into memory, nor may its knowledge: they are written block by block and tensor by tensor.
    numbers = explorer.numbers
    with unfinished(files[1]) as of_blocks, unfinished(files[0]) as of_knowledge:
        with of_blocks.open("w", encoding="utf-8") as file:
            for view in explorer.views():
                file.write(json.dumps(plain(view, numbers)) + "\n")
        write_file_of(knowledge, of_knowledge)
    return files


def _numbers(store: Store) -> Mapping[str, int]:
    """Number of each member by its address; none where the head is damaged, whose state names the members."""
    try:
        return Explorer(store).numbers
    except StoreCorrupt:
        return {}


def _show(answer: Any, as_json: bool, genesis: Genesis, numbers: Mapping[str, int], folder: Path) -> None:
    if as_json:
        typer.echo(json.dumps(_plain(answer, numbers), indent=2))
        return
    if isinstance(answer, Genesis):
        for label, text in describe_genesis(answer):
            typer.echo(f"{label:28}{text}")
        return
    # Imported only for tables: rich takes time to load.
    from fedchain.cli.explorer_tables import render
    from fedchain.terminal import Console

    # The texts came from other peers: none of them is markup.
    console = Console()
    is_virtual = scenario_file(folder) is not None
    for part in render(answer, genesis, is_virtual=is_virtual, numbers=numbers):
        console.print(part, crop=False)
    if isinstance(answer, TransactionProof):
        typer.echo(f"\nThe proof {'holds' if is_proven(answer) else 'FAILS'}.")


def _plain(answer: Any, numbers: Mapping[str, int]) -> Any:
    if isinstance(answer, Genesis):
        return plain_genesis(answer)
    return plain_proof(answer) if isinstance(answer, TransactionProof) else plain(answer, numbers)


explorer = explorer_app()
