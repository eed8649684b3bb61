"""The attack on FedEDS's encrypted images: one member decodes what another one posted."""

from collections.abc import Iterator
from dataclasses import dataclass, replace

import torch

from fedchain.learning.exceptions import ConfigurationError
from fedchain.learning.leakage.image_decoder import decode_images, stretch, train_decoder
from fedchain.learning.methods.fededs import ENCRYPT, FedEds
from fedchain.learning.payload.bulk import decode_part
from fedchain.learning.payload.part_folder import PartMemory
from fedchain.learning.seeding import derive
from fedchain.learning.sums.encrypted_data import EncryptedData, encrypted_spec
from fedchain.learning.training.adamw import AdamWSchedule
from fedchain.simulator.leakage.attack import Finding, view_of
from fedchain.simulator.leakage.federation import Federation
from fedchain.simulator.leakage.scores import score_pairs
from fedchain.simulator.scenario import Scenario

VICTIM, ATTACKER = 0, 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Decoding:
    """What the attacker has and does."""

    images: int
    """Images of the victim that are looked for, its last ones."""

    known_pairs: int = 0
    """Images of the victim, its first ones, that the attacker has come by and trains on beside its own; a stronger
    assumption than that it is a member."""

    passes: int = 20
    """Passes of the decoder's training over the pairs."""


def attack_encrypted(scenario: Scenario, decoding: Decoding) -> Iterator[Finding]:
    """Let two members make their encrypted data, and the second try to see the first one's images.

    What stands there undecoded comes first; then what a decoder finds that was trained on the attacker's own pairs;
    then, where `known_pairs` are given, one trained on those, too. Labels are what the posted teacher says.

    Raises:
        ConfigurationError: the method is not FedEDS, or shares nothing.
    """
    pair = replace(scenario, peers=2, partition="iid")
    view, federation, store = view_of(pair.learning_config()), Federation(pair), PartMemory()
    method = federation.learner.method
    if not isinstance(method, FedEds) or not method.sharing:
        raise ConfigurationError("encrypted images are posted by fededs, with sharing")
    federation.learner.keep_parts(lambda member: store)
    victim, attacker = (_made_by(federation, member, store, method) for member in (VICTIM, ATTACKER))
    count = min(decoding.images, len(victim.images))
    known = min(decoding.known_pairs, len(victim.images) - count)
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
        schedule = AdamWSchedule(
            learning_rate=method.encryptor_rate, epochs=decoding.passes, batch_size=method.batch_size
        )
        generator = torch.Generator().manual_seed(derive(scenario.seed, "decoder", pairs))
        decoder = train_decoder(mine, theirs, method.encryptor_width, schedule, generator)
        words = "own encryptor" + (f" and {pairs} known pairs" if pairs else "")
        yield score(words, view.pixels.to_pixels(decode_images(decoder, encrypted, view.pixels)))


@dataclass(frozen=True, slots=True, eq=False)
class _Made:
    """What a member posted, and of what."""

    images: torch.Tensor
    """(n, c, h, w), normalised."""
    labels: torch.Tensor
    """(n,)."""
    encrypted: torch.Tensor
    """(n, c, h, w)."""
    teacher: torch.Tensor
    """(n, C)."""


def _made_by(federation: Federation, member: int, store: PartMemory, method: FedEds) -> _Made:
    """Let a member do the setup's work, and read what it posts."""
    made = federation.learner.contribute(member, ENCRYPT.name, 0, b"")
    specs = encrypted_spec(federation.rules.info.classes, method.pixel_type)
    parts = [decode_part(store.read(part_hash), specs) for part_hash in made.parts]
    with federation.learner.lend(member, 0) as client:
        images, labels = client.train_images, client.train_labels
    encrypted, teacher = EncryptedData(parts, tuple(images.shape[1:])).rows(torch.arange(len(labels)))
    return _Made(images, labels, encrypted, teacher)
