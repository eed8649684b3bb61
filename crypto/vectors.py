"""Signatures about which libraries disagree: for authors of a peer in another language, and for nodes that start.

Source: Chalkias, Garillot, Nikolaenko, "Taming the many EdDSAs", SSR 2020, Table 5.
"""

from typing import NamedTuple

from fedchain.crypto.exceptions import WrongSignatures
from fedchain.crypto.keys import PrivateKey
from fedchain.crypto.signatures import is_valid_public_key, is_valid_signature


class SignatureCase(NamedTuple):
    """A signature, and its peculiarity."""

    message: bytes
    public_key: bytes
    """32 bytes."""
    signature: bytes
    """64 bytes."""
    about: str
    """For people."""


def signature_cases() -> list[tuple[SignatureCase, bool]]:
    """Signatures, and whether each is valid: one that is in order, and the twelve of the paper."""
    key, message = PrivateKey(bytes([1]) * 32), b"message"
    plain = SignatureCase(message, key.public_key, key.sign(message), "as everybody makes it")
    return [(case, is_valid_signature(case.public_key, case.signature, case.message)) for case in (plain, *SPECCHECK)]


def check_signatures() -> None:
    """Raise `WrongSignatures` if the library that is installed here judges signatures, or whether a key may be a
    member's, differently from others'.

    Builds of it differ in that: one for old data takes signatures by keys of small order, and older ones let a key with
    a part of order 2 be a member's.
    """
    for number, (case, found) in enumerate(signature_cases()):
        _expect(found == (number in _VALID), found, case.about)
    for key, about in _NO_MEMBERS:
        found = is_valid_public_key(key)
        _expect(not found, found, about)


def _expect(is_right: bool, found: bool, about: str) -> None:
    if not is_right:
        raise WrongSignatures(f"the library on this machine {'takes' if found else 'refuses'} it: {about}")


SPECCHECK = tuple(
    SignatureCase(bytes.fromhex(message), bytes.fromhex(key), bytes.fromhex(signature), about)
    for message, key, signature, about in (
        (
            "8c93255d71dcab10e8f379c26200f3c7bd5f09d9bc3068d3ef4edeb4853022b6",
            "c7176a703d4dd84fba3c0b760d10670f2a2053fa2c39ccc64ec7fd7792ac03fa",
            "c7176a703d4dd84fba3c0b760d10670f2a2053fa2c39ccc64ec7fd7792ac037a"
            "0000000000000000000000000000000000000000000000000000000000000000",
            "key and R of small order, S = 0",
        ),
        (
            "9bd9f44f4dcc75bd531b56b2cd280b0bb38fc1cd6d1230e14861d861de092e79",
            "c7176a703d4dd84fba3c0b760d10670f2a2053fa2c39ccc64ec7fd7792ac03fa",
            "f7badec5b8abeaf699583992219b7b223f1df3fbbea919844e3f7c554a43dd43"
            "a5bb704786be79fc476f91d3f3f89b03984d8068dcf1bb7dfc6637b45450ac04",
            "key of small order",
        ),
        (
            "aebf3f2601a0c8c5d39cc7d8911642f740b78168218da8471772b35f9d35b9ab",
            "f7badec5b8abeaf699583992219b7b223f1df3fbbea919844e3f7c554a43dd43",
            "c7176a703d4dd84fba3c0b760d10670f2a2053fa2c39ccc64ec7fd7792ac03fa"
            "8c4bd45aecaca5b24fb97bc10ac27ac8751a7dfe1baff8b953ec9f5833ca260e",
            "R of small order",
        ),
        (
            "9bd9f44f4dcc75bd531b56b2cd280b0bb38fc1cd6d1230e14861d861de092e79",
            "cdb267ce40c5cd45306fa5d2f29731459387dbf9eb933b7bd5aed9a765b88d4d",
            "9046a64750444938de19f227bb80485e92b83fdb4b6506c160484c016cc1852f"
            "87909e14428a7a1d62e9f22f3d3ad7802db02eb2e688b6c52fcd6648a98bd009",
            "key and R of mixed order; the equation without a cofactor holds",
        ),
        (
            "e47d62c63f830dc7a6851a0b1f33ae4bb2f507fb6cffec4011eaccd55b53f56c",
            "cdb267ce40c5cd45306fa5d2f29731459387dbf9eb933b7bd5aed9a765b88d4d",
            "160a1cb0dc9c0258cd0a7d23e94d8fa878bcb1925f2c64246b2dee1796bed512"
            "5ec6bc982a269b723e0668e540911a9a6a58921d6925e434ab10aa7940551a09",
            "only the equation with a cofactor holds",
        ),
        (
            "e47d62c63f830dc7a6851a0b1f33ae4bb2f507fb6cffec4011eaccd55b53f56c",
            "cdb267ce40c5cd45306fa5d2f29731459387dbf9eb933b7bd5aed9a765b88d4d",
            "21122a84e0b5fca4052f5b1235c80a537878b38f3142356b2c2384ebad4668b7"
            "e40bc836dac0f71076f9abe3a53f9c03c1ceeeddb658d0030494ace586687405",
            "only the equation with a cofactor holds, and 8 times the hash is reduced",
        ),
        (
            "85e241a07d148b41e47d62c63f830dc7a6851a0b1f33ae4bb2f507fb6cffec40",
            "442aad9f089ad9e14647b1ef9099a1ff4798d78589e66f28eca69c11f582a623",
            "e96f66be976d82e60150baecff9906684aebb1ef181f67a7189ac78ea23b6c0e"
            "547f7690a0e2ddcd04d87dbc3490dc19b3b3052f7ff0538cb68afb369ba3a514",
            "S not below the order of the group",
        ),
        (
            "85e241a07d148b41e47d62c63f830dc7a6851a0b1f33ae4bb2f507fb6cffec40",
            "442aad9f089ad9e14647b1ef9099a1ff4798d78589e66f28eca69c11f582a623",
            "8ce5b96c8f26d0ab6c47958c9e68b937104cd36e13c33566acd2fe8d38aa1942"
            "7e71f98a473474f2f13f06f97c20d58cc3f54b8bd0d272f42b695dd7e89a8c22",
            "S far above the order of the group",
        ),
        (
            "9bedc267423725d473888631ebf45988bad3db83851ee85c85e241a07d148b41",
            "f7badec5b8abeaf699583992219b7b223f1df3fbbea919844e3f7c554a43dd43",
            "ecffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff"
            "03be9678ac102edcd92b0210bb34d7428d12ffc5df5f37e359941266a4e35f0f",
            "R in another spelling, reduced before it is hashed",
        ),
        (
            "9bedc267423725d473888631ebf45988bad3db83851ee85c85e241a07d148b41",
            "f7badec5b8abeaf699583992219b7b223f1df3fbbea919844e3f7c554a43dd43",
            "ecffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff"
            "ca8c5b64cd208982aa38d4936621a4775aa233aa0505711d8fdcfdaa943d4908",
            "R in another spelling, hashed as it is",
        ),
        (
            "e96b7021eb39c1a163b6da4e3093dcd3f21387da4cc4572be588fafae23c155b",
            "ecffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff",
            "a9d55260f765261eb9b84e106f665e00b867287a761990d7135963ee0a7d59dc"
            "a5bb704786be79fc476f91d3f3f89b03984d8068dcf1bb7dfc6637b45450ac04",
            "key in another spelling, reduced before it is hashed",
        ),
        (
            "39a591f5321bbe07fd5a23dc2f39d025d74526615746727ceefd6e82ae65c06f",
            "ecffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff",
            "a9d55260f765261eb9b84e106f665e00b867287a761990d7135963ee0a7d59dc"
            "a5bb704786be79fc476f91d3f3f89b03984d8068dcf1bb7dfc6637b45450ac04",
            "key in another spelling, hashed as it is",
        ),
    )
)

_VALID = (0, 4)
"""The cases that are valid: the plain one, and that of mixed order."""

_NO_MEMBERS = (
    (bytes.fromhex("63771c228bf60e6a02ad24d2c345a28d3598f640e26bede40c8b77fe4bf090a3"), "a key with a part of order 2"),
    (SPECCHECK[3].public_key, "a key with a part of order 8"),
)
"""Points outside the prime-order group, whose signatures may be valid."""
