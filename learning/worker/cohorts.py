"""Clients at work side by side: each goes on until it has to train; those that can are then trained as one batch.

A method's code runs for one client after another as it always does, in a thread of the client's own. One thread runs at
a time, and each finds torch's generator as it left it.
"""

import ctypes
import threading
from collections.abc import Callable, Hashable, Sequence
from typing import Generic, TypeVar

import torch

from fedchain.learning.client import Client
from fedchain.learning.device import use_threads
from fedchain.learning.training.loop import Training

Result = TypeVar("Result")


def work_side_by_side(
    clients: Sequence[Client], work: Callable[[Client], Result], device: torch.device
) -> list[Result | Exception]:
    """Do clients' work, and their training as cohorts on a device where that pays. Return what came of each."""
    from fedchain.learning.training.cohort import pays, train_cohort  # slow to import
    from fedchain.learning.training.kinds import kind_of

    turns = [_Turn(client, work) for client in clients]
    try:
        for turn in turns:
            turn.go_on()
        while any(turn.training is not None for turn in turns):
            kinds: dict[Hashable, list[tuple[_Turn[Result], Training]]] = {}
            for turn in turns:
                if turn.training is not None and pays(turn.training.client.model, device):
                    kinds.setdefault(kind_of(turn.training), []).append((turn, turn.training))
            for cohort in kinds.values():
                if len(cohort) == 1 and device.type == "cpu":
                    continue  # there is nothing to gain
                found: Sequence[torch.Tensor | Exception]
                try:
                    found = train_cohort([asked for _, asked in cohort], [turn.dropout for turn, _ in cohort], device)
                except Exception as error:  # no client's own: whoever waits for a contribution gets it
                    found = [error] * len(cohort)
                for (turn, _), outcome in zip(cohort, found, strict=True):
                    turn.outcome = outcome
            for turn in turns:
                if turn.training is not None:
                    turn.go_on()
    except BaseException:
        for turn in turns:
            turn.end()
        for turn in turns:
            turn.wait_for_end()
        raise
    return [turn.result for turn in turns]


class _Ended(BaseException):
    """Nobody waits for the work any more: its client is put back, as after an error."""


class _Turn(Generic[Result]):
    """A client's work, in a thread that runs while `go_on` waits for it."""

    result: Result | Exception
    """Its result or its error, once it is done."""

    def __init__(self, client: Client, work: Callable[[Client], Result]) -> None:
        self.training: Training | None = None
        """The training that the client waits for; None while it runs, and when it is done."""
        self.dropout = torch.Generator()
        """Torch's generator, as the client left it."""
        self.outcome: torch.Tensor | Exception | None = None
        """The losses of that training, or its error; None: the client is to train by itself."""
        self._client, self._work, self._is_ended = client, work, False
        self._end: BaseException | None = None  # what ends all work, such as SystemExit
        self._may_run, self._has_paused = threading.Semaphore(0), threading.Semaphore(0)
        self._thread = threading.Thread(target=self._run, daemon=True)

    def go_on(self) -> None:
        """Let the work run until it waits for a training, or is done. Raises what it raised, unless it is an error."""
        if self._thread.ident is None:
            self._thread.start()
        self.training = None
        self._may_run.release()
        self._has_paused.acquire()
        if self._end is not None:
            raise self._end

    def end(self) -> None:
        """Have an end made of the work, wherever it is."""
        self._is_ended, runs = True, self.training is None
        if self._thread.is_alive() and runs:  # a client's own code may go on for long: it is interrupted as by Ctrl-C
            ctypes.pythonapi.PyThreadState_SetAsyncExc(
                ctypes.c_ulong(self._thread.ident or 0), ctypes.py_object(_Ended)
            )
        self._may_run.release()

    def wait_for_end(self) -> None:
        """Wait until the work has ended."""
        if self._thread.ident is not None:
            self._thread.join()

    def _run(self) -> None:
        try:
            self._may_run.acquire()
            if not self._is_ended:
                self._do()
        except _Ended:
            pass
        finally:
            self._has_paused.release()

    def _do(self) -> None:
        use_threads()
        self._client.trainer = self._train
        try:
            self.result = self._work(self._client)
        except Exception as error:
            self.result = error
        except _Ended:
            raise
        except BaseException as error:  # it ends more than this work: `go_on` raises it where that is asked for
            self._end = error
        finally:
            self._client.trainer = None

    def _train(self, training: Training) -> torch.Tensor | None:
        self.dropout.set_state(torch.default_generator.get_state())
        self.training, self.outcome = training, None
        self._has_paused.release()
        self._may_run.acquire()
        if self._is_ended:
            raise _Ended
        torch.default_generator.set_state(self.dropout.get_state())
        if isinstance(self.outcome, Exception):
            raise self.outcome
        return self.outcome
