"""The vision transformer: timm's tensors by name and shape, and its equations."""

import torch
import torch.nn.functional as F

from fedchain.learning.models.registry import build_model
from fedchain.learning.models.vit import VisionTransformer

OF_A_BLOCK = {
    "norm1.weight": (192,),
    "norm1.bias": (192,),
    "attn.qkv.weight": (576, 192),
    "attn.qkv.bias": (576,),
    "attn.proj.weight": (192, 192),
    "attn.proj.bias": (192,),
    "norm2.weight": (192,),
    "norm2.bias": (192,),
    "mlp.fc1.weight": (768, 192),
    "mlp.fc1.bias": (768,),
    "mlp.fc2.weight": (192, 768),
    "mlp.fc2.bias": (192,),
}
TIMM = (
    {"cls_token": (1, 1, 192), "pos_embed": (1, 197, 192)}
    | {"patch_embed.proj.weight": (192, 3, 16, 16), "patch_embed.proj.bias": (192,)}
    | {f"blocks.{block}.{name}": shape for block in range(12) for name, shape in OF_A_BLOCK.items()}
    | {"norm.weight": (192,), "norm.bias": (192,), "head.weight": (1000, 192), "head.bias": (1000,)}
)
"""The state of timm's vit_tiny_patch16_224."""


def test_its_tensors_are_timms() -> None:
    state = build_model("vit-tiny", 0, classes=1000, channels=3).state_dict()
    assert {name: tuple(value.shape) for name, value in state.items()} == TIMM
    assert sum(value.numel() for value in state.values()) == 5_717_416


def test_it_computes_what_torchs_own_layers_do() -> None:
    torch.manual_seed(0)
    model = VisionTransformer(classes=4, image_size=32, width=64, depth=2).eval()
    images = torch.randn(3, 3, 32, 32)
    tokens = F.conv2d(images, model.patch_embed.proj.weight, model.patch_embed.proj.bias, stride=16)
    tokens = torch.cat([model.cls_token.expand(3, 1, 64), tokens.flatten(2).transpose(1, 2)], 1) + model.pos_embed
    for block in model.blocks:
        layer = torch.nn.TransformerEncoderLayer(
            64, 1, 256, dropout=0.0, activation="gelu", layer_norm_eps=1e-6, batch_first=True, norm_first=True
        ).eval()
        state = {}
        for name, value in block.state_dict().items():
            renamed = name.replace("attn.qkv.", "self_attn.in_proj_").replace("attn.proj.", "self_attn.out_proj.")
            state[renamed.replace("mlp.fc", "linear")] = value
        layer.load_state_dict(state)
        tokens = layer(tokens)
    embedding, logits = model(images)
    torch.testing.assert_close(embedding, model.norm(tokens)[:, 0], atol=1e-5, rtol=1e-4)
    torch.testing.assert_close(logits, model.head(embedding))


def test_small_images_are_scaled_to_its_size() -> None:
    model = VisionTransformer(classes=4, image_size=32, width=64, depth=1).eval()
    images = torch.randn(2, 3, 8, 8)
    scaled = F.interpolate(images, (32, 32), mode="bilinear", align_corners=False)
    torch.testing.assert_close(model(images)[1], model(scaled)[1])
