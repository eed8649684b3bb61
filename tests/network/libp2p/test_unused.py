"""Modules that libp2p imports without use may be absent, and peers that ask for one are turned away as strangers."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from libp2p.crypto.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from libp2p.crypto.keys import KeyPair, KeyType
from libp2p.crypto.keys import PublicKey as LibraryKey
from libp2p.crypto.secp256k1 import Secp256k1PublicKey
from libp2p.network.exceptions import SwarmException
from libp2p.security.noise.transport import Transport as Noise

from fedchain.network.libp2p.unused import HEAVY, UNUSED, NotInstalled, _Placeholder
from tests.support.network.real import KEYS, attacker, on_trio, peer, works

NEVER_IMPORTED = ("grpc", "lru", "mypy_protobuf", "rpcudp")
"""Modules of what libp2p asks for besides; they are not even looked for."""


class ForeignPublicKey(Ed25519PublicKey):
    """A key that says that it is of another kind."""

    def get_type(self) -> KeyType:
        return KeyType.Secp256k1


class ForeignPrivateKey(Ed25519PrivateKey):
    """Its other half."""

    def get_public_key(self) -> LibraryKey:
        return ForeignPublicKey(self.impl.verify_key)


def foreign_noise(pair: KeyPair, **options: Any) -> Noise:
    """A handshake that says so."""
    assert isinstance(pair.private_key, Ed25519PrivateKey)
    foreign = ForeignPrivateKey(pair.private_key.impl)
    return Noise(KeyPair(foreign, foreign.get_public_key()), **options)


@pytest.mark.long
def test_the_network_is_imported_without_them() -> None:
    # Also where they are installed: the placeholders are found first, and a None in sys.modules cannot be imported.
    code = """
import sys
sys.modules |= dict.fromkeys(sys.argv[1:])
from fedchain.network.libp2p import unused
found = [finder for finder in sys.meta_path if isinstance(finder, unused._Finder)]
assert len(found) == 1, "what libp2p alone is imported without has a finder while it is imported"
sys.meta_path.remove(found[0])
sys.meta_path.insert(0, found[0])
import fedchain.network.libp2p.network
names = [name for name, module in sys.modules.items() if isinstance(module, unused._Placeholder)]
print(sorted({name.partition(".")[0] for name in names}))
"""
    command = [sys.executable, "-c", code, *NEVER_IMPORTED]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == str(list(UNUSED))


def test_what_is_installed_is_not_replaced(tmp_path: Path) -> None:
    (tmp_path / "coincurve.py").write_text("PublicKey = 'the real one'\n", encoding="utf-8")
    code = "import sys, fedchain.network.libp2p; sys.path.insert(0, sys.argv[1])"
    code += "; import coincurve; print(coincurve.PublicKey)"
    done = subprocess.run([sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "the real one"


@pytest.mark.long
def test_what_is_heavy_is_not_loaded_with_the_network_and_can_be_imported_afterwards() -> None:
    code = """
import sys
import fedchain.network.libp2p.network
print(sorted({name.partition(".")[0] for name in sys.modules} & {*sys.argv[1:]}))
import aioquic.quic.connection, httpx, requests, zeroconf
print(requests.Session().headers["Accept"], httpx.URL("http://a/").host, zeroconf.ServiceInfo.__name__)
print(aioquic.quic.connection.QuicConnection.__name__)
"""
    command = [sys.executable, "-c", code, *HEAVY]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.split("\n") == ["[]", "*/* a ServiceInfo", "QuicConnection", ""]


@pytest.mark.long
def test_what_was_imported_before_stays_what_it_is() -> None:
    code = "import requests, fedchain.network.libp2p.network, sys; print(requests is sys.modules['requests'])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "True"


def test_a_placeholder_can_be_named_and_not_called(monkeypatch: pytest.MonkeyPatch) -> None:
    absent = _Placeholder("coincurve")
    monkeypatch.setattr("libp2p.crypto.secp256k1.coincurve", absent)
    with pytest.raises(NotInstalled, match=r"coincurve\.PublicKey is called, and coincurve is not installed"):
        Secp256k1PublicKey.from_bytes(KEYS[0].public_key)
    with pytest.raises(NotInstalled, match=r"coincurve\.keys\.PublicKey\.from_secret is called"):
        absent.keys.PublicKey.from_secret(b"")
    with pytest.raises(AttributeError):
        absent.__path__  # noqa: B018


@on_trio
async def test_a_peer_with_a_key_of_another_kind_is_turned_away_and_nothing_ends() -> None:
    asked: list[bytes] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("libp2p.crypto.secp256k1.coincurve.PublicKey", asked.append)
        async with peer(0) as network:
            with patch.context() as foreign:
                foreign.setattr("fedchain.network.libp2p.identity.Noise", foreign_noise)
                with pytest.raises(ExceptionGroup) as caught:
                    async with attacker(network):
                        pass
            assert caught.value.subgroup(SwarmException) is not None
            assert not asked, "the node does not look at the key"
            assert not network.peers()
            await works(network)
