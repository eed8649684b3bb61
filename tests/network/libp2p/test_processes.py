"""Two processes: one is killed without a word and started again with the same key and port."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from fedchain.crypto.address import address
from fedchain.network.messages import GetContent
from fedchain.testing.networks import gossip
from tests.support.network.real import MEMBERS, Inbox, on_trio, peer, until

PROGRAM = """
import sys
import trio
from fedchain.network.messages import GetContent
from fedchain.network.verdict import Verdict
from fedchain.testing.networks import gossip
from tests.support.network.real import peer

async def main():
    async with peer(1, sys.argv[1], listen=sys.argv[2]) as network:
        def answer(sender, message):
            if isinstance(message, GetContent):
                network.send(sender, message)
                network.publish(gossip(message.offset))
            return Verdict.ACCEPT
        network.attach(answer)
        print(network.listen_addresses()[0], flush=True)
        await trio.sleep_forever()

trio.run(main)
"""


@contextmanager
def process(place: str, listen: str) -> Iterator[tuple["subprocess.Popen[str]", str]]:
    command = [sys.executable, "-c", PROGRAM, place, listen]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as child:
        try:
            assert child.stdout is not None
            yield child, child.stdout.readline().partition("/p2p/")[0]
        finally:
            child.kill()


@pytest.mark.long
@on_trio
async def test_a_killed_process_is_missed_and_heard_again_when_it_is_back() -> None:
    async with peer(0) as network:
        inbox, place, listen = Inbox(network), network.listen_addresses()[0], "/ip4/127.0.0.1/tcp/0"
        assert place.endswith(address(MEMBERS[0]))
        for life in range(2):
            with process(place, listen) as (child, listen):
                await until(lambda: network.peers() == [MEMBERS[1]], "a connection")
                await until(lambda: network.router.mesh[network.topic], "a mesh")
                network.send(MEMBERS[1], GetContent(bytes(32), life))
                await until(lambda life=life: len(inbox.heard) == 2 * life + 2, "an answer and gossip")  # type: ignore[misc]
                assert set(inbox.heard[-2:]) == {(MEMBERS[1], GetContent(bytes(32), life)), (MEMBERS[1], gossip(life))}
                child.kill()
                await until(lambda: not network.peers(), "a disconnection")
