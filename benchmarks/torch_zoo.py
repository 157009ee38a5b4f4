"""Kinds of models of torch.nn, of small sizes: what runs here without tuning, whether it is right, and what stays.

    python benchmarks/torch_zoo.py [resnet vit ...]

Each model is compiled from an empty database by ``torch.compile(model, backend="stridesmith")``, whose kernels take the
place of PyTorch's operators whatever the races say, and is called twice.  `error` is the largest difference from eager
PyTorch, of the largest number of a result; what models write in place counts as a result.  `operators` are those of
ATen in all graphs and those that became part of kernels; `stays` says of the others why they stay with PyTorch.
"""

from __future__ import annotations

import argparse
import copy
import os
import tempfile
import time
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch_networks import resnet

WIDTH, HEADS = 64, 4


class ConvNext(nn.Module):
    """A block: depthwise 7x7, a normalisation and two products with channels last, a scale for each channel."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.depthwise = nn.Conv2d(width, width, 7, padding=3, groups=width)
        self.norm = nn.LayerNorm(width, eps=1e-6)
        self.wide, self.narrow = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.scale = nn.Parameter(torch.full((width,), 0.1))

    def forward(self, x: Tensor) -> Tensor:
        y = self.norm(self.depthwise(x).permute(0, 2, 3, 1))
        y = self.scale * self.narrow(F.gelu(self.wide(y)))
        return x + y.permute(0, 3, 1, 2)


def convnext() -> nn.Module:
    stem = nn.Conv2d(3, 32, 4, 4)
    down = nn.Sequential(nn.GroupNorm(1, 32), nn.Conv2d(32, 64, 2, 2))
    head = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(1), nn.Linear(64, 10))
    return nn.Sequential(stem, ConvNext(32), down, ConvNext(64), head)


class Attention(nn.Module):
    """Attention of several heads, with keys and values of one or more heads of queries each."""

    def __init__(self, width: int, heads: int, shared: int = 1) -> None:
        super().__init__()
        self.heads, self.shared, self.size = heads, shared, width // heads
        self.query, self.out = nn.Linear(width, width), nn.Linear(width, width)
        self.both = nn.Linear(width, 2 * width // shared)

    def parts(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Queries, keys and values, by heads."""
        batch, length, _ = x.shape
        q = self.query(x).view(batch, length, self.heads, self.size).transpose(1, 2)
        kv = self.both(x).view(batch, length, 2, self.heads // self.shared, self.size)
        k, v = kv.permute(2, 0, 3, 1, 4).unbind(0)
        return q, k, v

    def joined(self, mixed: Tensor) -> Tensor:
        batch, _, length, _ = mixed.shape
        found: Tensor = self.out(mixed.transpose(1, 2).reshape(batch, length, -1))
        return found

    def forward(self, x: Tensor) -> Tensor:
        return self.joined(F.scaled_dot_product_attention(*self.parts(x)))


class Block(nn.Module):
    """Attention and two products, each after a normalisation and beside a shortcut."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention = Attention(width, heads)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attention(self.first(x))
        return x + self.mlp(self.second(x))


class Vit(nn.Module):
    """Patches of 8x8, a class token, learnt positions and two blocks."""

    def __init__(self) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, WIDTH, 8, 8)
        self.token, self.places = nn.Parameter(torch.randn(1, 1, WIDTH)), nn.Parameter(torch.randn(1, 17, WIDTH))
        self.blocks = nn.Sequential(Block(WIDTH, HEADS), Block(WIDTH, HEADS), nn.LayerNorm(WIDTH))
        self.head = nn.Linear(WIDTH, 10)

    def forward(self, x: Tensor) -> Tensor:
        y = self.patches(x).flatten(2).transpose(1, 2)
        y = torch.cat([self.token.expand(len(x), -1, -1), y], 1) + self.places
        return self.head(self.blocks(y)[:, 0])


class Tagger(nn.Module):
    """Two layers of an LSTM in both directions, and a tag for each word."""

    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(100, 32)
        self.layers = nn.LSTM(32, 24, 2, bidirectional=True, batch_first=True)
        self.tags = nn.Linear(48, 9)

    def forward(self, words: Tensor) -> Tensor:
        return self.tags(self.layers(self.words(words))[0]).log_softmax(-1)


def turned(x: Tensor, places: Tensor) -> Tensor:
    """Rotary positions: pairs of elements turned by angles of their place."""
    half = x.shape[-1] // 2
    angles = places[:, None] * 10000.0 ** (-torch.arange(half) / half)
    cos, sin = angles.cos(), angles.sin()
    a, b = x[..., :half], x[..., half:]
    return torch.cat([a * cos - b * sin, a * sin + b * cos], -1)


class GptBlock(nn.Module):
    """A block of a decoder with shared keys, rotary positions and a gated network."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.RMSNorm(WIDTH), nn.RMSNorm(WIDTH)
        self.attention = Attention(WIDTH, HEADS, shared=2)
        self.wide, self.narrow = nn.Linear(WIDTH, 4 * WIDTH, bias=False), nn.Linear(2 * WIDTH, WIDTH, bias=False)

    def parts(self, x: Tensor, places: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        q, k, v = self.attention.parts(self.first(x))
        return turned(q, places), turned(k, places), v

    def rest(self, x: Tensor, mixed: Tensor) -> Tensor:
        x = x + self.attention.joined(mixed)
        a, b = self.wide(self.second(x)).chunk(2, -1)
        return x + self.narrow(F.silu(a) * b)


class Decoder(nn.Module):
    """Two blocks between words and the scores of the next one."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.last = nn.Embedding(100, WIDTH), nn.RMSNorm(WIDTH)
        self.blocks = nn.ModuleList(GptBlock() for _ in range(2))


class Growing(Decoder):
    """A decoder whose keys and values of earlier words come and go, longer by one word."""

    def forward(self, word: Tensor, *cache: Tensor) -> tuple[Tensor, ...]:
        x, seen, longer = self.words(word), cache[0].shape[2], []
        places = torch.arange(seen, seen + word.shape[1])
        for at, block in enumerate(self.blocks):
            q, k, v = block.parts(x, places)
            k, v = torch.cat([cache[2 * at], k], 2), torch.cat([cache[2 * at + 1], v], 2)
            longer += [k, v]
            mask = torch.arange(k.shape[2]) <= places[:, None]
            x = block.rest(x, F.scaled_dot_product_attention(q, k, v, attn_mask=mask, enable_gqa=True))
        return (self.last(x) @ self.words.weight.T, *longer)


class Static(Decoder):
    """A decoder with memory for the keys and values of all words, of which each call writes one place."""

    def __init__(self, longest: int = 32) -> None:
        super().__init__()
        shape = (1, HEADS // 2, longest, WIDTH // HEADS)
        for name in ("k0", "v0", "k1", "v1"):
            self.register_buffer(name, torch.zeros(shape))

    def forward(self, word: Tensor, place: Tensor) -> tuple[Tensor, ...]:
        x = self.words(word)
        for at, block in enumerate(self.blocks):
            q, k, v = block.parts(x, place)
            keys, values = getattr(self, f"k{at}"), getattr(self, f"v{at}")
            keys.index_copy_(2, place, k)
            values[:, :, place] = v
            mask = torch.arange(keys.shape[2]) <= place[:, None]
            x = block.rest(x, F.scaled_dot_product_attention(q, keys, values, attn_mask=mask, enable_gqa=True))
        return (self.last(x) @ self.words.weight.T,)


def twice(ci: int, co: int) -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(ci, co, 3, padding=1), nn.InstanceNorm2d(co, affine=True), nn.LeakyReLU(0.01),
        nn.Conv2d(co, co, 3, padding=1), nn.BatchNorm2d(co), nn.ReLU(),
    )  # fmt: skip


class Unet(nn.Module):
    """Two levels down and up, by a transposed convolution and by bilinear interpolation."""

    def __init__(self) -> None:
        super().__init__()
        self.down = nn.ModuleList([twice(3, 8), twice(8, 16), twice(16, 32)])
        self.up, self.first, self.second = nn.ConvTranspose2d(32, 16, 2, 2), twice(32, 16), twice(24, 8)
        self.out = nn.Conv2d(8, 2, 1)

    def forward(self, x: Tensor) -> Tensor:
        a = self.down[0](x)
        b = self.down[1](F.max_pool2d(a, 2))
        c = self.down[2](F.max_pool2d(b, 2))
        y = self.first(torch.cat([self.up(c), b], 1))
        y = F.interpolate(y, scale_factor=2, mode="bilinear", align_corners=False)
        return self.out(self.second(torch.cat([y, a], 1)))


class Squeeze(nn.Module):
    """An expansion, a depthwise convolution, a factor for each channel and a projection (MBConv)."""

    def __init__(self, ci: int, co: int, stride: int) -> None:
        super().__init__()
        wide = 4 * ci
        self.body = nn.Sequential(
            nn.Conv2d(ci, wide, 1, bias=False), nn.BatchNorm2d(wide), nn.SiLU(),
            nn.Conv2d(wide, wide, 5, stride, 2, groups=wide, bias=False), nn.BatchNorm2d(wide), nn.SiLU(),
        )  # fmt: skip
        self.factor = nn.Sequential(
            nn.AdaptiveAvgPool2d(1), nn.Conv2d(wide, ci // 2, 1), nn.SiLU(), nn.Conv2d(ci // 2, wide, 1), nn.Sigmoid()
        )
        self.last = nn.Sequential(nn.Conv2d(wide, co, 1, bias=False), nn.BatchNorm2d(co))
        self.adds = stride == 1 and ci == co

    def forward(self, x: Tensor) -> Tensor:
        y = self.body(x)
        y = self.last(y * self.factor(y))
        return x + y if self.adds else y


def efficientnet() -> nn.Module:
    stem = nn.Sequential(nn.Conv2d(3, 16, 3, 2, 1, bias=False), nn.BatchNorm2d(16), nn.SiLU())
    body = nn.Sequential(Squeeze(16, 16, 1), Squeeze(16, 24, 2), Squeeze(24, 24, 1))
    return nn.Sequential(stem, body, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Dropout(0.2), nn.Linear(24, 10))


class Mixer(nn.Module):
    """A block that mixes places, and then channels."""

    def __init__(self, places: int, width: int) -> None:
        super().__init__()
        self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)
        self.across = nn.Sequential(nn.Linear(places, 2 * places), nn.GELU(), nn.Linear(2 * places, places))
        self.along = nn.Sequential(nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width))

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.across(self.first(x).transpose(1, 2)).transpose(1, 2)
        return x + self.along(self.second(x))


class Mixers(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, 48, 8, 8)
        self.blocks = nn.Sequential(Mixer(16, 48), Mixer(16, 48), nn.LayerNorm(48))
        self.head = nn.Linear(48, 10)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.blocks(self.patches(x).flatten(2).transpose(1, 2)).mean(1))


def image(size: int = 32) -> Tensor:
    return torch.randn(1, 3, size, size)


def words(count: int) -> Tensor:
    return torch.randint(0, 100, (1, count))


def empty_caches(length: int) -> list[Tensor]:
    return [torch.randn(1, HEADS // 2, length, WIDTH // HEADS) for _ in range(4)]


MODELS: dict[str, tuple[Callable[[], nn.Module], Callable[[], Sequence[Sequence[Any]]]]] = {
    "resnet channels_last": (
        lambda: resnet((1, 1), 8, 10).to(memory_format=torch.channels_last),
        lambda: [[image().to(memory_format=torch.channels_last)] for _ in range(2)],
    ),
    "convnext": (convnext, lambda: [[image()] for _ in range(2)]),
    "vit": (Vit, lambda: [[image()] for _ in range(2)]),
    "lstm tagger": (Tagger, lambda: [[words(7)] for _ in range(2)]),
    "gpt, growing": (Growing, lambda: [[words(1), *empty_caches(n)] for n in (8, 9)]),
    "gpt, in place": (Static, lambda: [[words(1), torch.tensor([n])] for n in (0, 1)]),
    "unet": (Unet, lambda: [[image()] for _ in range(2)]),
    "efficientnet": (efficientnet, lambda: [[image()] for _ in range(2)]),
    "mixer": (Mixers, lambda: [[image()] for _ in range(2)]),
}
"""How to make each model, and the arguments of the calls that follow each other."""


def made(name: str) -> tuple[nn.Module, Sequence[Sequence[Any]]]:
    """A model in inference, with statistics that are not 0 and 1, and the arguments of its calls."""
    torch.manual_seed(0)
    make, calls = MODELS[name]
    model = make().eval()
    for key, buffer in model.named_buffers():
        if key.endswith("running_var"):
            buffer.copy_(torch.rand_like(buffer) + 0.5)
        elif key.endswith("running_mean"):
            buffer.copy_(torch.randn_like(buffer) * 0.1)
    return model, calls()


def results(value: Any, model: nn.Module) -> list[Tensor]:
    """What a call gives, and what it may have written."""
    given = [value] if isinstance(value, Tensor) else list(value)
    return [*given, *(buffer.clone() for buffer in model.buffers())]


def row(name: str) -> str:
    """One line of the table."""
    import stridesmith as ss
    from stridesmith.pytorch import dynamo
    from stridesmith.pytorch.race import Race

    model, calls = made(name)
    theirs = copy.deepcopy(model)
    seen: list[Any] = []
    divide = dynamo.divide

    def spied(*given: Any, **named: Any) -> Any:
        found = divide(*given, **named)
        seen.append(found)
        return found

    def won(ours: Callable[[], Any], others: Callable[[], Any]) -> Race:
        ours(), others()
        return Race(1.0, 2.0)

    dynamo.divide = spied
    began, worst = time.process_time(), 0.0
    mine = torch.compile(model, backend=ss.torch.backend, options={"threads": 1, "race": won}, dynamic=False)
    try:
        with torch.no_grad(), torch._dynamo.config.patch(allow_rnn=True):
            for arguments in calls:
                pairs = zip(results(mine(*arguments), model), results(theirs(*arguments), theirs), strict=True)
                for found, right in pairs:
                    apart = (found - right).abs().max() / right.abs().max().clamp(min=1e-30)
                    worst = max(worst, float(apart))
                    assert found.stride() == right.stride(), (name, found.stride(), right.stride())
    finally:
        dynamo.divide = divide
    left = dict.fromkeys(why for found in seen for why in found.refused.values())
    here = sum(len(part.module.graph.nodes) for found in seen for part in found.parts)
    kernels = sum(len(part.network.nodes) for found in seen for part in found.parts)
    parts = sum(len(found.parts) for found in seen)
    outside = sum(
        node.op == "call_function" and "aten" in str(node.target) for found in seen for node in found.module.graph.nodes
    )
    spent = time.process_time() - began
    stays = "; ".join(left) or "nothing"
    return f"| {name} | {len(seen)} | {parts} | {kernels} | {here} | {outside} | {worst:.1e} | {spent:.1f} | {stays} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="*", default=list(MODELS))
    asked = parser.parse_args()
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        os.environ["STRIDESMITH_DB"] = f"{folder}/empty.db"
        print("| model | graphs | parts | kernels | nodes in parts | nodes outside | error | processor s | stays |")
        print("|---|---|---|---|---|---|---|---|---|")
        for name in asked.models:
            torch._dynamo.reset()
            try:
                print(row(name), flush=True)
            except Exception as error:  # the other models have rows
                print(f"| {name} | {type(error).__name__}: {str(error)[:200]} |", flush=True)


if __name__ == "__main__":
    main()
