"""A peer that is made to wait is not silent: it is we who do not listen."""

from types import SimpleNamespace

import pytest
import trio
import trio.testing

from fedchain.network.libp2p.oversight import PAUSE_S, Hearing, Oversight
from fedchain.network.limits import Limits
from tests.support.network.real import KEYS


@pytest.mark.parametrize("pause_s", [0.0, 0.5, 10.5])
def test_a_peer_that_is_made_to_wait_is_heard_meanwhile(pause_s: float) -> None:
    peer = KEYS[0].public_key
    hearing = Hearing({peer})
    gate = SimpleNamespace(pause_s=lambda *asked: pause_s)
    oversight = Oversight(gate, Limits(), hearing, lambda *given: None)  # type: ignore[arg-type]

    async def main() -> tuple[float, float | None]:
        begun_s = trio.current_time()
        await oversight.rest(peer)
        last_s = hearing.last_s(peer)
        return trio.current_time() - begun_s, None if last_s is None else trio.current_time() - last_s

    waited_s, silent_s = trio.run(main, clock=trio.testing.MockClock(autojump_threshold=0))
    assert waited_s == pytest.approx(pause_s)
    assert silent_s is None if pause_s <= PAUSE_S else silent_s is not None and silent_s <= PAUSE_S


def test_only_peers_that_may_connect_are_remembered() -> None:
    one, two = (key.public_key for key in KEYS[:2])
    hearing = Hearing({one})

    async def main() -> list[float | None]:
        hearing.note(one)
        hearing.note(two)
        return [hearing.last_s(one), hearing.last_s(two)]

    last_s, never = trio.run(main)
    assert last_s is not None
    assert never is None
    hearing.forget(one)
    assert hearing.last_s(one) is None
