"""Keys of a federation that encrypts: dealt once, installed by each member, and missed with a clear word."""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import pytest
from typer.testing import CliRunner, Result

from fedchain.chain.genesis import Genesis
from fedchain.cli.main import app
from fedchain.crypto.address import address
from fedchain.crypto.exceptions import ShareFileError
from fedchain.crypto.keys import PrivateKey
from fedchain.crypto.randomness import RandomBytes
from fedchain.crypto.threshold import ThresholdPublicKey
from fedchain.crypto.threshold.share_file import share_file_path
from fedchain.learning.config import LearningConfig
from fedchain.learning.exceptions import ConfigurationError
from fedchain.learning.methods.fedavg import FedAvg
from fedchain.learning.sums.ciphertexts import SHARE
from fedchain.learning.sums.threshold import PUBLIC_KEY
from fedchain.node.config import NodeConfig, NodeConfigError
from fedchain.node.custody.dealing import deal_keys, dealing_path, dealt_key, read_dealing, read_share
from fedchain.node.founding.genesis_file import read_genesis
from fedchain.node.founding.task import learning_from_genesis, rules_of
from fedchain.node.operating.check import Outcome, check_node
from fedchain.node.shell.run import run_node

KEYS = [PrivateKey(bytes([number]) * 32) for number in range(1, 5)]
MEMBERS = KEYS[:3]
METHOD = "tests.support.learning.small_keys:SmallKeyFedPh"
ENCRYPTED = ("--set", "encryption=threshold")
SETTINGS = (*ENCRYPTED, "--set", "decryption_threshold=2", "--set", "contributors_min=3")


def run(*arguments: str | Path, passphrase: str = "", new: str = "") -> Result:
    env = {"FEDCHAIN_PASSPHRASE": passphrase, "FEDCHAIN_NEW_PASSPHRASE": new}
    given = {name: value for name, value in env.items() if value}
    return CliRunner().invoke(app, [str(word) for word in arguments], env=given)


def done(*arguments: str | Path, passphrase: str = "", new: str = "") -> str:
    result = run(*arguments, passphrase=passphrase, new=new)
    assert result.exit_code == 0, result.output
    return result.stdout.strip()


def refused(*arguments: str | Path) -> str:
    result = run(*arguments)
    assert result.exit_code == 2, (result.output, result.exception)
    return result.stderr.strip().removeprefix("fedchain: ")


def found(path: Path, *settings: str) -> Genesis:
    members = [word for key in MEMBERS for word in ("--member", address(key.public_key))]
    done("genesis", "new", path, *members, "--method", METHOD, *(settings or SETTINGS))
    return read_genesis(path)


@dataclass(frozen=True, kw_only=True)
class Refusing(FedAvg):
    """A method of a user's own that fails where a federation is founded."""

    wrong: ClassVar[str] = ""

    def derived(self, members: int) -> Any:
        if self.wrong == "derived":
            raise ValueError("no good")
        return None if self.wrong == "nothing derived" else {}

    def deal(self, members: Sequence[bytes], random_bytes: RandomBytes) -> Any:
        raise ValueError("no good")


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ("derived", r"Refusing.derived: ValueError: no good \(.*test_dealing.py, line \d+\)"),
        ("nothing derived", "Refusing.derived: TypeError: 'NoneType' object is not iterable"),
        ("deal", r"Refusing.deal: ValueError: no good \(.*test_dealing.py, line \d+\)"),
    ],
)
def test_an_own_method_that_fails_at_the_founding_is_told_in_one_line(
    monkeypatch: pytest.MonkeyPatch, wrong: str, message: str
) -> None:
    monkeypatch.setattr(Refusing, "wrong", wrong)
    config = LearningConfig(method=f"{__name__}:Refusing")
    with pytest.raises(ConfigurationError, match=f"^{message}$"):
        deal_keys(config, [key.public_key for key in MEMBERS], os.urandom)


def public_key_of(genesis: Genesis) -> ThresholdPublicKey:
    key = dealt_key(learning_from_genesis(genesis))
    assert key is not None
    return key


@pytest.fixture
def genesis(tmp_path: Path) -> Genesis:
    return found(tmp_path / "genesis")


def test_a_dealer_publishes_the_key_and_seals_the_shares_and_members_install_them(
    tmp_path: Path, genesis: Genesis
) -> None:
    key, sealed = public_key_of(genesis), dealing_path(tmp_path / "genesis")
    assert (key.members, key.threshold) == (3, 2)
    assert rules_of(genesis).phases == (("update", "participant", 0), ("decryption_share", "participant", 2))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["genesis", "genesis.dealing"], "it keeps nothing else"
    assert read_dealing(sealed, genesis).public_key == key
    shown = [line.split() for line in done("genesis", "show", tmp_path / "genesis").splitlines()]
    assert ["material", "threshold_key", f"({len(key.encode())}", "bytes)"] in shown
    for number, member in enumerate(MEMBERS):
        own = tmp_path / f"{number}.pem"
        member.save(own, None)
        path = Path(done("keys", "install-share", own, sealed, "--genesis", tmp_path / "genesis"))
        assert path == share_file_path(own, key)
        assert path.stat().st_mode & 0o777 == 0o600
        secrets = read_share(own, genesis, member.public_key, None)
        assert len(secrets[SHARE]) == key.ciphertext_size
        assert secrets[SHARE].lstrip(b"\0") not in sealed.read_bytes() + genesis.encode()
    again = refused("keys", "install-share", own, sealed, "--genesis", tmp_path / "genesis")
    assert "exists already; a key file is never overwritten" in again


@pytest.mark.usefixtures("quick_passphrases")
def test_a_share_is_protected_as_its_key_is_also_after_the_passphrase_changed(tmp_path: Path, genesis: Genesis) -> None:
    own, sealed = tmp_path / "key.pem", dealing_path(tmp_path / "genesis")
    MEMBERS[1].save(own, "first")
    done("keys", "install-share", own, sealed, "--genesis", tmp_path / "genesis", passphrase="first")
    member = MEMBERS[1].public_key
    before = read_share(own, genesis, member, "first")
    done("keys", "protect", own, passphrase="first", new="second")
    assert read_share(own, genesis, member, "second") == before
    with pytest.raises(ShareFileError, match="the passphrase is wrong or the file is damaged"):
        read_share(own, genesis, member, "first")


def test_a_node_without_its_share_says_which_file_and_which_command_and_starts(
    tmp_path: Path, genesis: Genesis, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    own = tmp_path / "key.pem"
    MEMBERS[0].save(own, None)
    config = NodeConfig(genesis=str(tmp_path / "genesis"), key=str(own), data=str(tmp_path / "data"))
    started = list[object]()
    monkeypatch.setattr("anyio.run", lambda serve, **_: started.append(serve))
    run_node(config, MEMBERS[0])
    assert len(started) == 1
    missing = share_file_path(own, public_key_of(genesis))
    said = (
        f"{missing} is missing, the share of the decryption key that {address(MEMBERS[0].public_key)} was dealt; "
        f"run: fedchain keys install-share {own} DEALING --genesis GENESIS"
    )
    assert caplog.messages == [f"{said}; until then this member posts, but helps to open nothing"]


def test_a_missing_share_fails_no_check_since_a_node_starts_without_it(tmp_path: Path, genesis: Genesis) -> None:
    own = tmp_path / "key.pem"
    config = NodeConfig(genesis=str(tmp_path / "genesis"), key=str(own), data=str(tmp_path / "data"))

    def said(key: PrivateKey) -> tuple[Outcome, str]:
        found = check_node(config, lambda: (key, None), timeout_s=1.0)
        return next((item.outcome, item.text) for item in found if item.name == "share")

    MEMBERS[0].save(own, None)
    outcome, text = said(MEMBERS[0])
    assert (outcome, text.endswith("; until then this member posts, but helps to open nothing")) == (Outcome.WARN, True)
    done("keys", "install-share", own, dealing_path(tmp_path / "genesis"), "--genesis", tmp_path / "genesis")
    assert said(MEMBERS[0]) == (Outcome.OK, "this member's share of the decryption key is here and opens")
    newcomer = "founding keys alone were dealt one: this member posts, and others open the sums"
    assert said(KEYS[3]) == (Outcome.OK, newcomer)


def test_another_federation_s_shares_are_refused(tmp_path: Path, genesis: Genesis) -> None:
    (tmp_path / "other").mkdir()
    other, own = found(tmp_path / "other" / "genesis"), tmp_path / "key.pem"
    MEMBERS[2].save(own, None)
    theirs = dealing_path(tmp_path / "other" / "genesis")
    said = refused("keys", "install-share", own, theirs, "--genesis", tmp_path / "genesis")
    ids = [public_key_of(document).key_id.hex()[:8] for document in (other, genesis)]
    assert said == f"{theirs} holds shares of the key {ids[0]}, the genesis document has the key {ids[1]}"
    done("keys", "install-share", own, theirs, "--genesis", tmp_path / "other" / "genesis")
    share_file_path(own, public_key_of(other)).rename(share_file_path(own, public_key_of(genesis)))
    with pytest.raises(ShareFileError, match=r"holds a share of the key .*…, not of .*…"):
        read_share(own, genesis, MEMBERS[2].public_key, None)


def test_who_is_no_member_and_what_holds_no_shares_is_refused(tmp_path: Path, genesis: Genesis) -> None:
    stranger, sealed = tmp_path / "stranger.pem", dealing_path(tmp_path / "genesis")
    KEYS[3].save(stranger, None)
    assert "which is no member of the genesis" in refused(
        "keys", "install-share", stranger, sealed, "--genesis", tmp_path / "genesis"
    )
    sealed.write_bytes(b"\0\0\0\1")
    assert "holds no sealed shares" in refused(
        "keys", "install-share", stranger, sealed, "--genesis", tmp_path / "genesis"
    )
    none = tmp_path / "none"
    assert f"{none} cannot be read" in refused(
        "keys", "install-share", stranger, none, "--genesis", tmp_path / "genesis"
    )


def test_a_federation_that_encrypts_nothing_has_no_dealing(tmp_path: Path) -> None:
    plain = found(tmp_path / "genesis", "--set", "local_epochs=3")
    assert not dealing_path(tmp_path / "genesis").exists()
    assert PUBLIC_KEY not in dict(learning_from_genesis(plain).material)
    assert read_share(tmp_path / "key.pem", plain, MEMBERS[0].public_key, None) == {}
    with pytest.raises(NodeConfigError, match="encrypts nothing: there is no share to install"):
        read_dealing(dealing_path(tmp_path / "genesis"), plain)


@pytest.mark.parametrize(
    ("setting", "said"),
    [
        ("decryption_threshold=4", "decryption_threshold is 4 of 3 members, it must be from 2 to 3"),
        ("contributors_min=4", "contributors_min is 4 of 3 members, it must be from 3, one above decryption_threshold"),
    ],
)
def test_more_than_there_are_members_is_refused_before_anything_is_written(
    tmp_path: Path, setting: str, said: str
) -> None:
    members = [word for key in MEMBERS for word in ("--member", address(key.public_key))]
    settings = ("--method", METHOD, "--set", "encryption=threshold", "--set", setting)
    assert refused("genesis", "new", tmp_path / "genesis", *members, *settings).startswith(said)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("members", "threshold", "holders"), [(4, 2, 3), (5, 3, 4), (10, 4, 5)])
def test_a_document_says_thresholds_that_all_liars_it_bears_cannot_reach(
    tmp_path: Path, members: int, threshold: int, holders: int
) -> None:
    keys = [PrivateKey(bytes([number]) * 32) for number in range(1, members + 1)]
    path = tmp_path / "genesis"
    words = [word for key in keys for word in ("--member", address(key.public_key))]
    done("genesis", "new", path, *words, "--method", METHOD, *ENCRYPTED)
    genesis = read_genesis(path)
    stated = dict(learning_from_genesis(genesis).hyperparameters)
    assert (stated["decryption_threshold"], stated["contributors_min"]) == (threshold, holders)
    assert public_key_of(genesis).threshold == threshold > (members - 1) // 3
    rules_of(genesis)
    few = refused(
        "genesis", "new", tmp_path / "few", *words, "--method", METHOD, *SETTINGS[:2], "--set", "contributors_min=2"
    )
    assert few.startswith(f"contributors_min is 2 of {members} members, it must be from {threshold + 1}")


def test_ten_members_are_dealt_no_key_that_three_traitors_open_with(tmp_path: Path) -> None:
    keys = [PrivateKey(bytes([number]) * 32) for number in range(1, 11)]
    words = [word for key in keys for word in ("--member", address(key.public_key))]
    settings = ("--method", METHOD, *ENCRYPTED, "--set", "decryption_threshold=3")
    said = refused("genesis", "new", tmp_path / "genesis", *words, *settings)
    assert said.startswith("decryption_threshold is 3 of 10 members, it must be from 4 to 10")
    assert list(tmp_path.iterdir()) == []


def test_a_setting_that_every_new_federation_has_otherwise_is_refused() -> None:
    """It was overridden without a word."""
    config = LearningConfig(method="scaffold", hyperparameters={"acknowledged": False})
    with pytest.raises(ConfigurationError, match="acknowledged is False, but a new federation of scaffold has True"):
        deal_keys(config, [key.public_key for key in MEMBERS], os.urandom)
