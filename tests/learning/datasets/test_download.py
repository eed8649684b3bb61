"""Downloading, from a server on this machine that a test puts in the place of the official one."""

import gzip
import hashlib
import socket
import threading
from collections.abc import Iterator
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from fedchain.learning.datasets.catalogue import DATASETS, DatasetInfo, PublishedFile
from fedchain.learning.datasets.download import download_dataset
from fedchain.learning.datasets.files import DATA_DIR_VARIABLE
from fedchain.learning.datasets.load import load_dataset
from fedchain.learning.exceptions import ConfigurationError, DatasetError
from tests.learning.datasets.official import idx, pictures, write

NAMES = [file.name for file in DATASETS["mnist"].files]
CONTENTS = {
    name: gzip.compress(idx(pictures(size, 28, 28) if "idx3" in name else pictures(size) % 10), mtime=0)
    for name, size in zip(NAMES, (6, 6, 4, 4), strict=True)
}


@pytest.fixture
def server() -> Iterator[ThreadingHTTPServer]:
    """Serves CONTENTS; it keeps what was asked for in `asked`."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(self.path)
            content = CONTENTS.get(self.path.removeprefix("/cut/").removeprefix("/"))
            self.send_response(404 if content is None else 200)
            self.send_header("Content-Length", str(len(content or b"")))
            self.end_headers()
            self.wfile.write((content or b"")[: 10 if self.path.startswith("/cut/") else None])

        def log_message(self, *arguments: object) -> None:
            pass

    asked: list[str] = []
    made = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    made.asked = asked  # type: ignore[attr-defined]
    thread = threading.Thread(target=made.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield made
    made.shutdown()
    made.server_close()
    thread.join()


def published_by(server: ThreadingHTTPServer, monkeypatch: pytest.MonkeyPatch, path: str = "/") -> DatasetInfo:
    """MNIST as this server publishes it, in the catalogue."""
    address = f"http://127.0.0.1:{server.server_port}{path}"
    files = [PublishedFile(name, address + name, hashlib.md5(CONTENTS[name]).hexdigest()) for name in NAMES]
    info = replace(DATASETS["mnist"], files=tuple(files), train_size=6, test_size=4)
    for module in ("load", "catalogue"):
        monkeypatch.setattr(f"fedchain.learning.datasets.{module}.DATASETS", {**DATASETS, "mnist": info})
    return info


def test_missing_files_are_fetched_checked_and_then_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, server: ThreadingHTTPServer
) -> None:
    info, told = published_by(server, monkeypatch), list[str]()
    fetched = download_dataset(info, str(tmp_path / "new"), told.append)
    assert [path.name for path in fetched] == NAMES
    assert {path.name: path.read_bytes() for path in (tmp_path / "new" / "mnist").iterdir()} == CONTENTS
    assert told == [f"fetching {file.url}" for file in info.files]
    assert len(load_dataset("mnist", str(tmp_path / "new")).train_labels) == 6
    assert download_dataset(info, str(tmp_path / "new"), told.append) == []
    assert server.asked == [f"/{name}" for name in NAMES]  # type: ignore[attr-defined]


def test_what_is_there_is_not_fetched_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, server: ThreadingHTTPServer
) -> None:
    write(tmp_path, {name: CONTENTS[name] for name in NAMES[:3]})
    fetched = download_dataset(published_by(server, monkeypatch), str(tmp_path), lambda line: None)
    assert [path.name for path in fetched] == NAMES[3:]


def test_a_damaged_file_that_is_there_is_named_and_not_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, server: ThreadingHTTPServer
) -> None:
    write(tmp_path, CONTENTS | {NAMES[1]: b"mine"})
    with pytest.raises(DatasetError, match=f"{NAMES[1]} is damaged"):
        download_dataset(published_by(server, monkeypatch), str(tmp_path), lambda line: None)
    assert (tmp_path / NAMES[1]).read_bytes() == b"mine"


@pytest.mark.parametrize(("path", "message"), [("/none/", "Not Found"), ("/cut/", "MD5|IncompleteRead")])
def test_what_is_not_the_published_file_is_not_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, server: ThreadingHTTPServer, path: str, message: str
) -> None:
    info = published_by(server, monkeypatch, path)
    with pytest.raises(DatasetError, match=message) as caught:
        download_dataset(info, str(tmp_path), lambda line: None)
    assert info.files[0].url in str(caught.value)
    assert "\n" not in str(caught.value)
    assert list((tmp_path / "mnist").iterdir()) == []


def test_a_wrong_checksum_names_both(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, server: ThreadingHTTPServer
) -> None:
    info = published_by(server, monkeypatch)
    info = replace(info, files=(replace(info.files[0], md5="0" * 32),))
    found = hashlib.md5(CONTENTS[NAMES[0]]).hexdigest()
    with pytest.raises(DatasetError, match=f"MD5 {'0' * 32} expected, found {found} in"):
        download_dataset(info, str(tmp_path), lambda line: None)
    assert list((tmp_path / "mnist").iterdir()) == []


def test_without_a_network_the_address_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, server: ThreadingHTTPServer
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as nobody:
        monkeypatch.setattr(server, "server_port", nobody.getsockname()[1])
    info = published_by(server, monkeypatch)
    with pytest.raises(DatasetError, match=rf"^http://127.0.0.1:\d+/{NAMES[0]} cannot be fetched to .*refused"):
        download_dataset(info, str(tmp_path), lambda line: None)


def test_a_folder_that_cannot_be_made_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, server: ThreadingHTTPServer
) -> None:
    (tmp_path / "mnist").write_bytes(b"a file")
    with pytest.raises(DatasetError, match="mnist cannot be made: File exists"):
        download_dataset(published_by(server, monkeypatch), str(tmp_path), lambda line: None)


def test_without_a_folder_or_an_address_nothing_is_fetched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(DATA_DIR_VARIABLE, raising=False)
    with pytest.raises(ConfigurationError, match=f"set data_dir or {DATA_DIR_VARIABLE} to the folder"):
        download_dataset(DATASETS["mnist"], "", lambda line: None)
    for name in ("covid-ct", "tmd"):
        with pytest.raises(ConfigurationError, match=DATASETS[name].page):
            download_dataset(DATASETS[name], str(tmp_path), lambda line: None)
    assert download_dataset(DATASETS["digits"], "", lambda line: None) == []
    assert list(tmp_path.iterdir()) == []


def test_reading_never_opens_a_connection(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*arguments: object, **options: object) -> None:
        raise AssertionError("nobody asked for a download")

    monkeypatch.setattr("urllib.request.urlopen", refuse)
    for name in DATASETS.keys() - {"digits"}:
        with pytest.raises(DatasetError):
            load_dataset(name, str(tmp_path))
