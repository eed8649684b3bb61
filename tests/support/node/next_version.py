"""``python -m tests.support.node.next_version``: the ``fedchain`` command of a program that speaks version 4.

Nothing but the number differs: it is for rehearsals of an upgrade.
"""

from fedchain.chain import genesis

NEXT = genesis.NEWEST_VERSION + 1
"""The version that this program speaks."""

if __name__ == "__main__":
    genesis.NEWEST_VERSION = NEXT  # before any module that takes the number from there

    from fedchain.cli.entry import main

    main()
