"""Adversaries that follow the protocol and lie about what they learned: valid posts that are meant to do harm.

All but the label flipper first wait for the posts of the honest members, which the strongest attacks build on. A lie
replaces the change of a model since the last round, or the prototypes themselves.

* sign flip, in proportion to its own change: Allen-Zhu et al., "Byzantine-Resilient Non-Convex SGD", ICLR 2021;
* a little is enough: Baruch et al., "A Little Is Enough: Circumventing Defenses for Distributed Learning", NeurIPS
  2019;
* inner product: Xie et al., "Fall of Empires: Breaking Byzantine-Tolerant SGD by Inner Product Manipulation", UAI 2019.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray

from fedchain.chain.state import phase_rule
from fedchain.learning.aggregation.mean import WEIGHT_MAX
from fedchain.learning.application import Application
from fedchain.learning.models.parameters import BUFFER_PREFIX, PREFIX
from fedchain.learning.payload.codec import settle
from fedchain.learning.round import Tensors
from fedchain.learning.task.data_source import DataSource, Share
from fedchain.node.core.events import Contributed, Event
from fedchain.simulator.adversaries.adversary import Adversary, Parameter

WAIT_S = 1.0
"""Virtual seconds that an attacker waits for others' posts after its own training; a phase waits longer."""

Key = tuple[str, int]
"""A tensor by name, or one row of the prototypes by label; a tensor's second part is -1."""

Vectors = Mapping[Key, NDArray[np.float64]]
"""Content of a post, by tensor or row."""


class Poisoner(Adversary):
    """Posts the result of `lie` on its own and the honest members' posts, moved into the bounds of all posts."""

    def lie(self, own: Vectors, others: Sequence[Vectors]) -> Vectors:
        """Vectors to post instead of `own`, under the same keys: changes of a model's tensors, and whole prototypes."""
        return own

    def claim(self, counts: NDArray[np.int64]) -> NDArray[np.int64]:
        """Numbers of examples to claim instead of ``counts``."""
        return counts

    def listen(self, event: Event) -> Sequence[Event]:
        """Keep the node's contribution back until others' posts are in."""
        if not isinstance(event, Contributed) or event is self._made_up:
            return (event,)
        self.after(WAIT_S, partial(self._tell, event))
        return ()

    _made_up: Contributed | None = None

    def _tell(self, event: Contributed) -> None:
        if (event.round, event.phase) == self.phase:
            self._made_up = replace(event, payload=self._poisoned(event.payload))
            self.peer.handle(self._made_up)

    def _poisoned(self, payload: bytes) -> bytes:
        application = self.coalition.rules
        assert isinstance(application, Application), "only the posts of a learning method are poisoned"
        name = phase_rule(self.genesis, self.node.head).name
        phase = next(phase for phase in (*application.method.setup, *application.method.phases) if phase.name == name)
        specs = application.method.payload_spec(phase, application.info)
        base, form = application.read_knowledge(self.node.knowledge() or b""), application.forms[0]
        known = base or {}
        own = form.decode(name, payload, base)
        others = [_take_apart(form.decode(name, data, base), known) for data in self._honest_payloads()]
        lie = _put_together(own, known, self.lie(_take_apart(own, known), others))
        lie |= {name: self.claim(own[name]) for name in ("counts", "examples") if name in own}
        stated = settle({spec.name: lie[spec.name] for spec in specs}, specs)  # parts are listed beside these
        return form.encode(name, {**own, **stated}, base, np.random.default_rng(0))  # how it is rounded is no matter

    def _honest_payloads(self) -> list[bytes]:
        """Payloads of honest members in the open phase, as far as they are here, in the order of the members' keys."""
        traitors = {key.public_key for key in self.coalition.keys}
        found = [self.node.content(post.payload_hash) for post in self.node.open_posts() if post.sender not in traitors]
        return [payload for payload in found if payload is not None]


class SignFlipper(Poisoner):
    """Posts its own change times minus `scale`."""

    PARAMETERS: ClassVar[Mapping[str, Parameter]] = {"scale": Parameter(1.0, -1e30, 1e30)}

    def lie(self, own: Vectors, others: Sequence[Vectors]) -> Vectors:
        """-s u."""
        return {key: -self.parameters["scale"] * value for key, value in own.items()}


class CountInflater(SignFlipper):
    """A sign flipper that claims the largest number of examples."""

    def claim(self, counts: NDArray[np.int64]) -> NDArray[np.int64]:
        """The largest number that is allowed."""
        return np.full_like(counts, WEIGHT_MAX)


class NoisePoster(Poisoner):
    """Posts Gaussian noise of the given standard deviation."""

    PARAMETERS: ClassVar[Mapping[str, Parameter]] = {"deviation": Parameter(1.0, 0, 1e30)}

    def lie(self, own: Vectors, others: Sequence[Vectors]) -> Vectors:
        """N(0, sigma^2)."""
        rng = np.random.default_rng(self.draw.getrandbits(64))
        return {key: rng.normal(0.0, self.parameters["deviation"], value.shape) for key, value in own.items()}


class LittleIsEnough(Poisoner):
    """Posts the honest mean, moved by `deviations` of their standard deviation: near enough to pass for honest."""

    PARAMETERS: ClassVar[Mapping[str, Parameter]] = {"deviations": Parameter(1.5, -1e6, 1e6)}

    def lie(self, own: Vectors, others: Sequence[Vectors]) -> Vectors:
        """mu - z sigma, coordinate by coordinate."""

        def shifted(stack: NDArray[np.float64]) -> NDArray[np.float64]:
            moved: NDArray[np.float64] = stack.mean(axis=0) - self.parameters["deviations"] * stack.std(axis=0)
            return moved

        return {key: shifted(_stack(key, value, others)) for key, value in own.items()}


class InnerProductManipulator(Poisoner):
    """Posts the honest mean times minus `factor`: the mean of all then points the wrong way, or hardly forward."""

    PARAMETERS: ClassVar[Mapping[str, Parameter]] = {"factor": Parameter(0.5, -1e6, 1e6)}

    def lie(self, own: Vectors, others: Sequence[Vectors]) -> Vectors:
        """-epsilon mu."""
        factor = self.parameters["factor"]
        return {key: -factor * _stack(key, value, others).mean(axis=0) for key, value in own.items()}


class LabelFlipper(Adversary):
    """Learns from wrong labels and posts the result honestly; its data come from :class:`FlippedLabels`."""


FLIP_LABELS = f"{__name__}:FlippedLabels"
"""The name by which a learner's plan asks for them."""


class FlippedLabels:
    """Gives some clients training labels C - 1 - y for y; everything else is the source's.

    Args:
        classes: number of classes C.
        clients: the clients with flipped labels.
        source: source of the examples.
    """

    def __init__(self, classes: int, clients: Collection[int], source: DataSource) -> None:
        self._source, self._clients, self._classes = source, clients, classes

    def share(self, client: int, seed: int) -> Share:
        """See :class:`DataSource`."""
        share = self._source.share(client, seed)
        if client not in self._clients:
            return share
        return replace(share, train_labels=self._classes - 1 - share.train_labels)

    def train_labels(self, client: int, seed: int) -> NDArray[np.int64]:
        """See :class:`DataSource`: the true ones."""
        return self._source.train_labels(client, seed)

    def hash_own(self, client: int, seed: int) -> str:
        """See :class:`DataSource`."""
        return self._source.hash_own(client, seed)

    def test_set(self) -> tuple[torch.Tensor, torch.Tensor] | None:
        """See :class:`DataSource`."""
        return self._source.test_set()


def _stack(key: Key, own: NDArray[np.float64], others: Sequence[Vectors]) -> NDArray[np.float64]:
    """Values of the honest members under a key, (k, ...); if there are none, its own value alone, (1, ...)."""
    return np.stack([other[key] for other in others if key in other] or [own])


def _take_apart(posted: Tensors, known: Tensors) -> dict[Key, NDArray[np.float64]]:
    found: dict[Key, NDArray[np.float64]] = {}
    for name, tensor in posted.items():
        if name == "prototypes":
            found |= {(name, label): row for label, row in zip(posted["labels"].tolist(), tensor, strict=True)}
        elif tensor.dtype.kind == "f":
            found[name, -1] = tensor - _base(name, known)
    return found


def _put_together(posted: Tensors, known: Tensors, said: Vectors) -> dict[str, NDArray[Any]]:
    """The post with other numbers."""
    found = dict(posted)
    for name, tensor in posted.items():
        if name == "prototypes":
            found[name] = np.stack([said[name, label] for label in posted["labels"].tolist()]).astype(np.float32)
        elif tensor.dtype.kind == "f":
            found[name] = np.asarray(said[name, -1] + _base(name, known), dtype=np.float32)
    return found


def _base(name: str, known: Tensors) -> Any:
    """The common model that a change is counted from; 0.0 if it is not on the chain yet or no model is meant."""
    is_model = name.startswith((PREFIX, BUFFER_PREFIX))
    return known[name].astype(np.float64) if is_model and name in known else 0.0
