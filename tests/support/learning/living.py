"""Federations whose members change, round by round, once for all tests of a process.

Four members found each of them; a fifth counts from round 4 on, and the second one until round 5. A chain says so: the
rounds' members are those that a simulated federation of version 3 asks.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from types import MappingProxyType

from fedchain.learning.payload.codec import decode
from fedchain.learning.registry import HyperparameterValue
from fedchain.learning.round import OffChain, Tensors
from fedchain.learning.worker.contribution import Contribution
from fedchain.simulator.disturbances import MemberChange
from tests.support.learning.federation import Federation, config
from tests.support.simulator.trivial import TrivialExecutor, trivial_scenario, trivial_simulation

ROUNDS = 7

LEAVER, NEWCOMER = 1, 4

JOINED, LEFT = 4, 6
"""The first round with the newcomer, and the first one without the leaver."""


@cache
def clients_by_round() -> tuple[tuple[int, ...], ...]:
    """The members that a chain asks in each round, from the first."""
    changes = MemberChange(round=2, kind="join", peers=(4,)), MemberChange(round=4, kind="leave", peers=(1,))
    executor = TrivialExecutor()
    scenario = trivial_scenario(rounds=ROUNDS, admission="quorum", changes=changes)
    assert trivial_simulation(scenario, executor=executor).run().violations == []
    return tuple(tuple(sorted({who for who, number in executor.asked if number == r})) for r in range(1, ROUNDS + 1))


@dataclass(frozen=True, slots=True)
class PlayedRound:
    """One round."""

    number: int
    clients: tuple[int, ...]
    """The members that count."""
    before: bytes
    """The knowledge that it began with."""
    made: Mapping[int, Contribution]
    """The contribution of each to the first phase."""
    posts: Mapping[int, Tensors]
    """The same, decoded."""
    known: Tensors
    """The knowledge that it left."""


@dataclass(frozen=True, slots=True)
class Life:
    """A federation after its last round."""

    federation: Federation
    rounds: Sequence[PlayedRound]
    examples: Mapping[int, int]
    """Training examples of each client."""

    @property
    def first(self) -> Tensors | None:
        """The knowledge before the first round."""
        return self.federation.rules.read_knowledge(self.rounds[0].before)


class LivingFederation(Federation):
    """Notes and checks the posts of each round's first phase."""

    made: Mapping[int, Contribution] = MappingProxyType({})

    def _phase(self, phase: str, participants: Sequence[int]) -> list[Contribution]:
        known, made = self.knowledge, super()._phase(phase, participants)
        if phase == self.rules.phases[0][0]:
            self.made = dict(zip(participants, made, strict=True))
            occasion = OffChain(phase, self.round, self.members, len(self.clients))
            for client, one in self.made.items():
                self.rules.check(occasion, bytes([client]), known, one.payload)
        return made


def living(method: str, **hyperparameters: HyperparameterValue) -> Life:
    """The small task of a method with these members. The federation is shared: tests leave it as it is."""
    return _play(method, tuple(sorted(hyperparameters.items())))


@cache
def _play(method: str, hyperparameters: tuple[tuple[str, HyperparameterValue], ...]) -> Life:
    sets = clients_by_round()
    everybody = 1 + max(map(max, sets))
    task = replace(config(method, **dict(hyperparameters)), clients=everybody)
    federation, rounds = LivingFederation(task, founders=len(sets[0])), list[PlayedRound]()
    specs = federation.rules.forms[0].specs[federation.rules.phases[0][0]]
    for clients in sets:
        federation.clients, before = clients, federation.knowledge
        federation.play()
        posts = {client: decode(one.payload, specs) for client, one in federation.made.items()}
        rounds.append(PlayedRound(federation.round, clients, before, federation.made, posts, federation.known()))
    examples = {client: len(federation.client(client).train_labels) for client in range(everybody)}
    return Life(federation, rounds, examples)
