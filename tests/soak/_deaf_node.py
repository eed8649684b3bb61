"""A node that can be made deaf to others: ``python -m tests.soak._deaf_node NUMBER FILE fedchain-arguments``.

``FILE`` holds a JSON list of nodes' numbers; packets from them vanish before the system's TCP sees them.
"""

import json
import sys
import threading
import time
from pathlib import Path

from fedchain.cli.main import main
from tests.soak._silent import Ears

POLL_S = 0.1


def obey(ears: Ears, path: Path) -> None:
    """Do what the file says, for as long as the process lives."""
    said = "[]"
    while True:
        time.sleep(POLL_S)
        if path.exists() and (text := path.read_text(encoding="utf-8")) != said:
            said = text
            ears.close_to(json.loads(said))


if __name__ == "__main__":
    number, orders = int(sys.argv.pop(1)), Path(sys.argv.pop(1))
    ears = Ears(number)
    ears.install()
    threading.Thread(target=obey, args=(ears, orders), daemon=True).start()
    main()
