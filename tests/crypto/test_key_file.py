"""Key files against careless users, curious neighbours, thieves who guess, and files that want all of a machine."""

import base64
import os
import shutil
import subprocess
import tracemalloc
from contextlib import suppress
from pathlib import Path

import pytest
from Crypto.IO import PEM
from Crypto.Util.asn1 import DerSequence
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    KeySerializationEncryption,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)

from fedchain.crypto.address import address
from fedchain.crypto.exceptions import KeyFileError
from fedchain.crypto.key_file import ED25519, FILE_SIZE_MAX, expect_free, is_encrypted, weakness
from fedchain.crypto.keys import PrivateKey
from fedchain.crypto.secret_file import write_secret

KEY = PrivateKey(bytes(range(32)))
OTHER = PrivateKey(bytes(32))
SECRET = "pass phrase with ü"

# openssl genpkey -algorithm ed25519 | openssl pkcs8 -topk8 -scrypt -passout pass:correct (OpenSSL 3.0.19)
BY_OPENSSL = """-----BEGIN ENCRYPTED PRIVATE KEY-----
MIGTME8GCSqGSIb3DQEFDTBCMCEGCSsGAQQB2kcECzAUBAjvHaWsF6A1OAICQAAC
AQgCAQEwHQYJYIZIAWUDBAEqBBAbJBv/nFOOYFDK1ESEuchsBECTI+lLkf1PnM4P
Qe4M9yawISme+n6/5M527NvviK3RBuPYVzeYg4Vo9ePlQNjWK0A7Ik2FlBq1DHWC
07IgYUq7
-----END ENCRYPTED PRIVATE KEY-----
"""


@pytest.fixture(scope="module")
def locked(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """An encrypted key file: each takes its time to make."""
    path = tmp_path_factory.mktemp("keys") / "key.pem"
    KEY.save(path, SECRET)
    return path.read_bytes()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Where the key file is."""
    return tmp_path / "key.pem"


def put(path: Path, content: bytes | str) -> Path:
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    path.chmod(0o600)
    return path


def old_file(encryption: KeySerializationEncryption, key: Ed25519PrivateKey | X25519PrivateKey | None = None) -> bytes:
    """A key file as version 0.1 wrote it."""
    key = key or Ed25519PrivateKey.from_private_bytes(KEY.seed)
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, encryption)


@pytest.mark.long
def test_an_encrypted_key_file_is_read_back(path: Path, locked: bytes) -> None:
    assert PrivateKey.load(put(path, locked), SECRET) == KEY
    assert is_encrypted(path)
    assert weakness(path) is None


def test_a_plain_key_file_is_read_back(path: Path) -> None:
    KEY.save(path)
    assert PrivateKey.load(path) == KEY
    assert not is_encrypted(path)
    assert weakness(path) is None
    assert path.read_bytes().startswith(b"-----BEGIN PRIVATE KEY-----")


def test_the_file_says_whose_key_it_is_but_not_the_key(path: Path, locked: bytes) -> None:
    text = locked.decode()
    assert text.startswith("-----BEGIN ENCRYPTED PRIVATE KEY-----")
    assert text.endswith(f"address {address(KEY.public_key)}\n")
    body = base64.b64decode("".join(text.splitlines()[1:-2]))
    assert KEY.seed not in body


def test_two_files_of_one_key_have_nothing_in_common(path: Path, locked: bytes) -> None:
    KEY.save(path, SECRET)
    assert path.read_bytes() != locked


def test_other_tools_read_it(path: Path, locked: bytes) -> None:
    for content, passphrase in ((locked, SECRET.encode()), (old_file(NoEncryption()), None)):
        key = load_pem_private_key(content, passphrase)
        assert isinstance(key, Ed25519PrivateKey)
        assert key.private_bytes_raw() == KEY.seed


@pytest.mark.long
@pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl is not installed")
def test_openssl_reads_it(path: Path, locked: bytes) -> None:
    words = ["openssl", "pkey", "-in", str(put(path, locked)), "-passin", "stdin", "-text", "-noout"]
    done = subprocess.run(words, input=SECRET + "\n", capture_output=True, text=True, check=True)
    shown = "".join(done.stdout.split()).replace(":", "")
    assert KEY.seed.hex() in shown
    assert KEY.public_key.hex() in shown


def test_a_file_of_openssl_s_is_read_and_its_cost_is_named(path: Path) -> None:
    put(path, BY_OPENSSL)
    assert (
        PrivateKey.load(path, "correct").public_key.hex()
        == "0706b67ad50956de768f7c76c3150dce81e43e6d47a327e95ce17ad7fd223d73"
    )
    assert weakness(path) == "scrypt with N = 16384, r = 8, p = 1"


def test_older_files_are_read_and_their_weakness_is_named(path: Path) -> None:
    put(path, old_file(BestAvailableEncryption(SECRET.encode())))
    assert PrivateKey.load(path, SECRET) == KEY
    assert weakness(path) == "PBKDF2 with 2048 iterations"
    put(path, old_file(NoEncryption()))
    assert PrivateKey.load(path) == KEY


@pytest.mark.long
def test_an_older_file_is_replaced_by_one_that_is_protected(path: Path) -> None:
    put(path, old_file(BestAvailableEncryption(SECRET.encode())))
    put(path.with_name(f"key.pem.{os.getpid()}.part"), "left by a crash")
    PrivateKey.load(path, SECRET).save(path, "another", replace=True)
    assert weakness(path) is None
    assert PrivateKey.load(path, "another") == KEY
    assert path.stat().st_mode & 0o777 == 0o600
    assert [item.name for item in path.parent.iterdir()] == ["key.pem"]


def test_a_command_that_is_ended_half_way_leaves_no_half_of_a_key(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def end(descriptor: int) -> None:
        assert not path.exists()
        raise SystemExit

    monkeypatch.setattr("os.fsync", end)
    with pytest.raises(SystemExit):
        KEY.save(path)
    monkeypatch.undo()
    KEY.save(path)
    assert PrivateKey.load(path) == KEY


def test_what_a_link_leads_to_is_replaced(path: Path, tmp_path: Path) -> None:
    KEY.save(tmp_path / "real.pem")
    path.symlink_to("real.pem")
    OTHER.save(path, replace=True)
    assert path.is_symlink()
    assert PrivateKey.load(tmp_path / "real.pem") == OTHER


@pytest.mark.long
@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ("wrong", "the passphrase is wrong or the file is damaged"),
        ("", "the passphrase is wrong or the file is damaged"),
        (None, "is encrypted and needs a passphrase"),
    ],
)
def test_the_passphrase_must_fit(path: Path, locked: bytes, given: str | None, reason: str) -> None:
    with pytest.raises(KeyFileError, match=reason) as caught:
        PrivateKey.load(put(path, locked), given)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_plain_file_needs_no_passphrase(path: Path) -> None:
    KEY.save(path)
    with pytest.raises(KeyFileError, match="needs no passphrase"):
        PrivateKey.load(path, "needless")


def test_an_empty_passphrase_is_none(path: Path) -> None:
    with pytest.raises(KeyFileError, match="the passphrase is empty"):
        KEY.save(path, "")
    assert not path.exists()


def test_no_flipped_bit_gives_another_key(path: Path) -> None:
    KEY.save(path)
    content = path.read_bytes()
    for place in range(len(content)):
        damaged = bytes([*content[:place], content[place] ^ 1, *content[place + 1 :]])
        with suppress(KeyFileError):
            assert PrivateKey.load(put(path, damaged)) == KEY


def test_damage_that_decrypts_is_noticed_too(path: Path, locked: bytes) -> None:
    lines = locked.decode().splitlines(keepends=True)
    der = bytearray(base64.b64decode("".join(lines[1:-2])))
    der[-48] ^= 1  # the block that holds the seed's first half; the frame around the seed stays as it is
    damaged = lines[0] + base64.b64encode(der).decode() + "\n" + "".join(lines[-2:])
    with pytest.raises(KeyFileError, match=f"is damaged: it holds .* it is of '{address(KEY.public_key)}'"):
        PrivateKey.load(put(path, damaged), SECRET)


def test_another_key_s_address_is_noticed(path: Path) -> None:
    KEY.save(path)
    put(path, path.read_text().replace(address(KEY.public_key), address(OTHER.public_key)))
    with pytest.raises(KeyFileError, match=f"holds the key of {address(KEY.public_key)} and says that it is of "):
        PrivateKey.load(path)


# --- files that want too much


def with_numbers(content: bytes, *numbers: int | bytes) -> str:
    """The same file with other parameters of its key derivation; bytes are the encoding of something else."""
    der, _, _ = PEM.decode(content.decode().partition("address")[0])
    outer = DerSequence().decode(der)
    scheme = DerSequence().decode(outer[0])
    parts = DerSequence().decode(scheme[1])
    derivation = DerSequence().decode(parts[0])
    old = DerSequence().decode(derivation[1])
    derivation[1] = DerSequence([old[0], *numbers, *old[1 + len(numbers) :]]).encode()
    parts[0] = derivation.encode()
    scheme[1] = parts.encode()
    outer[0] = scheme.encode()
    return PEM.encode(outer.encode(), "ENCRYPTED PRIVATE KEY")


@pytest.mark.parametrize(
    ("numbers", "reason"),
    [
        ((2**22, 2**3, 1), r"4294971392 bytes of memory for scrypt, above the maximum .* 268435456"),
        ((2**14, 2**20, 1), r"scrypt cost N\*r\*p/8 of 2147483648, above the maximum .* 4194304"),
        ((2**14, 8, 2**20), r"scrypt cost N\*r\*p/8 of 17179869184, above the maximum .* 4194304"),
        ((2**200, 2**200, 2**200), "above the maximum"),
        ((3, 8, 1), "damaged, or protected in a way that is not known"),
        ((0, 0, 0), "damaged, or protected in a way that is not known"),
        ((-1, 8, 1), "damaged, or protected in a way that is not known"),
        ((b"\x04\x01\x08", 8, 1), "damaged, or protected in a way that is not known"),  # a string
        ((b"\x02\x80", 8, 1), "damaged, or protected in a way that is not known"),  # without length
    ],
)
def test_a_hostile_file_takes_neither_memory_nor_time(
    path: Path, locked: bytes, numbers: tuple[int | bytes, ...], reason: str
) -> None:
    put(path, with_numbers(locked, *numbers))
    tracemalloc.start()
    try:
        with pytest.raises(KeyFileError, match=reason) as caught:
            PrivateKey.load(path, SECRET)
        assert tracemalloc.get_traced_memory()[1] < 2**20
    finally:
        tracemalloc.stop()
    assert "\n" not in str(caught.value)


def test_a_hostile_count_of_iterations(path: Path) -> None:
    put(path, with_numbers(old_file(BestAvailableEncryption(b"x")), 2**31))
    with pytest.raises(KeyFileError, match=r"PBKDF2 iteration count of 2147483648, above the maximum .* 4194304"):
        PrivateKey.load(path, "x")
    assert weakness(path) == "PBKDF2 with 2147483648 iterations"


def test_the_numbers_are_the_file_s(path: Path, locked: bytes) -> None:
    # If reading ignored them, the tests above could not fail.
    put(path, with_numbers(locked, 2**13))
    assert weakness(path) == "scrypt with N = 8192, r = 8, p = 16"
    with pytest.raises(KeyFileError, match="the passphrase is wrong"):
        PrivateKey.load(path, SECRET)


def test_an_endless_file_is_not_read(path: Path) -> None:
    KEY.save(path)
    put(path, path.read_bytes() + b" " * FILE_SIZE_MAX)
    with pytest.raises(KeyFileError, match="more than 65536 bytes"):
        PrivateKey.load(path)


# --- files that are none, or not for us


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "it is not a PEM key"),
        (b"not a key", "it is not a PEM key"),
        (b"-----BEGIN PRIVATE KEY-----\nA\n-----END PRIVATE KEY-----\n", "it is not a PEM key"),
        (b"-----BEGIN PRIVATE KEY-----\nAAAA\n-----END ENCRYPTED PRIVATE KEY-----\n", "it is not a PEM key"),
        (b"-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n", "it is damaged"),
        (b"-----BEGIN ENCRYPTED PRIVATE KEY-----\nAAAA\n-----END ENCRYPTED PRIVATE KEY-----\n", "needs a passphrase"),
    ],
)
def test_a_file_that_is_no_key_is_refused(path: Path, content: bytes, reason: str) -> None:
    with pytest.raises(KeyFileError, match=reason):
        PrivateKey.load(put(path, content))


def test_a_pipe_is_refused_and_not_waited_for(path: Path) -> None:
    """A command reads a key file more than once: the second time the pipe was empty, and so no key."""
    os.mkfifo(path, 0o600)
    with pytest.raises(KeyFileError, match="is a pipe, and a key file is read more than once"):
        is_encrypted(path)


def test_a_name_that_no_file_can_have_is_refused(path: Path) -> None:
    with pytest.raises(KeyFileError, match="cannot be read: File name too long"):
        is_encrypted(path.with_name("x" * 300))


def test_a_key_of_another_kind_is_refused(path: Path) -> None:
    put(path, old_file(NoEncryption(), X25519PrivateKey.from_private_bytes(bytes(range(32)))))
    with pytest.raises(KeyFileError, match=r"kind 1\.3\.101\.110, not an Ed25519 key \(1\.3\.101\.112\)"):
        PrivateKey.load(path)


def test_a_key_that_is_not_written_as_an_octet_string_is_refused(path: Path) -> None:
    write_secret(path, ED25519, b"\x03\x20" + KEY.seed, KEY.public_key, None)
    with pytest.raises(KeyFileError, match="cannot be opened"):
        PrivateKey.load(path)


def test_words_above_a_key_change_nothing_and_words_within_are_damage(path: Path) -> None:
    KEY.save(path)
    text = path.read_text()
    put(path, f"This key is not ENCRYPTED.\n{text}")
    assert PrivateKey.load(path) == KEY
    put(path, text.replace("KEY-----\n", "KEY-----\n*", 1))
    with pytest.raises(KeyFileError, match="it is not a PEM key"):
        PrivateKey.load(path)


def test_an_encrypted_file_of_an_unknown_method_is_called_so(path: Path) -> None:
    put(path, "-----BEGIN ENCRYPTED PRIVATE KEY-----\nMAA=\n-----END ENCRYPTED PRIVATE KEY-----\n")
    assert weakness(path) == "a method that is not known"
    with pytest.raises(KeyFileError, match="protected in a way that is not known"):
        PrivateKey.load(path, "x")


@pytest.mark.parametrize("umask", [0, 0o077, 0o777])
def test_only_the_owner_may_read_a_key_file_whatever_the_umask(path: Path, umask: int) -> None:
    before = os.umask(umask)
    try:
        KEY.save(path)
    finally:
        os.umask(before)
    assert path.stat().st_mode & 0o177 == 0


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o660, 0o610])
def test_a_file_that_others_may_read_is_refused_with_the_remedy(path: Path, mode: int) -> None:
    KEY.save(path)
    path.chmod(mode)
    with pytest.raises(KeyFileError, match=f"mode {mode:04o}.*chmod 600 {path}"):
        PrivateKey.load(path)


def test_a_key_file_is_never_overwritten(path: Path) -> None:
    path.write_text("precious")
    with pytest.raises(KeyFileError, match="never overwritten"):
        KEY.save(path)
    assert path.read_text() == "precious"


def test_a_link_is_not_followed_when_a_key_is_saved(path: Path, tmp_path: Path) -> None:
    path.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(KeyFileError, match="never overwritten"):
        expect_free(path)
    with pytest.raises(KeyFileError, match="never overwritten"):
        KEY.save(path)
    assert not (tmp_path / "elsewhere").exists()


@pytest.mark.parametrize("replace", [False, True])
def test_a_full_disk_leaves_what_there_was(path: Path, monkeypatch: pytest.MonkeyPatch, replace: bool) -> None:
    if replace:
        KEY.save(path)
    before = {item.name: item.read_bytes() for item in path.parent.iterdir()}

    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("fedchain.crypto.secret_file.os.fsync", full)
    with pytest.raises(KeyFileError, match="cannot be written: No space left on device"):
        OTHER.save(path, replace=replace)
    assert {item.name: item.read_bytes() for item in path.parent.iterdir()} == before


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(KeyFileError, match=r"none\.pem cannot be read: No such file"):
        PrivateKey.load(tmp_path / "none.pem")
    with pytest.raises(KeyFileError, match=r"key\.pem cannot be written: No such file"):
        KEY.save(tmp_path / "no folder" / "key.pem")


def test_what_a_file_is_not_comes_before_who_may_read_it(path: Path) -> None:
    put(path, b"a = 1\n")
    path.chmod(0o644)
    with pytest.raises(KeyFileError, match="it is not a PEM key"):
        PrivateKey.load(path)
