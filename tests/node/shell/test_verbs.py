"""Each effect is one verb with what the effect holds, and the shell waits for what its verb answers."""

from dataclasses import fields
from typing import Any, cast, get_args

from fedchain.chain.exceptions import AlreadyKnown, InvalidPost
from fedchain.node.core import effects
from fedchain.node.core.effects import Effect, Refuse
from fedchain.node.core.voting.journal import Journal
from fedchain.node.shell.verbs import Verbs

WAIT = cast(Any, "wait for it")


def test_each_effect_is_one_verb_and_a_refusal_is_none() -> None:
    said: list[tuple[Any, ...]] = []

    def verb(name: str) -> Any:
        def say(*what: Any) -> Any:
            said.append((name, *what))
            return WAIT

        return say

    verbs = Verbs(**{field.name: verb(field.name) for field in fields(Verbs)})
    journal, asked = Journal(), effects.Contribute(1, 0, "update", b"")
    fault = InvalidPost("phase", "2 found")
    expected: list[tuple[Any, tuple[Any, ...]]] = [
        (effects.Persist(("record",)), ("store", ("record",), None)),  # type: ignore[arg-type]
        (effects.WriteJournal(journal), ("store", (), journal)),
        (effects.Retain(frozenset({b"a"})), ("retain", frozenset({b"a"}))),
        (effects.KeepParts(frozenset({b"b"})), ("keep_parts", frozenset({b"b"}))),
        (effects.Publish("message"), ("publish", "message")),  # type: ignore[arg-type]
        (effects.Send(b"peer", "message"), ("send", b"peer", "message")),  # type: ignore[arg-type]
        (asked, ("train", asked)),
        (effects.Mine("header"), ("mine", "header")),  # type: ignore[arg-type]
        (effects.Compute("job"), ("compute", "job")),  # type: ignore[arg-type]
        (effects.Wake(7), ("wake", 7)),
        (effects.Blame(b"peer", fault), ("blame", b"peer", fault)),
        (effects.Tell("notice"), ("tell", "notice")),  # type: ignore[arg-type]
        (effects.Stop("reason"), ("stop", "reason")),
    ]
    assert {type(effect) for effect, _ in expected} == {*get_args(Effect)} - {Refuse}
    for effect, call in expected:
        assert verbs.carry_out(effect) == WAIT
        assert said.pop() == call
    assert verbs.carry_out(Refuse(b"peer", AlreadyKnown("post", "it is held"))) is None
    assert said == []
