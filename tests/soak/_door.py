"""A process with an open door: it says how many came, and what it holds."""

import os
import sys

import trio

from fedchain.crypto.keys import PublicKey
from fedchain.network.libp2p.network import open_network
from fedchain.network.limits import Limits
from tests.soak._processes import answer, told
from tests.support.chain.builders import keys

CHAIN_ID = bytes(32)


async def run(members: int) -> None:
    """Do as told. Our own key is the last of ``members``; the others may come."""
    everybody = keys(members)
    commands = told()
    arrivals = [0]

    def count(peer: PublicKey, is_connected: bool) -> None:
        arrivals[0] += is_connected

    async with open_network(
        everybody[-1], CHAIN_ID, [key.public_key for key in everybody], limits=Limits(peers_wanted=0)
    ) as network:
        network.watch(count)
        async for command in commands:
            match command:
                case {"address": _}:
                    answer(network.listen_addresses()[0])
                case {"figures": _}:
                    answer(
                        {
                            "arrivals": arrivals[0],
                            "peers": len(network.peers()),
                            "sockets": len(os.listdir("/proc/self/fd")),
                            "tasks": trio.lowlevel.current_statistics().tasks_living,
                        }
                    )


if __name__ == "__main__":
    trio.run(run, int(sys.argv[3]))
