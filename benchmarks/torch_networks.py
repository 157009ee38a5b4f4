"""ResNet-50, MobileNetV2 and a layer of BERT in plain torch.nn, with seeded weights."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional as F


class Bottleneck(nn.Module):
    """1x1, 3x3 and 1x1 convolutions beside a shortcut."""

    def __init__(self, ci: int, width: int, stride: int) -> None:
        super().__init__()
        co = 4 * width
        self.body = nn.Sequential(
            nn.Conv2d(ci, width, 1, bias=False), nn.BatchNorm2d(width), nn.ReLU(inplace=True),
            nn.Conv2d(width, width, 3, stride, 1, bias=False), nn.BatchNorm2d(width), nn.ReLU(inplace=True),
            nn.Conv2d(width, co, 1, bias=False), nn.BatchNorm2d(co),
        )  # fmt: skip
        short = nn.Sequential(nn.Conv2d(ci, co, 1, stride, bias=False), nn.BatchNorm2d(co))
        self.short = nn.Identity() if stride == 1 and ci == co else short

    def forward(self, x: Tensor) -> Tensor:
        return F.relu(self.body(x) + self.short(x))


def resnet(depths: tuple[int, ...] = (3, 4, 6, 3), width: int = 64, classes: int = 1000) -> nn.Module:
    """ResNet-50, or a smaller one of its kind."""
    stem = [nn.Conv2d(3, width, 7, 2, 3, bias=False), nn.BatchNorm2d(width), nn.ReLU(inplace=True)]
    layers: list[nn.Module] = [*stem, nn.MaxPool2d(3, 2, 1)]
    channels = width
    for stage, depth in enumerate(depths):
        for block in range(depth):
            layers.append(Bottleneck(channels, width << stage, 2 if stage and not block else 1))
            channels = 4 * (width << stage)
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, classes))


class Inverted(nn.Module):
    """An expansion, a depthwise convolution and a projection, with a shortcut where shapes allow one."""

    def __init__(self, ci: int, co: int, stride: int, expand: int) -> None:
        super().__init__()
        wide = ci * expand
        first = [nn.Conv2d(ci, wide, 1, bias=False), nn.BatchNorm2d(wide), nn.ReLU6(inplace=True)] if expand > 1 else []
        self.body = nn.Sequential(
            *first, nn.Conv2d(wide, wide, 3, stride, 1, groups=wide, bias=False), nn.BatchNorm2d(wide),
            nn.ReLU6(inplace=True), nn.Conv2d(wide, co, 1, bias=False), nn.BatchNorm2d(co),
        )  # fmt: skip
        self.adds = stride == 1 and ci == co

    def forward(self, x: Tensor) -> Tensor:
        return x + self.body(x) if self.adds else self.body(x)


MOBILE = ((1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1))
"""Expansion, channels, blocks and first stride of each stage."""


def mobilenet(stages: tuple[tuple[int, int, int, int], ...] = MOBILE, last: int = 1280) -> nn.Module:
    """MobileNetV2, or the first stages of it."""
    layers: list[nn.Module] = [nn.Conv2d(3, 32, 3, 2, 1, bias=False), nn.BatchNorm2d(32), nn.ReLU6(inplace=True)]
    channels = 32
    for expand, co, blocks, stride in stages:
        for block in range(blocks):
            layers.append(Inverted(channels, co, 1 if block else stride, expand))
            channels = co
    layers += [nn.Conv2d(channels, last, 1, bias=False), nn.BatchNorm2d(last), nn.ReLU6(inplace=True)]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(last, 1000))


class BertLayer(nn.Module):
    """Attention of several heads and a network of two layers, each with a shortcut and a normalisation."""

    def __init__(self, width: int = 768, heads: int = 12) -> None:
        super().__init__()
        self.heads = heads
        self.query, self.key, self.value, self.out = (nn.Linear(width, width) for _ in range(4))
        self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)
        self.wide, self.narrow = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        batch, length, width = x.shape
        q, k, v = (
            part(x).view(batch, length, self.heads, width // self.heads).transpose(1, 2)
            for part in (self.query, self.key, self.value)
        )
        mixed = F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(batch, length, width)
        x = self.first(x + self.out(mixed))
        return self.second(x + self.narrow(F.gelu(self.wide(x))))


NETWORKS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "resnet50": (resnet, (1, 3, 224, 224)),
    "mobilenetv2": (mobilenet, (1, 3, 224, 224)),
    "bert_layer": (BertLayer, (1, 128, 768)),
    "small_mlp": (lambda: nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 8)), (1, 16)),
    "small_resnet": (lambda: resnet((1, 1), 8, 10), (1, 3, 32, 32)),
    "small_bert": (lambda: BertLayer(32, 2), (1, 12, 32)),
}


def network(name: str) -> tuple[nn.Module, Tensor]:
    """A network in inference, with statistics that are not 0 and 1, and an input."""
    torch.manual_seed(0)
    make, shape = NETWORKS[name]
    module = make().eval()
    for key, buffer in module.named_buffers():
        if buffer.is_floating_point():
            buffer.copy_(torch.rand_like(buffer) + 0.5 if key.endswith("var") else torch.randn_like(buffer) * 0.1)
    return module, torch.randn(shape)
