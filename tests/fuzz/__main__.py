"""``python -m tests.fuzz``: feed damaged input to everything that reads what strangers send."""

import argparse
import subprocess
import sys
from hashlib import sha256

from rich.console import Console
from rich.table import Table

from tests.fuzz.conversation import CONVERSATION
from tests.fuzz.decoders import DECODERS
from tests.fuzz.engine import CORPUS, Outcome, Target, fuzz
from tests.fuzz.victim import NODE

TARGETS = (*DECODERS, NODE, CONVERSATION)


def main() -> None:
    """Run the targets, print what they did, and exit with 1 after a finding."""
    names = [target.name for target in TARGETS]
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--seconds", type=float, default=60.0, help="for all targets together (%(default)s)")
    parser.add_argument("--target", choices=names, action="append", metavar="NAME", help=f"one of {', '.join(names)}")
    parser.add_argument("--seed", type=int, default=0, help="of the mutations (%(default)s)")
    parser.add_argument("--engine", choices=("own", "atheris"), default="own", help="atheris is installed separately")
    options = parser.parse_args()
    if options.engine == "atheris":
        if options.target is None or len(options.target) != 1:
            parser.error("atheris runs one --target")
        arguments = [options.target[0], str(options.seconds), str(options.seed)]
        sys.exit(subprocess.run([sys.executable, "-m", "tests.fuzz.guided", *arguments], check=False).returncode)
    chosen = [target for target in TARGETS if options.target is None or target.name in options.target]
    share = options.seconds / sum(target.weight for target in chosen)
    console, table = Console(), Table("target", "executions", "per second", "behaviours", "findings")
    for column in table.columns[1:]:
        column.justify = "right"
    found = 0
    for target in chosen:
        outcome = fuzz(target, options.seed, seconds=share * target.weight)
        report(target, outcome)
        found += len(outcome.findings)
        rate = outcome.executions / max(outcome.seconds, 1e-9)
        cells = f"{outcome.executions:,}", f"{rate:,.0f}", str(len(outcome.behaviours)), str(len(outcome.findings))
        table.add_row(target.name, *cells)
    console.print(table)
    sys.exit(1 if found else 0)


def report(target: Target, outcome: Outcome) -> None:
    """Write each finding's input where the tests replay it."""
    for finding in outcome.findings.values():
        path = CORPUS / target.name / sha256(finding.data).hexdigest()[:16]
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(finding.data)
        print(f"{target.name}: {finding.what}\n  input: {path} ({len(finding.data)} bytes)", file=sys.stderr)


if __name__ == "__main__":
    main()
