"""``fedchain.testing``: sound methods and tasks pass, and what others do wrong is named."""

from fedchain import testing


def test_what_is_imported_late_is_offered() -> None:
    assert {*testing.__all__} <= {*dir(testing)}
