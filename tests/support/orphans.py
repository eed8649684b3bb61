"""Processes that tests started end with the process of the tests, even if that is killed, as by a job's time limit.

A signal at the parent's death would not do: it comes when the thread ends that forked, and a child's child has none.
"""

import os
import subprocess
import uuid

MARK = "FEDCHAIN_TESTS"
"""Variable by which the processes are known; whoever gives a child an environment of its own hands it on."""

_WATCH = """cat
for place in /proc/[0-9]*; do
    grep -qs "$1" "$place/environ" && kill -9 "${place#/proc/}"
done
"""


def end_with_this_process() -> None:
    """Have all processes killed that descend from this one, and are left when it has ended, in whatever way."""
    plain = {name: value for name, value in os.environ.items() if name != MARK}  # the watcher is none of them
    os.environ[MARK] = f"{os.getpid()}-{uuid.uuid4()}"
    _WATCHERS.append(
        subprocess.Popen(  # its input is a pipe that this process alone can write to
            ["sh", "-c", _WATCH, "sh", f"{MARK}={os.environ[MARK]}"],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env=plain,
            start_new_session=True,
        )
    )


_WATCHERS: list["subprocess.Popen[bytes]"] = []
"""Kept, so that their pipes stay open."""
