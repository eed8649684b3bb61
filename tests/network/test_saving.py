"""Small files are written, and a disk that refuses one ends nothing."""

import pytest

from fedchain.network.saving import save_now


def test_a_file_is_written_at_once() -> None:
    written = list[str]()
    save_now("the list", lambda: written.append("all of it"))
    assert written == ["all of it"]


def test_a_refusal_of_the_disk_is_named_and_ends_nothing(caplog: pytest.LogCaptureFixture) -> None:
    def refuse() -> None:
        raise OSError("no space left")

    save_now("the list", refuse)
    assert caplog.messages == ["the list cannot be saved: no space left"]
