"""Long powers, in a time that does not follow from the exponent's bits: it may be a secret.

OpenSSL, which Python brings along for TLS, needs half the time of GMP's function for secrets: 20 ms instead of 47 for
a power of 4,096 bits modulo as many, on one machine. Where Python's OpenSSL cannot be reached, GMP does it. Both give
the same number.
"""

import ctypes
from collections.abc import Iterable
from contextlib import ExitStack
from functools import cache

from gmpy2 import mpz, powmod_sec


def power(base: mpz, exponent: mpz, modulus: mpz) -> mpz:
    """``base`` to the power of ``exponent``; raises as :func:`powers`."""
    return powers((base,), exponent, modulus)[0]


def powers(bases: Iterable[mpz], exponent: mpz, modulus: mpz) -> list[mpz]:
    """Each of ``bases`` to the power of one exponent. OpenSSL's work does not block other threads.

    Args:
        bases: integers from 0.
        exponent: from 0, secret or not. How many words of memory it takes is no secret.
        modulus: odd, above 1.

    Raises:
        ValueError: exponent or modulus is none of these.
    """
    if exponent < 0 or modulus < 3 or not modulus & 1:
        raise ValueError("a power needs an exponent from 0 and an odd modulus above 1")
    libcrypto = _libcrypto()
    if libcrypto is not None:
        return libcrypto.powers(bases, exponent, modulus)
    return [powmod_sec(base, exponent, modulus) if exponent else mpz(1) for base in bases]


class Libcrypto:
    """The few functions on OpenSSL's big numbers that powers take; they are the same since version 1.1.

    Args:
        library: where they are.

    Raises:
        AttributeError: a function is missing.
    """

    def __init__(self, library: ctypes.CDLL) -> None:
        number, context, size, text = ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int, ctypes.c_char_p
        self._new = _declared(library.BN_new, number)
        self._clear_free = _declared(library.BN_clear_free, None, number)
        self._new_context = _declared(library.BN_CTX_new, context)
        self._free_context = _declared(library.BN_CTX_free, None, context)
        self._read = _declared(library.BN_bin2bn, number, text, size, number)
        self._write = _declared(library.BN_bn2binpad, size, number, text, size)
        # result, base, exponent, modulus, context, and what follows from the modulus, where it is at hand
        arguments = (number, number, number, number, context, ctypes.c_void_p)
        self._power = _declared(library.BN_mod_exp_mont_consttime, ctypes.c_int, *arguments)

    def powers(self, bases: Iterable[mpz], exponent: mpz, modulus: mpz) -> list[mpz]:
        """As the function of this module."""
        found, answer = list[mpz](), ctypes.create_string_buffer(_size(modulus))
        with ExitStack() as stack:
            context = _existing(self._new_context())
            stack.callback(self._free_context, context)

            def take(value: mpz) -> int:
                number = _existing(self._new())
                stack.callback(self._clear_free, number)
                return self._set(number, value)

            taken_exponent, taken_modulus = take(exponent), take(modulus)
            base, result = take(mpz(0)), take(mpz(0))
            for each in bases:
                self._set(base, each % modulus)
                _existing(self._power(result, base, taken_exponent, taken_modulus, context, None))
                _existing(self._write(result, answer, len(answer)))
                found.append(mpz(int.from_bytes(answer.raw, "big")))
        return found

    def _set(self, number: int, value: mpz) -> int:
        """Let an OpenSSL number have a value."""
        return _existing(self._read(int(value).to_bytes(_size(value), "big"), _size(value), number))


@cache
def _libcrypto() -> Libcrypto | None:
    """The library that Python's own module for hashes is linked with; None if there is none."""
    try:
        import _hashlib

        return Libcrypto(ctypes.CDLL(_hashlib.__file__))
    except (ImportError, OSError, AttributeError):
        return None


def _declared(
    function: "ctypes._NamedFuncPointer", result: type | None, *arguments: type
) -> "ctypes._NamedFuncPointer":
    function.restype, function.argtypes = result, arguments
    return function


def _existing(answer: int | None) -> int:
    """OpenSSL answers 0 where it fails, which here is for want of memory alone."""
    if not answer or answer < 0:
        raise MemoryError("OpenSSL has no memory for a power")
    return answer


def _size(value: mpz) -> int:
    return (int(value.bit_length()) + 7) // 8 or 1
