"""The contributor: has this member's contributions computed in another process, and tells the node of them."""

import logging
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Protocol

import anyio

from fedchain.chain.state import State, phase_rule
from fedchain.crypto.hashing import Hash
from fedchain.crypto.keys import PublicKey
from fedchain.files.spool import path_of
from fedchain.learning.exceptions import NothingToPost
from fedchain.learning.executors.executor import Answer, Question
from fedchain.learning.worker.contribution import Contribution
from fedchain.node.core.effects import Contribute
from fedchain.node.core.events import Contributed, NotContributed
from fedchain.node.core.node import Node
from fedchain.node.core.notices import Skipped
from fedchain.node.shell.activity import Activity
from fedchain.node.shell.lookout import Lookout
from fedchain.node.shell.timeline import TrainingResult
from fedchain.node.workers.supervisor import WorkerFailed

log = logging.getLogger("fedchain.node")


class Training(Protocol):
    """Computes this peer's contributions."""

    async def prepare(self) -> None:
        """Prepare for training; raises WorkerFailed."""

    async def ask(self, question: Question) -> Answer:
        """Answer what this member is asked; raises WorkerFailed."""

    async def foresee(self, question: Question) -> None:
        """This may be the next question: begin with it while there is no other. Nothing has to come of it."""


class Contributor:
    """Has one contribution computed at a time.

    Args:
        node: the node.
        me: its key.
        training: computes contributions.
        activity: notes how it went.
        lookout: notes how long it took.
        handle: takes the contributions.
        tell: takes notices to the operator.
    """

    def __init__(
        self,
        node: Node,
        me: PublicKey,
        training: Training,
        activity: Activity,
        lookout: Lookout,
        handle: Callable[[Contributed | NotContributed], object],
        tell: Callable[[Skipped], object],
    ) -> None:
        self._node, self._me, self._training = node, me, training
        self._activity, self._lookout, self._handle, self._tell = activity, lookout, handle, tell
        self._turn = anyio.Lock()
        self._waiting: Contribute | None = None  # for its turn: one holds a whole knowledge
        self._foreseen: tuple[int, int, Hash] | None = None  # phase and knowledge that it last trained ahead for

    async def contribute(self, effect: Contribute) -> None:
        """Have the contribution to a phase computed, unless the phase is over by its turn.

        The newest of those that wait has the turn: the node has given up those before it.
        """
        is_next, self._waiting = self._waiting is None, effect
        if not is_next:
            return
        async with self._turn:
            with suppress(WorkerFailed):  # training will fail for the same reason, and report it
                await self._training.prepare()
            assert self._waiting is not None, "this task takes it"
            effect, self._waiting = self._waiting, None
            head = self._node.head  # the process took its time to start; meanwhile the head may have moved
            if (effect.round, effect.phase) == (head.round, head.phase) and not head.finished:
                await self._train(effect)
            else:  # a peer that catches up passes phases faster than it could train
                self._handle(NotContributed(effect.round, effect.phase, ""))

    def next_question(self) -> Question | None:
        """The question that a candidate would leave behind, once: training on it can begin while votes travel.

        Nothing is said of it until it is asked. None for large knowledge: its file goes with the candidate, and what is
        set aside of a model takes another one.
        """
        state = self._node.foreseen()
        if state is None:
            return None
        key = state.round, state.phase, state.knowledge_root
        knowledge = self._node.content(state.knowledge_root)
        if key == self._foreseen or knowledge is None or path_of(knowledge) is not None:
            return None
        self._foreseen = key
        return self._question(phase_rule(self._node.genesis, state).name, state.round, knowledge, state)

    def _question(self, phase_name: str, round_number: int, knowledge: bytes, state: State) -> Question:
        """The question to this member for a phase that is open at a state."""
        roster, amended = state.roster, state.amendments.hyperparameters
        return Question(
            roster.seats[self._me], phase_name, round_number, knowledge, clients=roster.clients, amended=amended
        )

    async def _train(self, effect: Contribute) -> None:
        """Have the contribution to the open phase computed."""
        activity, begun = self._activity, time.perf_counter()
        activity.training = True
        try:
            question = self._question(effect.phase_name, effect.round, effect.knowledge, self._node.head)
            answer = await self._training.ask(question)
            if isinstance(answer, NothingToPost):
                self._fail(effect, answer, is_fault=False)
                return
        except WorkerFailed as error:
            self._fail(effect, error, is_fault=True)
            return
        finally:
            took_s = time.perf_counter() - begun
            activity.training = False
            activity.training_s += took_s
        self._note(effect, answer, took_s)
        for place, reason in answer.skipped:
            self._tell(Skipped(effect.round, self._node.head.roster.members[place], reason))
        self._handle(Contributed(effect.round, effect.phase, answer.payload))

    def _fail(self, effect: Contribute, reason: Exception, *, is_fault: bool) -> None:
        """This member posts nothing in the phase."""
        self._activity.fail(f"round {effect.round}: {reason}", is_fault=is_fault)
        self._handle(NotContributed(effect.round, effect.phase, str(reason)))

    def _note(self, effect: Contribute, trained: Contribution, took_s: float) -> None:
        """Note what training measured, for the timeline, the status and the log."""
        activity, head = self._activity, self._node.head
        if (effect.round, effect.phase) == (head.round, head.phase):
            self._lookout.sightings.train(round(1000 * took_s))
        accuracy, epsilon = None if trained.local is None else trained.local.local_accuracy, trained.epsilon
        if accuracy is not None or epsilon is not None:
            self._lookout.sightings.measure(TrainingResult(effect.round, accuracy, epsilon))
        activity.train(effect.round, accuracy, epsilon)
        pattern = "trained round=%(round)d steps=%(steps)d seconds=%(seconds).3f"
        named = {"round": effect.round, "steps": trained.steps, "seconds": took_s}
        for name, value in (("accuracy", activity.accuracy), ("epsilon", activity.epsilon)):
            if value is not None:  # None before the first phase that trains
                pattern, named[name] = f"{pattern} {name}=%({name}).4f", value
        log.info(pattern, named)
