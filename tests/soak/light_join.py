"""The cost of joining where members change: ``python -m tests.soak light_join [--blocks 2000] [--every 10]``.

One member leaves and one comes in every tenth round of a chain of 20 members. A newcomer asks one member for the way to
its head, and joins there; another one follows block by block. Both are nodes without a network, in virtual time: what
is counted are the bytes of all messages, the certificates that were verified, and the CPU of the newcomer and of the
member that answers it.
"""

import argparse
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from fedchain.chain.block import Block
from fedchain.chain.storage.store import MemoryStore
from fedchain.network.messages import FinalMessage, GetLight, LightMessage, Message, encode_message
from fedchain.node.core.following.light_joining import LightJoining
from tests.support.chain.builders import ChainBuilder
from tests.support.chain.light import CHANGING_MEMBERS, changing_chain
from tests.support.node.crowd import Answers, Crowd
from tests.support.node.stage import Stage, sent

SECONDS_MAX = 3_600.0
"""Virtual time."""


@dataclass(frozen=True)
class Cost:
    """The cost of coming to the head."""

    certificates: int
    messages: int
    size_bytes: int
    virtual_s: float
    cpu_s: float


def followed(chain: ChainBuilder, blocks: Sequence[Block]) -> Stage:
    """A node that has followed the chain, as every member has."""
    stage = Stage(chain.genesis, number=len(chain._keys) + 1, is_heard=False, contributes=False)
    for block in blocks:
        stage.receive(FinalMessage(block, chain.certificate(block)))
    assert stage.node.head.height == len(blocks)
    return stage


def come(chain: ChainBuilder, blocks: Sequence[Block], member: Stage, *, joins: bool) -> Cost:
    """A newcomer comes to the head by what one member answers."""
    stage = Stage(chain.genesis, number=len(chain._keys) + 2, is_heard=False, contributes=False)
    joining = stage.node._parts.catching_up._joining
    assert isinstance(joining, LightJoining)
    if not joins:
        joining.may_join = lambda gap: False  # type: ignore[method-assign]
    stage.chain = chain
    crowd = Crowd(stage, blocks)
    counted = {"messages": 0, "bytes": 0, "certificates": 0}

    def answer(message: Message) -> Answers:
        count(message)
        answers = (
            ((0, item) for item in sent(member.receive(message), LightMessage))
            if isinstance(message, GetLight)
            else crowd.answer(blocks, message)
        )
        for delay_ms, item in answers:
            count(item)
            counted["certificates"] += isinstance(item, FinalMessage | LightMessage)
            yield delay_ms, item

    def count(message: Message) -> None:
        counted["messages"] += 1
        counted["bytes"] += len(encode_message(message))

    for block in () if joins else blocks:
        crowd.final(block)  # the member has them
    crowd.add(chain.state.member_set.members[-1], answer, lambda: (len(blocks), blocks[-1].hash))
    begun_s = time.process_time()
    virtual_s = crowd.run(crowd.is_at_head, SECONDS_MAX)
    cpu_s = time.process_time() - begun_s
    assert crowd.is_at_head()
    assert isinstance(stage.victim.store, MemoryStore)
    assert (stage.victim.store.base() == 1) == (not joins)
    return Cost(counted["certificates"], counted["messages"], counted["bytes"], virtual_s, cpu_s)


def main() -> None:
    """Measure both ways, and exit with 1 if joining does not cost a small part of the other one."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--blocks", type=int, default=2_000)
    parser.add_argument("--every", type=int, default=10)
    options = parser.parse_args()
    begun_s = time.process_time()
    chain, blocks = changing_chain(options.blocks, options.every)
    print(
        f"built {options.blocks:,} blocks of {CHANGING_MEMBERS} members in {time.process_time() - begun_s:.0f} s",
        flush=True,
    )
    member = followed(chain, blocks)
    kept: Callable[[], int] = lambda: len(member.victim.store._lights)  # noqa: E731
    print(f"a member that followed keeps {kept()} light blocks", flush=True)
    costs = {joins: come(chain, blocks, member, joins=joins) for joins in (True, False)}
    for joins, cost in costs.items():
        print(
            f"{'joined by certificates' if joins else 'block by block':<24}{cost.certificates:>7,} certificates"
            f"{cost.messages:>8,} messages{cost.size_bytes:>12,} bytes{cost.virtual_s:>9.1f} s of virtual time"
            f"{cost.cpu_s:>8.2f} s of CPU",
            flush=True,
        )
    sys.exit(0 if costs[True].size_bytes * 20 < costs[False].size_bytes else 1)


if __name__ == "__main__":
    main()
