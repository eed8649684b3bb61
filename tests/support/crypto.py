"""Ciphertexts and posts of small keys."""

from collections.abc import Sequence

from gmpy2 import mpz

from fedchain.crypto.exceptions import InvalidShare
from fedchain.crypto.threshold import Decryption, Encryptor, SharePost
from tests.crypto.threshold.dealt import SENDERS, Dealt, random_source

CHAIN_ID = bytes(range(32))


def encrypt(dealt: Dealt, plaintexts: list[int], seed: str = "encrypt") -> list[mpz]:
    encryptor = Encryptor(dealt[0])
    return encryptor.encrypt(plaintexts, encryptor.randomizers(len(plaintexts), random_source(seed)))


def occasion(dealt: Dealt, ciphertexts: list[mpz]) -> Decryption:
    return Decryption(dealt[0], CHAIN_ID, 7, "decryption_share", ciphertexts)


def posts(dealt: Dealt, decryption: Decryption, members: tuple[int, ...] = (0, 1, 2, 3, 4)) -> list[SharePost]:
    return [decryption.share(dealt[1][i], SENDERS[i], random_source(f"post/{i}")) for i in members]


def decrypt(decryption: Decryption, sent: Sequence[SharePost]) -> tuple[list[int], list[InvalidShare]]:
    """Combine the first t posts that are valid; the plaintexts, and the errors of bad posts that came before."""
    valid, refused = list[SharePost](), list[InvalidShare]()
    for post in sent:
        if len(valid) == decryption.key.threshold:
            break
        try:
            decryption.validate(post)
        except InvalidShare as error:
            refused.append(error)
        else:
            valid.append(post)
    return decryption.combine(valid), refused
