"""Attacks by a member of a federation on the posts of a stored chain, a simulation's or a node's."""

import os
from collections.abc import Iterator
from pathlib import Path

import torch

from fedchain.chain.explorer.explorer import Explorer
from fedchain.chain.explorer.names import find_member
from fedchain.chain.storage.sqlite import Store
from fedchain.crypto.address import address
from fedchain.files.places import chain_folder
from fedchain.learning.application import Application
from fedchain.learning.exceptions import ConfigurationError
from fedchain.learning.families.local_sgd import LocalSgdMethod
from fedchain.learning.leakage.descent import Search
from fedchain.learning.leakage.gradient_inversion import has_closed_form
from fedchain.learning.models.base import Model
from fedchain.learning.round import Tensors
from fedchain.learning.seeding import derive
from fedchain.learning.sums.secrets import ROOT_SIZE, Secrets
from fedchain.learning.training.loop import draw_batches
from fedchain.learning.worker.learner import Learner
from fedchain.learning.worker.stores import Stores
from fedchain.node.founding.task import learning_from_genesis
from fedchain.simulator.leakage.attack import (
    OBJECTIVES,
    Attacker,
    Finding,
    attack_prototype_post,
    require_plain_images,
    view_of,
)
from fedchain.simulator.leakage.federation import PHASE, Seen, common_model, own_encoder, read_post
from fedchain.simulator.leakage.settings import Inversion


def attack_stored(folder: Path, options: Inversion, search: Search, data_dir: str) -> Iterator[Finding]:
    """Attack one member's post of a round with the knowledge of another member.

    The images that are found are compared with the sender's images, which follow from the seed of the genesis document,
    as all partitions of built-in data sets do. The attack itself does not use them.

    Args:
        folder: a run's or a node's folder.
        options: the post, and the member that reads it.
        search: settings of the search for images.
        data_dir: folder of the data sets.

    Raises:
        ChainError: the folder holds no chain, or not that post.
        ConfigurationError: posts of this federation cannot be attacked; the message says why.
    """
    with Store.open(chain_folder(folder), read_only=True) as store:
        explorer = Explorer(store)
        members = explorer.state.roster.members
        config = learning_from_genesis(explorer.genesis, data_dir)
        view, rules = view_of(config), Application(config, explorer.genesis.members)
        # A model that is trained again for the attack gets noise of its own, which nobody sees.
        stores = Stores(secrets_of=lambda member: Secrets(member, os.urandom(ROOT_SIZE)))
        learner = Learner(config, members=members, stores=stores)
        victim = members.index(find_member(options.sender, members))
        reader = members.index(find_member(options.attacker, members)) if options.attacker else int(victim == 0)
        if reader == victim:
            raise ConfigurationError("attacker and sender are one member, which knows its images")
        round_number = options.round
        payload = explorer.kept.payload(round_number, PHASE, members[victim])
        knowledge = explorer.kept.known_before(round_number, PHASE) if learner.method.shares_model else b""
        post = _see(learner, victim, round_number, read_post(rules, payload, knowledge))
        generator = torch.Generator().manual_seed(derive(config.seed, "attack", victim))
        method, name = learner.method, f"{config.method}, round {round_number}"
        if method.shares_model:
            _expect_one_known_step(learner, victim, round_number)
            common = common_model(learner, rules, reader, round_number, knowledge)
            for objective in OBJECTIVES:
                if objective != "closed-form" or has_closed_form(common, len(post.labels)):
                    attacker = Attacker(common, method, view, search, options.informed, round_number)
                    scores = attacker.attack(post, objective, generator)
                    yield Finding(name, objective, scores)
        elif "prototypes" in post.posted:
            encoder = _train(explorer, learner, reader, round_number)
            prototypes = torch.from_numpy(post.posted["prototypes"].copy())
            scores = attack_prototype_post(prototypes, post, encoder, view, search)
            yield Finding(name, "own model", scores, int(post.posted["counts"].max()))
        else:
            raise ConfigurationError(f"{config.method} posts neither parameters nor prototypes that could be read")


def _see(learner: Learner, victim: int, number: int, posted: Tensors) -> Seen:
    """The post, and the data behind it: the first batch for parameters, all examples for prototypes."""
    with learner.lend(victim, number) as client:
        images, labels, seed = client.train_images, client.train_labels, torch.initial_seed()
        schedule = learner.method.schedule_in(number)
        if "prototypes" not in posted and schedule is not None:
            batch = next(draw_batches(len(labels), schedule.batch_size, client.generator))
            images, labels = images[batch], labels[batch]
    return Seen(posted, seed, images, labels)


def _expect_one_known_step(learner: Learner, victim: int, round_number: int) -> None:
    """Raise ConfigurationError for posts of more than one local step: this attack assumes a single gradient.

    So does it for batches that the sender drew in private, and for changed images: what is found has no original.
    """
    require_plain_images(learner.config)
    method = learner.method
    if isinstance(method, LocalSgdMethod) and method.gradient_noise > 0 and method.batch_sampling == "poisson":
        raise ConfigurationError(
            "batches of batch_sampling = poisson are drawn from the sender's private randomness: what is found could "
            "not be compared with the images of the step"
        )
    steps = learner.planned_steps(victim, PHASE, round_number)
    if steps != 1:
        raise ConfigurationError(
            f"posts of this federation take {steps} local steps; only those of one can be attacked"
        )


def _train(explorer: Explorer, learner: Learner, reader: int, number: int) -> Model:
    """The attacker's own model after a round, trained again on the knowledge of each round in which it posted."""
    who = address(explorer.state.roster.members[reader])
    for past in range(1, number + 1):
        if any(post.sender == who and post.phase == PHASE for post in explorer.round(past).transactions):
            learner.contribute(reader, PHASE, past, explorer.kept.known_before(past, PHASE))
    return own_encoder(learner, reader)
