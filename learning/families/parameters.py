"""Methods whose clients train a common model and post its parameters. B batch, C classes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from numpy.typing import NDArray

from fedchain.files.effects import Needs
from fedchain.learning.compression.compressor import Compressor
from fedchain.learning.compression.int8 import Int8
from fedchain.learning.compression.top_k import CHUNK, TopK
from fedchain.learning.exceptions import ConfigurationError
from fedchain.learning.families.adapters import AdapterMethod
from fedchain.learning.method import Phase, validate_range
from fedchain.learning.models.model_info import ModelInfo
from fedchain.learning.models.parameters import load_parameters, parameter_spec, read_parameters
from fedchain.learning.payload.spec import TensorSpec
from fedchain.learning.round import Round, Tensors

if TYPE_CHECKING:
    import torch

    from fedchain.learning.client import Client, Forward
    from fedchain.learning.training.loop import Correction


@dataclass(frozen=True, kw_only=True)
class ParametersMethod(AdapterMethod):
    """Clients start each round from the common model, train it on cross-entropy, and post it whole."""

    compression: Literal["none", "int8", "topk", "sparse"] = "none"
    """Form of posts from the first common model on: none (whole models), or by how much they change it: int8 (a byte
    a number), topk (the compression_k largest of each 4,096 changes) or sparse (those, with 2 bits each)."""

    compression_k: Annotated[int, Needs("compression", ("topk", "sparse"))] = 256
    """topk and sparse: changes that are posted of each 4,096."""

    error_decay: Annotated[float, Needs("compression", ("topk", "sparse"))] = 1.0
    """topk and sparse: factor, each round, of the changes that a client still has to post; SparseLoCo takes 0.95."""

    uses_embedding: ClassVar[bool] = False
    shares_model: ClassVar[bool] = True

    def validate(self) -> None:
        """Raise `ConfigurationError` for a hyper-parameter outside its range, or a compression that a rule undoes."""
        super().validate()
        validate_range("compression_k", self.compression_k, 1, CHUNK)
        validate_range("error_decay", self.error_decay, 0.0, 1.0)
        rule, is_sparse = self.aggregation_rule, self.compression in ("topk", "sparse")
        if is_sparse and rule in ("median", "trimmed_mean") and not self.neighbour_mixing:
            raise ConfigurationError(
                f"{rule} of {self.compression} posts stands still: most of them change a coordinate not at all; set "
                "neighbour_mixing, or take another aggregation_rule or compression int8"
            )

    def update(self, client: Client, round: Round) -> Tensors:
        """Train locally, and post the model."""
        self.train(client, round, correct=self.correction(client))
        return self.post_model(client)

    def correction(self, client: Client) -> Correction | None:
        """Return what makes of each gradient the one that SGD takes (`loop.Correction`); None to leave gradients alone.

        A term of the loss that parameters alone decide belongs here, as its gradient. The client has just received.
        """
        return None

    @property
    def compressor(self) -> Compressor | None:
        """The compressor that `compression` names."""
        if self.compression in ("topk", "sparse"):
            is_quantized = self.compression == "sparse"
            return TopK(k=self.compression_k, is_quantized=is_quantized, error_decay=self.error_decay)
        return Int8() if self.compression == "int8" else None

    def receive(self, client: Client, round: Round) -> None:
        """Start the round from the common model."""
        if round.knowledge is not None:
            load_parameters(client.model, round.knowledge)

    def loss(self, forward: Forward, images: torch.Tensor, labels: torch.Tensor, given: Any) -> torch.Tensor:
        """Cross-entropy."""
        import torch.nn.functional as F

        _, logits = forward(images)  # (B, C)
        return F.cross_entropy(logits, labels)

    def post_model(self, client: Client) -> dict[str, NDArray[Any]]:
        """Return the client's parameters."""
        return read_parameters(client.model)

    def payload_spec(self, phase: Phase, info: ModelInfo) -> tuple[TensorSpec, ...]:
        """The model's tensors."""
        return parameter_spec(info)

    def knowledge_spec(self, phase: Phase, info: ModelInfo) -> tuple[TensorSpec, ...]:
        """The model's tensors, and residuals of frozen ones."""
        return (*parameter_spec(info), *self.residual_spec(info))
