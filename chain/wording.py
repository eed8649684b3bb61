"""Words for people that the store's messages, the explorer and whatever stands above them have in common."""


def counted(count: int, what: str) -> str:
    """A number of things: "1 post", "3 posts"."""
    return f"{count} {what}" if count == 1 else f"{count} {what}s"
