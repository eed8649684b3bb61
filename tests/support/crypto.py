"""Ciphertexts and posts of small keys."""

from gmpy2 import mpz

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
