"""A node's sightings go into its timeline."""

import json
from pathlib import Path

from fedchain.chain.storage.store import Contents
from fedchain.network.messages import (
    CandidateMessage,
    FinalMessage,
)
from fedchain.node.shell.timeline import TimelineFile
from tests.support.chain.builders import ChainBuilder, genesis
from tests.support.node.service import OTHERS, Shell, serving
from tests.support.node.shell import on_trio, until


@on_trio
async def test_what_was_seen_of_a_block_is_written_down(tmp_path: Path) -> None:
    shell, chain = Shell(), ChainBuilder(genesis(4))
    shell.measured["epsilon"] = 1.5
    final = chain.extend()
    lost = chain.extend(chain.genesis.chain_id, miner=OTHERS[1])
    path = tmp_path / "timeline.jsonl"
    shell.store.append([Contents(chain.contents)])
    async with serving(shell, chain.genesis, timeline=TimelineFile(path)) as service:
        await until(shell.published_posts, "it has trained")
        for block in (lost, final):
            shell.receiver(OTHERS[0].public_key, CandidateMessage(block))
        shell.receiver(OTHERS[0].public_key, FinalMessage(final, chain.certificate(final)))
        await until(path.exists, "the line is written")
        assert service.node.head.height == 1
    line = json.loads(path.read_text())
    assert (line["height"], line["hash"]) == (1, final.hash.hex())
    assert {item["hash"] for item in line["candidates"]} >= {final.hash.hex(), lost.hash.hex()}
    assert line["trained_ms"] is not None
    assert line["training"] == {"round": 1, "accuracy": 0.75, "epsilon": 1.5}
