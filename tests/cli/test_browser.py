"""A run is shown in the browser while it runs, and until Ctrl-C."""

import io
import os
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar, Self

import pytest

from fedchain.cli.browser import shown_in_browser
from tests.support.node.shell import wait_until


def page(address: str) -> str:
    """A page's text."""
    with urllib.request.urlopen(address, timeout=60) as answer:
        return str(answer.read().decode())


def test_a_run_is_opened_in_the_browser_and_stays_there_until_it_is_interrupted(tmp_path: Path) -> None:
    browser, opened, held, closed = (tmp_path / name for name in ("browser", "opened", "held", "closed"))
    os.mkfifo(held)
    # A text browser would stay in the foreground until somebody leaves it.
    browser.write_text(f"#!/bin/sh\necho $1 >{opened}\ntimeout 100 cat {held}\ntouch {closed}\n")
    browser.chmod(0o700)
    words = ["simulate", "--peers", "3", "--rounds", "1", "--workers", "1", "--set", "local_steps=1", "--open"]
    command = [sys.executable, "-u", "-m", "fedchain", *words, "--out", str(tmp_path / "run")]
    env = os.environ | {"BROWSER": f"{browser} %s"}
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=env) as process:
        assert process.stdout is not None
        said = list[str]()
        for line in process.stdout:
            said.append(line.strip())
            if line.startswith("shown until Ctrl-C at "):
                break
        is_over = closed.exists()
        address = said[-1].rpartition(" ")[2]
        assert f"shown at {address}" in said
        wait_until(lambda: opened.exists() and opened.read_text().strip() == address, "the browser has the address")
        held.write_text("left\n")
        wait_until(closed.exists, "the browser is closed")
        wait_until(lambda: 'data-events="/run/events"' in page(address), "the run is there, and its news")
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 0
        with pytest.raises(urllib.error.URLError):
            urllib.request.urlopen(address, timeout=60)
    assert not is_over, "the run waited for the browser"


class Noted:
    """A process that is not started: it says no address, and that it was ended."""

    commands: ClassVar[list[Sequence[str]]] = []
    ended: ClassVar[list[Sequence[str]]] = []

    def __init__(self, command: Sequence[str], **more: object) -> None:
        self.command, self.stdout = command, io.StringIO("")
        self.commands.append(command)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        """It has ended."""

    def terminate(self) -> None:
        self.ended.append(self.command)


@pytest.mark.parametrize(("method", "named"), [("mine.py:Own", ["--method", "mine.py:Own"]), ("fedavg", [])])
def test_the_explorer_is_told_the_file_of_a_run_s_own_method_and_runs_no_other_of_the_current_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, method: str, named: list[str]
) -> None:
    Noted.commands, Noted.ended = [], []
    monkeypatch.setattr(subprocess, "Popen", Noted)
    with shown_in_browser(tmp_path, method):
        assert Noted.ended == []
    command = [sys.executable, "-P", "-m", "fedchain", "explorer", "serve", str(tmp_path), "--port", "0", *named]
    assert Noted.commands == Noted.ended == [command], "no browser is opened for an explorer that said why not"
