"""The small models, which a laptop trains in no time. B batch, C classes, D embedding."""

import torch
import torch.nn.functional as F
from torch import nn

from fedchain.learning.models.base import LayeredModel
from fedchain.learning.models.blocks import max_pool


class Cnn(LayeredModel):
    """The small convolutional network of the federated-prototype literature, for 28x28 images: 21,840 parameters.

    Layers and dropout follow CNNMnist of Tan et al., FedProto (AAAI 2022); DFPL's Table II counts this network. For
    larger images only `fc1` grows. Another `width` is ours: cnn-narrow has 5, cnn-wide 20 (9,950 and 53,120
    parameters).
    """

    embedding_size = 50

    def __init__(self, classes: int = 10, channels: int = 1, size: int = 28, *, width: int = 10) -> None:
        super().__init__()
        self.classes = classes
        self.conv1 = nn.Conv2d(channels, width, kernel_size=5)
        self.conv2 = nn.Conv2d(width, 2 * width, kernel_size=5)
        self.conv2_drop = nn.Dropout2d()
        self.fc1 = nn.Linear(2 * width * (((size - 4) // 2 - 4) // 2) ** 2, 50)
        self.fc2 = nn.Linear(50, classes)

    def outputs(self, images: torch.Tensor) -> tuple[tuple[torch.Tensor, ...], torch.Tensor]:
        """Return the outputs of both convolutions and the embedding (B, 50), and the logits; shapes for size 28."""
        first = F.relu(max_pool(self.conv1(images)))  # (B, 10, 12, 12)
        second = F.relu(max_pool(self.conv2_drop(self.conv2(first))))  # (B, 20, 4, 4)
        embedding = F.relu(self.fc1(second.flatten(1)))  # (B, 50)
        logits = self.fc2(F.dropout(embedding, training=self.training))  # (B, C)
        return (first, second, embedding), logits


class DigitsMlp(LayeredModel):
    """A small fully connected network for the 8x8 digits or 64 features: 6,570 parameters. Ours, for fast examples."""

    embedding_size = 32

    def __init__(self, classes: int = 10) -> None:
        super().__init__()
        self.classes = classes
        self.fc1 = nn.Linear(64, 64)
        self.fc2 = nn.Linear(64, 32)
        self.fc3 = nn.Linear(32, classes)

    def outputs(self, images: torch.Tensor) -> tuple[tuple[torch.Tensor, ...], torch.Tensor]:
        """Return the outputs of the hidden layer and the embedding (B, 32), and the logits, of 64 features each."""
        hidden = F.relu(self.fc1(images.flatten(1)))  # (B, 64)
        embedding = F.relu(self.fc2(hidden))  # (B, 32)
        return (hidden, embedding), self.fc3(embedding)


class Logistic(LayeredModel):
    """Multinomial logistic regression: one linear layer, whose outputs are also the embedding. A convex loss."""

    def __init__(self, classes: int = 10, features: int = 784) -> None:
        super().__init__()
        self.classes = self.embedding_size = classes
        self.fc = nn.Linear(features, classes)

    def outputs(self, images: torch.Tensor) -> tuple[tuple[torch.Tensor, ...], torch.Tensor]:
        """Return the logits as the embedding, and the logits, of anything with so many features."""
        logits = self.fc(images.flatten(1))  # (B, C)
        return (logits,), logits
