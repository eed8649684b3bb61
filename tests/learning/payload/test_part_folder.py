"""Parts in a folder."""

import os
import threading
from pathlib import Path

import numpy as np
import pytest

from fedchain.crypto.hashing import sha256
from fedchain.learning.config import LearningConfig
from fedchain.learning.exceptions import ConfigurationError, PartMissing
from fedchain.learning.payload.part_folder import PartFolder
from fedchain.learning.worker.learner import Learner
from fedchain.learning.worker.stores import Stores
from tests.support.learning.parts import config as config
from tests.support.learning.parts import written

MEMBERS = [bytes([place + 1]) * 32 for place in range(3)]
NOISE = np.random.default_rng(0).standard_normal((8, 64)).astype(np.float32)


def test_a_folder_gives_what_was_written_and_nothing_else(tmp_path: Path) -> None:
    folder, data = PartFolder(tmp_path / "parts"), written({"rows": NOISE})
    part_hash = sha256(data)
    with pytest.raises(PartMissing):
        folder.read(part_hash)
    folder.write(part_hash, data)
    assert folder.has(part_hash)
    assert folder.read(part_hash) == data
    assert folder.read_range(part_hash, 10, 20) == data[10:30]
    assert list(folder.hashes()) == [part_hash]
    folder.keep_only([part_hash])
    assert folder.size_bytes() == len(data)
    path = next((tmp_path / "parts").glob("??/*"))
    assert path.stat().st_mode & 0o077 == 0
    path.write_bytes(b"\7" + data[1:])
    with pytest.raises(PartMissing, match="damaged"):
        folder.read(part_hash)
    assert not folder.has(part_hash), "so that it can be fetched again"
    folder.write(part_hash, data)
    folder.keep_only([])
    assert folder.size_bytes() == 0


def test_a_full_disk_leaves_nothing_half_written(
    config: LearningConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = PartFolder(tmp_path / "parts")

    def refuse(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("fedchain.learning.payload.part_folder.os.fsync", refuse)
    learner = Learner(config, members=MEMBERS, stores=Stores(parts_of=lambda _: folder))
    with pytest.raises(ConfigurationError, match="No space left on device"):
        learner.contribute(0, "show", 0, b"")
    assert folder.size_bytes() == 0


def test_a_part_and_each_new_name_above_it_are_on_the_disk_when_it_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A post that lists it is said next. Nobody else has the part."""
    synced, data = list[Path](), b"part"
    folder = PartFolder(tmp_path / "parts")
    place = tmp_path / "parts" / sha256(data).hex()[:2]
    monkeypatch.setattr("os.fsync", lambda number: synced.append(Path(f"/proc/self/fd/{number}").readlink()))
    folder.write(sha256(data), data)
    names, of_part = [tmp_path / "parts", tmp_path], synced[2]
    assert synced == [*names, of_part, place]
    assert of_part.suffix == ".part"
    (place / sha256(data).hex()).unlink()
    synced.clear()
    folder.write(sha256(data), data)
    assert synced[:2] == names, "a crash may have come before they were"
    synced.clear()
    (place / "another").touch()
    (place / sha256(data).hex()).unlink()
    folder.write(sha256(data), data)
    assert synced == [of_part, place]
    synced.clear()
    folder.write(sha256(data), data)
    assert synced == [place], "a killed process may have named it, and not waited for the disk"


def test_files_of_dead_processes_are_swept(tmp_path: Path) -> None:
    folder = PartFolder(tmp_path)
    (tmp_path / "ab").mkdir()
    dead, alive = tmp_path / "ab" / ("ab" * 32 + ".0-1.part"), tmp_path / "ab" / ("ab" * 32 + ".1-1.part")
    dead.write_bytes(b"x")
    alive.write_bytes(b"x")
    folder.keep_only([])
    assert [path.name for path in (tmp_path / "ab").iterdir()] == [alive.name]


def test_a_file_that_cannot_be_read_is_missing_and_a_damaged_one_is_written_again(tmp_path: Path) -> None:
    folder, data = PartFolder(tmp_path), b"part"
    path = tmp_path / sha256(data).hex()[:2] / sha256(data).hex()
    path.mkdir(parents=True)  # reading it fails as on a bad disk
    assert folder.read_range(sha256(data), 0, 4) is None
    with pytest.raises(PartMissing, match="cannot be read"):
        folder.read(sha256(data))
    path.rmdir()
    path.write_bytes(b"trap")
    folder.write(sha256(data), data)
    assert folder.read(sha256(data)) == data


def test_a_part_that_finds_no_room_is_named(tmp_path: Path) -> None:
    folder, data = PartFolder(tmp_path, is_durable=False), written({"rows": NOISE})
    path = folder._path(sha256(data))
    path.parent.mkdir()
    path.with_name(f"{path.name}.{os.getpid()}-{threading.get_ident()}.part").symlink_to("/dev/full")
    with pytest.raises(OSError, match="No space left") as error:
        folder.write(sha256(data), data)
    assert error.value.filename == str(path)
