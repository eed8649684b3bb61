"""Blocks that lost."""

import json
import re
from dataclasses import replace
from pathlib import Path

from typer.testing import CliRunner

from fedchain.chain.block import Block
from fedchain.chain.storage.sqlite import Store
from fedchain.chain.storage.store import Candidate
from fedchain.cli.explorer import explorer
from fedchain.files.layout import METRICS_FILE, TIMELINE_FILE
from fedchain.node.shell.timeline import TimelineFile
from tests.support.chain.builders import ChainBuilder, genesis, keys
from tests.support.chain.explored import write
from tests.support.simulator.trivial import troubled_scenario
from tests.support.web.played import play
from tests.support.web.sightings import candidate, client, seen
from tests.support.web.sightings import net as net


def test_a_block_shows_who_lost_to_it_and_when_each_came(net: tuple[Path, list[Block], Block]) -> None:
    folder, blocks, lost = net
    shown = client(folder).get("/net/block/3").text
    table = shown.partition('id="candidates"')[2].partition("</section>")[0]
    assert table.index(lost.hash.hex()) < table.index(blocks[2].hash.hex())
    assert table.count(">not judged<") == table.count(">final<") == 1
    assert [piece in table for piece in ("7.0 s", "8.0 s", "7.001 s", "8.5 s")] == [True, True, False, False]
    assert f'not judged: <code class="hash" title="{lost.hash.hex()}"' in client(folder).get("/net/blocks").text
    assert 'id="candidates"' not in client(folder).get("/net/block/2").text


def test_a_block_that_its_own_node_mined_and_nobody_noted_is_lost_too(tmp_path: Path) -> None:
    chain = ChainBuilder(genesis(4))
    final = chain.extend()
    lost = chain.extend(chain.genesis.chain_id, miner=keys(4)[2])
    del chain.blocks[lost.hash]
    chain.tip = final.hash
    with Store.create(tmp_path / "node" / "chain", chain.genesis) as store:
        store.append([Candidate(lost, True), Candidate(final, True)])
        write(store, chain)
    shown = client(tmp_path / "node").get("/node/block/1").text.partition('id="candidates"')[2]
    assert lost.hash.hex() in shown
    assert shown.count(">not taken<") == 1


def test_a_liar_s_own_word_for_its_block_does_not_count(tmp_path: Path) -> None:
    """A simulation keeps the store of one peer, which may be a liar: its timeline is of honest peers."""
    chain = ChainBuilder(genesis(4))
    final = chain.extend()
    lost, unseen = (chain.extend(chain.genesis.chain_id, miner=keys(4)[2], payload_of=number) for number in (5, 6))
    chain.blocks = {final.hash: final}
    chain.tip = final.hash
    with Store.create(tmp_path / "run" / "chain", chain.genesis) as store:
        store.append([Candidate(lost, True), Candidate(unseen, True)])
        write(store, chain)
    refused = replace(candidate(lost, 7_000), seen="3", refused={"knowledge": "3"})
    TimelineFile(tmp_path / "run" / TIMELINE_FILE).add(seen(final, 5, 9_000, refused, candidate(final, 8_000)))
    (tmp_path / "run" / "scenario.toml").write_text('adversaries = [{behaviour = "cheating-miner", peers = [2]}]')
    asked = client(tmp_path / "run")
    (found,) = asked.get("/api/v1/run/block/1").json()["lost"]
    assert (found["hash"], found["verdict"], found["seen_by"]) == (lost.hash.hex(), "refused", 2)
    assert unseen.hash.hex() not in asked.get("/run/block/1").text
    (tmp_path / "run" / "scenario.toml").write_text("")
    assert len(client(tmp_path / "run").get("/api/v1/run/block/1").json()["lost"]) == 2


def test_what_peers_made_of_a_lost_block_is_told_and_who(net: tuple[Path, list[Block], Block]) -> None:
    folder, blocks, lost = net
    for number, made in enumerate(({"seen": "1", "refused": {"bits: too few": "1"}}, {"seen": "2", "valid": "2"})):
        path = folder / f"node-{number}" / TIMELINE_FILE
        path.write_text("")
        TimelineFile(path).add(seen(blocks[2], 5, 9_000, replace(candidate(lost, 7_000), **made)))  # type: ignore[arg-type]
    (found,) = client(folder).get("/api/v1/net/block/3").json()["lost"]
    assert (found["hash"], found["miner_number"], found["seen_by"]) == (lost.hash.hex(), 2, 2)
    assert (found["verdict"], found["reasons"]) == ("not taken", ["bits: too few (peer 0)"])
    (folder / "node-1" / TIMELINE_FILE).unlink()
    page = client(folder).get("/net/block/3").text
    assert ">refused</span> <small>bits: too few (peer 0)</small>" in page


def test_a_peer_that_took_a_block_after_all_is_not_told_as_one_that_refused_it(
    net: tuple[Path, list[Block], Block],
) -> None:
    folder, blocks, lost = net
    at_first = {"seen": "3", "refused": {"bits: too few": "3", "a post is missing": "2"}}
    for number, made in enumerate((at_first, {"seen": "2", "valid": "2"})):
        path = folder / f"node-{number}" / TIMELINE_FILE
        path.write_text("")
        TimelineFile(path).add(seen(blocks[2], 5, 9_000, replace(candidate(lost, 7_000), **made)))  # type: ignore[arg-type]
    (found,) = client(folder).get("/api/v1/net/block/3").json()["lost"]
    assert (found["verdict"], found["reasons"]) == ("not taken", ["bits: too few (peer 0)"])


def test_pages_json_and_metrics_of_a_run_agree_on_what_was_not_taken_and_why(tmp_path: Path) -> None:
    """A page showed only what came to the first peer, and its table and the metrics contradicted each other."""
    folder = tmp_path / "run"
    outcome = play(folder, troubled_scenario())
    shown, told = client(folder), dict[str, int]()
    command = ["--json", "block", str(folder)]
    attempts = 0
    for height in range(1, outcome.totals["height"] + 1):
        page = shown.get(f"/run/block/{height}").text
        answer = shown.get(f"/api/v1/run/block/{height}").json()
        assert json.loads(CliRunner().invoke(explorer, [*command, str(height)]).stdout) == answer
        verdicts = [item["verdict"] for item in answer["lost"]]
        for verdict in ("not taken", "refused", "not judged"):
            told[verdict] = told.get(verdict, 0) + verdicts.count(verdict)
            assert len(re.findall(f'class="tag[ a-z]*">{verdict}<', page)) == verdicts.count(verdict)
        failed = answer["certificate"]["attempt"]
        attempts = max(attempts, failed + 1)
        assert page.count(" failed</b>") == failed
        assert page.count("No folder here tells why.") == failed - len(answer["failed"])
    rows = [json.loads(line) for line in (folder / METRICS_FILE).read_text().splitlines()]
    assert told["not taken"] == sum(row["not_taken"] for row in rows) == outcome.totals["not_taken"] > 0
    assert told["refused"] == sum(row["refused"] for row in rows)
    assert attempts == max(row["attempts"] for row in rows) > 1
