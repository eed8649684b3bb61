"""Lines where there is no terminal."""

import pytest

from fedchain.terminal import Console, step


def test_what_is_done_meanwhile_is_said_in_a_line_where_there_is_no_terminal(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with step(Console(), "preparing [bold]digits"):
        assert capsys.readouterr().out == "preparing [bold]digits\n"
    assert capsys.readouterr().out == ""
