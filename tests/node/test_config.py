"""A node's settings: one clear line for what cannot be meant."""

from pathlib import Path
from typing import Any

import pytest

from fedchain.cli.common.start_options import node_settings
from fedchain.node.config import NodeConfig, NodeConfigError, load_config

NEEDED = {"genesis": "g", "key": "k", "data": "d"}


def test_flags_go_before_the_file(tmp_path: Path) -> None:
    path = tmp_path / "node.toml"
    path.write_text('genesis = "g"\nkey = "k"\ndata = "here"\nbootstrap = ["a", "b"]\n', encoding="utf-8")
    assert load_config(path, {"data": "there"}) == NodeConfig(genesis="g", key="k", data="there", bootstrap=("a", "b"))


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"genesys": "g"}, "node has no key 'genesys'; did you mean 'genesis'?"),
        ({"zzz": "g"}, "node has no key 'zzz'; known are genesis, key, data, "),
        ({"data": ""}, "data is missing; give --data or write it into the settings file"),
        ({"key": 3}, "node key is 3, it must be of type str"),
        ({"bootstrap": "a"}, "node bootstrap is 'a', it must be an array"),
        ({"bootstrap": ["a", 1]}, "node bootstrap[1] is 1, it must be of type str"),
        ({"listen": ["a"]}, "node listen is ['a'], it must be of type str"),
        ({"recent_mib": True}, "node recent_mib is True, it must be of type int"),
        ({"recent_mib": [1]}, "node recent_mib is [1], it must be of type int"),
        ({"recent_mib": 0}, "recent_mib is 0, it must be between 1 and 1048576"),
        ({"log_format": "xml"}, "log_format is 'xml', it must be one of text, json"),
        ({"stop_accuracy": 95}, "stop_accuracy is 95.0, it must be a fraction between 0 and 1"),
        ({"stop_accuracy": float("nan")}, "stop_accuracy is nan, it must be a fraction between 0 and 1"),
        ({"stop_accuracy": "0.9"}, "node stop_accuracy is '0.9', it must be of type float"),
        ({"stop_patience": -1}, "stop_patience is -1, it must be at least 0"),
        ({"wait_for": -3}, "wait_for is -3, it must be at least 0"),
        ({"recent_mib": 2**26}, "recent_mib is 67108864, it must be between 1 and 1048576"),
    ],
)
def test_what_cannot_be_meant_is_named(values: dict[str, Any], words: str) -> None:
    with pytest.raises(NodeConfigError) as caught:
        load_config(None, NEEDED | values)
    assert str(caught.value).startswith(words)


@pytest.mark.parametrize("text", [b"=", b"\xff", b"genesis"])
def test_a_file_that_is_not_toml(tmp_path: Path, text: bytes) -> None:
    (tmp_path / "node.toml").write_bytes(text)
    with pytest.raises(NodeConfigError, match=r"node\.toml is not TOML: "):
        load_config(tmp_path / "node.toml", NEEDED)


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(NodeConfigError, match=r"none\.toml cannot be read: No such file"):
        load_config(tmp_path / "none.toml", NEEDED)


def test_a_whole_number_is_a_fraction_too(tmp_path: Path) -> None:
    (tmp_path / "node.toml").write_text("stop_accuracy = 1\n", encoding="utf-8")
    assert load_config(tmp_path / "node.toml", NEEDED).stop_accuracy == 1.0


def test_every_setting_is_taken_by_name() -> None:
    given = ["bootstrap=/ip4/1.2.3.4/tcp/1, /ip4/5.6.7.8/tcp/2", "recent_mib=32", "log_format=json", "replay=true"]
    settings = load_config(None, NEEDED | node_settings(given))
    assert settings.bootstrap == ("/ip4/1.2.3.4/tcp/1", "/ip4/5.6.7.8/tcp/2")
    assert (settings.recent_mib, settings.log_format, settings.replay) == (32, "json", True)
