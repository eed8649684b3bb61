"""``python -m tests.soak [CAMPAIGN [OPTION …]]``: faults, load and attacks against real processes, for minutes.

Each campaign is a module beside this one; it prints what it measured and exits with 1 where that falls short.
Without a name all of them run, one after another. Modules that begin with an underscore are shared by them.
"""

import pkgutil
import subprocess
import sys

import tests.soak

CAMPAIGNS = sorted(module.name for module in pkgutil.iter_modules(tests.soak.__path__) if module.name[0] != "_")


def main() -> None:
    """Run one campaign, or all."""
    name, *options = sys.argv[1:] or [""]
    if name and name not in CAMPAIGNS:
        sys.exit(f"there is no campaign {name!r}; known are {', '.join(CAMPAIGNS)}")
    failed = []
    for campaign in [name] if name else CAMPAIGNS:
        print(f"== {campaign}", flush=True)
        command = [sys.executable, "-m", f"tests.soak.{campaign}", *options]
        if subprocess.run(command, check=False).returncode:
            failed.append(campaign)
    if failed:
        sys.exit(f"fell short: {', '.join(failed)}")


if __name__ == "__main__":
    main()
