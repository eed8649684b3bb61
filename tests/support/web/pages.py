"""A chain with its pages, for tests that read them."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from starlette.testclient import TestClient

from tests.support.chain.builders import ChainBuilder
from tests.support.web.builders import document, learning_chain, write_run
from tests.support.web.site import HOME, site


@pytest.fixture(scope="module")
def chain() -> ChainBuilder:
    return learning_chain(document(), 5)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory, chain: ChainBuilder) -> Path:
    return write_run(tmp_path_factory.mktemp("runs") / "run", chain, (0.5, 0.7, 0.8, 0.85, 0.875))


@pytest.fixture(scope="module")
def client(run: Path) -> Iterator[TestClient]:
    with TestClient(site(run).app, base_url=HOME) as client:
        yield client


def text_of(client: TestClient, path: str) -> str:
    answer = client.get(path)
    assert answer.status_code == 200, answer.text
    return str(answer.text)
