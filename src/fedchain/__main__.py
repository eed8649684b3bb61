"""``python -m fedchain``: the ``fedchain`` command."""

from fedchain.cli.entry import main

if __name__ == "__main__":
    main()
