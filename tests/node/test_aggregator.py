"""Who aggregates: what the method wants, unless something else is asked for that does not contradict it."""

import re
from pathlib import Path

import pytest

from fedchain.chain.exceptions import InvalidGenesis
from fedchain.chain.genesis import AggregatorRule, Genesis
from fedchain.crypto.address import address
from fedchain.learning.application import Application
from fedchain.learning.config import LearningConfig
from fedchain.learning.exceptions import ConfigurationError
from fedchain.node.aggregator import AGGREGATOR_CHOICES, AUTO, choose_aggregator
from fedchain.node.task import found_federation, learning_from_genesis, rules_of
from tests.chain.builders import CREATED_MS, EASY_BITS, keys
from tests.node.test_node_cli import done, refused

TALLY, FEDAVG = LearningConfig(method="tests.learning.tally:Tally", clients=3), LearningConfig(method="fedavg")
MEMBERS = [address(key.public_key) for key in keys(4)]
WORDS = [word for member in MEMBERS for word in ("--member", member)]


def test_every_rule_can_be_asked_for() -> None:
    assert (AUTO, *(rule.value for rule in AggregatorRule)) == AGGREGATOR_CHOICES


@pytest.mark.parametrize(
    ("config", "asked", "centralized", "expected"),
    [
        (TALLY, "auto", False, "dedicated"),
        (TALLY, "fixed", False, "fixed"),
        (TALLY, "rotating", True, "rotating"),
        (FEDAVG, "auto", False, "none"),
        (FEDAVG, "fixed", False, "fixed"),
        (FEDAVG, "dedicated", True, "dedicated"),
    ],
)
def test_the_method_s_own_rule_is_taken_unless_another_is_asked_for(
    config: LearningConfig, asked: str, centralized: bool, expected: str
) -> None:
    assert choose_aggregator(config, asked, centralized=centralized).value == expected


@pytest.mark.parametrize(
    ("config", "asked", "centralized", "message"),
    [
        (TALLY, "none", False, "aggregator is none, but phase 'announce' of tests.learning.tally:Tally needs one"),
        (FEDAVG, "none", True, "aggregator is none, but centralized needs one; use fixed, rotating or dedicated"),
        (FEDAVG, "auto", True, "aggregator is none, but centralized needs one"),
        (FEDAVG, "dedicated", False, "aggregator is dedicated, but fedavg has no phase of the aggregator"),
        (FEDAVG, "dedicatd", False, "unknown aggregator 'dedicatd'; did you mean 'dedicated'?"),
    ],
)
def test_what_contradicts_itself_is_refused(
    config: LearningConfig, asked: str, centralized: bool, message: str
) -> None:
    with pytest.raises(ConfigurationError, match=re.escape(message)):
        choose_aggregator(config, asked, centralized=centralized)


def test_a_federation_is_founded_with_its_last_member_as_aggregator(tmp_path: Path) -> None:
    path = tmp_path / "genesis"
    done("genesis", "new", path, *WORDS, "--method", TALLY.method)
    document = Genesis.decode(path.read_bytes())
    assert document.aggregator is AggregatorRule.DEDICATED
    assert address(document.aggregator_of(1) or b"") == MEMBERS[-1]
    assert learning_from_genesis(document).clients == 3
    assert rules_of(document).phases == (("count", "participant", 0), ("announce", "aggregator", 0))
    done("genesis", "new", tmp_path / "fixed", *WORDS, "--method", TALLY.method, "--aggregator", "fixed")
    fixed = Genesis.decode((tmp_path / "fixed").read_bytes())
    assert (fixed.aggregator, learning_from_genesis(fixed).clients) == (AggregatorRule.FIXED, 4)
    words = ("--method", "fedavg", "--aggregator", "dedicated", "--centralized")
    done("genesis", "new", tmp_path / "central", *WORDS, *words)
    central = Genesis.decode((tmp_path / "central").read_bytes())
    assert (central.centralized, learning_from_genesis(central).clients) == (True, 3)
    said = refused("genesis", "new", tmp_path / "no", *WORDS, "--aggregator", "dedicated")
    assert said == "aggregator is dedicated, but dfpl has no phase of the aggregator; use none, or centralized"
    assert not (tmp_path / "no").exists()


def test_data_are_spread_over_all_members_but_a_dedicated_aggregator() -> None:
    rules = rules_of(found(AggregatorRule.DEDICATED, 4))
    assert rules.method.aggregator == "dedicated"
    for rule, members in ((AggregatorRule.DEDICATED, 3), (AggregatorRule.FIXED, 4)):
        document = found(rule, members)
        with pytest.raises(InvalidGenesis, match=f"clients is 3, but {len(document.participants)} members have data"):
            learning_from_genesis(document)


def found(rule: AggregatorRule, members: int) -> Genesis:
    """A federation of so many members, three of which have data."""
    public_keys = [key.public_key for key in keys(members)]
    return found_federation(
        TALLY,
        Application(TALLY),
        public_keys,
        name="test",
        created_ms=CREATED_MS,
        initial_bits=EASY_BITS,
        aggregator=rule,
    )
