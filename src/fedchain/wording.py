"""Words for people, which all parts of the program share."""


def counted(count: int, what: str) -> str:
    """A number of things: "1 post", "3 posts"."""
    return f"{count} {what}" if count == 1 else f"{count} {what}s"


def printable(text: str, instead: str = "\N{REPLACEMENT CHARACTER}") -> str:
    """A text that others had a say in, without letters that would move what stands around it."""
    return "".join(letter if letter.isprintable() else instead for letter in text)
