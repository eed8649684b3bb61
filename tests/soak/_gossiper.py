"""A process that gossips at a given rate and notes when it heard what the others said."""

import sys
import time
from array import array

import trio

from fedchain.crypto.keys import PublicKey
from fedchain.network.libp2p.network import Libp2pNetwork, open_network
from fedchain.network.limits import Limits
from fedchain.network.messages import Message, PostMessage
from fedchain.network.verdict import Verdict
from fedchain.testing.networks import gossip
from tests.soak._processes import answer, told
from tests.support.chain.builders import keys

CHAIN_ID = bytes(32)


class Gossiper:
    """One peer. Times are kept in an array of fixed size, so that memory which grows is not the measurement's."""

    def __init__(self, number: int, network: Libp2pNetwork) -> None:
        self._number, self._network = number, network
        self._transaction = gossip().post
        self._each = self._part = 0
        self._delays_s = array("d")
        self._cpu_s = time.process_time()

    def begin(self, part: int, count: int, each: int) -> None:
        """Expect ``each`` messages from each of ``count`` peers."""
        self._part, self._each = part, each
        self._delays_s = array("d", [-1.0]) * (count * each)
        self._cpu_s = time.process_time()

    async def publish(self, count: int, rate: float, size: int, at_s: float) -> None:
        """Publish messages of ``size`` bytes from ``at_s`` (Unix seconds) on, ``rate`` per second; 0: at once."""
        await trio.sleep(max(0.0, at_s - time.time()))
        begun_s = trio.current_time()
        for sequence in range(count):
            if rate:
                await trio.sleep_until(begun_s + sequence / rate)
            name = b"".join(value.to_bytes(4, "big") for value in (self._part, self._number, sequence))
            self._network.publish(
                PostMessage(self._transaction, name + time.time_ns().to_bytes(8, "big") + bytes(size))
            )

    def receive(self, peer: PublicKey, message: Message) -> Verdict:
        """Note when a message came for the first time."""
        assert isinstance(message, PostMessage)
        assert message.payload is not None
        part, sender, sequence = (int.from_bytes(message.payload[place : place + 4], "big") for place in (0, 4, 8))
        place = sender * self._each + sequence
        if part == self._part and sequence < self._each and self._delays_s[place] < 0:
            self._delays_s[place] = time.time() - int.from_bytes(message.payload[12:20], "big") / 1e9
        return Verdict.ACCEPT

    def heard(self) -> int:
        """Messages heard in this part."""
        return sum(delay_s >= 0 for delay_s in self._delays_s)

    def report(self) -> dict[str, object]:
        """Delays by message, -1 where it was not heard, and the CPU time of this part."""
        return {"delays_s": self._delays_s.tolist(), "cpu_s": time.process_time() - self._cpu_s}


async def run(number: int, count: int) -> None:
    """Do as told."""
    everybody = keys(count)
    commands = told()
    bootstrap = (await anext(commands))["dial"]
    members = [key.public_key for key in everybody]
    limits = Limits(peers_wanted=0)
    async with (
        open_network(everybody[number], CHAIN_ID, members, bootstrap=bootstrap, limits=limits) as network,
        trio.open_nursery() as nursery,
    ):
        gossiper = Gossiper(number, network)
        network.attach(gossiper.receive)
        answer(network.listen_addresses())
        async for command in commands:
            match command:
                case {"neighbours": _}:
                    mesh = network.router.mesh.get(network.topic, set())
                    answer(min(len(network.peers()), len(network.pubsub.peers)) if mesh else 0)
                case {"begin": part, "each": each}:
                    gossiper.begin(part, count, each)
                    answer(True)
                case {"publish": amount, "rate": rate, "size": size, "at_s": at_s}:
                    nursery.start_soon(gossiper.publish, amount, rate, size, at_s)
                case {"heard": _}:
                    answer(gossiper.heard())
                case {"report": _}:
                    answer(gossiper.report())
        nursery.cancel_scope.cancel()


if __name__ == "__main__":
    trio.run(run, int(sys.argv[1]), int(sys.argv[2]))
