"""``fedchain node privacy``: a member's noisy releases, round by round, and their privacy cost.

The cost is an epsilon. It is stated only if the noise covers everything that was posted."""

from pathlib import Path
from typing import Annotated, Any

import typer

from fedchain.cli.common.command import clear_errors
from fedchain.crypto.hashing import Hash
from fedchain.crypto.keys import PublicKey
from fedchain.wording import shown_epsilon


def privacy(
    key: Annotated[Path, typer.Argument(help="Key file; the privacy ledger lies beside it.")],
    genesis: Annotated[Path, typer.Option(help="Genesis document.")],
    as_json: bool,
) -> None:
    """Show a member's privacy ledger: each release and, where noise covers all that is posted, the total epsilon."""
    with clear_errors():
        from fedchain.files.json_text import to_json
        from fedchain.learning.families.local_sgd import NO_EPSILON

        found = read_ledger(key, genesis)
        if as_json:
            typer.echo(to_json(found, indent=2))
            return
        for row in found["releases"]:
            typer.echo(
                f"round {row['round']:<5} {row['phase']}  {row['mechanism']} of {row['sampling']} examples, "
                f"{row['count']} x noise {row['sigma']:g} for sensitivity {row['sensitivity']:g}"
                + ("" if row["epsilon"] is None else f"  epsilon {shown_epsilon(row['epsilon'])}")
            )
        if found["epsilon"] is None:
            typer.echo(f"total         {NO_EPSILON}")
            return
        budget = f" of {found['budget']:g}" if found["budget"] else ""
        typer.echo(f"total         epsilon {shown_epsilon(found['epsilon'])}{budget} at delta {found['delta']:g}")


def read_ledger(key: Path, genesis_path: Path) -> dict[str, Any]:
    """Return a ledger as plain values; `epsilon` of a release is the total up to and with it, None if there is none.

    Raises:
        NodeConfigError: there is no ledger, the key is no member's, or the method adds no noise.
        LedgerDamaged: it cannot be read.
        KeyFileError: there is no journal that names the ledger's owner, and the key file cannot be read.
    """
    from msgspec import to_builtins

    from fedchain.chain.membership.change import CHANGES_VERSION
    from fedchain.crypto.address import address
    from fedchain.learning.privacy.releases import total_epsilon
    from fedchain.learning.registry import build_method
    from fedchain.node.config import NodeConfigError
    from fedchain.node.custody.ledger_file import ledger_path, open_ledger
    from fedchain.node.custody.secrets_file import secrets_path
    from fedchain.node.founding.genesis_file import read_genesis
    from fedchain.node.founding.task import learning_from_genesis

    genesis = read_genesis(genesis_path)
    config = learning_from_genesis(genesis)
    method = build_method(config.method, dict(config.hyperparameters))
    if not method.adds_noise:
        raise NodeConfigError(f"{genesis_path}: {config.method} adds no noise as it is set, so there is no ledger")
    secrets = secrets_path(key, genesis.chain_id)
    if not ledger_path(secrets).exists() and not secrets.exists():
        raise NodeConfigError(f"{ledger_path(secrets)} is not there: this key has let nothing out in this federation")
    owner = owner_of(key, genesis.chain_id)
    if owner not in genesis.index and genesis.version < CHANGES_VERSION:
        raise NodeConfigError(f"{key} is the key of {address(owner)}, which is no member of {genesis_path}")
    number = genesis.index.get(owner, -1)  # for messages; a key that came later has a number on the chain alone
    entries = open_ledger(secrets, number).entries()
    releases = [entry.release for entry in entries]
    delta = method.privacy_delta
    totals: list[float | None] = [None] * len(releases)
    if method.states_epsilon:
        totals = [total_epsilon(releases[: place + 1], delta) for place in range(len(releases))]
    return {
        "releases": [
            {"round": entry.round, "phase": entry.phase, **to_builtins(entry.release), "epsilon": total}
            for entry, total in zip(entries, totals, strict=True)
        ],
        "epsilon": (totals[-1] if totals else 0.0) if method.states_epsilon else None,
        "delta": delta,
        "budget": method.budget.epsilon,
    }


def owner_of(key: Path, chain_id: Hash) -> PublicKey:
    """The owner of a key file. If a node has used the key, the journal beside it names the owner without passphrase."""
    from fedchain.cli.keys import load_key
    from fedchain.node.custody.journal_file import journal_path, read_identity

    journal = journal_path(key, chain_id)
    return read_identity(journal)[1] if journal.exists() else load_key(key).public_key
