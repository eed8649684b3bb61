"""The attacks on clients' posts: parameters after one local step, and prototypes of a given number of examples."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np
import torch

from fedchain.learning.config import LearningConfig
from fedchain.learning.datasets.catalogue import DATASETS
from fedchain.learning.exceptions import ConfigurationError
from fedchain.learning.families.prototypes import PrototypeMethod
from fedchain.learning.leakage.descent import PixelRange, Search, draw_start
from fedchain.learning.leakage.gradient_inversion import (
    Expected,
    Objective,
    expect_fedreg_step,
    expect_plain_step,
    has_closed_form,
    invert_gradient,
    read_gradient,
    read_input,
    recover_labels,
)
from fedchain.learning.leakage.prototype_inversion import invert_prototype
from fedchain.learning.method import Method
from fedchain.learning.methods.fedreg import FedReg
from fedchain.learning.models.base import Model
from fedchain.learning.models.prototypes import forward_all
from fedchain.learning.registry import build_method
from fedchain.learning.seeding import derive
from fedchain.learning.task.data_source import load_examples
from fedchain.simulator.leakage.federation import Federation, Handful, Seen, common_model, own_encoder
from fedchain.simulator.leakage.scores import Scores, join, mean_images, score_prototype, score_update
from fedchain.simulator.leakage.settings import Inversion
from fedchain.simulator.scenario import Scenario

OBJECTIVES: tuple[Objective, ...] = ("cosine", "l2", "closed-form")
"""The attacks on parameters; the last one applies if the input can be computed from the model's first layer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """A method whose posts are attacked."""

    name: str
    """Name in the table."""
    method: str
    """Name of the method."""
    hyperparameters: Mapping[str, Any] = field(default_factory=dict)
    """Hyper-parameters that differ from the method's defaults."""
    informed: bool = False
    """Whether the attacker models the terms that FedReg adds to a step; otherwise it assumes a plain step."""


SETTINGS = (
    Setting(name="FedAvg", method="fedavg"),
    Setting(name="FedReg", method="fedreg"),
    Setting(name="FedReg with MG", method="fedreg", hyperparameters={"modified_gradient": True}),
    Setting(
        name="FedReg with MG, informed", method="fedreg", hyperparameters={"modified_gradient": True}, informed=True
    ),
    Setting(name="FedAvg, DP-SGD", method="fedavg", hyperparameters={"gradient_noise": 1.0, "gradient_clip": 1.0}),
    Setting(name="prototypes", method="dfpl"),
)
"""The methods that are attacked by default."""

NEAR = 0.2
"""Learning rate of the search behind a prototype, relative to that behind a gradient: it stays near its start."""

COUNTS = (1, 4, 16, 64)
"""Numbers of examples behind a prototype, n_c."""


@dataclass(frozen=True, slots=True, eq=False)
class Finding:
    """Result of one attack."""

    name: str
    """Name of the posts that were attacked."""
    attack: str
    """Kind of attack: an objective; for prototypes, whether the sender's model or the attacker's own was used."""
    scores: Scores
    """Similarity of the images that were found to the originals."""
    of_prototypes: int = 0
    """Examples behind each prototype, n_c; 0 if other posts were attacked."""
    of_encrypted: bool = False
    """Whether encrypted images were attacked."""

    @property
    def target(self) -> str:
        """Kind of posts that were attacked; pictures are named after it."""
        return "prototypes" if self.of_prototypes else "encrypted" if self.of_encrypted else "parameters"


@dataclass(frozen=True, slots=True, eq=False)
class View:
    """An attacker's knowledge of the task's images without any of the victim's."""

    pixels: PixelRange
    """Normalised values of black and white."""
    shape: tuple[int, ...]
    """(c, h, w)."""
    class_means: torch.Tensor
    """(C, c, h, w), pixels between 0 and 1: class means of the test set, which nobody trains on."""


def view_of(config: LearningConfig) -> View:
    """An attacker's knowledge of the images of a built-in data set.

    Raises:
        ConfigurationError: the data set is not built in, or its examples are not images.
    """
    require_built_in_images(config.dataset)
    dataset = load_examples(config)
    extremes = np.zeros((2, *dataset.info.shape))
    extremes[1] = dataset.info.pixel_max
    black, white = dataset.normalise(extremes, config.scaling)
    pixels = PixelRange(black, white)
    known = dataset.normalise(dataset.test_images, config.scaling)
    labels = torch.from_numpy(dataset.test_labels)
    means = mean_images(pixels.to_pixels(known), labels, dataset.classes)
    return View(pixels, dataset.info.shape, means)


def require_built_in_images(dataset: str) -> None:
    """Raise ConfigurationError for a data set that is not built in, or whose examples are not images."""
    if dataset not in DATASETS or len(DATASETS[dataset].shape) != 3:
        raise ConfigurationError(f"data set '{dataset}': only images of the built-in data sets can be compared")


def require_plain_images(config: LearningConfig) -> None:
    """Raise ConfigurationError where a step is taken on other images than those that what is found is compared with."""
    if config.augmentation != "none":
        raise ConfigurationError(
            f"with augmentation = {config.augmentation} a step is taken on changed images, and even what was found to "
            "the last pixel would look unlike the originals; attack without it"
        )


def attack_methods(
    scenario: Scenario, settings: Sequence[Setting], options: Inversion, search: Search
) -> Iterator[Finding]:
    """Attack the clients' posts under each of the methods: parameters of a common model, or prototypes.

    Args:
        scenario: data, model and seed; its method and hyper-parameters are those of `settings`.
        settings: the methods.
        options: the clients that are attacked, and the noise on prototypes.
        search: settings of the search for images.

    Raises:
        ConfigurationError: a method posts neither, or the data are not images.
    """
    for setting in settings:
        own = replace(scenario, method=setting.method, hyperparameters=setting.hyperparameters)
        if posts_prototypes(own):
            rounds = max(1, options.rounds_before)
            yield from attack_prototypes(own, COUNTS, noise=options.noise, rounds=rounds, search=search)
        else:
            yield from attack_updates(own, setting, options, OBJECTIVES, search)


def posts_prototypes(scenario: Scenario) -> bool:
    """Whether the scenario's clients post prototypes and no parameters.

    Raises:
        ConfigurationError: nobody can read them.
    """
    method = build_method(scenario.learning_config().method, dict(scenario.hyperparameters))
    if not isinstance(method, PrototypeMethod):
        return False
    if method.encrypts:
        raise ConfigurationError(f"{scenario.method} encrypts its prototypes here: a post shows none to be attacked")
    return True


def attack_updates(
    scenario: Scenario, setting: Setting, victims: Inversion, objectives: Sequence[Objective], search: Search
) -> Iterator[Finding]:
    """Attack the posts of clients that took one local step on a batch, after some rounds of training.

    Raises:
        ConfigurationError: the method posts no parameters of a common model, a search needs images, or these are
            augmented.
    """
    require_plain_images(scenario.learning_config())
    number = victims.rounds_before + 1
    (*_, (_, knowledge)) = Federation(scenario).play(victims.rounds_before)
    step = {"batch_size": victims.victim_batch, "local_steps": 1, "local_epochs": 0}
    single = replace(scenario, hyperparameters={**scenario.hyperparameters, **step})
    federation = Federation(single, partial(Handful, examples=victims.victim_batch))
    learner, view = federation.learner, view_of(scenario.learning_config())
    common = common_model(learner, federation.rules, 0, number, knowledge)
    seen = [federation.watch(client, number, knowledge) for client in range(victims.images)]
    attacker = Attacker(common, learner.method, view, search, setting.informed)
    for objective in objectives:
        if objective == "closed-form" and not has_closed_form(common, victims.victim_batch):
            continue
        scores = []
        for client, post in enumerate(seen):
            generator = torch.Generator().manual_seed(derive(scenario.seed, "attack", client))
            scores.append(attacker.attack(post, objective, generator))
        yield Finding(setting.name, objective, join(scores))


@dataclass(frozen=True, slots=True, eq=False)
class Attacker:
    """An attacker on posts of parameters: what it knows, and how it looks for the images behind them."""

    common: Model
    """The common model from which the posts' step was taken."""

    method: Method
    """The clients' method."""

    view: View
    """The data as everybody knows them."""

    search: Search
    """How long it looks."""

    informed: bool = False
    """Whether it reckons with FedReg's own step."""

    round_number: int = 1
    """Round of the posts."""

    def attack(self, post: Seen, objective: Objective, generator: torch.Generator) -> Scores:
        """Search the images behind one post, and compare them with the originals.

        Raises:
            ConfigurationError: the attack is informed, and the method is not FedReg; or members do not train with SGD.
        """
        schedule = self.method.schedule_in(self.round_number)
        if schedule is None or schedule.optimizer != "sgd":
            taken = "none" if schedule is None else schedule.optimizer
            raise ConfigurationError(f"the attack reads a gradient of sgd; the members' optimizer is {taken}")
        view = self.view
        gradient = read_gradient(post.posted, self.common, schedule)
        labels = recover_labels(gradient, self.common, len(post.labels))
        if objective == "closed-form":
            images = read_input(gradient, self.common, view.shape)
        else:
            expected, start = self._expected(post), draw_start(len(labels), view.pixels, view.shape, generator)
            images = invert_gradient(gradient, labels, expected, objective, start, view.pixels, self.search)
        originals, found = view.pixels.to_pixels(post.images), view.pixels.to_pixels(images)
        return score_update(originals, post.labels, found, labels, view.class_means)

    def _expected(self, post: Seen) -> Expected:
        """The step that images are held against."""
        if not self.informed:
            return expect_plain_step(self.common, post.dropout_seed)
        if not isinstance(self.method, FedReg):
            raise ConfigurationError(f"an informed attack needs FedReg, not {type(self.method).__name__}")
        return expect_fedreg_step(self.method, self.common, post.dropout_seed)


def attack_prototypes(
    scenario: Scenario, counts: Sequence[int], *, noise: float, rounds: int, search: Search
) -> Iterator[Finding]:
    """Attack a client's prototypes, each of the given numbers of examples, as they are and with Gaussian noise.

    The sender and the attacker are two clients that hold all classes. ``noise`` is a multiplier: the standard deviation
    over the sensitivity of a class mean, 2 C / n_c, if no embedding is longer than C.
    """
    pair = replace(
        scenario,
        peers=2,
        partition="n-way",
        classes_avg=scenario.learning_config().dataset_info.classes,
        classes_std=0,
        shots=max(counts),
    )
    view = view_of(pair.learning_config())
    for count in counts:
        federation = Federation(pair, partial(Handful, examples=count, of_each_class=True, clients=(0,)))
        (*_, (number, knowledge)) = federation.play(rounds - 1)
        post = federation.watch(0, number + 1, knowledge)
        federation.watch(1, number + 1, knowledge)
        sender = own_encoder(federation.learner, 0)
        norm = float(forward_all(sender, post.images)[0].norm(dim=1).max())  # C
        generator = torch.Generator().manual_seed(derive(scenario.seed, "noise", count))
        exact = torch.from_numpy(post.posted["prototypes"].copy())  # (n, D)
        noised = exact + torch.randn(exact.shape, generator=generator) * (noise * 2 * norm / count)
        for encoder, whose in ((sender, "known model"), (own_encoder(federation.learner, 1), "own model")):
            for prototypes, words in ((exact, ""), (noised, f", noise {noise:g}")):
                scores = attack_prototype_post(prototypes, post, encoder, view, search)
                yield Finding(f"prototype of {count}{words}", whose, scores, count)


def attack_prototype_post(prototypes: torch.Tensor, post: Seen, encoder: Model, view: View, search: Search) -> Scores:
    """Search an image behind each prototype (n, D) of a post, noised or not, starting from the class mean."""
    scores, examples = [], view.pixels.to_pixels(post.images)
    nearby = replace(search, learning_rate=NEAR * search.learning_rate)
    for label, prototype in zip(post.posted["labels"].tolist(), prototypes, strict=True):
        start = view.pixels.normalise(view.class_means[label][None])
        image = invert_prototype(prototype, encoder, start, view.pixels, nearby)
        found = view.pixels.to_pixels(image)[0]
        scores.append(score_prototype(examples[post.labels == label], found, view.class_means[label]))
    return join(scores)
