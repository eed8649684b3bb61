"""The attack on FedEDS's encrypted images: one member decodes another member's posts."""

from collections.abc import Iterator
from dataclasses import dataclass, replace

import torch

from fedchain.learning.exceptions import ConfigurationError
from fedchain.learning.families.encrypted_data import EncryptedData, encrypted_spec
from fedchain.learning.leakage.image_decoder import decode_images, stretch, train_decoder
from fedchain.learning.methods.fededs import ENCRYPT, FedEds
from fedchain.learning.payload.bulk import decode_part
from fedchain.learning.seeding import derive
from fedchain.learning.training.schedule import adamw_schedule
from fedchain.simulator.leakage.attack import Finding, view_of
from fedchain.simulator.leakage.federation import Federation
from fedchain.simulator.leakage.scores import score_pairs
from fedchain.simulator.leakage.settings import Inversion
from fedchain.simulator.scenario import Scenario

VICTIM, ATTACKER = 0, 1


def attack_encrypted(scenario: Scenario, options: Inversion) -> Iterator[Finding]:
    """Let two members make their encrypted data, and let the second recover the first one's images.

    The findings are: the posted images undecoded; those of a decoder trained on the attacker's own pairs; and, if
    `known_pairs` is given, those of a decoder trained on these pairs, too. Labels are those of the posted teacher.

    Raises:
        ConfigurationError: the method is not FedEDS, or shares nothing.
    """
    pair = replace(scenario, peers=2, partition="iid")
    view, federation = view_of(pair.learning_config()), Federation(pair)
    method = federation.learner.method
    if not isinstance(method, FedEds) or not method.sharing:
        raise ConfigurationError("encrypted images are posted by fededs, with sharing")
    victim, attacker = (_made_by(federation, member, method) for member in (VICTIM, ATTACKER))
    count = min(options.images, len(victim.images))
    known = min(options.known_pairs, len(victim.images) - count)
    targets = slice(len(victim.images) - count, None)
    encrypted, labels = victim.encrypted[targets], victim.labels[targets]
    baseline, recovered = view.class_means[labels], (victim.teacher[targets].argmax(dim=1) == labels).float()

    def score(attack: str, found: torch.Tensor) -> Finding:
        originals = view.pixels.to_pixels(victim.images[targets])
        scores = score_pairs(originals, found, baseline, recovered)
        return Finding(scenario.method, attack, scores, of_encrypted=True)

    yield score("as posted", stretch(encrypted))
    for pairs in (0, known)[: 1 + (known > 0)]:
        mine = torch.cat([attacker.encrypted, victim.encrypted[:pairs]])
        theirs = torch.cat([attacker.images, victim.images[:pairs]])
        schedule = adamw_schedule(method.encryptor_rate, options.passes, method.batch_size)
        generator = torch.Generator().manual_seed(derive(scenario.seed, "decoder", pairs))
        decoder = train_decoder(mine, theirs, method.encryptor_width, schedule, generator)
        words = "own encryptor" + (f" and {pairs} known pairs" if pairs else "")
        yield score(words, view.pixels.to_pixels(decode_images(decoder, encrypted, view.pixels)))


@dataclass(frozen=True, slots=True, eq=False)
class _Made:
    """A member's post, and the images that it was made from."""

    images: torch.Tensor
    """(n, c, h, w), normalised."""
    labels: torch.Tensor
    """(n,)."""
    encrypted: torch.Tensor
    """(n, c, h, w)."""
    teacher: torch.Tensor
    """(n, C)."""


def _made_by(federation: Federation, member: int, method: FedEds) -> _Made:
    """Have a member contribute to the setup, and read its post."""
    made = federation.learner.contribute(member, ENCRYPT.name, 0, b"")
    specs = encrypted_spec(federation.rules.info.classes, method.pixel_type)
    store = federation.learner.parts(member)
    parts = [decode_part(store.read(part_hash), specs) for part_hash in made.parts]
    with federation.learner.lend(member, 0) as client:
        images, labels = client.train_images, client.train_labels
    encrypted, teacher = EncryptedData(parts, tuple(images.shape[1:])).rows(torch.arange(len(labels)))
    return _Made(images, labels, encrypted, teacher)
