"""The hash over all that happened."""

import pytest

from fedchain.crypto.hashing import sha256
from fedchain.network.messages import GetFinal
from fedchain.simulator.engine import trace as module
from fedchain.simulator.engine.clock import VirtualTimeLoop
from fedchain.simulator.engine.network import Parcel
from fedchain.simulator.engine.trace import Trace


def test_each_stretch_is_hashed_behind_those_before_it() -> None:
    loop = VirtualTimeLoop()
    trace = Trace(loop)
    trace.note(2, "mined", b"block")
    first = trace.write()
    assert first == sha256(bytes(32) + b"0 2 mined block")
    trace.note(0, "head", b"")
    trace.note(1, "head", b"")
    assert trace.write() == sha256(first + b"0 0 head 0 1 head ")
    loop.close()


def test_lines_do_not_pile_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LINES_MAX", 2)
    loop = VirtualTimeLoop()
    trace = Trace(loop)
    parcel = Parcel(GetFinal(1, 1), size_bytes=1, identity=b"label", gossip=False)
    for _ in range(2):
        trace.deliver(0, 1, parcel)
    whole = sha256(bytes(32) + b"0 0 1 label0 0 1 label")
    assert trace.write() == sha256(whole), "the two were hashed when they came"
    loop.close()


def test_a_delivery_to_many_leaves_the_lines_of_one_to_each(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LINES_MAX", 3)
    loop, parcel = VirtualTimeLoop(), Parcel(GetFinal(1, 1), size_bytes=1, identity=b"label", gossip=False)
    together, alone = Trace(loop), Trace(loop)
    for receivers in ([4], [0, 2, 3, 5, 6, 7, 8], [], [1, 2]):
        together.deliver_to_all(receivers, 9, parcel)
        for number in receivers:
            alone.deliver(number, 9, parcel)
        for trace in (together, alone):
            trace.note(0, "head", b"")
            trace.note(0, "mined", b"")
    assert together._lines == alone._lines
    assert together.write() == alone.write()
    loop.close()
