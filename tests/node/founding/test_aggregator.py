"""The aggregator is as the method wants, unless something else is asked for that does not contradict it."""

import re
from pathlib import Path

import pytest

from fedchain.chain.exceptions import InvalidGenesis
from fedchain.chain.genesis import AggregatorRule, Genesis
from fedchain.chain.knowledge import occasion_of
from fedchain.chain.state import genesis_state
from fedchain.crypto.address import address
from fedchain.learning.application import Application
from fedchain.learning.config import LearningConfig
from fedchain.learning.exceptions import ConfigurationError
from fedchain.learning.executors.executor import Question
from fedchain.learning.round import OffChain
from fedchain.learning.worker.contribution import Contribution
from fedchain.learning.worker.learner import Learner
from fedchain.network.messages import PostMessage
from fedchain.node.core.effects import Blame
from fedchain.node.core.events import Contributed
from fedchain.node.founding.aggregator import choose_aggregator
from fedchain.node.founding.consensus import AGGREGATOR_CHOICES, Aggregator, Consensus
from fedchain.node.founding.task import found_federation, learning_from_genesis, rules_of
from fedchain.node.operating.testnet import name_aggregator
from fedchain.node.shell.run import places_max
from fedchain.node.workers.process import Trainer
from tests.support.chain.builders import CREATED_MS, EASY_BITS, GLOBAL, UPDATE, genesis, keys, payload, post
from tests.support.cli_node import done, refused
from tests.support.node.driver import check_promises
from tests.support.node.stage import Stage, asked_to_contribute, blamed, published
from tests.support.node.stage import refused as refusals

TALLY, FEDAVG = LearningConfig(method="tests.support.learning.tally:Tally", clients=3), LearningConfig(method="fedavg")
MEMBERS = [address(key.public_key) for key in keys(4)]
WORDS = [word for member in MEMBERS for word in ("--member", member)]


def test_every_rule_can_be_asked_for() -> None:
    assert ("auto", *(rule.value for rule in AggregatorRule)) == AGGREGATOR_CHOICES


@pytest.mark.parametrize(
    ("config", "asked", "centralized", "expected"),
    [
        (TALLY, "auto", False, "dedicated"),
        (TALLY, "fixed", False, "fixed"),
        (TALLY, "rotating", True, "rotating"),
        (FEDAVG, "auto", False, "none"),
        (FEDAVG, "fixed", True, "fixed"),
        (FEDAVG, "dedicated", True, "dedicated"),
    ],
)
def test_the_method_s_own_rule_is_taken_unless_another_is_asked_for(
    config: LearningConfig, asked: Aggregator, centralized: bool, expected: str
) -> None:
    assert choose_aggregator(config, Consensus(aggregator=asked, centralized=centralized)).value == expected


@pytest.mark.parametrize(
    ("config", "asked", "centralized", "message"),
    [
        (
            TALLY,
            "none",
            False,
            "aggregator is none, but phase 'announce' of tests.support.learning.tally",
        ),
        (FEDAVG, "none", True, "aggregator is none, but centralized needs one; use fixed, rotating or dedicated"),
        (FEDAVG, "auto", True, "aggregator is none, but centralized needs one"),
        (FEDAVG, "dedicated", False, "aggregator is dedicated, but fedavg has no phase of the aggregator"),
        (FEDAVG, "fixed", False, "aggregator is fixed, but fedavg has no phase of the aggregator"),
        (FEDAVG, "dedicatd", False, "unknown aggregator 'dedicatd'; did you mean 'dedicated'?"),
        (FEDAVG, "ded", False, "unknown aggregator 'ded'; did you mean 'dedicated'?"),
    ],
)
def test_what_contradicts_itself_is_refused(
    config: LearningConfig, asked: Aggregator, centralized: bool, message: str
) -> None:
    with pytest.raises(ConfigurationError, match=re.escape(message)):
        choose_aggregator(config, Consensus(aggregator=asked, centralized=centralized))


def test_a_federation_is_founded_with_its_last_member_as_aggregator(tmp_path: Path) -> None:
    path = tmp_path / "genesis"
    done("genesis", "new", path, *WORDS, "--method", TALLY.method)
    document = Genesis.decode(path.read_bytes())
    assert document.aggregator is AggregatorRule.DEDICATED
    assert address(genesis_state(document).roster.aggregator_of(1) or b"") == MEMBERS[-1]
    assert learning_from_genesis(document).clients == 3
    assert occasion_of(document, genesis_state(document)).clients == 3
    assert rules_of(document).phases == (("count", "participant", 0), ("announce", "aggregator", 0))
    done("genesis", "new", tmp_path / "fixed", *WORDS, "--method", TALLY.method, "--set", "aggregator=fixed")
    fixed = Genesis.decode((tmp_path / "fixed").read_bytes())
    assert (fixed.aggregator, learning_from_genesis(fixed).clients) == (AggregatorRule.FIXED, 4)
    words = ("--method", "fedavg", "--set", "aggregator=dedicated", "--set", "centralized=true")
    done("genesis", "new", tmp_path / "central", *WORDS, *words)
    central = Genesis.decode((tmp_path / "central").read_bytes())
    assert (central.centralized, learning_from_genesis(central).clients) == (True, 3)
    said = refused("genesis", "new", tmp_path / "no", *WORDS, "--set", "aggregator=dedicated")
    assert said == "aggregator is dedicated, but dfpl has no phase of the aggregator; use none, or centralized"
    assert not (tmp_path / "no").exists()


def test_a_test_network_says_which_node_aggregates() -> None:
    said = [name_aggregator(rule, 4) for rule in AggregatorRule]
    assert said == [
        "",
        "the aggregator is node 0",
        "the nodes take turns as aggregator",
        "the aggregator is node 3, which has no data",
    ]


def test_data_are_spread_over_all_members_but_a_dedicated_aggregator() -> None:
    rules = rules_of(found(AggregatorRule.DEDICATED, 4))
    assert rules.method.aggregator == "dedicated"
    for rule, members in ((AggregatorRule.DEDICATED, 3), (AggregatorRule.FIXED, 4)):
        document = found(rule, members)
        with pytest.raises(InvalidGenesis, match=f"clients is 3, but {len(document.participants)} members have data"):
            learning_from_genesis(document)


def test_beside_a_dedicated_aggregator_newcomers_have_the_parts_behind_the_founders(tmp_path: Path) -> None:
    path, grows = tmp_path / "genesis", ("--set", "admission=quorum", "--set", "parts=5")
    done("genesis", "new", path, *WORDS, "--method", TALLY.method, *grows)
    document = Genesis.decode(path.read_bytes())
    config = learning_from_genesis(document)
    assert (config.clients, config.dataless, config.places_with_data) == (5, 3, (0, 1, 2, 4, 5))
    assert places_max(document) == 6
    learner = Learner(config, members=document.members)
    assert [len(learner.client(place).train_labels) > 0 for place in range(6)] == [True, True, True, False, True, True]
    with pytest.raises(ConfigurationError, match="client must be between 0 and 5, not 6"):
        learner.client(6)


# one node


@pytest.mark.parametrize("rule", [AggregatorRule.FIXED, AggregatorRule.DEDICATED])
def test_another_member_s_post_in_the_aggregator_s_phase_is_refused_by_name(rule: AggregatorRule) -> None:
    stage = Stage(genesis(4, phases=(UPDATE, GLOBAL), aggregator=rule), 1)
    stage.accept()
    aggregator = stage.node.head.roster.aggregator_of(1)
    assert aggregator is not None
    other = next(member for member in stage.others if member != aggregator)
    stranger, own = (post(stage.chain.key(key), stage.genesis, 1, payload(7), phase=1) for key in (other, aggregator))
    before = stage.digest()
    effects = stage.receive(PostMessage(stranger, payload(7)))
    assert blamed(effects) == [(other, "InvalidPost")]
    assert (refusals(effects), stage.digest()) == (["OutOfWindow"], before)
    (error,) = [effect.error for effect in effects if isinstance(effect, Blame)]
    named = f"{other.hex()} posts to phase 1 of round 1, which is the aggregator's, {aggregator.hex()}"
    assert str(error) == f"contributor: {named}"
    stage.receive(PostMessage(own, payload(7)))
    assert stage.node.holds(own)


def test_a_dedicated_aggregator_is_asked_for_nothing_in_the_others_phases() -> None:
    stage = Stage(genesis(4, phases=(UPDATE, GLOBAL), aggregator=AggregatorRule.DEDICATED), 3)
    assert asked_to_contribute(stage.victim.effects) == []
    stage.accept()
    assert asked_to_contribute(stage.victim.effects) == [(1, 1)]
    stage.accept(2)
    assert asked_to_contribute(stage.victim.effects) == [(1, 1), (2, 1)]


def test_killed_in_the_middle_of_its_phase_the_aggregator_is_asked_again_and_posts_once() -> None:
    founding = genesis(4, phases=(UPDATE, GLOBAL), aggregator=AggregatorRule.DEDICATED)
    stage = Stage(founding, 3, contributes=False)
    stage.accept()
    stage.restart()  # before anything came of its work
    assert asked_to_contribute(stage.victim.effects)[-1] == (1, 1)
    (said,) = published([*stage.handle(Contributed(1, 1, payload(7))), *stage.wait(5)], PostMessage)
    before = len(stage.victim.effects)
    stage.restart()  # after its post was written down
    stage.wait(5)
    (again,) = published(stage.victim.effects[before:], PostMessage)
    assert again.post == said.post
    assert asked_to_contribute(stage.victim.effects[before:]) == [], "what was signed is not made anew"
    check_promises(stage.victim)


# its training process


def test_its_trainer_is_killed_and_its_state_is_neither_lost_nor_counted_twice(tmp_path: Path) -> None:
    document, rules = found(AggregatorRule.DEDICATED, 4), Application(TALLY, [bytes([k]) for k in range(4)])
    learner = Learner(learning_from_genesis(document), members=document.members)
    posts = [(bytes([k]), learner.contribute(k, "count", 1, b"").payload) for k in range(3)]
    first = rules.aggregate(OffChain("count", 1), b"", posts)
    trainer = Trainer(document, tmp_path, 3)
    question = Question(3, "announce", 1, first)
    answer = trainer.ask(question)
    again = Trainer(document, tmp_path, 3)
    assert again.ask(question) == answer == again.ask(question)
    assert isinstance(answer, Contribution)
    known = rules.aggregate(OffChain("announce", 1), first, [(bytes([3]), answer.payload)])
    posts = [(bytes([k]), learner.contribute(k, "count", 2, known).payload) for k in range(3)]
    announced = again.ask(Question(3, "announce", 2, rules.aggregate(OffChain("count", 2), known, posts)))
    assert isinstance(announced, Contribution)
    final = rules.read_knowledge(rules.aggregate(OffChain("announce", 2), known, [(bytes([3]), announced.payload)]))
    assert final is not None
    assert final["total"].tolist() == [2 * int(learner.histogram().sum())]


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
