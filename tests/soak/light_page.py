"""The time of a page that checks its block by itself: ``python -m tests.soak light_page [--blocks 2000] [--runs 3]``.

One member leaves and one comes in every tenth round of a chain of 20 members. An explorer of its own process serves it;
Chromium opens the page of the last block, and follows the certificates from the founders to it with WebCrypto. Each run
is a new browser, which has nothing of an earlier one. The time runs from the navigation to the verdict.
"""

import argparse
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from playwright.sync_api import Request, sync_playwright

from fedchain.chain.block import Block
from fedchain.chain.light.light_block import LightBlock
from fedchain.chain.storage.sqlite import Store
from tests.bench.web import load_text, served
from tests.support.chain.builders import ChainBuilder
from tests.support.chain.explored import write
from tests.support.chain.light import CHANGING_MEMBERS, changing_chain, light
from tests.support.web.chromium import CHROMIUM, FLAGS

SECONDS_MAX = 300.0


@dataclass(frozen=True)
class Opened:
    """The page of a block, opened once."""

    shown_s: float
    """Until the page was there, without its verdict."""
    verified_s: float
    """Until the verdict was there."""
    light_blocks: int
    """Light blocks that it asked for."""
    size_bytes: int
    """Bytes of these answers, which are hexadecimal."""
    words: str
    """The verdict."""


def kept(chain: ChainBuilder, blocks: Sequence[Block]) -> list[LightBlock]:
    """The light blocks that a node keeps: of each first height that another set decides."""
    roots = [chain.states[block.header.parent_hash].member_set.root for block in blocks]
    pairs = zip(blocks[1:], roots, roots[1:], strict=False)
    return [light(chain, block.hash) for block, before, root in pairs if before != root]


def open_page(address: str) -> Opened:
    """Open a page in a new browser, and wait for its verdict."""
    answers = list[int]()

    def note(request: Request) -> None:
        if "/light/" in request.url and (response := request.response()) is not None:
            answers.append(len(response.body()))

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=[*FLAGS])
        page = browser.new_page()
        page.on("requestfinished", note)
        begun_s = time.perf_counter()
        page.goto(address, wait_until="domcontentloaded")
        shown_s = time.perf_counter() - begun_s
        page.wait_for_selector("#checked:not([hidden])", timeout=1_000 * SECONDS_MAX)
        verified_s = time.perf_counter() - begun_s
        words = page.inner_text("#checked")
        browser.close()
    return Opened(shown_s, verified_s, len(answers), sum(answers), words)


def main() -> None:
    """Measure, and exit with 1 if the page finds anything else than a verified block."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--blocks", type=int, default=2_000)
    parser.add_argument("--every", type=int, default=10)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--folder", type=Path, help="where the chain is kept for the next time")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = (options.folder or Path(temporary)) / f"{options.blocks}-{options.every}"
        if not folder.exists():
            chain, blocks = changing_chain(options.blocks, options.every)
            unfinished = folder.with_suffix(".part")
            with Store.create(unfinished / "chain", chain.genesis) as store:
                write(store, chain)
                store.append(kept(chain, blocks))
            unfinished.rename(folder)
        times, is_verified = list[float](), True
        for _ in range(options.runs):
            with served(folder) as (_, port):
                opened = open_page(f"http://127.0.0.1:{port}/{folder.name}/block/{options.blocks}")
            is_verified = is_verified and "checked in this browser" in opened.words
            times.append(opened.verified_s)
            print(
                f"{options.blocks:,} blocks of {CHANGING_MEMBERS}: {opened.verified_s:.2f} s, the page alone "
                f"{opened.shown_s:.2f} s; {opened.light_blocks} light blocks in {opened.size_bytes:,} bytes; "
                f"{load_text()}\n{opened.words}",
                flush=True,
            )
    print(f"median {statistics.median(times):.2f} s; load now {os.getloadavg()[0]:.1f}")
    sys.exit(0 if is_verified else 1)


if __name__ == "__main__":
    main()
