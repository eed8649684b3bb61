"""States that are read as a stranger reads them."""

from unittest.mock import patch
from weakref import WeakValueDictionary

from fedchain.chain.genesis import Genesis
from fedchain.chain.state import State, decode_state


def read_anew(genesis: Genesis, state: State) -> State:
    """Read a state's bytes as a process does that holds no such state; one that holds it does not read them again."""
    with patch("fedchain.chain.state._states", WeakValueDictionary()):
        return decode_state(genesis, state.encode())
