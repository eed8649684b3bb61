"""A genesis document in words and units."""

from dataclasses import fields

from fedchain.chain.difficulty import bits_from_attempts
from fedchain.chain.genesis import AggregatorRule, Genesis
from fedchain.crypto.address import address
from fedchain.node.founding.genesis_text import GROUPS, NAMES, ZERO_TEXTS, genesis_lines
from tests.support.chain.builders import GLOBAL, UPDATE, genesis, keys


def lines_of(document: Genesis) -> dict[str, str]:
    """Values shown, by name; members have no name."""
    return {line[:34].strip(): line[34:] for line in genesis_lines(document) if len(line) > 34}


def test_a_document_is_shown_in_words_and_units() -> None:
    shown = lines_of(
        genesis(
            4,
            phases=(UPDATE, GLOBAL),
            aggregator=AggregatorRule.FIXED,
            learning=(("hyperparameters", '[["learning_rate", 0.1], ["shared_init", true]]'), ("method", '"fedavg"')),
            phase_timeout_ms=1_500,
            initial_bits=bits_from_attempts(100),
        )
    )
    assert shown["method"] == "fedavg"
    assert (shown["learning rate"], shown["shared init"]) == ("0.1", "yes")
    assert shown["phases of a round"] == f"{GLOBAL.name}, by the aggregator"
    assert (shown["rounds"], shown["round interval"]) == ("no last one", "none")
    assert (shown["phase timeout"], shown["largest post"]) == ("1.5 s", "64 MiB")
    assert shown["first difficulty"].endswith(" hashes")
    assert shown["fewest posts"] == "a quorum of the phase's contributors"


def test_every_field_is_shown_and_nothing_is_said_of_fields_that_are_not_there() -> None:
    grouped = {name for names in GROUPS.values() for name in names}
    names = {item.name for item in fields(Genesis) if item.init}
    assert grouped == names - {"version", "name", "created_ms", "members", "learning", "setup", "phases"}
    assert ZERO_TEXTS.keys() <= grouped
    assert NAMES.keys() <= grouped
    text = "\n".join(genesis_lines(genesis(4, setup=(UPDATE,))))
    assert all(address(key.public_key) in text for key in keys(4))
    assert "setup" in text


def test_what_nobody_wrote_on_purpose_is_shown_all_the_same() -> None:
    learning = (("hyperparameters", "[1]"), ("material", "{}"), ("method", "no JSON"), ("shapes", '"x\\u001b"'))
    shown = lines_of(genesis(1, name="a\nb\x1b[31m", learning=learning, created_ms=2**48))
    assert shown["founded"] == f"{2**48} ms after 1970"
    assert (shown["method"], shown["shapes"]) == ("no JSON", "x\N{REPLACEMENT CHARACTER}")
    assert shown["hyperparameters"] == "1 entries; all of them with --json"
    assert "\x1b" not in shown["name"]
    assert shown["name"].startswith("a\N{REPLACEMENT CHARACTER}b")
