"""Errors say whose share is refused, and a file's error is one of its kind."""

from fedchain.crypto.exceptions import CryptoError, InvalidShare, KeyFileError, ShareFileError


def test_a_refused_share_names_its_member_counted_from_0() -> None:
    error = InvalidShare(3, "12D3KooW", "no unit")
    assert str(error) == "decryption shares of peer 2 (12D3KooW) are refused: no unit"
    assert (error.index, error.sender, error.reason) == (3, "12D3KooW", "no unit")


def test_who_catches_errors_of_key_files_catches_those_of_shares() -> None:
    assert issubclass(ShareFileError, KeyFileError)
    assert issubclass(KeyFileError, CryptoError)
