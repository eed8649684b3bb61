"""Dealing: keys of a federation that encrypts are dealt at its founding, installed by each member, and read at start.

The dealer's file beside the genesis document is public: it holds the public key, and each member's share, sealed to the
member's signing key. The primes and the shares themselves are gone when the dealer's process ends.
"""

import shlex
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from fedchain.chain.genesis import Genesis
from fedchain.crypto.address import address
from fedchain.crypto.exceptions import InvalidDealing, InvalidThresholdKey
from fedchain.crypto.keys import PrivateKey
from fedchain.crypto.randomness import RandomBytes
from fedchain.crypto.signatures import PublicKey
from fedchain.crypto.threshold import (
    Dealing,
    KeyShare,
    ThresholdPublicKey,
    decode_dealing,
    decode_public_key,
    open_share,
)
from fedchain.crypto.threshold.sealing import DEALING_SIZE_MAX
from fedchain.learning.config import LearningConfig
from fedchain.learning.exceptions import ConfigurationError, asking
from fedchain.learning.registry import build_method
from fedchain.learning.sums.ciphertexts import SHARE
from fedchain.learning.sums.threshold import PUBLIC_KEY
from fedchain.node.config import NodeConfigError
from fedchain.node.founding.task import learning_from_genesis

WITHOUT_SHARE = "until then this member posts, but helps to open nothing"
"""The consequence for a member whose share is missing."""


class ShareMissing(NodeConfigError):
    """A member's share of the decryption key is not beside its key."""


def deal_keys(
    config: LearningConfig,
    members: Sequence[PublicKey],
    random_bytes: RandomBytes,
    newcomers: Sequence[PublicKey] = (),
) -> tuple[LearningConfig, Dealing | None]:
    """Derive settings from the members, and make the keys that a task needs, if any; this takes some seconds.

    Args:
        config: the task.
        members: public keys, in the order of the partition.
        random_bytes: the operating system's source of randomness.
        newcomers: public keys of those that join later and get shares all the same, from which no setting follows.

    Returns:
        The task, with its derived hyper-parameters written out and the public key in its material, and the sealed
        shares, or None if it needs no keys.

    Raises:
        ConfigurationError: the task's thresholds do not protect so many members, or a setting that is derived is
            stated otherwise.
    """
    stated = dict(config.hyperparameters)
    method = build_method(config.method, stated)
    with asking("derived", type(method)):
        derived = dict(method.derived(len(members)))
    for name, value in derived.items():
        asked = stated.get(name, value)
        if asked != value and (isinstance(asked, bool) or asked != 0):
            raise ConfigurationError(f"{name} is {asked}, but a new federation of {config.method} has {value}")
    if derived:
        config = replace(config, hyperparameters=stated | derived)
    method = build_method(config.method, dict(config.hyperparameters))
    with asking("deal", type(method)):
        dealing = method.deal([*members, *newcomers], random_bytes)
    if dealing is None:
        return config, None
    material = dict(config.material) | {PUBLIC_KEY: dealing.public_key.encode()}
    return replace(config, material=material), dealing


def dealing_path(genesis: Path) -> Path:
    """Path of the sealed shares, from which members fetch them."""
    return genesis.with_name(genesis.name + ".dealing")


def install_share(key_path: Path, key: PrivateKey, passphrase: str | None, dealing: Dealing, index: int) -> Path:
    """Open a member's sealed share and write it beside its key, protected in the same way.

    Args:
        key_path: path of the key file.
        key: the key in it.
        passphrase: its passphrase; None if it is not encrypted.
        dealing: the federation's sealed shares.
        index: the member's place among the members, from 0.

    Returns:
        Path of the share's file.

    Raises:
        InvalidDealing: the share cannot be opened with this key.
        ShareFileError: the share's file exists already, or cannot be written.
    """
    from fedchain.crypto.threshold.share_file import share_file_path, write_share_file  # simulations need no files

    public_key = dealing.public_key
    share = open_share(public_key, dealing.sealed_shares[index], index + 1, key)
    path = share_file_path(key_path, public_key)
    write_share_file(path, public_key, share, key.public_key, passphrase)
    return path


def read_dealing(path: Path, genesis: Genesis) -> Dealing:
    """Read the sealed shares of a federation.

    Raises:
        NodeConfigError: the federation has none, or the file cannot be read or belongs to another federation.
    """
    public_key = dealt_key(learning_from_genesis(genesis))
    if public_key is None:
        raise NodeConfigError(
            f"the federation {genesis.chain_id.hex()[:8]} encrypts nothing: there is no share to install"
        )
    try:
        with path.open("rb") as file:
            data = file.read(DEALING_SIZE_MAX + 1)
        dealing = decode_dealing(data, (public_key.key_bits,))
    except OSError as error:
        raise NodeConfigError(f"{path} cannot be read: {error.strerror}") from None
    except (InvalidDealing, InvalidThresholdKey) as error:
        raise NodeConfigError(f"{path} holds no sealed shares: {error}") from None
    if dealing.public_key != public_key:
        found, expected = (key.key_id.hex()[:8] for key in (dealing.public_key, public_key))
        raise NodeConfigError(f"{path} holds shares of the key {found}, the genesis document has the key {expected}")
    return dealing


def read_share(key_path: Path, genesis: Genesis, member: PublicKey, passphrase: str | None) -> dict[str, bytes]:
    """The secrets that a member was dealt, by the names by which methods ask for them; empty if nothing is encrypted.

    Raises:
        ShareMissing: the message says which command writes the file.
        ShareFileError: the file cannot be used, or belongs to another federation or member.
    """
    from fedchain.crypto.threshold.share_file import read_share_file, share_file_path

    public_key = dealt_key(learning_from_genesis(genesis))
    if public_key is None:
        return {}
    path = share_file_path(key_path, public_key)
    if not path.exists():
        raise ShareMissing(
            f"{path} is missing, the share of the decryption key that {address(member)} was dealt; "
            f"run: fedchain keys install-share {shlex.quote(str(key_path))} DEALING --genesis GENESIS"
        )
    share = read_share_file(path, public_key, genesis.index[member] + 1, member, passphrase)
    return {SHARE: share_bytes(share, public_key)}


def share_bytes(share: KeyShare, public_key: ThresholdPublicKey) -> bytes:
    """The bytes of a share, as a method's secret."""
    return int(share.secret).to_bytes(public_key.ciphertext_size, "big")


def dealt_key(config: LearningConfig) -> ThresholdPublicKey | None:
    """The public key in a validated task's material; None if there is none."""
    data = dict(config.material).get(PUBLIC_KEY)
    if data is None:
        return None
    return decode_public_key(data, build_method(config.method, dict(config.hyperparameters)).key_bits_allowed)
