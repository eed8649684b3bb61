"""Encrypted images are decoded with what an attacker has."""

from dataclasses import replace
from typing import Any

import pytest
import torch

from fedchain.learning.exceptions import ConfigurationError
from fedchain.learning.leakage.image_decoder import decode_images, train_decoder
from fedchain.simulator.leakage import encrypted
from fedchain.simulator.leakage.encrypted import attack_encrypted
from fedchain.simulator.leakage.report import row_of
from fedchain.simulator.leakage.settings import Inversion
from tests.support.simulator.leaking import SCENARIO
from tests.support.simulator.leaking import chains as chains

ENCRYPTED = replace(
    SCENARIO,
    method="fededs",
    model="plain-cnn",
    train_examples=120,
    hyperparameters={"encryptor_width": 2, "encryptor_epochs": 2, "extractor_epochs": 1, "batch_size": 16},
)


def test_encrypted_images_are_decoded_with_what_an_attacker_has() -> None:
    findings = list(attack_encrypted(ENCRYPTED, Inversion(images=12, known_pairs=100, passes=4)))
    assert [finding.attack for finding in findings] == [
        "as posted",
        "own encryptor",
        "own encryptor and 48 known pairs",
    ]
    assert {finding.target for finding in findings} == {"encrypted"}
    for finding in findings:
        assert len(finding.scores.psnr) == 12
        assert torch.equal(finding.scores.originals, findings[0].scores.originals)
        assert not torch.equal(finding.scores.found, finding.scores.originals)
    assert len({row_of(finding).psnr for finding in findings}) == 3
    assert [row_of(finding).labels_recovered for finding in findings] == [row_of(findings[0]).labels_recovered] * 3
    again = list(attack_encrypted(ENCRYPTED, Inversion(images=12, known_pairs=100, passes=4)))
    assert [row_of(finding) for finding in again] == [row_of(finding) for finding in findings]


def test_no_image_that_is_to_be_decoded_is_among_those_that_the_decoder_learned_from(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    learned, decoded = list[torch.Tensor](), list[torch.Tensor]()
    train, decode = train_decoder, decode_images

    def training(mine: torch.Tensor, *others: Any) -> Any:
        learned.append(mine)
        return train(mine, *others)

    def decoding(decoder: Any, images: torch.Tensor, *others: Any) -> Any:
        decoded.append(images)
        return decode(decoder, images, *others)

    monkeypatch.setattr(encrypted, "train_decoder", training)
    monkeypatch.setattr(encrypted, "decode_images", decoding)
    list(attack_encrypted(ENCRYPTED, Inversion(images=12, known_pairs=20, passes=1)))
    assert [len(images) for images in learned] == [60, 80], "its own, and the known ones beside them"
    for known, wanted in zip(learned, decoded, strict=True):
        assert len(wanted) == 12
        assert not any(torch.equal(one, other) for one in wanted for other in known)


@pytest.mark.parametrize("hyperparameters", [{"sharing": False}, None])
def test_only_what_is_encrypted_can_be_decoded(hyperparameters: dict[str, Any] | None) -> None:
    other = ENCRYPTED if hyperparameters else replace(ENCRYPTED, method="fedavg")
    with pytest.raises(ConfigurationError, match="posted by fededs, with sharing"):
        next(attack_encrypted(replace(other, hyperparameters=hyperparameters or {}), Inversion(images=1)))
