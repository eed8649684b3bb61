"""Temporary folders go with their process, or with the next one."""

import os
import platform
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest

from fedchain.files.scratch import Scratch


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


def killed(place: Path) -> Path:
    """The folder of a process that was killed."""
    code = "import os, signal; from fedchain.files.scratch import Scratch as S; s = S(); print(s.name, flush=True)"
    code += "; open(s.name + '/file', 'w').close(); os.kill(os.getpid(), signal.SIGKILL)"
    environment = os.environ | {"TMPDIR": str(place)}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == -signal.SIGKILL
    return Path(done.stdout.strip())


def test_it_is_there_until_it_is_closed(place: Path) -> None:
    with Scratch() as name:
        assert [*place.iterdir()] == [Path(name)]
        (Path(name) / "file").touch()
    assert not [*place.iterdir()]


def test_what_a_killed_process_left_goes_with_the_next_one_and_no_other(place: Path) -> None:
    live = Scratch()
    left = killed(place)
    assert left.parent == place
    assert (left / "file").exists()
    assert Path(live.name).exists(), "its process is alive"
    others = [place / f"fedchain-{name}" for name in ("abc", "run-abc")]
    for path in others:
        path.mkdir()
    (place / f"{left.name}-link").symlink_to(others[0])
    with Scratch():
        assert not left.exists()
        assert all(path.exists() for path in (Path(live.name), *others))
    live.cleanup()


def test_a_process_that_it_forked_keeps_it(place: Path) -> None:
    live = Scratch()
    asked, told = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(told)
        os.read(asked, 1)
        os._exit(0)
    live._unlock()  # as if the first process were gone
    with Scratch():
        assert Path(live.name).exists()
    os.close(told)
    os.waitpid(child, 0)
    with Scratch():
        assert not Path(live.name).exists()
    live.cleanup()


def test_other_users_and_other_machines_folders_stay(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    left = killed(place)
    with monkeypatch.context() as patch:
        patch.setattr("os.geteuid", lambda: 12345)
        Scratch().cleanup()
        assert left.exists()
    with monkeypatch.context() as patch:
        patch.setattr("platform.node", lambda: "elsewhere")
        Scratch().cleanup()
        assert left.exists()
    longer = left.with_name(left.name.replace(f".{platform.node()}.", f".{platform.node()}.example."))
    longer.mkdir()
    Scratch().cleanup()
    assert longer.exists()
    assert not left.exists()


@pytest.mark.parametrize("before", ["os.stat", "fcntl.flock", "fedchain.files.scratch._open"])
def test_one_that_another_process_took_for_a_dead_ones_is_made_anew(
    place: Path, monkeypatch: pytest.MonkeyPatch, before: str
) -> None:
    """The other one looks in the moment before the lock."""
    found = list[Path]()

    def taken(call: Callable[..., object]) -> Callable[..., object]:
        def first(*arguments: object) -> object:
            if not found:
                found.extend(place.iterdir())
                found[0].rmdir()
            return call(*arguments)

        return first

    module, _, name = before.rpartition(".")
    monkeypatch.setattr(before, taken(getattr(sys.modules[module], name)))
    scratch = Scratch()
    assert [Path(scratch.name)] == [*place.iterdir()]
    assert found != [Path(scratch.name)]
    scratch.cleanup()


def test_without_locks_nothing_is_deleted(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    left = killed(place)

    def refuse(*_: object) -> None:
        raise OSError("no locks")

    monkeypatch.setattr("fcntl.flock", refuse)
    with Scratch() as name:
        assert Path(name).exists()
        assert left.exists()
