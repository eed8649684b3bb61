"""``fedchain explorer report``: a chain's pages in one file that needs nothing else."""

import base64
import hashlib
from collections.abc import Sequence
from pathlib import Path

from markupsafe import Markup

import fedchain
from fedchain.chain.exceptions import ChainError, NotFound, StoreError
from fedchain.files.spool import write_whole
from fedchain.web.app import FOLDER, make_templates
from fedchain.web.chains import Chain, Reading, RulesOf, open_chains
from fedchain.web.formats import Names
from fedchain.web.knowledge import KnowledgeReader
from fedchain.web.pages import asked, blocks, members, overview, rounds
from fedchain.web.places import find_places

BLOCKS_MAX = 1_000
"""Most blocks in a report; it shows the newest."""


def write_report(folders: Sequence[Path], rules_of: RulesOf, path: Path) -> None:
    """Write the chain in ``folders`` to the HTML file at ``path``, which must not exist.

    Raises:
        ChainError: there is no chain, or several, or it cannot be read; or the file is there already.
    """
    if path.exists():
        raise StoreError(f"{path} exists already; nothing is overwritten")
    chains = open_chains(find_places(folders), rules_of)
    try:
        if len(chains) > 1:
            names = ", ".join(chain.title for chain in chains)
            raise NotFound(f"{len(chains)} chains found ({names}): a report is about one")
        text = render_report(chains[0])
    finally:
        for chain in chains:
            chain.close()
    write_whole(text, path)


def render_report(chain: Chain) -> str:
    """The report as HTML: it loads nothing, and its policy lets it run nothing."""
    style = (FOLDER / "static" / "explorer.css").read_text(encoding="utf-8")
    while not chain.read_on():
        pass
    chain.ask()
    chain.look()
    with chain.reading() as reading:
        last = reading.explorer.held.stop - 1
        context = overview.home(chain, reading, {}) | members.members(chain, reading, {})
        context |= overview.genesis(chain, reading, {}) | _knowledge(chain, reading)
        names = Names(
            chain.genesis,
            chain.key,
            is_report=True,
            is_virtual=chain.is_simulated,
            numbers=reading.numbers,
        )
        context |= rounds.participation(chain, reading, {}, names)
        context["all_blocks"] = blocks.timed_blocks(chain, reading, last - BLOCKS_MAX + 1, last)[::-1]
    frame = {
        "chain": chain,
        "names": names,
        "version": fedchain.__version__,
        "is_report": True,
        "question": {},
        "style": Markup(style),
        "style_hash": base64.b64encode(hashlib.sha256(style.encode()).digest()).decode(),
    }
    return make_templates().get_template("report.html").render(frame | context)


def _knowledge(chain: Chain, reading: Reading) -> asked.Context:
    reader = KnowledgeReader()
    try:
        context = rounds.knowledge(chain, reading, "", reader)
        while reader.work():  # a page would leave this to the background
            pass
        return rounds.knowledge(chain, reading, "", reader) if context["drift"].unread else context
    except ChainError:  # not kept, or none yet
        return {"knowledge": None}
