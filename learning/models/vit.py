"""Vision transformers (Dosovitskiy et al., ICLR 2021), with the tensors of timm by name and shape.

B batch, C classes, D embedding, T tokens, H heads.
"""

import torch
import torch.nn.functional as F
from torch import nn

from fedchain.learning.models.base import Model

_EPSILON = 1e-6
"""The normalizations' epsilon, as in the authors' code."""


class VisionTransformer(Model):
    """ViT-Ti/16 at 224 pixels (Touvron et al., ICML 2021): 5,717,416 parameters for 1,000 classes.

    Images of another size are scaled to it first, by bilinear interpolation. The embedding is the class token's.
    """

    def __init__(
        self, classes: int = 10, channels: int = 3, *, image_size: int = 224, width: int = 192, depth: int = 12
    ) -> None:
        super().__init__()
        self.classes, self.embedding_size, self.image_size = classes, width, image_size
        self.patch_embed = _Patches(channels, width)
        tokens = 1 + (image_size // self.patch_embed.size) ** 2
        self.cls_token = nn.Parameter(torch.zeros(1, 1, width))
        self.pos_embed = nn.Parameter(torch.zeros(1, tokens, width))
        self.blocks = nn.Sequential(*(_Block(width, heads=width // 64) for _ in range(depth)))
        self.norm = nn.LayerNorm(width, eps=_EPSILON)
        self.head = nn.Linear(width, classes)
        nn.init.trunc_normal_(self.pos_embed, std=0.02)
        nn.init.normal_(self.cls_token, std=1e-6)
        for part in self.modules():
            if isinstance(part, nn.Linear):
                nn.init.trunc_normal_(part.weight, std=0.02)
                nn.init.zeros_(part.bias)

    def forward(self, images: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return embedding (B, D) and logits (B, C) of images (B, channels, height, width)."""
        size = (self.image_size, self.image_size)
        if images.shape[2:] != size:
            images = F.interpolate(images, size, mode="bilinear", align_corners=False)
        patches = self.patch_embed(images)  # (B, T - 1, D)
        tokens = torch.cat([self.cls_token.expand(len(images), -1, -1), patches], dim=1) + self.pos_embed
        embedding = self.norm(self.blocks(tokens))[:, 0]
        return embedding, self.head(embedding)


class _Patches(nn.Module):
    """Cuts images into squares, each of which becomes a token: (B, channels, h, w) -> (B, h w / 16^2, D)."""

    size = 16

    def __init__(self, channels: int, width: int) -> None:
        super().__init__()
        self.proj = nn.Conv2d(channels, width, self.size, stride=self.size)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        found: torch.Tensor = self.proj(images)
        return found.flatten(2).transpose(1, 2)


class _Block(nn.Module):
    """Attention and two layers, each behind a normalization and beside a way around: (B, T, D) -> (B, T, D)."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.norm1 = nn.LayerNorm(width, eps=_EPSILON)
        self.attn = _Attention(width, heads)
        self.norm2 = nn.LayerNorm(width, eps=_EPSILON)
        self.mlp = _Mlp(width)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        tokens = tokens + self.attn(self.norm1(tokens))
        result: torch.Tensor = tokens + self.mlp(self.norm2(tokens))
        return result


class _Attention(nn.Module):
    """Self-attention of several heads: (B, T, D) -> (B, T, D)."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(width, 3 * width)
        self.proj = nn.Linear(width, width)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        batch, count, width = tokens.shape
        parts = self.qkv(tokens).reshape(batch, count, 3, self.heads, width // self.heads).permute(2, 0, 3, 1, 4)
        query, key, value = parts.unbind(0)  # (B, H, T, D / H) each
        # Written out: torch's fused kernel knows no batches of models, and is not repeatable on every card.
        shares = (query @ key.transpose(-2, -1) * query.shape[-1] ** -0.5).softmax(dim=-1)  # (B, H, T, T)
        found = shares @ value
        result: torch.Tensor = self.proj(found.transpose(1, 2).reshape(batch, count, width))
        return result


class _Mlp(nn.Module):
    """Two layers, the hidden one four times as wide: (B, T, D) -> (B, T, D)."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.fc1 = nn.Linear(width, 4 * width)
        self.fc2 = nn.Linear(4 * width, width)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = self.fc2(F.gelu(self.fc1(tokens)))
        return result
