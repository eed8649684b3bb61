"""An effect that carries an error holds nothing but the error."""

import gc
import weakref

import pytest

from fedchain.chain.exceptions import InvalidPost, Refused
from fedchain.node.core.effects import Blame, Refuse


class Payload:
    """Stands for what a node holds while it judges."""


@pytest.mark.parametrize("kind", [Refuse, Blame])
def test_what_was_held_when_a_message_was_refused_is_let_go(kind: type[Refuse] | type[Blame]) -> None:
    def judge() -> "weakref.ref[Payload]":
        held = Payload()
        found = weakref.ref(held)
        try:
            raise KeyError("phase")
        except KeyError:
            raise InvalidPost("phase", "unknown") from None
        finally:
            seen.append(found)

    seen = list["weakref.ref[Payload]"]()
    effect = None
    try:
        judge()
    except Refused as error:
        effect = kind(bytes(32), error)
    gc.collect()
    assert effect is not None
    assert (effect.error.__traceback__, effect.error.__context__) == (None, None)
    assert [found() for found in seen] == [None]
    assert str(effect.error) == "phase: unknown"
