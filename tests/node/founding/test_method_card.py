"""The exchange of a method follows from its specs."""

import pytest

from fedchain.node.founding.method_card import card_of


@pytest.mark.parametrize(
    ("name", "posts", "leaves"),
    [
        ("solo", (), ()),
        ("fedavg", ("the model's parameters", "the model's buffers", "examples"), None),
        ("fedph", ("labels", "prototypes", "counts"), ("labels", "prototypes", "holders")),
    ],
)
def test_what_is_exchanged_follows_from_the_specs(
    name: str, posts: tuple[str, ...], leaves: tuple[str, ...] | None
) -> None:
    (phase,) = card_of(name).phases
    assert phase.posts == posts
    assert phase.leaves == (posts[:2] if leaves is None else leaves)
