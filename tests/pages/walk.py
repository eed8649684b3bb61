"""Walk through a page as a reader does: save its files, type its commands, compare what they print with the page."""

import ast
import re
import shlex
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from doctest import ELLIPSIS, OutputChecker
from functools import lru_cache
from hashlib import sha256
from pathlib import Path
from typing import Any

import typer

from fedchain.cli.main import app
from tests.pages.blocks import Block, blocks_of
from tests.pages.shell import Shell
from tests.support.paths import ROOT

LANGUAGES = {"console", "python", "toml", "text", "indented", "{toctree}", "{eval-rst}", "{include}", "{glossary}"}
"""Languages of blocks; ``text`` is drawings and formulas. Indented ones are not run."""

PRINTED_ON = "dd0faae7"
"""`arithmetic` of the machine that the pages' runs were printed on."""


@dataclass(frozen=True, slots=True)
class Difference:
    """A command whose output is not what the page shows."""

    block: Block
    typed: str
    printed: str
    stated: str
    first: int
    last: int

    def __str__(self) -> str:
        return f"{self.block.name}\n$ {self.typed}\n--- prints\n{self.printed}\n--- the page says\n{self.stated}"


def walk(page: Path, folder: Path, slow: bool) -> list[Difference]:
    """Save and type what a page says, in an empty folder; slow blocks only if they are asked for.

    Raises AssertionError where a command fails; one whose exit code the next command shows may.
    """
    found: list[Difference] = []
    with Shell(folder) as shell:
        for block in blocks_of(page):
            if "not run" in block.said or ("slow" in block.said and not slow):
                continue
            if "file" in block.said:
                (folder / block.said["file"]).write_text(block.text, encoding="utf-8")
            elif block.language == "console":
                if before := block.said.get("before"):
                    printed, status = shell.run(before)
                    assert status == 0, f"before {block.name}\n{printed}\nexit code {status}"
                found += type_all(block, shell)
    return found


def type_all(block: Block, shell: Shell) -> list[Difference]:
    """Type the commands of a block, and return where they print something else than it shows."""
    found = []
    commands = block.commands
    for place, command in enumerate(commands):
        typed = command.text
        for shown, instead in block.typed_as:
            typed = typed.replace(shown, instead)
        printed, status = shell.run(typed)
        is_shown = place + 1 < len(commands) and commands[place + 1].text == "echo $?"
        assert status == 0 or is_shown, f"{block.name}\n$ {typed}\n{printed}\nexit code {status}"
        if "quiet" not in block.said and not is_as_stated(command.printed, printed):
            found.append(Difference(block, command.text, printed, command.printed, command.first, command.last))
    return found


def is_as_stated(stated: str, printed: str) -> bool:
    """Whether a page says what was printed; on a machine that trains to other bits, but for digits and hashes.

    Three dots alone say nothing of more than one line.
    """
    if stated == "..." and "\n" in printed:
        return False
    if OutputChecker().check_output(stated + "\n", printed + "\n", ELLIPSIS):
        return True
    return arithmetic() != PRINTED_ON and OutputChecker().check_output(
        _without_numbers(stated), _without_numbers(printed), ELLIPSIS
    )


def _without_numbers(text: str) -> str:
    text = re.sub(r"\b[0-9a-f]{8,}\b", "hash", text)
    return re.sub(r"[ \d]*\.\.\.[ \d]*", "...", re.sub(r"[ \d]+", "0", text)) + "\n"


@lru_cache
def arithmetic() -> str:
    """Name what some training steps come to on this machine, to the bit: machines differ in the last ones."""
    import torch

    torch.set_num_threads(1)
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(64, 1, 16, 16, generator=generator)
    weights = [torch.randn(*shape, generator=generator).requires_grad_() for shape in ((8, 1, 5, 5), (1152, 10))]
    for _ in range(20):
        z = torch.relu(torch.nn.functional.conv2d(x, weights[0])).flatten(1) @ weights[1]
        loss = torch.nn.functional.cross_entropy(z / 100, torch.arange(64) % 10)
        for weight, gradient in zip(weights, torch.autograd.grad(loss, weights), strict=True):
            weight.data -= 0.1 * gradient
    return sha256(b"".join(weight.detach().numpy().tobytes() for weight in weights)).hexdigest()[:8]


def faults(block: Block) -> list[str]:
    """Say what is wrong with a block that can be said without running it."""
    said = [f"is {block.language!r}, which is none of {sorted(LANGUAGES)}"] if block.language not in LANGUAGES else []
    if block.language == "text":
        said += [f"shows {line!r} outside of a console block" for line in block.text.splitlines() if _is_command(line)]
    if block.language == "indented":
        typed = (line for line in block.text.replace("\\\n", " ").splitlines() if _is_command(line))
        said += [fault for line in typed for fault in command_faults(line)]
    if block.language == "python":
        ast.parse(block.text)
    if block.language == "toml":
        tomllib.loads(block.text)
    if block.language == "console":
        said += [] if block.text.startswith("$ ") else ["begins without a command"]
        said += [
            f"has no {shown!r} to type as something else" for shown, _ in block.typed_as if shown not in block.text
        ]
        if "quiet" in block.said and any(command.printed for command in block.commands):
            said.append("is quiet and shows what is printed")
        said += [fault for command in block.commands for fault in command_faults(command.text)]
    for line in block.said.get("before", "").replace("\\\n", " ").splitlines():
        said += command_faults(line)
        said += [f"begins a command with {words[0]}" for words in commands_in(line) if words[0].startswith("-")]
    return said


def _is_command(line: str) -> bool:
    return line.strip().startswith(("fedchain ", "make ", "$ "))


def command_faults(typed: str) -> list[str]:
    """Say which command or option of ``fedchain``, or which target of ``make``, there is not."""
    found: list[str] = []
    for words in commands_in(typed):
        if words[0] == "make" and len(words) > 1 and f"\n{words[1]}:" not in _makefile():
            found.append(f"make has no target {words[1]}")
        if words[0] == "fedchain":
            found += _unknown(words[1:])
    return found


def commands_in(typed: str) -> list[Sequence[str]]:
    """Split a line of the shell into its commands, without what is assigned before them."""
    line = typed.replace("\\\n", " ").replace("$(", " ; ").replace(")", " ; ")
    lexer = shlex.shlex(line, posix=True, punctuation_chars=";&|<>")
    lexer.whitespace_split = True
    lexer.commenters = "#"
    found: list[list[str]] = [[]]
    for word in lexer:
        if set(word) <= set(";&|"):
            found.append([])
        elif found[-1] or not re.fullmatch(r"\w+=.*|for|do|until|while|then|if|!|time", word):
            found[-1].append(word)
    return [words for words in found if words]


def _unknown(words: Sequence[str]) -> list[str]:
    command: Any = typer.main.get_command(app)
    context = typer.Context(command, info_name="fedchain")
    for place, word in enumerate(words):
        if not hasattr(command, "get_command"):
            break
        if word.startswith("-"):
            continue
        inner = command.get_command(context, word)
        if inner is None:
            return [f"fedchain {' '.join(words[: place + 1])} is no command"]
        command = inner
    known = {name for option in command.get_params(context) for name in (*option.opts, *option.secondary_opts)} | {"-h"}
    asked = [word.split("=")[0] for word in words if word.startswith("--")]
    return [f"fedchain {' '.join(words[:2])} has no option {word}" for word in asked if word not in known]


def _makefile() -> str:
    return (ROOT / "Makefile").read_text(encoding="utf-8")
