"""Words for people, which all parts of the program share."""

import difflib
from collections.abc import Sequence
from decimal import ROUND_CEILING, Context

_UPWARDS = Context(prec=4, rounding=ROUND_CEILING)


def counted(count: int, what: str) -> str:
    """A number of things: "1 post", "3 posts"."""
    return f"{count} {what}" if count == 1 else f"{count} {what}s"


def shown_epsilon(epsilon: float) -> str:
    """An epsilon in four digits, rounded up: a promise of privacy is never told as a better one than it is."""
    return f"{_UPWARDS.create_decimal(repr(float(epsilon))):f}"


def first_error(error: Exception) -> Exception:
    """The first error in a group of any depth, or the error itself: people are shown one at a time."""
    while isinstance(error, ExceptionGroup):
        error = error.exceptions[0]
    return error


def some_of(names: Sequence[str], most: int = 8) -> str:
    """Names for one line: "a, b and 3 more"; empty if there are none."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more


def bearable(liars: int, members: int, *, earlier: bool) -> str:
    """The number of members that may lie where certificates are believed: "at most 1 of 4 members lie".

    With ``earlier`` members may change, and other sets of them led to this one: their keys are believed as well.
    """
    lie = f"at most {liars} of {members} members lie" if liars else "no member lies"
    return lie + (", and as few in each earlier set, even of those that have left since" if earlier else "")


def printable(text: str, instead: str = "\N{REPLACEMENT CHARACTER}") -> str:
    """A text from others, with unprintable characters replaced: they could disturb the text around it."""
    return "".join(letter if letter.isprintable() else instead for letter in text)


def nearest_name(word: str, names: Sequence[str]) -> str | None:
    """The only name that begins with ``word``, or else the name that looks most like it; None if none does."""
    longer = [name for name in names if word and name.startswith(word)]
    return longer[0] if len(longer) == 1 else next(iter(difflib.get_close_matches(word, names, n=1, cutoff=0.5)), None)
