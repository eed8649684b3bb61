"""Docstrings under fields are help texts."""

from dataclasses import dataclass

from fedchain.files.field_texts import field_texts


@dataclass
class Settings:
    """Settings of this test."""

    one: int = 1
    """The first,
    on two lines."""

    silent: int = 2

    two: str = ""
    """The second."""


def test_each_field_that_has_one_has_its_text() -> None:
    assert field_texts(Settings) == {"one": "The first,\non two lines.", "two": "The second."}
