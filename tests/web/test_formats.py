"""How pages write values: what came from others is text, and what is not there is a dash."""

from dataclasses import replace

import pytest
from markupsafe import Markup

from fedchain.crypto.address import address
from fedchain.web.formats import Names, filters, hash_text, offset, said
from tests.support.chain.builders import genesis

GENESIS = replace(genesis(3), created_ms=1_700_000_000_000)


def test_what_is_not_known_is_a_dash() -> None:
    shown = filters()
    assert {shown[name](None) for name in ("duration", "size", "percent", "number", "hash", "offset")} == {"–"}


def test_nothing_at_all_is_known_and_no_dash() -> None:
    shown = filters()
    names = ("duration", "size", "percent", "milliseconds", "number", "offset")
    assert [shown[name](0) for name in names] == ["0.0 s", "0 B", "0.0 %", "0.00 ms", "0", "+0.000 s"]


def test_a_switch_is_on_or_off_in_words() -> None:
    assert [said(value) for value in (True, False, None, "", 0, 1.5, "sum")] == [
        *("yes", "no", "none", "none", "0", "1.5", "sum")
    ]


def test_a_hash_is_short_with_the_whole_as_its_title_and_never_markup() -> None:
    assert str(hash_text(bytes(32))) == f'<code class="hash" title="{"00" * 32}">0000000000…</code>'
    assert "<script>" not in str(hash_text("<script>", full=True))


def test_members_stand_in_the_order_of_their_numbers() -> None:
    names = [address(member) for member in GENESIS.members]
    for shuffled in (names[::-1], sorted(names), [names[1], names[0], names[2]]):
        assert Names(GENESIS, "run", numbers={names[0]: 2, names[1]: 0, names[2]: 10}).ordered(shuffled) == [
            *(names[1], names[0], names[2])
        ]
    assert Names(GENESIS, "run").ordered([names[0], "a stranger"]) == ["a stranger", names[0]]


def test_a_clock_is_ahead_or_behind() -> None:
    assert [offset(value) for value in (1_500, -20, 3_600_000, -3_600_000)] == [
        "+1.500 s",
        "-0.020 s",
        "+1:00:00",
        "-1:00:00",
    ]


def test_a_member_is_a_link_and_a_stranger_is_text() -> None:
    names = Names(GENESIS, "run")
    name = address(GENESIS.members[1])
    assert names.number(name) == 1
    assert f'href="/run/member/1" title="{name}"' in str(names.member(name))
    assert f"<b>1</b> <code>…{name[-8:]}</code>" in str(names.member(name)), "all addresses begin alike"
    assert str(names.member("<b>")) == "&lt;b&gt;"
    assert Names(GENESIS, "run", is_report=True).link("block/3") == "#block-3"
    assert Names(GENESIS, "run", is_report=True).link("peers") == "#blocks"
    assert Names(GENESIS, "run", is_report=True).link(f"block/{'ab' * 32}") == "#blocks", (
        "it has places by number alone"
    )


def test_times_of_a_simulation_and_of_wrong_clocks_are_no_dates() -> None:
    moment = GENESIS.created_ms + 1_500
    assert Names(GENESIS, "run").when(moment) == "2023-11-14 22:13:21 UTC"
    assert Names(GENESIS, "run", is_virtual=True).when(moment) == "+1.5 s"
    assert Names(GENESIS, "run").when(10**15).startswith("+")


def test_a_member_and_a_hash_cost_no_formatted_markup(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pages of a large federation have hundreds of both; to format them took most of a page's time."""

    def refuse(*given: object, **named: object) -> None:
        raise AssertionError("formatted")

    names = Names(GENESIS, "run")
    monkeypatch.setattr(Markup, "format", refuse)
    for member in map(address, GENESIS.members):
        assert names.member(member).startswith('<a class="member" ')
    assert hash_text(bytes(32)).startswith("<code ")
    assert "<b>" not in hash_text("<b>" * 9)


def test_how_long_ago_a_moment_is_stands_where_its_time_is_a_date_and_a_browser_counts() -> None:
    moment = GENESIS.created_ms + 1_500
    assert f'data-since="{moment}"' in Names(GENESIS, "run").age(moment)
    assert Names(GENESIS, "run", is_virtual=True).age(moment) == ""
    assert Names(GENESIS, "run", is_report=True).age(moment) == "", "nothing runs in a report"
    assert Names(GENESIS, "run").age(10**15) == Names(GENESIS, "run").age(None) == ""
