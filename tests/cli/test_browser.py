"""A run is shown in the browser while it runs, and until Ctrl-C."""

import os
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path

import pytest


def test_a_run_is_opened_in_the_browser_and_stays_there_until_it_is_interrupted(tmp_path: Path) -> None:
    browser, opened = tmp_path / "browser", tmp_path / "opened"
    browser.write_text(f"#!/bin/sh\necho $1 >{opened}\n")
    browser.chmod(0o700)
    words = ["simulate", "--peers", "3", "--rounds", "1", "--workers", "1", "--set", "local_steps=1", "--open"]
    command = [sys.executable, "-u", "-m", "fedchain", *words, "--out", str(tmp_path / "run")]
    env = os.environ | {"BROWSER": f"{browser} %s"}
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=env) as process:
        assert process.stdout is not None
        said = []
        for line in process.stdout:
            said.append(line.strip())
            if line.startswith("shown until Ctrl-C at "):
                break
        address = said[-1].rpartition(" ")[2]
        assert f"shown at {address}" in said
        assert opened.read_text().strip() == address
        with urllib.request.urlopen(address, timeout=60) as answer:
            assert 'data-events="/run/events"' in answer.read().decode()
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 0
        with pytest.raises(urllib.error.URLError):
            urllib.request.urlopen(address, timeout=60)
