"""Pages of a whole chain, and of several: what goes on, what was agreed on, and runs side by side."""

import json
from collections.abc import Iterable, Sequence
from dataclasses import fields

from fedchain.chain.exceptions import ChainError
from fedchain.chain.explorer.plain import plain
from fedchain.chain.explorer.views import ChainStatus
from fedchain.chain.genesis import Genesis
from fedchain.crypto.address import address
from fedchain.web.chains import Chain, Reading
from fedchain.web.charts import line_chart
from fedchain.web.formats import said
from fedchain.web.measured import Measured, newest
from fedchain.web.open_round import open_round
from fedchain.web.pages.accuracy import accuracy_chart, measured_of, points_of
from fedchain.web.pages.asked import MEMBERS_MAX, Context, Question, troubles_of
from fedchain.web.pages.blocks import timed_blocks


def front(chains: Iterable[Chain]) -> Context:
    """All chains, one after the other."""
    rows = list[tuple[Chain, ChainStatus | None, str]]()
    for chain in chains:
        try:
            with chain.reading() as reading:
                rows.append((chain, reading.explorer.status(), ""))
        except ChainError as error:
            rows.append((chain, None, str(error)))
    return {"rows": [(*row, *task_of(row[0].genesis), newest(measured_of(row[0]), "taa")) for row in rows]}


def home(chain: Chain, reading: Reading, question: Question) -> Context:
    """The chain at a glance: its current activity, the last blocks, and whether all is well."""
    status = reading.explorer.status()
    heads = {holder.height for holder in chain.holders if holder.height is not None}
    return {
        "status": status,
        "last_round": reading.explorer.state.rules.rounds,
        "task": task_of(chain.genesis),
        "newest_accuracy": newest(measured_of(chain), "taa"),
        "open": open_round(chain, reading),
        "blocks": timed_blocks(chain, reading, status.height - 9, status.height)[::-1],
        "accuracy": accuracy_chart(chain, reading),
        "troubles": troubles_of(chain, reading),
        "heads": sorted(heads),
        "behind": chain.behind,
    }


def genesis(chain: Chain, reading: Reading, question: Question) -> Context:
    """Everything that the federation agreed on before it began."""
    document, rules = chain.genesis, reading.explorer.membership.rules()
    skipped = ("members", "learning", "setup", "phases")
    return {
        "fields": [
            (item.name, plain(getattr(document, item.name)))
            for item in fields(document)
            if item.init and item.name not in skipped
        ],
        "learning": learning_of(document),
        "amended": rules.amended,
        "coming": rules.coming,
        "in_force": {item.name: item.value for item in rules.amended},
        "addresses": [(number, address(key)) for number, key in enumerate(document.members[:MEMBERS_MAX])],
    }


def compare(chains: Sequence[Chain]) -> Context:
    """Runs side by side."""
    rows, measured = [], dict[str, dict[int, Measured]]()
    for chain in chains:
        values = measured_of(chain)
        measured[chain.title] = values
        try:
            with chain.reading() as reading:
                status = reading.explorer.status()
                mining = [line.mining_ms for line in reading.columns.lines()]
        except ChainError as error:
            rows.append({"chain": chain, "trouble": str(error)})
            continue
        taa = [item.values["taa"] for item in values.values() if "taa" in item.values]
        learning = dict(learning_of(chain.genesis))
        rows.append(
            {
                "chain": chain,
                "trouble": "",
                "status": status,
                "method": learning.get("method", "–"),
                "dataset": learning.get("dataset", "–"),
                "seed": learning.get("seed", "–"),
                "last": taa[-1] if taa else None,
                "best": max(taa, default=None),
                "mining_ms": sorted(mining)[len(mining) // 2] if mining else None,
            }
        )
    charts = [
        line_chart(
            title, [(name, points_of(found, field)) for name, found in measured.items()], x_name="round", unit=unit
        )
        for title, field, unit in (
            ("mean accuracy on the members' own test sets", "taa", "%"),
            ("accuracy on the whole test set", "test_accuracy", "%"),
            ("mean loss on the members' own test sets", "tal", ""),
            ("bytes that a member sent", "bytes_sent_per_peer", "B"),
        )
    ]
    return {"rows": rows, "charts": [chart for chart in charts if chart is not None]}


def task_of(document: Genesis) -> tuple[str, str]:
    """The learning method and the data."""
    learning = dict(learning_of(document))
    return learning.get("method", "–"), learning.get("dataset", "–")


def learning_of(document: Genesis) -> list[tuple[str, str]]:
    """The learning task for people: names and values; a long value is replaced by its size."""
    shown = []
    for name, text in document.learning:
        try:
            value = json.loads(text)
        except (ValueError, RecursionError):
            value = text
        if name == "hyperparameters" and isinstance(value, list):
            shown += [
                (f"{name}: {item[0]}", said(item[1])) for item in value if isinstance(item, list) and len(item) == 2
            ]
        elif len(text) > 160:
            shown.append((name, f"{len(text):,} characters"))
        else:
            shown.append((name, value if isinstance(value, str) else text))
    return shown
