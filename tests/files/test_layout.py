"""Names of files in a node's folder."""

import fedchain.node.operating.preflight as preflight
from fedchain.files.layout import ADDRESS_FILE, BAN_FILE, CHAIN_FOLDER, SOCKET, TRAINING_FILE
from fedchain.node.operating.preflight import OWN_NAMES


def test_the_names_are_those_that_are_used() -> None:
    assert {CHAIN_FOLDER, TRAINING_FILE, ADDRESS_FILE, BAN_FILE, SOCKET} < set(OWN_NAMES)
    assert preflight.UMASK == 0o077
