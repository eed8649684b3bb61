"""Where pages are served."""

import pytest

from fedchain.chain.exceptions import StoreError
from fedchain.web.serving import listen
from tests.support.web.pages import chain as chain
from tests.support.web.pages import client as client
from tests.support.web.pages import run as run


def test_a_port_that_is_taken_and_a_host_that_is_none_are_said_in_a_line() -> None:
    with listen("127.0.0.1", 0) as listener:
        port = listener.getsockname()[1]
        with pytest.raises(StoreError, match=f"port {port} of 127.0.0.1: address already in use; name another"):
            listen("127.0.0.1", port)
    with pytest.raises(StoreError, match="is not an address of this machine"):
        listen("no such host", 0)
